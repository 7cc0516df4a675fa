//! A table file by itself, without a manifest: walked block by block, as far as it can be read. What is damaged is handed
//! to the visitor as an error, and the walk goes on with the next block that can be found.
//!
//! Called by the check and the dump; reads never come here.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::blocks::Blocks;
use crate::base::tombstones::Fragment;
use crate::base::{Buffer, Cursor, Error, FileId, Result, Stamp};
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::compression::Compression;
use crate::format::meta::TableMeta;
use crate::format::properties::Properties;
use crate::format::range_block::RangeBlock;
use crate::format::table::{BlockHandle, FOOTER_BYTES, Footer, PartitionHandles};
use crate::io::{File, read_exact_at};

/// Footer and properties of a table file.
pub struct TableFile {
    file: Arc<dyn File>,
    path: Arc<Path>,
    len: u64,
    /// The fixed end.
    pub footer: Footer,
    /// What the table says that it holds.
    pub properties: Properties,
}

/// What the walk comes by. Of each partition first the filter, then the index, then the blocks of data.
pub enum Part<'a> {
    /// The block of range tombstones, if there is one.
    Ranges(BlockHandle, Vec<Fragment>),
    /// The block that leads to all partitions.
    TopIndex(BlockHandle),
    /// A partition begins, with its filter if it has one that can be read.
    Partition(Option<(BlockHandle, Arc<Buffer>)>),
    /// The index of a partition, and the separating key behind it.
    Index(BlockHandle, &'a [u8]),
    /// A block of versions, and the separator behind it. `bytes` is its size before compression.
    Data { handle: BlockHandle, compression: Compression, bytes: usize, separator: (&'a [u8], Stamp) },
    /// A version of the block before.
    Version { key: &'a [u8], stamp: Stamp, value: &'a [u8] },
}

/// Sees what the walk comes by, and decides whether it goes on.
pub type Visitor<'v> = dyn FnMut(Result<Part<'_>>) -> ControlFlow<()> + 'v;

impl TableFile {
    /// Reads and checks footer and properties. Without an `id` the footer's own is believed.
    pub fn open(file: Arc<dyn File>, id: Option<FileId>) -> Result<TableFile> {
        let path: Arc<Path> = file.path().into();
        let len = file.len()?;
        let Some(footer_offset) = len.checked_sub(FOOTER_BYTES as u64) else {
            return Err(Error::corruption(&path, 0, format!("a table cannot be {len} B long")));
        };
        let mut footer = [0; FOOTER_BYTES];
        read_exact_at(&*file, &mut footer, footer_offset)?;
        let own = Footer::file_of(&footer);
        let footer = Footer::decode(&footer, id.unwrap_or(own), &path, footer_offset)?;
        let properties = Properties::new(Compression::None, 0);
        let mut table = TableFile { file, path, len, footer, properties };
        let (_, payload) = table.payload(footer.properties)?;
        table.properties = Properties::decode(&payload).map_err(|why| table.damaged(footer.properties, why))?;
        Ok(table)
    }

    /// What a manifest should say of it.
    pub fn meta(&self) -> TableMeta {
        TableMeta::new(self.footer.file, self.len, &self.properties)
    }

    /// Where the blocks end.
    pub fn blocks_end(&self) -> u64 {
        self.len - FOOTER_BYTES as u64
    }

    /// Shows everything to `see`.
    pub fn walk(&self, see: &mut Visitor<'_>) -> ControlFlow<()> {
        if let Some(handle) = self.properties.range_block {
            see(self.ranges(handle).map(|fragments| Part::Ranges(handle, fragments)))?;
        }
        let top = match self.cursor(self.footer.top_index) {
            Ok((top, _)) => top,
            Err(error) => return see(Err(error)),
        };
        see(Ok(Part::TopIndex(self.footer.top_index)))?;
        // A table may hold range tombstones only; then, and only then, the top index leads nowhere.
        if self.properties.entries == 0 && top.is_empty() {
            return ControlFlow::Continue(());
        }
        self.entries(top, self.footer.top_index, see, &mut |entry, see| match PartitionHandles::decode(entry.value()) {
            Some(handles) => self.partition(handles, entry, see),
            None => see(Err(self.damaged(self.footer.top_index, "the top index holds a bad handle"))),
        })
    }

    fn ranges(&self, handle: BlockHandle) -> Result<Vec<Fragment>> {
        let block = Arc::new(Buffer::new(self.payload(handle)?.1));
        RangeBlock::new(block, BlockOrigin::new(self.path.clone(), handle.offset)).fragments()
    }

    fn partition(&self, handles: PartitionHandles, entry: &BlockCursor, see: &mut Visitor<'_>) -> ControlFlow<()> {
        let filter = handles.filter.map(|handle| Ok((handle, Arc::new(Buffer::new(self.payload(handle)?.1)))));
        match filter.transpose() {
            Ok(filter) => see(Ok(Part::Partition(filter)))?,
            Err(error) => {
                see(Ok(Part::Partition(None)))?;
                see(Err(error))?;
            }
        }
        let index = match self.cursor(handles.index) {
            Ok((index, _)) => index,
            Err(error) => return see(Err(error)),
        };
        see(Ok(Part::Index(handles.index, entry.key())))?;
        self.entries(index, handles.index, see, &mut |entry, see| match BlockHandle::decode(entry.value()) {
            Some(handle) => self.data(handle, entry, see),
            None => see(Err(self.damaged(handles.index, "an index block holds a bad handle"))),
        })
    }

    fn data(&self, handle: BlockHandle, entry: &BlockCursor, see: &mut Visitor<'_>) -> ControlFlow<()> {
        let (compression, bytes) = match self.payload(handle) {
            Ok((compression, bytes)) => (compression, bytes),
            Err(error) => return see(Err(error)),
        };
        let separator = (entry.key(), entry.stamp());
        see(Ok(Part::Data { handle, compression, bytes: bytes.len(), separator }))?;
        match self.block_cursor(handle, bytes) {
            Ok(cursor) => self.entries(cursor, handle, see, &mut |entry, see| {
                see(Ok(Part::Version { key: entry.key(), stamp: entry.stamp(), value: entry.value() }))
            }),
            Err(error) => see(Err(error)),
        }
    }

    /// Shows the entries of a block one after the other; a bad one ends the block.
    fn entries(
        &self,
        mut cursor: BlockCursor,
        handle: BlockHandle,
        see: &mut Visitor<'_>,
        each: &mut dyn FnMut(&BlockCursor, &mut Visitor<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut moved = cursor.seek_first();
        if moved.is_ok() && !cursor.valid() {
            return see(Err(self.damaged(handle, "a block is empty")));
        }
        loop {
            if let Err(error) = moved {
                return see(Err(error));
            }
            if !cursor.valid() {
                return ControlFlow::Continue(());
            }
            each(&cursor, see)?;
            moved = cursor.next();
        }
    }

    fn cursor(&self, handle: BlockHandle) -> Result<(BlockCursor, usize)> {
        let (_, bytes) = self.payload(handle)?;
        let len = bytes.len();
        Ok((self.block_cursor(handle, bytes)?, len))
    }

    fn block_cursor(&self, handle: BlockHandle, bytes: Vec<u8>) -> Result<BlockCursor> {
        let origin = BlockOrigin { path: self.path.clone(), offset: handle.offset };
        BlockCursor::new(Arc::new(Buffer::new(bytes)), origin)
    }

    /// A block, checked and decompressed.
    fn payload(&self, handle: BlockHandle) -> Result<(Compression, Vec<u8>)> {
        let blocks = self.blocks();
        blocks.open(handle, blocks.read(&*self.file, handle)?)
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { id: self.footer.file, path: &self.path, end: self.blocks_end() }
    }

    fn damaged(&self, handle: BlockHandle, message: &str) -> Error {
        self.blocks().damaged(handle.offset, message)
    }
}
