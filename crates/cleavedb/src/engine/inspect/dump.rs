//! Dumps a file of a database in readable form: a log, a table, a segment, redirect tables, a manifest, `CURRENT`, the
//! page of statistics. The file's contents identify its kind, so a renamed copy can be dumped. A damaged file is dumped
//! up to the damage, followed by the error.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::limits::VALUE_BYTES_LIMIT;
use crate::base::tombstones::Fragment;
use crate::base::{Error, FileId, FileKind, KeyspaceId, Kind, Result, Seqno, split_key};
use crate::engine::inspect::stats_page::read_whole_page;
use crate::engine::manifest::file_names::parse;
use crate::engine::manifest::{self, parse_current, show_edits};
use crate::engine::recovery::indexes::read_indexes;
use crate::format::buckets::{Extent, SEGMENT_LEVEL};
use crate::format::compression::Compression;
use crate::format::edit::{Edit, Opening, Openings};
use crate::format::frame::{FrameKind, HEADER_BYTES, LOG_MAGIC};
use crate::format::index_file::{self, SavedKey, SavedPlace};
use crate::format::keyspace_record::{KeyspaceRecord, Separation};
use crate::format::meta::TableMeta;
use crate::format::record::Record;
use crate::format::references::FileReferences;
use crate::format::stats_page;
use crate::format::table::{FOOTER_BYTES, MAGIC as TABLE_MAGIC};
use crate::front::log_reader::{LogReader, Opened};
use crate::io::{Access, File, OsStorage, Storage, read_exact_at, read_whole};
use crate::levels::table_file::{TableElement, TableFile};
use crate::values::redirect::{self, read_all};
use crate::values::segment::{self, extents};

/// One entry of a dump.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DumpEntry<'a> {
    /// Its offset in bytes. Versions in a table have the offset of their block.
    pub offset: u64,
    /// Its kind: "log", "frame", "record", "edit", "block", "version" and the like.
    pub what: &'static str,
    /// A description.
    pub text: String,
    /// The version of a key that it holds, if any.
    pub version: Option<DumpVersion<'a>>,
}

/// A version of a key in a log or table.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DumpVersion<'a> {
    /// The keyspace.
    pub keyspace: u32,
    /// The user's key.
    pub key: &'a [u8],
    /// Its sequence number.
    pub seqno: u64,
    /// Its kind: "put", "delete", "delta" and the like.
    pub kind: &'static str,
    /// The value or operand.
    pub value: &'a [u8],
}

/// Dumps a file of a database, entry by entry in logical order, until `see` returns `false`. The database may be open.
///
/// # Errors
/// [`Error::Corruption`], after all entries before the damage; [`Error::InvalidInput`] if this is not a file of a
/// database; [`Error::Unsupported`], [`Error::Io`].
pub fn dump(path: impl AsRef<Path>, see: &mut dyn FnMut(&DumpEntry<'_>) -> bool) -> Result<()> {
    dump_from(&OsStorage::new(), path.as_ref(), see)
}

/// Called with each entry; returns false to stop.
type VisitEntry<'s> = dyn FnMut(&DumpEntry<'_>) -> bool + 's;

pub(crate) fn dump_from(storage: &dyn Storage, path: &Path, see: &mut VisitEntry<'_>) -> Result<()> {
    let file = storage.open_read(path, Access::Buffered)?;
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let referenced = parse(&name);
    let id = |wanted| referenced.filter(|(kind, _)| *kind == wanted).map(|(_, id)| id);
    let len = file.len()?;
    let mut start = [0; 8];
    file.read_at(&mut start, 0)?;
    let mut end = [0; 8];
    if let Some(footer) = len.checked_sub(FOOTER_BYTES as u64) {
        file.read_at(&mut end, footer)?;
    }
    match referenced.map(|(kind, _)| kind) {
        _ if start == LOG_MAGIC => dump_log(&*file, id(FileKind::Log), see),
        _ if start == manifest::MAGIC => dump_manifest(storage, path, id(FileKind::Manifest), see),
        _ if start == segment::MAGIC => dump_segment(&*file, id(FileKind::Segment), see),
        _ if start == redirect::MAGIC => dump_redirect(&*file, id(FileKind::Redirect), see),
        _ if start == index_file::MAGIC => dump_index(storage, path, see),
        _ if start == stats_page::MAGIC => dump_stats_page(&*file, see),
        _ if end == *TABLE_MAGIC => dump_table(file, id(FileKind::Table), see),
        _ if start == *b"cleavedb" => dump_current(storage, path, see),
        // The name tells the kind of a damaged file.
        Some(FileKind::Log) => dump_log(&*file, id(FileKind::Log), see),
        Some(FileKind::Manifest) => dump_manifest(storage, path, id(FileKind::Manifest), see),
        Some(FileKind::Table) => dump_table(file, id(FileKind::Table), see),
        Some(FileKind::Segment) => dump_segment(&*file, id(FileKind::Segment), see),
        Some(FileKind::Redirect) => dump_redirect(&*file, id(FileKind::Redirect), see),
        Some(FileKind::Index) => dump_index(storage, path, see),
        None if name == crate::engine::manifest::file_names::CURRENT => dump_current(storage, path, see),
        None => Err(Error::input(format!(
            "{} is no log, table, manifest, segment, redirect table, CURRENT or STATS of a database",
            path.display()
        ))),
    }
}

/// The id that a segment or a file of redirect tables records for itself.
fn own_id(file: &dyn File) -> Result<FileId> {
    let mut bytes = [0; 8];
    read_exact_at(file, &mut bytes, 12)?;
    Ok(FileId(u64::from_le_bytes(bytes)))
}

fn dump_segment(file: &dyn File, id: Option<FileId>, see: &mut VisitEntry<'_>) -> Result<()> {
    let id = id.map_or_else(|| own_id(file), Ok)?;
    let mut goes_on = see(&entry(0, "segment", format!("segment {}, {} B long", id.0, file.len()?)));
    extents(file, id, &mut |extent| {
        goes_on =
            goes_on && see(&entry(extent.start, "extent", format!("extent {} until {}", extent.id.0, extent.end)));
        extent.for_each_record(file, &mut |offset, record, _| {
            if !goes_on {
                return Ok(());
            }
            let operation = record.operation;
            let value = record.value(VALUE_BYTES_LIMIT - 1).map_err(|why| why.at(file.path(), offset))?;
            let text = match record.compression {
                Compression::None => String::new(),
                compression => format!("({compression:?}, {} B of {} B)", operation.value.len(), value.len()),
            };
            let version = version(operation.keyspace, operation.key, record.seqno, Some(operation.kind), &value);
            goes_on = see(&DumpEntry { offset, what: "record", text, version: Some(version) });
            Ok(())
        })
    })
}

fn dump_redirect(file: &dyn File, id: Option<FileId>, see: &mut VisitEntry<'_>) -> Result<()> {
    let id = id.map_or_else(|| own_id(file), Ok)?;
    let mut goes_on = see(&entry(0, "redirect tables", format!("file {}, {} B long", id.0, file.len()?)));
    let see_entry = &mut |table: &redirect::RedirectTable, moved: redirect::RedirectEntry| {
        let (index, offset) = moved.to;
        let len = moved.len.map(|len| format!(", {len} B now")).unwrap_or_default();
        let text = format!("from {}, to {offset} of extent {index} of those of the table{len}", table.of.0);
        goes_on = goes_on && see(&entry(moved.from, "moved", text));
    };
    read_all(file, id, see_entry).map(|_| ())
}

fn dump_index(storage: &dyn Storage, path: &Path, see: &mut VisitEntry<'_>) -> Result<()> {
    let file = storage.open_read(path, Access::Buffered)?;
    let id = own_id(&*file)?;
    let mut goes_on = see(&entry(0, "indexes", format!("file {}, {} B long", id.0, file.len()?)));
    let see_key = |key: SavedKey<'_>| {
        let SavedPlace { kind, file, offset, len } = key.newest;
        let what = ["put", "delete", "merge"][usize::from(kind)];
        let more = if key.older.is_empty() { String::new() } else { format!(", and {} older", key.older.len()) };
        let text = format!(
            "keyspace {}, {:?}: {what} at {offset} of log {}, {len} B{more}",
            key.keyspace.0,
            key.key.escape_ascii().to_string(),
            file.0
        );
        goes_on = goes_on && see(&entry(0, "key", text));
    };
    read_indexes(&*file, id, see_key).map(|_| ())
}

fn entry(offset: u64, what: &'static str, text: String) -> DumpEntry<'static> {
    DumpEntry { offset, what, text, version: None }
}

fn dump_current(storage: &dyn Storage, path: &Path, see: &mut VisitEntry<'_>) -> Result<()> {
    let (id, len) = parse_current(path, &read_whole(storage, path)?)?;
    see(&entry(0, "CURRENT", format!("manifest {}, of which {len} B must be whole", id.0)));
    Ok(())
}

fn dump_stats_page(file: &dyn File, see: &mut VisitEntry<'_>) -> Result<()> {
    let page = read_whole_page(file)?.map_err(|why| Error::corruption(file.path(), 0, why))?;
    let uptime = page.uptime.as_secs_f64();
    let text = format!("process {}, sequence {}, open for {uptime:.1} s", page.process, page.sequence);
    if see(&entry(0, "STATS", text)) {
        see(&entry(stats_page::HEADER_BYTES as u64, "figures", format!("{:?}", page.stats)));
    }
    Ok(())
}

fn dump_manifest(storage: &dyn Storage, path: &Path, id: Option<FileId>, see: &mut VisitEntry<'_>) -> Result<()> {
    let bytes = read_whole(storage, path)?;
    let mut is_first = true;
    show_edits(path, id, &bytes, &mut |id, offset, len, edit| {
        if std::mem::take(&mut is_first) && !see(&entry(0, "manifest", format!("manifest {}", id.0))) {
            return false;
        }
        see(&entry(offset, "edit", format!("{len} B")))
            && lines_of(edit).into_iter().all(|(what, text)| see(&entry(offset, what, text)))
    })
}

/// The contents of an edit, in the order of application.
fn lines_of(edit: &Edit) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let numbered =
        |what: &'static str, ids: &[FileId]| ids.iter().map(|id| (what, id.0.to_string())).collect::<Vec<_>>();
    lines.extend(edit.keyspaces_added.iter().map(|keyspace| ("keyspace added", keyspace_text(keyspace))));
    let dropped = edit.keyspaces_dropped.iter().map(|(id, seqno)| format!("{}, all up to seqno {}", id.0, seqno.0));
    lines.extend(dropped.map(|text| ("keyspace dropped", text)));
    lines.extend(edit.keyspaces_forgotten.iter().map(|id| ("keyspace forgotten", id.0.to_string())));
    for (what, files) in [("file added", &edit.files_added), ("file moved", &edit.files_moved)] {
        let files = files.iter().map(|file| format!("{:?} {} in directory {}", file.kind, file.id.0, file.dir.0));
        lines.extend(files.map(|text| (what, text)));
    }
    lines.extend(numbered("log added", &edit.logs_added));
    lines.extend(edit.logs_ended.iter().map(|(id, end)| ("log ended", format!("{} at {end}", id.0))));
    lines.extend(edit.logs_whole.iter().map(|(id, end)| ("log whole", format!("{} up to {end}", id.0))));
    lines.extend(numbered("log removed", &edit.logs_removed));
    lines.extend(numbered("table removed", &edit.tables_removed));
    let place = |level: u8| match level {
        SEGMENT_LEVEL => "as a delta segment".to_owned(),
        level => format!("to HL{level}"),
    };
    let added = edit.tables_added.iter();
    let added = added.map(|(level, meta)| format!("{} {}: {}", meta.id.0, place(*level), meta_text(meta)));
    lines.extend(added.map(|text| ("table added", text)));
    let separated = |separation: &Separation| match separation {
        Separation::Default => "by default".to_owned(),
        Separation::From(bytes) => format!("from {bytes} B on"),
        Separation::Never => "never".to_owned(),
    };
    let changed = edit.keyspaces_separated.iter().map(|(id, how)| format!("{}: {}", id.0, separated(how)));
    lines.extend(changed.map(|text| ("values separated", text)));
    let placed = edit.keyspaces_placed.iter().map(|(id, deltas)| format!("{}: in {deltas:?}", id.0));
    lines.extend(placed.map(|text| ("merge operands", text)));
    let lower = |lower: &[u8]| lower.escape_ascii().to_string();
    lines.extend(edit.buckets_removed.iter().map(|bound| ("bucket removed", lower(bound))));
    let extent = |extent: &Extent| {
        let (seqnos, segment) = ((extent.seqno_min.0, extent.seqno_max.0), extent.segment.0);
        format!("{} in {segment}, seqnos {} to {}", extent.entries, seqnos.0, seqnos.1)
    };
    let bucket = |(bound, extents): &(Vec<u8>, Vec<Extent>)| {
        format!("{}: {}", lower(bound), extents.iter().map(extent).collect::<Vec<_>>().join("; "))
    };
    lines.extend(edit.buckets_set.iter().map(|set| ("bucket", bucket(set))));
    lines.extend(edit.values_placed.iter().map(|(id, place)| ("values placed", format!("{}: {place:?}", id.0))));
    lines.extend(numbered("values removed", &edit.values_removed));
    for (what, names) in [("referenced", &edit.referenced), ("no longer referenced", &edit.released)] {
        let text = |id: &FileId, referenced: &FileReferences| {
            format!("{}: {} records, {} B", id.0, referenced.records, referenced.bytes)
        };
        lines.extend(names.0.iter().map(|(id, referenced)| (what, text(id, referenced))));
    }
    let consumed = edit.watermarks.iter().map(|(consumer, seqno)| format!("{} up to {}", consumer.name(), seqno.0));
    lines.extend(consumed.map(|text| ("watermark", text)));
    let singles = [
        ("reorder credit", edit.reorder_credit.map(|credit| format!("{credit:?}"))),
        ("reordered", edit.reordered.map(|bytes| format!("{bytes} B"))),
        ("last seqno", edit.last_seqno.map(|seqno| seqno.0.to_string())),
        ("next file", edit.next_file.map(|file| file.0.to_string())),
        ("next keyspace", edit.next_keyspace.map(|keyspace| keyspace.0.to_string())),
        ("database", edit.database.map(|number| format!("{number:016x}"))),
    ];
    lines.extend(singles.into_iter().filter_map(|(what, text)| Some((what, text?))));
    let reserved = edit.files_reserved.iter().map(|(from, end)| format!("{} to {}", from.0, end.0 - 1));
    lines.extend(reserved.map(|text| ("files reserved", text)));
    let opening = |opening: Opening| format!("{} ({:016x})", opening.epoch, opening.nonce);
    let openings = |of: Openings| format!("{}, before it {}", opening(of.present), opening(of.previous));
    lines.extend(edit.openings.map(|of| ("opened", openings(of))));
    let left = edit.devices_left.iter().map(|(path, of)| format!("{path}, which may name opening {}", openings(*of)));
    lines.extend(left.map(|text| ("device left", text)));
    let dirs =
        edit.dirs_added.iter().map(|(dir, of)| format!("{} is {:?}, since opening {}", dir.0, of.path, of.since));
    lines.extend(dirs.map(|text| ("directory", text)));
    lines.extend(edit.dirs_removed.iter().map(|dir| ("directory removed", dir.0.to_string())));
    lines.extend(edit.slow_dir.map(|dir| ("slow tier", format!("in directory {}", dir.0))));
    lines
}

fn keyspace_text(keyspace: &KeyspaceRecord) -> String {
    let operator = keyspace.operator.as_ref().map(|name| format!(", merge operator {name}")).unwrap_or_default();
    let compression = keyspace.compression.map(|stored| match Compression::from_u8(stored) {
        Some(known) => format!(", compression {known:?}"),
        None => format!(", compression {stored}, which is not known"),
    });
    format!("{} {:?}{operator}{}", keyspace.id.0, keyspace.name, compression.unwrap_or_default())
}

fn meta_text(meta: &TableMeta) -> String {
    format!(
        "{} B, {} versions ({} deletes, {} deltas, {} addresses), seqno {} to {}, keys from {} to before {}",
        meta.size,
        meta.entries,
        meta.deletes,
        meta.deltas,
        meta.addresses,
        meta.seqno_min.0,
        meta.seqno_max.0,
        full_key_text(&meta.smallest),
        full_key_text(&meta.end),
    )
}

fn full_key_text(full_key: &[u8]) -> String {
    match split_key(full_key) {
        Some((keyspace, key)) => format!("{}/{}", keyspace.0, key.escape_ascii()),
        None => full_key.escape_ascii().to_string(),
    }
}

fn kind_name(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::Delete) => "delete",
        Some(Kind::Put) => "put",
        Some(Kind::PutAt) => "put-at",
        Some(Kind::Delta) => "delta",
        Some(Kind::DeltaAt) => "delta-at",
        Some(Kind::DeleteRange) => "delete-range",
        None => "unknown",
    }
}

fn dump_log(file: &dyn File, id: Option<FileId>, see: &mut VisitEntry<'_>) -> Result<()> {
    let id = match id {
        Some(id) => id,
        None => LogReader::own_id(file)?,
    };
    let Opened::Log(mut reader) = LogReader::open(file, id, None)? else {
        return Err(Error::corruption(file.path(), 0, "the log has no header"));
    };
    if !see(&entry(0, "log", format!("log {}, {} B long", id.0, file.len()?))) {
        return Ok(());
    }
    while let Some(frame) = reader.next_frame()? {
        let header = frame.header;
        let (first, synced) = (header.first_seqno.0, header.sync_point.0);
        let (what, text) = match header.kind {
            FrameKind::Padding => ("padding", format!("{} B, synced up to {synced}", header.frame_bytes())),
            FrameKind::Records => {
                let last = first + u64::from(header.count) - 1;
                let bytes = header.frame_bytes();
                (
                    "frame",
                    format!("{bytes} B, {} records, seqno {first} to {last}, synced up to {synced}", header.count),
                )
            }
        };
        if !see(&entry(frame.offset, what, text)) {
            return Ok(());
        }
        let mut rest = if header.kind == FrameKind::Records { frame.body } else { &[] };
        let mut offset = frame.offset + HEADER_BYTES as u64;
        while let Ok(record) = Record::take(&mut rest) {
            let operation = record.operation;
            let (keyspace, seqno, kind) = (operation.keyspace, record.seqno, Some(operation.kind));
            let version = version(keyspace, operation.key, seqno, kind, operation.value);
            if !see(&DumpEntry { offset, what: "record", text: String::new(), version: Some(version) }) {
                return Ok(());
            }
            offset += operation.record_bytes() as u64;
        }
    }
    end_of_log(file, &mut reader, see)
}

/// After the last frame of a log there is nothing, or reserved space filled with zeros.
fn end_of_log(file: &dyn File, reader: &mut LogReader<'_>, see: &mut VisitEntry<'_>) -> Result<()> {
    let (end, len) = (reader.offset(), file.len()?);
    let mut rest = vec![0; 1 << 16];
    let mut at = end;
    while at < len {
        let part = (len - at).min(rest.len() as u64) as usize;
        read_exact_at(file, &mut rest[..part], at)?;
        if rest[..part].iter().any(|&byte| byte != 0) {
            let (offset, why) = reader.explain()?;
            return Err(Error::corruption(file.path(), offset, why));
        }
        at += part as u64;
    }
    see(&entry(end, "end", format!("{} B of zeros behind it", len.saturating_sub(end))));
    Ok(())
}

fn version<'a>(
    keyspace: KeyspaceId,
    key: &'a [u8],
    seqno: Seqno,
    kind: Option<Kind>,
    value: &'a [u8],
) -> DumpVersion<'a> {
    DumpVersion { keyspace: keyspace.0, key, seqno: seqno.0, kind: kind_name(kind), value }
}

fn dump_table(file: Arc<dyn File>, id: Option<FileId>, see: &mut VisitEntry<'_>) -> Result<()> {
    let table = TableFile::open(file, id)?;
    let properties = &table.properties;
    let footer = format!("table {}: {}", table.footer.file.0, meta_text(&table.meta()));
    let more = format!(
        "{} B of keys, {} B of payloads, blocks of {} B, compression {:?}",
        properties.key_bytes, properties.value_bytes, properties.block_size, properties.compression
    );
    if !see(&entry(table.blocks_end(), "table", footer))
        || !see(&entry(table.footer.properties.offset, "properties", more))
    {
        return Ok(());
    }
    let (mut failure, mut block) = (None, 0);
    let walked = table.walk(&mut |part| {
        let goes_on = match part {
            Err(error) => {
                failure = Some(error);
                false
            }
            Ok(TableElement::Ranges(handle, fragments)) => {
                let ranges = |fragment: &Fragment| {
                    let seqnos: Vec<String> = fragment.seqnos.iter().map(|seqno| seqno.0.to_string()).collect();
                    let (start, end) = (full_key_text(&fragment.start), full_key_text(&fragment.end));
                    let text = format!("{start} to before {end}, deleted at {}", seqnos.join(", "));
                    see(&entry(handle.offset, "range tombstone", text))
                };
                fragments.iter().all(ranges)
            }
            Ok(TableElement::TopIndex(handle)) => see(&entry(handle.offset, "top index", format!("{} B", handle.len))),
            Ok(TableElement::Partition(None)) => true,
            Ok(TableElement::Partition(Some((handle, _)))) => {
                see(&entry(handle.offset, "filter", format!("{} B", handle.len)))
            }
            Ok(TableElement::Index(handle, key)) => {
                see(&entry(handle.offset, "index", format!("{} B, up to {}", handle.len, full_key_text(key))))
            }
            Ok(TableElement::Data { handle, compression, bytes, separator }) => {
                block = handle.offset;
                let until = full_key_text(separator.0);
                see(&entry(block, "block", format!("{} B ({compression:?} of {bytes} B), up to {until}", handle.len)))
            }
            Ok(TableElement::Version { key, stamp, value }) => {
                let (keyspace, key) = split_key(key).unwrap_or((KeyspaceId(0), key));
                let version = Some(version(keyspace, key, stamp.seqno(), stamp.kind(), value));
                see(&DumpEntry { offset: block, what: "version", text: String::new(), version })
            }
        };
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let _ = walked;
    failure.map_or(Ok(()), Err)
}
