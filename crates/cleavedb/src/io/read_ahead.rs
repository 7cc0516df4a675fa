//! Memory for reading ahead: who moves forward through a file asks for room, and gets the more the less others have taken.
//! With n readers at work each ends up with about a part in n + 4. A database has two pools: one that its jobs share, and
//! one for users' scans, which keep what they took for as long as they stand still.
//!
//! Called by table cursors.

use std::sync::Arc;

use crate::base::Gauge;
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::memory::Counted;

/// One read ahead covers at most this much.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// A bounded amount of memory for reading ahead.
pub struct ReadAhead {
    bytes_max: usize,
    taken: Arc<Gauge>,
    /// Where the memory is counted beside this.
    gauge: Arc<Gauge>,
}

/// Room that was taken, until it is dropped.
pub struct Room {
    taken: Counted,
    _counted: Counted,
}

impl ReadAhead {
    /// At most `bytes_max` together, counted in `gauge` as well.
    pub fn new(bytes_max: usize, gauge: Arc<Gauge>) -> ReadAhead {
        ReadAhead { bytes_max, taken: Arc::default(), gauge }
    }

    /// What readers have now, in bytes.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.taken.get()
    }

    /// Room for `bytes` at most, or a good part of what is left; perhaps nothing. A power of two, so that a reader that
    /// asks again mostly gets as much as before.
    pub fn take(&self, bytes: usize) -> Room {
        let left = self.bytes_max.saturating_sub(self.taken.get());
        let bytes = match bytes.min(left / 4).min(AHEAD_BYTES_MAX) {
            bytes if bytes < BLOCK_IO_BYTES => 0,
            bytes => 1 << bytes.ilog2(),
        };
        Room { taken: self.taken.hold(bytes), _counted: self.gauge.hold(bytes) }
    }
}

impl Room {
    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.taken.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_what_there_is_and_none_takes_all() {
        let gauge = Arc::new(Gauge::default());
        let ahead = ReadAhead::new(8 << 20, gauge.clone());
        assert_eq!(ahead.take(10 << 20).bytes(), 1 << 20);
        let mut rooms: Vec<Option<Room>> = (0..30).map(|_| Some(ahead.take(1 << 20))).collect();
        assert!(gauge.get() <= 8 << 20);
        // Each reads on: gives its room back and takes another.
        for _ in 0..5 {
            for room in &mut rooms {
                *room = None;
                *room = Some(ahead.take(1 << 20));
            }
        }
        let sizes: Vec<usize> = rooms.iter().flatten().map(Room::bytes).collect();
        assert!(sizes.iter().all(|&bytes| (128 << 10..=512 << 10).contains(&bytes)), "{sizes:?}");
        drop(rooms);
        assert_eq!(gauge.get(), 0);
    }
}
