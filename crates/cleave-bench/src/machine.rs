//! A one-line description of the machine and the commit of this program, which every result includes.

use std::fs;
use std::thread;

use crate::size;

/// The commit that this program was built from, with `-dirty` if its sources differed from it.
pub const COMMIT: &str = env!("COMMIT");

/// Processor, threads, memory and kernel, as far as /proc has them.
pub fn describe() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown");
        line.trim_start_matches([' ', '\t', ':']).trim().to_owned()
    };
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let kib = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0u64);
    let memory = size::human(kib << 10);
    let threads = thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processor}, {threads} hardware threads, {memory} of memory, Linux {}", kernel.trim())
}
