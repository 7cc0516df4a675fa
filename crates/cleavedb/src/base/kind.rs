//! Sequence numbers, kinds, and the stamp that packs the two into one word.

use super::limits::SEQNO_MAX;

/// The position of a write in the one history of the database. The first write is 1; 0 is before everything.
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

/// What a version is. Stored in logs and tables: do not renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is gone from here on.
    Delete = 1,
    /// The value follows.
    Put = 2,
    /// The value lies at the address that follows.
    PutAt = 3,
    /// A merge operand follows.
    Delta = 4,
    /// A merge operand lies at the address that follows.
    DeltaAt = 5,
    /// All keys of a range are gone from here on. Kept apart from the versions of single keys.
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

    /// A base settles a key's value by itself; a delta needs what is below it. Only a base kills older versions.
    pub fn is_base(self) -> bool {
        matches!(self, Kind::Delete | Kind::Put | Kind::PutAt | Kind::DeleteRange)
    }

    /// The payload is an address, not the bytes themselves.
    pub fn is_address(self) -> bool {
        matches!(self, Kind::PutAt | Kind::DeltaAt)
    }

    /// The kind with its payload at hand instead of behind an address.
    pub fn inline(self) -> Kind {
        match self {
            Kind::PutAt => Kind::Put,
            Kind::DeltaAt => Kind::Delta,
            other => other,
        }
    }

    /// The kind with its payload behind an address.
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

    /// Where a reader at `seqno` starts among the versions of a key: at the newest version not above it.
    pub fn at(seqno: Seqno) -> Stamp {
        Stamp(seqno.0 << 8 | 0xff)
    }

    /// The sequence number.
    pub fn seqno(self) -> Seqno {
        Seqno(self.0 >> 8)
    }

    /// The kind; `None` if the byte is none that this version knows.
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
