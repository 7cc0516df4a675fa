//! Monotonic time. In a simulation it is virtual: a wait of an hour costs nothing, and every run sees the same times.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_monotonic() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now() >= before + Duration::from_millis(2));
    }
}
