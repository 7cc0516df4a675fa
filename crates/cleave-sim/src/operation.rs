//! One operation of a workload as plain data. Small numbers identify keyspaces (slots), keys, values and snapshots, so that
//! an operation can be printed, shrunk by proptest and replayed. Clients apply operations; workloads and tests make them.

use std::ops::Bound;
use std::time::Duration;

use cleavedb::{Durability, KeyspaceOptions};

use crate::material::{self, Value};
use crate::operator::Operator;

/// Number of keyspace slots.
pub const SLOTS: u8 = 9;
/// Slots from this one on start without a keyspace; operations create and drop theirs.
pub const FIRST_CHANGING_SLOT: u8 = 6;

/// The merge operator of the keyspace in `slot`: none for the default keyspace and the last one.
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

/// The options of the keyspace in `slot`; two of them are hash keyspaces.
pub fn options_of_slot(slot: u8) -> KeyspaceOptions {
    let options = if is_hashed(slot) { KeyspaceOptions::hash() } else { KeyspaceOptions::new() };
    operator_of_slot(slot).map_or(options.clone(), |operator| options.merge_operator(operator.name()))
}

/// The keyspace in `slot` is a hash keyspace: it has no order, and no range deletes.
pub fn is_hashed(slot: u8) -> bool {
    matches!(slot, 2 | 7)
}

/// What a write does to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Sets the value.
    Put(Value),
    /// Removes it.
    Delete,
    /// Merges an operand; a put if the keyspace has no operator.
    Merge(Value),
    /// Removes all keys of a span; the change's own key is ignored. In a hash keyspace only that key is removed.
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
    /// When it survives a process crash.
    Buffered,
    /// When it survives a power loss.
    Sync,
    /// As `Buffered`, and durable shortly after.
    Interval,
}

impl Ack {
    /// The engine's durability; `None` for the default.
    pub fn durability(self) -> Option<Durability> {
        match self {
            Ack::Default => None,
            Ack::Buffered => Some(Durability::Buffered),
            Ack::Sync => Some(Durability::Sync),
            Ack::Interval => Some(Durability::Interval(Duration::from_millis(20))),
        }
    }
}

/// The keys that a scan, a range delete or a compaction covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Everything.
    All,
    /// The keys that start with the first bytes (second number) of a key (first number).
    Prefix(u16, u8),
    /// The keys between two bounds; empty if the bounds are reversed.
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

/// A scan: its keys, its length, and from which end each record is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// The keyspace.
    pub slot: u8,
    /// The keys.
    pub span: Span,
    /// Bit `i % 64` set means that pull `i` is at the back end: 0 scans forward, all ones backward, others interleave.
    pub ends: u64,
    /// Stops after this many pulls.
    pub limit: u16,
    /// The snapshot read from; `None` reads the present.
    pub snapshot: Option<u8>,
}

/// A kind of crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process dies, the operating system survives: all completed writes stay.
    Process,
    /// Power loss: this seed decides which unsynced writes stay.
    Power(u64),
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A batch; one with a single change uses the single-key calls.
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
    /// Many point reads of one snapshot.
    MultiGet {
        /// The keyspace.
        slot: u8,
        /// The keys' numbers.
        keys: Vec<u16>,
        /// The snapshot read from; `None` reads the present.
        snapshot: Option<u8>,
    },
    /// A range read without values.
    Keys(Scan),
    /// Refreshes the open iterator to the newest state and continues it; opens one if there is none.
    Refresh {
        /// The keyspace of a new one.
        slot: u8,
        /// The keys of a new one.
        span: Span,
        /// Number of keys to read.
        pulls: u8,
    },
    /// Ingests sorted keys.
    Ingest {
        /// The keyspace.
        slot: u8,
        /// The keys' numbers, and what they are set to.
        puts: Vec<(u16, Value)>,
    },
    /// Takes a checkpoint and opens it.
    Checkpoint,
    /// Takes a snapshot.
    TakeSnapshot,
    /// Releases a snapshot.
    ReleaseSnapshot(u8),
    /// Makes all writes so far durable.
    Sync,
    /// Flushes the front to tables.
    Flush,
    /// Compacts a span of a keyspace.
    Compact(u8, Span),
    /// Changes the separation threshold of a keyspace.
    Separate(u8, Option<u32>),
    /// Creates the keyspace of a changing slot.
    Create(u8),
    /// Drops the keyspace of a changing slot.
    Drop(u8),
    /// Pauses background work until [`Resume`](Operation::Resume) or a write that would stall.
    Pause,
    /// Resumes background work.
    Resume,
    /// Compares the whole content with the model.
    CheckAll,
    /// Closes and reopens the database.
    Reopen,
    /// Crashes between two operations and recovers.
    Crash(Crash),
}
