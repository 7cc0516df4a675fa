//! The cursor over an index table: a list of version numbers in cursor order, and the pieces that contain the versions.
//! Both are immutable, so later insertions do not change what a cursor returns.
//!
//! Created by the index table, for scans and for jobs that seal the table.

use std::ops::Range;
use std::sync::Arc;

use super::index_pieces::{PIECE_ENTRIES, PayloadPlace, Piece, version_at};
use crate::base::cursor::compare;
use crate::base::kind::Stamp;
use crate::base::{Cursor, Result};

/// A cursor over sorted versions of an index table, unchanged by later insertions.
pub struct IndexCursor {
    pieces: Arc<Vec<Arc<Piece>>>,
    pub(super) order: Arc<Vec<u32>>,
    at: usize,
    place: PayloadPlace,
}

impl IndexCursor {
    /// A cursor over the versions with the numbers in `order`, not positioned.
    pub(super) fn new(pieces: Arc<Vec<Arc<Piece>>>, order: Arc<Vec<u32>>) -> IndexCursor {
        IndexCursor { at: order.len(), pieces, order, place: PayloadPlace::default() }
    }

    /// Moves to a position in `order` and locates the version there.
    fn go(&mut self, at: usize) {
        self.at = at;
        if let Some(&number) = self.order.get(at) {
            let piece = number as usize / PIECE_ENTRIES;
            self.place = self.pieces[piece].place(piece, number as usize % PIECE_ENTRIES);
        }
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.pieces[self.place.piece].bytes[range]
    }

    fn lower_bound(&self, key: &[u8], stamp: Stamp) -> usize {
        self.order.partition_point(|&number| {
            let version = version_at(&self.pieces, number);
            compare(version.key, version.stamp, key, stamp).is_lt()
        })
    }
}

impl Cursor for IndexCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.at < self.order.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.bytes(self.place.key.clone())
    }

    #[inline]
    fn stamp(&self) -> Stamp {
        self.place.stamp
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.bytes(self.place.key.end..self.place.payload_end)
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.go(self.lower_bound(key, stamp));
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.go(self.lower_bound(key, stamp).checked_sub(1).unwrap_or(self.order.len()));
        Ok(())
    }

    fn seek_first(&mut self) -> Result<()> {
        self.go(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.go(self.order.len().checked_sub(1).unwrap_or(self.order.len()));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.go(self.at + 1);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.go(self.at.checked_sub(1).unwrap_or(self.order.len()));
        Ok(())
    }
}
