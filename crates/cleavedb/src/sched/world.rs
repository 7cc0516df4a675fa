//! A simulated world: its threads, its virtual clock, its random sequence, and the scheduler that lets one thread run at a
//! time.
//!
//! Every simulated thread is a real OS thread that sleeps unless it is the running one. Invariants: at most one thread is
//! `running`; only the running thread changes the state; every other thread is inside [`Member::wait_for_turn`]. When a
//! world stops early (deadlock, step limit), its threads sleep for ever: unwinding them would run destructors that wait for
//! one another, and no thread is scheduled any more. They cost address space until the process ends.
//!
//! Called by the rest of `sched/` only.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::failure::{Stop, ThreadPanic};
use super::random::Random;

/// Virtual time that passes at each yield point, so that a loop that watches the clock makes progress.
const TICK: Duration = Duration::from_micros(1);
/// One in this number of lock operations is a yield point: often enough to explore orders, rarely enough to make progress.
const LOCK_YIELDS_ONE_IN: u32 = 4;

/// Shifts the seed of a world, so that its random sequence differs from that of other users of the same seed. Must not
/// change: tests name seeds.
const STREAM_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Number of active worlds in this process. Zero in production, so each check costs one relaxed load.
static ACTIVE_WORLDS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// True if a simulation runs in this process, so that the calling thread may belong to one.
#[inline]
pub(super) fn is_any_active() -> bool {
    ACTIVE_WORLDS.load(Ordering::Relaxed) != 0
}

/// The calling thread as a member of its world; None for a thread outside of simulations.
pub(super) fn current() -> Option<Member> {
    if !is_any_active() {
        return None;
    }
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Wakes every thread of this world that waits for `wait`.
#[cold]
pub(super) fn wake_all(wait: Wait) {
    if let Some(member) = current() {
        member.world.state.lock().wake_all(wait);
    }
}

/// Wakes one thread of this world that waits for `wait`.
#[cold]
pub(super) fn wake_one(wait: Wait) {
    if let Some(member) = current() {
        member.world.state.lock().wake_one(wait);
    }
}

/// What a thread waits for. Locks are identified by address, which cannot change while a thread waits. Addresses are only
/// compared for equality, so they do not affect the order of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Mutex(usize),
    RwLock(usize),
    Condvar(usize),
    ThreadEnd(usize),
    Sleep,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wait::Mutex(_) => "a mutex",
            Wait::RwLock(_) => "a read-write lock",
            Wait::Condvar(_) => "a condition variable",
            Wait::ThreadEnd(_) => "the end of a thread",
            Wait::Sleep => "time to pass",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Runnable,
    Waiting { wait: Wait, deadline: Option<Duration> },
    Ended,
}

#[derive(Debug)]
struct Thread {
    name: String,
    status: Status,
    timed_out: bool,
    panic: Option<String>,
    turn: Arc<Condvar>,
}

#[derive(Debug)]
struct WorldState {
    random: Random,
    now: Duration,
    steps: u64,
    steps_max: u64,
    digest: u64,
    /// How many of four decisions keep the running thread: worlds differ in how often they switch.
    keeps_in_four: u64,
    threads: Vec<Thread>,
    running: Option<usize>,
    stop: Option<Stop>,
    ended: bool,
    /// Number of threads that may still be started; None without a limit.
    threads_left: Option<usize>,
}

/// The outcome of a world.
pub(super) struct Ending {
    pub(super) stop: Option<Stop>,
    pub(super) panics: Vec<ThreadPanic>,
    pub(super) digest: u64,
    pub(super) steps: u64,
    pub(super) elapsed: Duration,
}

/// One simulated world.
#[derive(Debug)]
pub(super) struct World {
    state: Mutex<WorldState>,
    end: Condvar,
}

/// A thread of a world.
#[derive(Debug, Clone)]
pub(super) struct Member {
    world: Arc<World>,
    id: usize,
}

impl World {
    /// A world without threads.
    pub(super) fn new(seed: u64, steps_max: u64) -> Arc<World> {
        let mut random = Random::new(Random::new(seed.wrapping_sub(STREAM_STEP)).draw());
        let keeps_in_four = [0, 2, 3][random.below(3) as usize];
        let state = WorldState {
            random,
            now: Duration::ZERO,
            steps: 0,
            steps_max,
            digest: 0,
            keeps_in_four,
            threads: Vec::new(),
            running: None,
            stop: None,
            ended: false,
            threads_left: None,
        };
        Arc::new(World { state: Mutex::new(state), end: Condvar::new() })
    }

    /// Adds a runnable thread; the caller starts the OS thread that becomes it with [`Member::run`].
    pub(super) fn add_thread(self: &Arc<World>, name: &str) -> Member {
        let mut state = self.state.lock();
        let id = state.threads.len();
        state.threads.push(Thread {
            name: name.to_owned(),
            status: Status::Runnable,
            timed_out: false,
            panic: None,
            turn: Arc::new(Condvar::new()),
        });
        Member { world: Arc::clone(self), id }
    }

    /// Schedules the first thread and waits until all threads have ended or the world has stopped.
    pub(super) fn run_to_end(&self) -> Ending {
        let mut state = self.state.lock();
        state.schedule_next();
        state.notify_scheduled(&self.end);
        while !state.ended {
            self.end.wait(&mut state);
        }
        let panics = state
            .threads
            .iter_mut()
            .filter_map(|thread| {
                let message = thread.panic.take()?;
                Some(ThreadPanic { thread: thread.name.clone(), message })
            })
            .collect();
        Ending { stop: state.stop.take(), panics, digest: state.digest, steps: state.steps, elapsed: state.now }
    }
}

impl WorldState {
    /// Chooses the next thread at random. If none is runnable, time moves to the next deadline; without one the world ends.
    fn schedule_next(&mut self) {
        self.steps += 1;
        if self.steps > self.steps_max {
            return self.end(Some(Stop::StepLimit { steps: self.steps_max }));
        }
        let mut runnable = self.wake_expired();
        if runnable == 0 {
            let Some(next) = self.threads.iter().filter_map(Thread::deadline).min() else {
                let waiting: Vec<String> = self.threads.iter().filter_map(Thread::describe_wait).collect();
                let stop = if waiting.is_empty() { None } else { Some(Stop::Deadlock { waiting }) };
                return self.end(stop);
            };
            self.now = next;
            runnable = self.wake_expired();
        }
        let keeps = self.random.below(4) < self.keeps_in_four;
        let next = match self.running {
            Some(id) if keeps && self.threads[id].status == Status::Runnable => id,
            _ => {
                let nth = self.random.below(runnable as u64) as usize;
                let mut candidates = (0..self.threads.len()).filter(|&id| self.threads[id].status == Status::Runnable);
                candidates.nth(nth).expect("the draw is below the number of runnable threads")
            }
        };
        self.running = Some(next);
        let choice = (runnable as u64) << 32 | next as u64;
        self.digest = xxh3_64_with_seed(&choice.to_le_bytes(), self.digest);
    }

    /// Wakes the threads whose deadline has passed; returns the number of runnable threads.
    fn wake_expired(&mut self) -> usize {
        let now = self.now;
        let mut runnable = 0;
        for thread in &mut self.threads {
            if thread.deadline().is_some_and(|deadline| deadline <= now) {
                thread.status = Status::Runnable;
                thread.timed_out = true;
            }
            runnable += usize::from(thread.status == Status::Runnable);
        }
        runnable
    }

    fn end(&mut self, stop: Option<Stop>) {
        self.stop = stop;
        self.ended = true;
        self.running = None;
    }

    /// Wakes the scheduled thread, or, if the world has ended, the thread in [`World::run_to_end`].
    fn notify_scheduled(&self, end: &Condvar) {
        match self.running {
            Some(id) => {
                self.threads[id].turn.notify_one();
            }
            None => {
                end.notify_all();
            }
        }
    }

    fn wake_all(&mut self, wait: Wait) {
        for thread in self.threads.iter_mut().filter(|thread| thread.waits_for(wait)) {
            thread.status = Status::Runnable;
        }
    }

    fn wake_one(&mut self, wait: Wait) {
        let waiting = self.threads.iter().filter(|thread| thread.waits_for(wait)).count();
        let nth = self.random.below(waiting as u64) as usize;
        if let Some(thread) = self.threads.iter_mut().filter(|thread| thread.waits_for(wait)).nth(nth) {
            thread.status = Status::Runnable;
        }
    }
}

impl Thread {
    fn deadline(&self) -> Option<Duration> {
        match self.status {
            Status::Waiting { deadline, .. } => deadline,
            _ => None,
        }
    }

    fn waits_for(&self, what: Wait) -> bool {
        matches!(self.status, Status::Waiting { wait, .. } if wait == what)
    }

    fn describe_wait(&self) -> Option<String> {
        match self.status {
            Status::Waiting { wait, .. } => Some(format!("{} (waits for {wait})", self.name)),
            _ => None,
        }
    }
}

impl Member {
    /// Virtual time.
    pub(super) fn now(&self) -> Duration {
        self.world.state.lock().now
    }

    /// The world's next random number below `bound`.
    pub(super) fn random(&self, bound: u64) -> u64 {
        self.world.state.lock().random.below(bound)
    }

    /// See [`limit_threads`](super::thread::limit_threads).
    pub(super) fn limit_threads(&self, more: Option<usize>) {
        self.world.state.lock().threads_left = more;
    }

    /// Consumes one from the limit on threads; false if it is used up.
    pub(super) fn may_add_thread(&self) -> bool {
        match &mut self.world.state.lock().threads_left {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    /// Adds a thread to the same world.
    pub(super) fn add_thread(&self, name: &str) -> Member {
        self.world.add_thread(name)
    }

    /// Reverts [`Member::add_thread`] after the OS thread could not be started.
    pub(super) fn cancel(&self) {
        self.world.state.lock().threads[self.id].status = Status::Ended;
    }

    /// Lets the scheduler choose the next thread.
    pub(super) fn yield_now(&self) {
        let mut state = self.world.state.lock();
        state.now += TICK;
        self.switch(state);
    }

    /// Yields at random once in [`LOCK_YIELDS_ONE_IN`] calls: for places that are reached too often to yield each time.
    pub(super) fn maybe_yield(&self) {
        let mut state = self.world.state.lock();
        if state.random.one_in(LOCK_YIELDS_ONE_IN) {
            state.now += TICK;
            self.switch(state);
        }
    }

    /// Waits to be woken for `wait`, at most for `limit`; true if the time ran out.
    pub(super) fn wait(&self, wait: Wait, limit: Option<Duration>) -> bool {
        let mut state = self.world.state.lock();
        let deadline = limit.map(|limit| state.now.saturating_add(limit));
        let me = &mut state.threads[self.id];
        me.status = Status::Waiting { wait, deadline };
        me.timed_out = false;
        self.switch(state);
        self.world.state.lock().threads[self.id].timed_out
    }

    /// Waits until this thread has ended; its panic, if any, no longer fails the run.
    pub(super) fn wait_for_end(&self) {
        let Some(caller) = current() else { return };
        while self.world.state.lock().threads[self.id].status != Status::Ended {
            caller.wait(Wait::ThreadEnd(self.id), None);
        }
        self.world.state.lock().threads[self.id].panic = None;
    }

    /// The body of the OS thread: waits to be scheduled, runs `f`, and schedules the next thread. A panic is recorded and
    /// then passed on to the handle of the OS thread.
    pub(super) fn run(self, f: impl FnOnce()) {
        CURRENT.set(Some(self.clone()));
        self.wait_for_turn(self.world.state.lock());
        let result = catch_unwind(AssertUnwindSafe(f));
        CURRENT.set(None);
        let mut state = self.world.state.lock();
        let me = &mut state.threads[self.id];
        me.status = Status::Ended;
        me.panic = result.as_ref().err().map(|payload| message_of(payload.as_ref()));
        state.wake_all(Wait::ThreadEnd(self.id));
        state.schedule_next();
        state.notify_scheduled(&self.world.end);
        drop(state);
        if let Err(payload) = result {
            resume_unwind(payload);
        }
    }

    fn switch(&self, mut state: MutexGuard<'_, WorldState>) {
        state.schedule_next();
        if state.running != Some(self.id) {
            state.notify_scheduled(&self.world.end);
            self.wait_for_turn(state);
        }
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, WorldState>) {
        let turn = Arc::clone(&state.threads[self.id].turn);
        while state.running != Some(self.id) {
            if state.ended {
                drop(state);
                loop {
                    std::thread::park();
                }
            }
            turn.wait(&mut state);
        }
    }
}

/// Counts a world as active while it lives.
pub(super) struct ActiveWorld;

impl ActiveWorld {
    pub(super) fn start() -> ActiveWorld {
        ACTIVE_WORLDS.fetch_add(1, Ordering::SeqCst);
        ActiveWorld
    }
}

impl Drop for ActiveWorld {
    fn drop(&mut self) {
        ACTIVE_WORLDS.fetch_sub(1, Ordering::SeqCst);
    }
}

fn message_of(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(message) = payload.downcast_ref::<&str>() {
        (*message).to_owned()
    } else if let Some(message) = payload.downcast_ref::<String>() {
        message.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
