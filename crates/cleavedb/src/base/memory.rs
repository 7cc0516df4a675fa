//! Memory accounting. A [`Gauge`] counts the bytes of the buffers, jobs and tables that were counted in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared count of bytes.
#[derive(Debug, Default)]
pub struct Gauge(AtomicUsize);

impl Gauge {
    /// The bytes counted at present.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds `bytes`.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts `bytes`.
    pub fn subtract(&self, bytes: usize) {
        let before = self.0.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "a gauge never falls below zero");
    }
}

impl Gauge {
    /// Counts `bytes` until the returned guard is dropped.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Counted {
        self.add(bytes);
        Counted { bytes, gauge: self.clone() }
    }
}

/// A guard: its bytes are counted in a [`Gauge`] until it is dropped.
#[derive(Debug)]
pub struct Counted {
    bytes: usize,
    gauge: Arc<Gauge>,
}

impl Counted {
    /// The bytes counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the bytes counted to `bytes`.
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
