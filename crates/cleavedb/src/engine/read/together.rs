//! The read of a key whose base and operands lie in different files: what both lack is read together, with many reads in
//! flight and no second thread. Called by `get` for keys in buckets whose operands are not cached.

use std::sync::Arc;

use crate::base::key_versions::{KeyVersion, KeyVersions, inline, set_payload};
use crate::base::{Address, FileId, Kind, Result, Seqno};
use crate::engine::buckets::Buckets;
use crate::engine::core::Core;
use crate::engine::layer::collect_versions;
use crate::engine::view::View;
use crate::format::record::value_of;
use crate::io::File;
use crate::io::coalesced_reads::{ReadRange, ReadRequest, read_coalesced};
use crate::levels::point_reads::{COALESCING, MissingBlock, OneKey, OneKeyCached, Unanswered};

/// Something that a read lacks.
enum Lacking {
    Block(MissingBlock),
    /// The value of the base.
    Value(Arc<dyn File>, Address),
}

impl Lacking {
    fn file(&self) -> Option<Arc<dyn File>> {
        match self {
            Lacking::Block(block) => block.file(),
            Lacking::Value(file, _) => Some(file.clone()),
        }
    }
}

impl Core {
    /// As [`collect_versions`], in rounds. A round looks into the cached blocks of tables and segments, and reads the next
    /// block that each of them lacks, and the value of the base if it is separated.
    pub(super) fn collect_together(
        &self,
        view: &View,
        buckets: &Buckets,
        full: &[u8],
        seqno: Seqno,
        (tables, versions): (&mut OneKey<'_>, &mut KeyVersions),
    ) -> Result<()> {
        let mut cached = OneKeyCached(std::mem::take(tables));
        let (mut waited_for, mut value): (Vec<(FileId, u64)>, Option<KeyVersion>) = (Vec::new(), None);
        let in_segments = loop {
            versions.restart();
            let mut missing = Vec::new();
            let has_base = match collect_versions(view.layers_beside_buckets(), full, seqno, &mut cached, versions) {
                Err(Unanswered::Failed(error)) => return Err(error),
                Err(Unanswered::NotCached(block)) => {
                    missing.push(block);
                    false
                }
                Ok(()) => true,
            };
            let in_segments = buckets.look_up_cached(full, seqno, versions.base_seqno(), &mut missing)?;
            if missing.is_empty() {
                break Some(in_segments);
            }
            if missing.iter().any(|block| waited_for.contains(&block.place())) {
                // It was read and evicted, or its read failed.
                break None;
            }
            waited_for.extend(missing.iter().map(MissingBlock::place));
            let base = versions.base().filter(|_| has_base && value.is_none()).cloned();
            self.read_together(view, full, missing, base, &mut value);
        };
        *tables = cached.0;
        let found = match in_segments {
            Some(Some(in_segments)) => {
                if !self.memory.operands.holds(full) {
                    self.memory.operands.note_absent(full);
                }
                in_segments.join_to(versions, seqno, tables);
                Ok(())
            }
            Some(None) => Ok(()),
            None => {
                versions.restart();
                collect_versions(view.layers(), full, seqno, tables, versions)
            }
        };
        let table = versions.base_table();
        if let Some((stamp, value)) = value
            && let Some(base) = versions.separated().find(|version| inline(version.0) == stamp)
        {
            self.memory.value_cache.insert(full, base.0, table, &value);
            set_payload(base, value);
        }
        found
    }

    /// Reads blocks into the cache, and the value of a separated `base` into `value`.
    fn read_together(
        &self,
        view: &View,
        full: &[u8],
        missing: Vec<MissingBlock>,
        base: Option<KeyVersion>,
        value: &mut Option<KeyVersion>,
    ) {
        let blocks = missing
            .into_iter()
            .filter_map(|block| Some(ReadRequest { range: block.range()?, context: Lacking::Block(block) }));
        let mut wanted: Vec<ReadRequest<Lacking>> = blocks.collect();
        let mut base = base.filter(|(stamp, _)| stamp.kind().is_some_and(Kind::is_address));
        if let Some(base) = &mut base {
            match self.locate_separated(view, full, base, true) {
                Some((file, now)) => {
                    let range = ReadRange { file: now.file, start: now.offset, end: now.offset + u64::from(now.len) };
                    wanted.push(ReadRequest { range, context: Lacking::Value(file, now) });
                }
                None if base.0 == inline(base.0) => *value = Some(base.clone()),
                None => {}
            }
        }
        read_coalesced(wanted, COALESCING, Lacking::file, |lacking, bytes| match (lacking, &base) {
            (Lacking::Block(block), _) => block.insert(bytes),
            (Lacking::Value(_, now), Some((stamp, _))) => {
                if let Ok(read) = value_of(bytes, *now, full, Some(stamp.seqno()), &self.memory.values) {
                    *value = Some((inline(*stamp), read));
                }
            }
            (Lacking::Value(..), None) => {}
        });
    }
}
