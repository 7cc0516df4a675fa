//! Sequence numbers, kinds, and stamps, which pack both into one word.

use super::limits::SEQNO_MAX;

/// The sequence number of a write: its position in the history of the database. The first write is 1; 0 precedes all
/// writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seqno(pub u64);

impl Seqno {
    /// Before every write.
    pub const ZERO: Seqno = Seqno(0);
    /// After every write.
    pub const MAX: Seqno = Seqno(SEQNO_MAX);

    /// The number after this one.
    pub fn next(self) -> Seqno {
        Seqno(self.0 + 1)
    }
}

/// The kind of a version. Stored in logs and tables: do not renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Deletes the key.
    Delete = 1,
    /// Sets the value, which is the payload.
    Put = 2,
    /// Sets the value, whose address is the payload.
    PutAt = 3,
    /// Merges an operand, which is the payload.
    Delta = 4,
    /// Merges an operand, whose address is the payload.
    DeltaAt = 5,
    /// Deletes all keys of a range. Stored separately from the versions of single keys.
    DeleteRange = 6,
}

impl Kind {
    /// Decodes a stored kind.
    pub fn from_u8(byte: u8) -> Option<Kind> {
        match byte {
            1 => Some(Kind::Delete),
            2 => Some(Kind::Put),
            3 => Some(Kind::PutAt),
            4 => Some(Kind::Delta),
            5 => Some(Kind::DeltaAt),
            6 => Some(Kind::DeleteRange),
            _ => None,
        }
    }

    /// True for a base, which determines the value of a key by itself and hides all older versions; a delta needs them.
    pub fn is_base(self) -> bool {
        matches!(self, Kind::Delete | Kind::Put | Kind::PutAt | Kind::DeleteRange)
    }

    /// True if the payload is an address.
    pub fn is_address(self) -> bool {
        matches!(self, Kind::PutAt | Kind::DeltaAt)
    }

    /// The same kind with an inline payload instead of an address.
    pub fn inline(self) -> Kind {
        match self {
            Kind::PutAt => Kind::Put,
            Kind::DeltaAt => Kind::Delta,
            other => other,
        }
    }

    /// The same kind with an address as its payload.
    pub fn addressed(self) -> Kind {
        match self {
            Kind::Put => Kind::PutAt,
            Kind::Delta => Kind::DeltaAt,
            other => other,
        }
    }
}

/// Sequence number and kind in one word: `seqno << 8 | kind`. Versions of one key sort by stamp, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Sorts before every version of a key.
    pub const NEWEST: Stamp = Stamp(u64::MAX);
    /// Sorts after every version of a key.
    pub const OLDEST: Stamp = Stamp(0);

    /// Packs a sequence number and a kind.
    pub fn new(seqno: Seqno, kind: Kind) -> Stamp {
        debug_assert!(seqno <= Seqno::MAX);
        Stamp(seqno.0 << 8 | kind as u8 as u64)
    }

    /// The stamp that a reader at `seqno` seeks among the versions of a key: it precedes the newest version visible to
    /// it.
    pub fn at(seqno: Seqno) -> Stamp {
        Stamp(seqno.0 << 8 | 0xff)
    }

    /// The same kind, at another sequence number.
    pub fn with_seqno(self, seqno: Seqno) -> Stamp {
        Stamp(seqno.0 << 8 | self.0 & 0xff)
    }

    /// The sequence number.
    pub fn seqno(self) -> Seqno {
        Seqno(self.0 >> 8)
    }

    /// The kind; `None` if it is unknown to this version of the engine.
    pub fn kind(self) -> Option<Kind> {
        Kind::from_u8(self.0 as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_order_by_seqno_then_kind_and_round_trip() {
        let old = Stamp::new(Seqno(7), Kind::DeltaAt);
        let new = Stamp::new(Seqno(8), Kind::Delete);
        assert!(new > old && Stamp::at(Seqno(7)) > old && Stamp::at(Seqno(7)) < new);
        assert_eq!((old.seqno(), old.kind()), (Seqno(7), Some(Kind::DeltaAt)));
        assert_eq!(Stamp(9 << 8 | 77).kind(), None);
    }
}
