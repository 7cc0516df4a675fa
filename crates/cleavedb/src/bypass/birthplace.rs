//! Where the next log is born: a pure function. Ordinarily on the fast tier. While writers go around the work that is behind, it is
//! born on the KV device, if there is one with room, and if memory can take the keys. Otherwise a log that would soon have to leave
//! the fast tier is born on the slow one, if that has bandwidth to spare: it needs no copy then (a log's tier is only a property of
//! the file).

/// A tier with more than this share of its time in use has no bandwidth to spare.
const BUSY_FROM: f64 = 0.9;

/// A front filled to this part takes records no faster than flushes empty it, wherever their logs lie. A device would gain nothing
/// then, and cost a copy of what is born there: it counts as full.
pub const FRONT_FULL_FROM: f64 = 0.75;

/// A place for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Birthplace {
    Fast,
    /// If this fails for want of space, the fast tier.
    Slow,
    /// The same.
    Device,
}

/// What the choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Tiers {
    /// Writers go around.
    pub redirects: bool,
    /// There is a device that logs are born on, and it has room for one.
    pub device_has_room: bool,
    /// The part of the front's memory that is in use: it has the keys of all that was not flushed.
    pub front_fill: f64,
    /// The fast tier is so full that another log would have to leave it soon.
    pub fast_wants_room: bool,
    /// The share of the time that the devices were in use; `None` if it is not known.
    pub fast_busy: Option<f64>,
    pub slow_busy: Option<f64>,
}

impl Tiers {
    /// The next log is born on the device, whatever the tiers are like.
    pub fn use_device(&self) -> bool {
        self.redirects && self.device_has_room && self.front_fill < FRONT_FULL_FROM
    }
}

/// The place for the next log.
pub fn birthplace(tiers: &Tiers) -> Birthplace {
    let is_idler = match (tiers.fast_busy, tiers.slow_busy) {
        (Some(fast), Some(slow)) => slow <= fast.max(BUSY_FROM),
        // Demotion would write the same bytes there.
        _ => true,
    };
    match tiers.redirects {
        true if tiers.use_device() => Birthplace::Device,
        true if tiers.fast_wants_room && is_idler => Birthplace::Slow,
        _ => Birthplace::Fast,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_born_elsewhere_only_while_writers_go_around_and_where_it_saves_a_copy_or_a_wait() {
        use Birthplace::{Device, Fast, Slow};
        let cases = [
            // Redirects, the fast tier wants room, busy shares of fast and slow.
            (false, true, Some(1.0), Some(0.0), Fast),
            (true, false, Some(1.0), Some(0.0), Fast),
            (true, true, Some(0.5), Some(0.2), Slow),
            (true, true, Some(0.5), Some(0.9), Slow),
            (true, true, Some(0.5), Some(0.95), Fast),
            (true, true, Some(1.0), Some(1.0), Slow),
            (true, true, None, Some(1.0), Slow),
            (true, true, None, None, Slow),
        ];
        for (redirects, fast_wants_room, fast_busy, slow_busy, place) in cases {
            let device_has_room = false;
            let tiers = Tiers { redirects, device_has_room, front_fill: 0.0, fast_wants_room, fast_busy, slow_busy };
            assert_eq!(birthplace(&tiers), place, "{tiers:?}");
            let on_device = if redirects { Device } else { Fast };
            // Room on the device, the fill of the front.
            let cases = [
                (true, 0.0, on_device),
                (true, 0.74, on_device),
                (true, 0.75, place),
                (true, 1.0, place),
                (false, 0.0, place),
                (false, 1.0, place),
            ];
            for (device_has_room, front_fill, place) in cases {
                let tiers = Tiers { device_has_room, front_fill, ..tiers };
                assert_eq!(birthplace(&tiers), place, "{tiers:?}");
            }
        }
    }
}
