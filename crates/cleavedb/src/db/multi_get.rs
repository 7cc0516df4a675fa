//! Reads of many keys at once: one view and one sequence number for all; in key order, so that neighbours share blocks;
//! and what the block cache does not have is read for all of them together. Decision record 016 has the figures.

use std::sync::Arc;

use super::core::Core;
use super::keyspace::KeyspaceState;
use super::read::{Find, Versions, find_versions};
use super::view::View;
use crate::base::{FileId, Result, Seqno, Slice, full_key};
use crate::levels::batch::{Lookups, Missing, read_together};
use crate::levels::table::Table;
use crate::levels::table_cursor::TableCursor;

/// So many keys wait for reads together; more would push each other's blocks out of a small cache.
const KEYS_TOGETHER: usize = 512;

impl Find for Lookups {
    fn find(&mut self, table: &Arc<Table>, full: &[u8], seqno: Seqno) -> Result<Option<&mut TableCursor>> {
        Lookups::find(self, table, full, seqno)
    }
}

/// A key without an answer yet.
struct Open<'a> {
    index: usize,
    key: &'a [u8],
    full: Vec<u8>,
    /// The blocks it has waited for.
    waited_for: Vec<(FileId, u64)>,
}

/// One moment of one keyspace.
struct Moment<'a> {
    core: &'a Core,
    view: &'a View,
    seqno: Seqno,
    keyspace: &'a KeyspaceState,
}

impl Core {
    /// The values of `keys`, in the order asked: the newest, or those at a sequence number that a snapshot holds.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
        snapshot: Option<Seqno>,
    ) -> Vec<Result<Option<Slice>>> {
        let (view, seqno) = match snapshot {
            Some(seqno) => (self.published.view(), seqno),
            None => self.published.read(),
        };
        let moment = Moment { core: self, view: &view, seqno, keyspace };
        let mut answers: Vec<Result<Option<Slice>>> =
            keys.iter().map(|key| self.check_read(keyspace, key.as_ref()).map(|()| None)).collect();
        let mut order: Vec<usize> = (0..keys.len()).filter(|&index| answers[index].is_ok()).collect();
        order.sort_unstable_by_key(|&index| keys[index].as_ref());
        for together in order.chunks(KEYS_TOGETHER) {
            let open = together.iter().map(|&index| {
                let key = keys[index].as_ref();
                Open { index, key, full: full_key(keyspace.record.id, key), waited_for: Vec::new() }
            });
            moment.answer(open.collect(), &mut answers);
        }
        answers
    }
}

impl Moment<'_> {
    /// Answers keys, given in order, in rounds: those that need no read at once, the others after reads for all of them.
    fn answer(&self, mut open: Vec<Open<'_>>, answers: &mut [Result<Option<Slice>>]) {
        let mut lookups = Lookups::default();
        while !open.is_empty() {
            let mut missing = Vec::new();
            open.retain_mut(|key| {
                let answer = match self.look_up(key, &mut lookups) {
                    Ok(answer) => answer,
                    Err(block) if !key.waited_for.contains(&block.place()) => {
                        key.waited_for.push(block.place());
                        missing.push(block);
                        return true;
                    }
                    // It was read and is gone again, or cannot be read: this key goes by itself.
                    Err(_) => self.core.get_in(self.view, self.keyspace, key.key, self.seqno),
                };
                answers[key.index] = answer;
                false
            });
            read_together(missing);
        }
    }

    /// The answer for one key, or the block without which there is none.
    fn look_up(&self, key: &Open<'_>, lookups: &mut Lookups) -> Result<Result<Option<Slice>>, Missing> {
        let mut versions = Versions::default();
        let found = find_versions(self.view, &key.full, self.seqno, &mut versions, lookups);
        match (lookups.take_missing(), found) {
            (Some(missing), _) => Err(missing),
            (None, found) => Ok(self
                .core
                .unless_closed(found.and_then(|()| versions.resolve(self.core, self.view, self.keyspace, &key.full)))),
        }
    }
}
