//! One step of a workload, as data: what a client, a test or the simulation does next. Small numbers name keyspaces
//! (slots), keys, values and snapshots, so that a step can be printed, shrunk by proptest and replayed.

use std::ops::Bound;
use std::time::Duration;

use cleavedb::Durability;

use crate::material::{self, Value};
use crate::operator::Operator;

/// How many keyspace slots there are.
pub const SLOTS: u8 = 9;
/// The slots from here on start empty and are created and dropped as the run goes.
pub const FIRST_CHANGING_SLOT: u8 = 6;

/// The operator of the keyspaces that are opened in `slot`: none for the default keyspace and the last one.
pub fn operator_of_slot(slot: u8) -> Option<Operator> {
    match slot {
        0 | 8 => None,
        slot => Some(Operator::ALL[usize::from(slot - 1) % Operator::ALL.len()]),
    }
}

/// The name of the keyspace in `slot`.
pub fn name_of_slot(slot: u8) -> String {
    match operator_of_slot(slot) {
        _ if slot == 0 => "default".into(),
        Some(operator) if slot < FIRST_CHANGING_SLOT => operator.name().into(),
        _ => format!("changing-{slot}"),
    }
}

/// What a write does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Sets the value.
    Put(Value),
    /// Removes it.
    Delete,
    /// Applies an operand; a put where the keyspace has no operator.
    Merge(Value),
    /// Removes all keys of a span, whatever the change's own key is.
    Clear(Span),
}

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The keyspace.
    pub slot: u8,
    /// The key's number.
    pub key: u16,
    /// What happens to it.
    pub effect: Effect,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The database's default.
    Default,
    /// When it survives a crash of the process.
    Buffered,
    /// When it survives a loss of power.
    Sync,
    /// As `Buffered`, and durable soon after.
    Interval,
}

impl Ack {
    /// What the engine calls it; `None` for the default.
    pub fn durability(self) -> Option<Durability> {
        match self {
            Ack::Default => None,
            Ack::Buffered => Some(Durability::Buffered),
            Ack::Sync => Some(Durability::Sync),
            Ack::Interval => Some(Durability::Interval(Duration::from_millis(20))),
        }
    }
}

/// The part of a keyspace that a scan or a compaction is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Everything.
    All,
    /// The keys that start with the first bytes (second number) of a key (first number).
    Prefix(u16, u8),
    /// The keys between two keys; empty if they are the wrong way round.
    Between(Bound<u16>, Bound<u16>),
}

/// Bounds in bytes.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Span {
    /// The span as bounds on keys.
    pub fn bounds(self) -> Bounds {
        match self {
            Span::All => (Bound::Unbounded, Bound::Unbounded),
            Span::Prefix(..) => {
                let mut end = self.prefix().unwrap_or_default();
                let start = end.clone();
                while end.last() == Some(&0xff) {
                    end.pop();
                }
                match end.last_mut() {
                    Some(last) => *last += 1,
                    None => return (Bound::Included(start), Bound::Unbounded),
                }
                (Bound::Included(start), Bound::Excluded(end))
            }
            Span::Between(low, high) => (low.map(material::key), high.map(material::key)),
        }
    }

    /// The prefix, if the span is one.
    pub fn prefix(self) -> Option<Vec<u8>> {
        match self {
            Span::Prefix(number, len) => {
                let mut key = material::key(number);
                key.truncate(usize::from(len));
                Some(key)
            }
            _ => None,
        }
    }
}

/// A scan: where, how far and in which order the two ends are pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// The keyspace.
    pub slot: u8,
    /// The keys.
    pub span: Span,
    /// Bit `i % 64` says whether pull `i` is at the back end: 0 scans forward, all ones backward, others interleave.
    pub ends: u64,
    /// Stops after this many pulls.
    pub limit: u16,
    /// The snapshot read from; `None` reads the present.
    pub snapshot: Option<u8>,
}

/// How the world ends for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process dies, the system goes on: everything handed to the system stays.
    Process,
    /// The power goes: of what was not synced, chance (this seed) says what stays.
    Power(u64),
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A batch; with one change it goes through the single-key calls.
    Write(Vec<Change>, Ack),
    /// A point read, from a snapshot or the present.
    Get {
        /// The keyspace.
        slot: u8,
        /// The key's number.
        key: u16,
        /// The snapshot read from; `None` reads the present.
        snapshot: Option<u8>,
    },
    /// A range read.
    Scan(Scan),
    /// Many point reads at one moment.
    MultiGet {
        /// The keyspace.
        slot: u8,
        /// The keys' numbers.
        keys: Vec<u16>,
        /// The snapshot read from; `None` reads the present.
        snapshot: Option<u8>,
    },
    /// A range read of keys alone.
    Keys(Scan),
    /// Goes on with the iterator that was left from before, on the newest state; starts one if there is none.
    Refresh {
        /// The keyspace of a new one.
        slot: u8,
        /// The keys of a new one.
        span: Span,
        /// How many keys are taken.
        pulls: u8,
    },
    /// Puts keys at once through a sorted load.
    Ingest {
        /// The keyspace.
        slot: u8,
        /// The keys' numbers, and what they are set to.
        puts: Vec<(u16, Value)>,
    },
    /// Copies the database, and opens the copy.
    Checkpoint,
    /// Takes a snapshot.
    TakeSnapshot,
    /// Releases a snapshot.
    ReleaseSnapshot(u8),
    /// Makes all writes so far durable.
    Sync,
    /// Front to tables.
    Flush,
    /// Compacts a span of a keyspace.
    Compact(u8, Span),
    /// Keeps values of a keyspace apart from another size on.
    Separate(u8, Option<u32>),
    /// Creates the keyspace of a changing slot.
    Create(u8),
    /// Drops the keyspace of a changing slot.
    Drop(u8),
    /// Lets background work stand still, until [`Resume`](Operation::Resume) or a write that would have to wait for it.
    Pause,
    /// Lets it go on.
    Resume,
    /// Compares everything with the model.
    CheckAll,
    /// Closes and opens again.
    Reopen,
    /// Crashes between two operations and recovers.
    Crash(Crash),
}
