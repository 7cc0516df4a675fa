//! Locks and condition variables: parking_lot, plus one relaxed load. A simulated thread never blocks its OS thread on a
//! lock, because no other thread could be scheduled meanwhile: it waits in its world until the lock is released, and tries
//! again.
//!
//! Guards wrap those of parking_lot, because their release must wake simulated threads that wait for the lock.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::world::{self, Wait};

/// The invariant behind every access through a guard: only `Condvar` empties it, and borrows it mutably meanwhile.
const HELD: &str = "a guard is empty only inside Condvar::wait, which borrows it";

/// Mutual exclusion.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: parking_lot::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { inner: parking_lot::Mutex::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = if world::is_any_active() { self.lock_in_world() } else { self.inner.lock() };
        MutexGuard { mutex: self, inner: Some(inner) }
    }

    /// Takes the lock if it is free.
    #[cfg(test)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().map(|inner| MutexGuard { mutex: self, inner: Some(inner) })
    }

    #[cold]
    fn lock_in_world(&self) -> parking_lot::MutexGuard<'_, T> {
        let Some(member) = world::current() else {
            return self.inner.lock();
        };
        member.maybe_yield();
        loop {
            if let Some(inner) = self.inner.try_lock() {
                return inner;
            }
            member.wait(Wait::Mutex(self.key()), None);
        }
    }

    fn key(&self) -> usize {
        (&raw const self.inner).addr()
    }
}

/// Holds a [`Mutex`] until dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> MutexGuard<'_, T> {
    #[inline]
    fn release(&mut self) {
        self.inner = None;
        if world::is_any_active() {
            world::wake_all(Wait::Mutex(self.mutex.key()));
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// Waits for a notification by another thread. Wake-ups may be spurious: test the condition in a loop.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition variable without waiting threads.
    pub const fn new() -> Condvar {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    /// Releases the lock, waits to be notified, takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if world::is_any_active() && self.wait_in_world(guard, None).is_some() {
            return;
        }
        self.inner.wait(guard.inner.as_mut().expect(HELD));
    }

    /// As [`Condvar::wait`] with a time limit; true if the limit passed first.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> bool {
        if world::is_any_active()
            && let Some(timed_out) = self.wait_in_world(guard, Some(limit))
        {
            return timed_out;
        }
        self.inner.wait_for(guard.inner.as_mut().expect(HELD), limit).timed_out()
    }

    /// Wakes one waiting thread, if there is one (in a simulation, a random one).
    pub fn notify_one(&self) {
        if world::is_any_active() {
            world::wake_one(Wait::Condvar(self.key()));
        }
        self.inner.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if world::is_any_active() {
            world::wake_all(Wait::Condvar(self.key()));
        }
        self.inner.notify_all();
    }

    /// None if the calling thread is not simulated, else whether the limit passed first.
    #[cold]
    fn wait_in_world<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Option<Duration>) -> Option<bool> {
        let member = world::current()?;
        // No other thread of the world runs between these two lines, so no notification can be missed.
        guard.release();
        let timed_out = member.wait(Wait::Condvar(self.key()), limit);
        guard.inner = Some(guard.mutex.lock_in_world());
        Some(timed_out)
    }

    fn key(&self) -> usize {
        (&raw const self.inner).addr()
    }
}

/// Many readers or one writer.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { inner: parking_lot::RwLock::new(value) }
    }

    /// Waits for shared access. A thread must not lock it twice: a writer may wait in between.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = if world::is_any_active() {
            self.acquire_in_world(parking_lot::RwLock::try_read, parking_lot::RwLock::read)
        } else {
            self.inner.read()
        };
        RwLockReadGuard { lock: self, inner: Some(inner) }
    }

    /// Waits for exclusive access.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = if world::is_any_active() {
            self.acquire_in_world(parking_lot::RwLock::try_write, parking_lot::RwLock::write)
        } else {
            self.inner.write()
        };
        RwLockWriteGuard { lock: self, inner: Some(inner) }
    }

    #[cold]
    fn acquire_in_world<'a, G>(
        &'a self,
        attempt: impl Fn(&'a parking_lot::RwLock<T>) -> Option<G>,
        block: impl Fn(&'a parking_lot::RwLock<T>) -> G,
    ) -> G {
        let Some(member) = world::current() else {
            return block(&self.inner);
        };
        member.maybe_yield();
        loop {
            if let Some(guard) = attempt(&self.inner) {
                return guard;
            }
            member.wait(Wait::RwLock(self.key()), None);
        }
    }

    fn key(&self) -> usize {
        (&raw const self.inner).addr()
    }

    #[inline]
    fn wake(&self) {
        if world::is_any_active() {
            world::wake_all(Wait::RwLock(self.key()));
        }
    }
}

/// Shared access to the value of a [`RwLock`] until dropped.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

/// Exclusive access to the value of a [`RwLock`] until dropped.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.inner.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect(HELD)
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner = None;
        self.lock.wake();
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner = None;
        self.lock.wake();
    }
}
