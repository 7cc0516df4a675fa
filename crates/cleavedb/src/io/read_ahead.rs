//! Memory for read-ahead. A sequential reader reserves memory from a pool, and gets more of it the less other readers have
//! reserved: with n active readers each ends up with about 1 / (n + 4) of the pool. A database has two pools: one that its
//! jobs share, and one for users' scans, which keep their reservation while they stand still.
//!
//! Called by table cursors.

use std::sync::Arc;

use crate::base::Gauge;
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::memory::Counted;

/// Size limit of one read-ahead.
const RESERVATION_BYTES_MAX: usize = 1 << 20;

/// A pool of memory for read-ahead.
pub struct ReadAhead {
    bytes_max: usize,
    reserved: Arc<Gauge>,
    /// Also counts the memory, together with other uses.
    gauge: Arc<Gauge>,
}

/// Memory reserved from a pool, until it is dropped.
pub struct Reservation {
    reserved: Counted,
    _counted: Counted,
}

impl ReadAhead {
    /// A pool of `bytes_max` bytes, which are also counted in `gauge`.
    pub fn new(bytes_max: usize, gauge: Arc<Gauge>) -> ReadAhead {
        ReadAhead { bytes_max, reserved: Arc::default(), gauge }
    }

    /// Its size in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that readers hold now.
    #[cfg(test)]
    pub fn reserved_bytes(&self) -> usize {
        self.reserved.get()
    }

    /// Reserves up to `bytes`, but at most a quarter of the free memory, so possibly nothing. The size is a power of two, so
    /// that repeated reservations of a reader usually have the same size.
    pub fn reserve(&self, bytes: usize) -> Reservation {
        self.reserve_within(self.bytes_max, bytes)
    }

    /// The same for a second buffer, while readers hold less than half of the pool: without memory for its first one a reader would
    /// read block by block.
    pub fn reserve_second(&self, bytes: usize) -> Reservation {
        self.reserve_within(self.bytes_max / 2, bytes)
    }

    fn reserve_within(&self, most: usize, bytes: usize) -> Reservation {
        let left = most.saturating_sub(self.reserved.get());
        let bytes = match bytes.min(left / 4).min(RESERVATION_BYTES_MAX) {
            bytes if bytes < BLOCK_IO_BYTES => 0,
            bytes => 1 << bytes.ilog2(),
        };
        Reservation { reserved: self.reserved.hold(bytes), _counted: self.gauge.hold(bytes) }
    }
}

impl Reservation {
    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.reserved.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_buffers_leave_half_of_the_pool_to_first_ones() {
        let pool = ReadAhead::new(4 << 20, Arc::default());
        let mut second: Vec<Reservation> = (0..100).map(|_| pool.reserve_second(1 << 20)).collect();
        assert!((1 << 20..=2 << 20).contains(&pool.reserved_bytes()), "{}", pool.reserved_bytes());
        assert_eq!(pool.reserve(1 << 20).bytes(), 512 << 10);
        let _first: Vec<Reservation> = (0..20).map(|_| pool.reserve(1 << 20)).collect();
        second.clear();
        assert!(pool.reserve_second(1 << 20).bytes() < 64 << 10, "readers that hold half of the pool have all of it");
    }

    #[test]
    fn readers_share_the_pool_and_none_exhausts_it() {
        let gauge = Arc::new(Gauge::default());
        let pool = ReadAhead::new(8 << 20, gauge.clone());
        assert_eq!(pool.reserve(10 << 20).bytes(), 1 << 20);
        let mut reservations: Vec<Option<Reservation>> = (0..30).map(|_| Some(pool.reserve(1 << 20))).collect();
        assert!(gauge.get() <= 8 << 20);
        // Each reader goes on: it drops its reservation and makes another.
        for _ in 0..5 {
            for reservation in &mut reservations {
                *reservation = None;
                *reservation = Some(pool.reserve(1 << 20));
            }
        }
        let sizes: Vec<usize> = reservations.iter().flatten().map(Reservation::bytes).collect();
        assert!(sizes.iter().all(|&bytes| (128 << 10..=512 << 10).contains(&bytes)), "{sizes:?}");
        drop(reservations);
        assert_eq!(gauge.get(), 0);
    }
}
