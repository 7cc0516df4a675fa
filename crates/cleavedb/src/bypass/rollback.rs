//! When logs leave the device on which they were born (rollback): a pure function. Until then they are read there, so that the time
//! to move them can be chosen.

/// When what writers have put on a device during redirects moves to the tiers ([`Bypass::Device`](crate::Bypass::Device)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rollback {
    /// As soon as a redirect is over: reads that need the device become rare. The default.
    #[default]
    Eager,
    /// When the write phase is over: no background work has been necessary for a second, or the database is closed; or when the
    /// device is three quarters full and no redirect goes on. Rollback then takes no bandwidth from writers.
    Lazy,
}

/// A device is nearly full from this part on.
const FULL_FROM: f64 = 0.75;

/// What the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    pub rollback: Rollback,
    /// Writers go around.
    pub redirects: bool,
    /// No background work has been necessary for a while.
    pub is_idle: bool,
    /// The database is being closed.
    pub is_closing: bool,
    /// The part of the device that is in use.
    pub device_fill: f64,
}

/// True if logs are to leave the device now.
pub fn rollback_is_due(phase: &Phase) -> bool {
    let Phase { rollback, redirects, is_idle, is_closing, device_fill } = *phase;
    let is_over = match rollback {
        Rollback::Eager => !redirects,
        Rollback::Lazy => !redirects && device_fill > FULL_FROM,
    };
    is_closing || is_idle || is_over
}

#[cfg(test)]
mod tests {
    use super::Rollback::{Eager, Lazy};
    use super::*;

    #[test]
    fn logs_leave_the_device_when_pressure_is_low_or_when_the_write_phase_is_over() {
        let cases = [
            // Redirects, idle, closing, fill of the device: due if eager, due if lazy.
            (true, false, false, 0.1, false, false),
            (true, false, false, 1.0, false, false),
            (false, false, false, 0.1, true, false),
            (false, false, false, 0.76, true, true),
            (true, true, false, 0.1, true, true),
            (false, true, false, 0.1, true, true),
            (true, false, true, 0.1, true, true),
        ];
        for (redirects, is_idle, is_closing, device_fill, eager, lazy) in cases {
            for (rollback, due) in [(Eager, eager), (Lazy, lazy)] {
                let phase = Phase { rollback, redirects, is_idle, is_closing, device_fill };
                assert_eq!(rollback_is_due(&phase), due, "{phase:?}");
            }
        }
    }
}
