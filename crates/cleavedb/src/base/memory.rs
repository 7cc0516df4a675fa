//! Where memory is counted. A [`Gauge`] is a number of bytes that its holders raise and lower.

use std::sync::Arc;
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

impl Gauge {
    /// Counts `bytes` until what is returned is dropped.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Counted {
        self.add(bytes);
        Counted { bytes, gauge: self.clone() }
    }
}

/// Bytes that are counted for as long as this lives.
#[derive(Debug)]
pub struct Counted {
    bytes: usize,
    gauge: Arc<Gauge>,
}

impl Counted {
    /// How many.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts `bytes` from now on.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.gauge.add(bytes - self.bytes);
        } else {
            self.gauge.subtract(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauge.subtract(self.bytes);
    }
}
