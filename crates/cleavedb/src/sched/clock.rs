//! Time. Monotonic; in a simulation virtual, so that a wait of an hour costs nothing and every run sees the same times.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::world;

/// Time since the first call in this process; in a simulation the world's virtual time since its start, which moves
/// only when every thread waits, and by a small fixed step at each yield point.
pub fn now() -> Duration {
    if let Some(here) = world::current() {
        return here.now();
    }
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(now() >= before + Duration::from_millis(2));
    }
}
