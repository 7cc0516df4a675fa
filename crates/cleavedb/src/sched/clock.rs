//! Monotonic time, and the processor time of threads. In a simulation time is virtual: a wait of an hour costs nothing, and
//! every run sees the same times.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::world;

/// Time since the first call in this process. In a simulation, the virtual time since the start of the world, which advances
/// by a small fixed step at each yield point, and to the next deadline if every thread waits.
pub fn now() -> Duration {
    if let Some(member) = world::current() {
        return member.now();
    }
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// The time for which processors have run the calling thread. Always zero in a simulation, which would otherwise not be
/// repeatable.
pub fn thread_cpu_time() -> Duration {
    if world::current().is_some() {
        return Duration::ZERO;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    // Neither is ever negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_monotonic() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now() >= before + Duration::from_millis(2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no clock of threads")]
    fn the_processor_time_of_a_thread_grows_while_it_works_and_not_while_it_sleeps() {
        let before = thread_cpu_time();
        let began = now();
        while thread_cpu_time() == before {
            std::hint::black_box((0..1000).sum::<u64>());
            assert!(now() - began < Duration::from_secs(600), "no processor time was counted");
        }
        let worked = thread_cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        assert!(thread_cpu_time() - worked < Duration::from_millis(50));
    }
}
