//! One layer of a view: a part of a store that covers an interval of sequence numbers. Readers access the stores only
//! through layers; another kind of layer (a device, or tables on another tier) would be one more variant here and
//! change no reader.
//!
//! A view lists its layers newest first (rule 1): all versions of a key in a layer are newer than those in later
//! layers. [`in_order`] checks this as far as possible without reading. The exception is the delta store, whose operands lie
//! beside the versions of all other layers: it comes last, and its operands are sorted in by their numbers.

use std::sync::Arc;

use crate::base::key_versions::KeyVersions;
use crate::base::ranges::{KeyRange, Mark};
use crate::base::tombstones::RangeTombstones;
use crate::base::{Cursor, Result, Seqno};
use crate::engine::buckets::{BucketCursor, Buckets};
use crate::front::index_table::IndexTable;
use crate::front::run::Run;
use crate::levels::point_reads::TableLookUp;
use crate::levels::table::Table;
use crate::levels::version::{Level, Version};

/// A part of a store.
#[derive(Clone)]
pub(crate) enum Layer {
    /// Takes new versions, or is sealed and waits to become a run.
    IndexTable(Arc<IndexTable>),
    Run(Arc<Run>),
    /// A table of HL0.
    Table(Arc<Table>),
    /// A level below HL0, by its number.
    Level(u8, Arc<Level>),
    /// The delta store: merge operands of any age. Always the last layer.
    Buckets(Arc<Buckets>),
}

/// Collects the versions of a key at or below `snapshot` that its value depends on: the base and the operands. Searches
/// from the newest layer to the one that has the base. Each layer adds the newest range tombstone that covers the key, then
/// its versions, newest first, until no older one is needed. `tables` determines how tables are read.
#[inline]
pub(crate) fn collect_versions<T: TableLookUp>(
    layers: &[Layer],
    key: &[u8],
    snapshot: Seqno,
    tables: &mut T,
    versions: &mut KeyVersions,
) -> Result<(), T::Error> {
    for layer in layers {
        if versions.is_settled() {
            break;
        }
        match layer {
            Layer::IndexTable(table) => {
                versions.cover(table.cover(key, snapshot));
                table.visit(key, snapshot, &mut |stamp, payload| versions.push_older(stamp, payload));
            }
            Layer::Run(run) => {
                versions.cover(run.cover(key, snapshot)?);
                run.visit(key, snapshot, &mut |stamp, payload| versions.push_older(stamp, payload))?;
            }
            Layer::Table(table) => tables.look_up(table, key, snapshot, versions)?,
            Layer::Level(_, level) => {
                if let Some(table) = level.table_for(key) {
                    tables.look_up(table, key, snapshot, versions)?;
                }
            }
            Layer::Buckets(_) => {}
        }
    }
    match layers.last() {
        Some(Layer::Buckets(buckets)) => buckets.look_up(key, snapshot, tables, versions),
        _ => Ok(()),
    }
}

/// The input of a scan from one layer.
pub(crate) struct LayerScan {
    /// Together they return every version of the keys within the bounds, and may return more.
    pub cursors: Vec<Box<dyn Cursor + Send>>,
    /// The range tombstones, if there may be any within the bounds.
    pub ranges: Option<Arc<dyn RangeTombstones>>,
}

/// Estimated size of the part of a layer within a range of keys.
#[derive(Default)]
pub(crate) struct LayerSize {
    pub entries: u64,
    pub table_bytes: u64,
    /// Bytes of separated values that tables reference.
    pub bytes_separated: u64,
    /// Bytes of index tables and runs, and of the values in logs that they reference.
    pub front_bytes: u64,
}

impl Layer {
    /// The layers of a version, newest first: the tables of HL0, then every lower level that has tables.
    pub fn of_version(version: &Version) -> impl Iterator<Item = Layer> {
        let [hl0, lower @ ..] = version.levels() else { unreachable!("a version has all levels") };
        let lower = lower.iter().zip(1..).filter(|(level, _)| !level.tables().is_empty());
        let tables = hl0.tables().iter().map(|table| Layer::Table(table.clone()));
        tables.chain(lower.map(|(level, number)| Layer::Level(number, level.clone())))
    }

    /// Its versions are of any age, beside those of all other layers.
    pub fn is_ageless(&self) -> bool {
        matches!(self, Layer::Buckets(_))
    }

    /// The sequence numbers that the layer covers, first and last; `None` while it is empty.
    pub fn interval(&self) -> Option<(Seqno, Seqno)> {
        match self {
            Layer::IndexTable(table) => table.seqnos(),
            Layer::Run(run) => Some(run.seqnos()),
            Layer::Table(table) => Some((table.meta().seqno_min, table.meta().seqno_max)),
            Layer::Level(_, level) => level.seqnos(),
            Layer::Buckets(buckets) => buckets.directory.seqnos(),
        }
    }

    /// An upper bound on the sequence numbers that it has for the full keys from `first` to `last`, both included; 0 if it has none.
    pub fn newest_within(&self, first: &[u8], last: &[u8]) -> Seqno {
        match self {
            Layer::Table(_) | Layer::Level(..) => {
                let metas = self.tables().iter().map(|table| table.meta());
                let within = metas.filter(|meta| &meta.end[..] > first && &meta.smallest[..] <= last);
                within.map(|meta| meta.seqno_max).max().unwrap_or_default()
            }
            _ => self.interval().map_or(Seqno::ZERO, |(_, newest)| newest),
        }
    }

    /// The input for a scan of the full keys from `lower` to `upper` (exclusive).
    pub fn scan(&self, lower: &[u8], upper: Option<&[u8]>) -> LayerScan {
        match self {
            Layer::IndexTable(table) => LayerScan {
                cursors: table.cursors().into_iter().map(|cursor| Box::new(cursor) as _).collect(),
                ranges: table.has_ranges().then(|| table.clone() as _),
            },
            Layer::Run(run) => {
                LayerScan { cursors: vec![Box::new(run.cursor())], ranges: run.has_ranges().then(|| run.clone() as _) }
            }
            Layer::Table(table) if !table.meta().reaches_into(lower, upper) => {
                LayerScan { cursors: Vec::new(), ranges: None }
            }
            Layer::Table(table) => LayerScan {
                cursors: vec![Box::new(table.cursor(true))],
                ranges: table.has_ranges().then(|| table.clone() as _),
            },
            Layer::Level(_, level) => LayerScan {
                cursors: vec![Box::new(level.cursor(true))],
                ranges: level.ranges(lower, upper).map(|ranges| Arc::new(ranges) as _),
            },
            Layer::Buckets(buckets) if buckets.directory.overlapping(lower, upper).is_empty() => {
                LayerScan { cursors: Vec::new(), ranges: None }
            }
            Layer::Buckets(buckets) => {
                LayerScan { cursors: vec![Box::new(BucketCursor::new(buckets.clone(), true))], ranges: None }
            }
        }
    }

    /// The tables of the layer, whose files it pins.
    pub fn tables(&self) -> &[Arc<Table>] {
        match self {
            Layer::IndexTable(_) | Layer::Run(_) => &[],
            Layer::Table(table) => std::slice::from_ref(table),
            Layer::Level(_, level) => level.tables(),
            Layer::Buckets(buckets) => buckets.segments(),
        }
    }

    /// Estimated size of the part of the layer within `range`. For each table that spans an end of the range, it reads
    /// at most two index blocks per end.
    pub fn size_within(&self, range: &KeyRange) -> Result<LayerSize> {
        let front = |marks: &mut dyn Iterator<Item = Mark>, bytes: u64, entries: u64| {
            let (mut within, mut all) = (0, 0);
            for mark in marks {
                all += mark.bytes;
                within += if range.holds(&mark.key) { mark.bytes } else { 0 };
            }
            let (entries, front_bytes) = (share(entries, within, all), share(bytes, within, all));
            LayerSize { entries, front_bytes, ..LayerSize::default() }
        };
        match self {
            Layer::IndexTable(table) => {
                let bytes = table.bytes() as u64 + table.value_bytes();
                Ok(front(&mut table.marks().into_iter(), bytes, table.len() as u64))
            }
            Layer::Run(run) => Ok(front(&mut run.marks(), run.bytes() as u64 + run.value_bytes(), run.entries())),
            Layer::Buckets(buckets) => {
                let (entries, table_bytes) = buckets.size_within(range);
                Ok(LayerSize { entries, table_bytes, ..LayerSize::default() })
            }
            Layer::Table(_) | Layer::Level(..) => {
                let mut size = LayerSize::default();
                for table in self.tables() {
                    let bytes = bytes_within(table, range)?;
                    let meta = table.meta();
                    size.table_bytes += bytes;
                    size.bytes_separated += share(meta.bytes_separated, bytes, meta.size);
                    size.entries += share(meta.entries, bytes, meta.size);
                }
                Ok(size)
            }
        }
    }
}

/// True if the layers are listed newest first (rule 1), as far as their intervals of sequence numbers show. Index
/// tables and runs are newer than all layers after them. A table of HL0 is newer than the tables after it that overlap
/// it in keys. Intervals cannot show the order of levels, which the compaction picker must guarantee.
pub(crate) fn in_order(layers: &[Layer]) -> bool {
    layers.iter().enumerate().all(|(index, newer)| layers[index + 1..].iter().all(|older| may_precede(newer, older)))
}

fn may_precede(newer: &Layer, older: &Layer) -> bool {
    let is_newer = || match (newer.interval(), older.interval()) {
        (Some((first, _)), Some((_, last))) => last < first,
        _ => true,
    };
    match (newer, older) {
        (newer, Layer::Buckets(_)) => !matches!(newer, Layer::Buckets(_)),
        (Layer::Buckets(_), _) => false,
        (Layer::Run(_), Layer::IndexTable(_)) => false,
        (Layer::IndexTable(_) | Layer::Run(_), _) => is_newer(),
        (Layer::Table(newer), Layer::Table(older)) => {
            is_newer() || !newer.meta().overlaps(&older.meta().smallest, &older.meta().end)
        }
        (Layer::Level(upper, _), Layer::Level(lower, _)) => upper < lower,
        (Layer::Table(_), older) => matches!(older, Layer::Level(..)),
        (Layer::Level(..), _) => false,
    }
}

/// `whole` times the ratio of `part` to `all`.
fn share(whole: u64, part: u64, all: u64) -> u64 {
    (whole as u128 * part.min(all) as u128 / all.max(1) as u128) as u64
}

/// Bytes of a table's file within the range: the whole file, or the data between two positions in its index.
fn bytes_within(table: &Arc<Table>, range: &KeyRange) -> Result<u64> {
    let meta = table.meta();
    if !range.overlaps(&meta.smallest, &meta.end) {
        return Ok(0);
    }
    let before = match &range.from {
        Some(from) if *from > meta.smallest => Some(table.cursor(true).offset_of(from)?),
        _ => None,
    };
    let after = match &range.to {
        Some(to) if *to < meta.end => Some(table.cursor(true).offset_of(to)?),
        _ => None,
    };
    Ok(after.unwrap_or(meta.size).saturating_sub(before.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{FileId, KeyspaceId, Kind, full_key};
    use crate::format::record::Operation;
    use crate::front::index_table::{RecordPlace, SeparationThresholds};
    use crate::levels::point_reads::OneKey;

    /// An index table with these versions of one key.
    fn index_table(versions: &[(u64, Kind)]) -> Layer {
        let table = IndexTable::new();
        let mut place = RecordPlace { log: FileId(1), offset: 0 };
        let inline = SeparationThresholds { in_front: usize::MAX, after_flush: usize::MAX };
        for &(seqno, kind) in versions {
            let operation = Operation { kind, keyspace: KeyspaceId(1), key: b"key", value: b"value" };
            table.insert().add_record(&operation, Seqno(seqno), &mut place, inline);
        }
        Layer::IndexTable(Arc::new(table))
    }

    #[test]
    fn layers_are_in_order_if_each_is_newer_than_those_after_it() {
        let puts = |seqnos: &[u64]| index_table(&seqnos.iter().map(|seqno| (*seqno, Kind::Put)).collect::<Vec<_>>());
        let level = |number: u8| Layer::Level(number, Version::default().levels()[usize::from(number)].clone());
        assert!(in_order(&[puts(&[]), puts(&[7, 9]), puts(&[2, 6]), level(1), level(3)]));
        let disordered = [
            vec![puts(&[2, 6]), puts(&[7, 9])],
            vec![puts(&[7, 9]), puts(&[8])],
            vec![puts(&[7]), puts(&[6]), puts(&[6])],
            vec![level(1), puts(&[7])],
            vec![level(3), level(1)],
        ];
        for layers in disordered {
            assert!(!in_order(&layers));
        }
    }

    #[test]
    fn operands_are_collected_from_all_layers_down_to_the_newest_base() {
        let layers = [
            index_table(&[(9, Kind::Delta)]),
            index_table(&[(5, Kind::Delta), (6, Kind::Delta)]),
            index_table(&[(3, Kind::Put), (4, Kind::Delta)]),
            index_table(&[(1, Kind::Put), (2, Kind::Delta)]),
        ];
        let collect = |snapshot| {
            let mut versions = KeyVersions::default();
            let key = full_key(KeyspaceId(1), b"key");
            collect_versions(&layers, &key, Seqno(snapshot), &mut OneKey::default(), &mut versions).unwrap();
            let deltas: Vec<u64> = versions.deltas().iter().map(|(stamp, _)| stamp.seqno().0).collect();
            (deltas, versions.base_seqno().0)
        };
        assert_eq!(collect(9), (vec![9, 6, 5, 4], 3));
        assert_eq!(collect(5), (vec![5, 4], 3));
        assert_eq!(collect(2), (vec![2], 1));
    }
}
