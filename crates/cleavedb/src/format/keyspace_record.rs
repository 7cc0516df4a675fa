//! A keyspace as the manifest stores it: its name, its kind, its merge operator, and what it does with values and operands.

use crate::base::KeyspaceId;
use crate::base::varint::{put, put_bytes, take, take_bytes};

/// How a keyspace keeps its keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyspaceKind {
    /// In the order of their bytes, in the front and in tables.
    #[default]
    Ordered,
    /// By the hash of their bytes, in an index in memory; for point access (REXIO).
    Hash,
}

impl KeyspaceKind {
    /// The stored form: do not renumber.
    fn to_stored(self) -> u64 {
        match self {
            KeyspaceKind::Ordered => 1,
            KeyspaceKind::Hash => 2,
        }
    }

    fn from_stored(stored: u64) -> Option<KeyspaceKind> {
        [KeyspaceKind::Ordered, KeyspaceKind::Hash].into_iter().find(|kind| kind.to_stored() == stored)
    }
}

/// A keyspace as the manifest stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceRecord {
    /// Its number, never reused.
    pub id: KeyspaceId,
    /// How it keeps its keys.
    pub kind: KeyspaceKind,
    /// Its name.
    pub name: String,
    /// The name of its merge operator.
    pub operator: Option<String>,
    /// The stored number of its compression; `None` means that of the database.
    pub compression: Option<u8>,
    /// Values of at least this size are stored separately from their keys.
    pub separation: Separation,
    /// Where a flush writes merge operands. Not part of the stored record: [`Edit::keyspaces_placed`] has it.
    pub deltas: DeltaPlacement,
}

impl KeyspaceRecord {
    /// Appends the stored form, without the placement of operands.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.id.0 as u64);
        put(out, self.kind.to_stored());
        put_bytes(out, self.name.as_bytes());
        put(out, self.operator.is_some() as u64);
        if let Some(operator) = &self.operator {
            put_bytes(out, operator.as_bytes());
        }
        // Stored plus 1, because 0 means "as the database".
        put(out, self.compression.map_or(0, |compression| compression as u64 + 1));
        self.separation.encode(out);
    }

    /// Takes a record off the front; its operands are placed in the levels.
    pub(super) fn take(bytes: &mut &[u8]) -> Option<KeyspaceRecord> {
        let id = take_keyspace(bytes)?;
        let kind = KeyspaceKind::from_stored(take(bytes)?)?;
        let name = take_text(bytes)?;
        let operator = match take(bytes)? {
            0 => None,
            1 => Some(take_text(bytes)?),
            _ => return None,
        };
        let compression = match take(bytes)? {
            0 => None,
            stored => Some(u8::try_from(stored - 1).ok()?),
        };
        let separation = Separation::take(bytes)?;
        Some(KeyspaceRecord { id, kind, name, operator, compression, separation, deltas: DeltaPlacement::Levels })
    }
}

/// From which size on the values of a keyspace are stored separately from their keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Separation {
    /// The option of the database, as given at each open.
    #[default]
    Default,
    /// Values of at least this many bytes.
    From(u32),
    /// Never.
    Never,
}

impl Separation {
    /// The choice of a user; `None` means never.
    pub fn chosen(bytes: Option<u32>) -> Separation {
        bytes.map_or(Separation::Never, Separation::From)
    }

    /// The size from which on values are separated, in bytes; `default` is that of the database.
    pub fn bytes(self, default: usize) -> usize {
        match self {
            Separation::Default => default,
            // Deletes have no value, so they are never separated.
            Separation::From(bytes) => (bytes as usize).max(1),
            Separation::Never => usize::MAX,
        }
    }

    /// A size is stored plus 2, because 0 and 1 stand for the other variants.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        put(
            out,
            match self {
                Separation::Default => 0,
                Separation::Never => 1,
                Separation::From(bytes) => bytes as u64 + 2,
            },
        );
    }

    pub(super) fn take(bytes: &mut &[u8]) -> Option<Separation> {
        Some(match take(bytes)? {
            0 => Separation::Default,
            1 => Separation::Never,
            stored => Separation::From(u32::try_from(stored - 2).ok()?),
        })
    }
}

/// Where a flush writes the merge operands of a keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeltaPlacement {
    /// Into the levels, with all other versions.
    #[default]
    Levels,
    /// Into the buckets of the delta store (KDSep, ICDE 2024).
    Buckets,
}

impl DeltaPlacement {
    /// The stored form: do not renumber.
    pub(super) fn to_stored(self) -> u64 {
        match self {
            DeltaPlacement::Levels => 1,
            DeltaPlacement::Buckets => 2,
        }
    }

    pub(super) fn from_stored(stored: u64) -> Option<DeltaPlacement> {
        [DeltaPlacement::Levels, DeltaPlacement::Buckets].into_iter().find(|placement| placement.to_stored() == stored)
    }
}

/// Takes the number of a keyspace off the front.
pub(super) fn take_keyspace(bytes: &mut &[u8]) -> Option<KeyspaceId> {
    u32::try_from(take(bytes)?).ok().map(KeyspaceId)
}

/// Takes a text off the front, with its length before it.
pub(super) fn take_text(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(take_bytes(bytes)?.to_vec()).ok()
}
