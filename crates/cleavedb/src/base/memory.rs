//! Where memory is counted. A [`Gauge`] is a number of bytes that its holders raise and lower.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared count of bytes.
#[derive(Debug, Default)]
pub struct Gauge(AtomicUsize);

impl Gauge {
    /// Bytes counted now.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` more.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` less.
    pub fn subtract(&self, bytes: usize) {
        let before = self.0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "a gauge never falls below zero");
    }
}
