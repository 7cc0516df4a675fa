//! Reorder credit: how many bytes value reordering may still write (decision 034).
//!
//! Bytes of values grant credit once, when they arrive in a log; every byte that a reordering job writes is charged. The credit
//! never exceeds [`REORDERED_PER_BYTE`] times the bytes in files of values. The manifest keeps it, so that a reopen grants
//! nothing. Invariant: without writes of users the credit only falls, so reordering ends for any keys. Called by
//! `format/values.rs`, which applies edits, and by `values/placement`, which asks it before a job begins.

use crate::base::varint::{put, take};

/// Bytes that reordering may write per byte of values that arrives. Overlap clusters that grow by a quarter before they are
/// moved need about five, sequential loads one.
pub const REORDERED_PER_BYTE: u64 = 8;

/// Bytes that reordering may write; below zero if the headers of the last job exceeded what was left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReorderCredit(i64);

impl ReorderCredit {
    /// Adds the credit for `bytes` of values that have arrived.
    pub fn grant(&mut self, bytes: u64) {
        self.0 = self.0.saturating_add(signed(bytes.saturating_mul(REORDERED_PER_BYTE)));
    }

    /// Takes away what a job has written.
    pub fn charge(&mut self, written: u64) {
        self.0 = self.0.saturating_sub(signed(written));
    }

    /// Drops what exceeds the credit for `bytes`, which files of values hold now.
    pub fn limit(&mut self, bytes: u64) {
        self.0 = self.0.min(signed(bytes.saturating_mul(REORDERED_PER_BYTE)));
    }

    /// True if a job that moves `live` bytes may begin.
    pub fn affords(self, live: u64) -> bool {
        self.0 > 0 && signed(live) <= self.0
    }

    /// Appends the encoding: a varint, of which the lowest bit is the sign.
    pub fn encode(self, out: &mut Vec<u8>) {
        put(out, ((self.0 << 1) ^ (self.0 >> 63)) as u64);
    }

    /// Takes a credit off the front of `bytes`; `None` if it is malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<ReorderCredit> {
        let stored = take(bytes)?;
        Some(ReorderCredit((stored >> 1) as i64 ^ -((stored & 1) as i64)))
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_afforded_until_what_arrived_is_spent_and_debt_is_paid_first() {
        let mut credit = ReorderCredit::default();
        assert!(!credit.affords(0));
        credit.grant(100);
        assert!(credit.affords(800) && !credit.affords(801));
        credit.charge(850);
        assert!(!credit.affords(0));
        credit.grant(10);
        assert!(credit.affords(30) && !credit.affords(31));
        credit.limit(1);
        assert!(credit.affords(8) && !credit.affords(9));
        credit.grant(u64::MAX);
        assert!(credit.affords(u64::MAX));
    }

    #[test]
    fn a_credit_round_trips() {
        for value in [0, 1, -1, 800, -12_345, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            ReorderCredit(value).encode(&mut bytes);
            let rest = &mut &bytes[..];
            assert_eq!((ReorderCredit::take(rest), rest.len()), (Some(ReorderCredit(value)), 0));
            assert_eq!(ReorderCredit::take(&mut &bytes[..bytes.len() - 1]), None);
        }
    }
}
