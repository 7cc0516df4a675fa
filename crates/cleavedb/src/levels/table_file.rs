//! Walks a table file block by block without a manifest, as far as it can be read. Damage is passed to the visitor as
//! an error, and the walk continues with the next block that can be found.
//!
//! Called by the check and the dump; never by reads.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::blocks::Blocks;
use crate::base::tombstones::Fragment;
use crate::base::{Bytes, Cursor, Error, FileId, Result, Stamp};
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
    /// The footer.
    pub footer: Footer,
    /// What the table records about itself.
    pub properties: Properties,
}

/// What the walk visits. For each partition: first the filter, then the index, then the data blocks.
pub enum TableElement<'a> {
    /// The block of range tombstones, if there is one.
    Ranges(BlockHandle, Vec<Fragment>),
    /// The block that indexes all partitions.
    TopIndex(BlockHandle),
    /// The start of a partition, with its filter if it has a readable one.
    Partition(Option<(BlockHandle, Bytes)>),
    /// The index of a partition, and its separator in the top index.
    Index(BlockHandle, &'a [u8]),
    /// A data block, and its separator in the index. `bytes` is its size before compression.
    Data { handle: BlockHandle, compression: Compression, bytes: usize, separator: (&'a [u8], Stamp) },
    /// A version in the data block visited last.
    Version { key: &'a [u8], stamp: Stamp, value: &'a [u8] },
}

/// Called for each element of the walk; decides whether the walk continues.
pub type Visitor<'v> = dyn FnMut(Result<TableElement<'_>>) -> ControlFlow<()> + 'v;

impl TableFile {
    /// Reads and checks footer and properties. Without an `id`, the id in the footer is accepted.
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

    /// The description that a manifest should hold of it.
    pub fn meta(&self) -> TableMeta {
        TableMeta::new(self.footer.file, self.len, &self.properties)
    }

    /// Offset of the end of the blocks.
    pub fn blocks_end(&self) -> u64 {
        self.len - FOOTER_BYTES as u64
    }

    /// Passes every element to `see`.
    pub fn walk(&self, see: &mut Visitor<'_>) -> ControlFlow<()> {
        if let Some(handle) = self.properties.range_block {
            see(self.ranges(handle).map(|fragments| TableElement::Ranges(handle, fragments)))?;
        }
        let top = match self.cursor(self.footer.top_index) {
            Ok((top, _)) => top,
            Err(error) => return see(Err(error)),
        };
        see(Ok(TableElement::TopIndex(self.footer.top_index)))?;
        // A table may hold range tombstones only; then, and only then, the top index is empty.
        if self.properties.entries == 0 && top.is_empty() {
            return ControlFlow::Continue(());
        }
        self.entries(top, self.footer.top_index, see, &mut |entry, see| match PartitionHandles::decode(entry.value()) {
            Some(handles) => self.partition(handles, entry, see),
            None => see(Err(self.damaged(self.footer.top_index, "the top index holds an invalid block handle"))),
        })
    }

    fn ranges(&self, handle: BlockHandle) -> Result<Vec<Fragment>> {
        let block = Bytes::new(self.payload(handle)?.1);
        RangeBlock::new(block, BlockOrigin::new(self.path.clone(), handle.offset)).fragments()
    }

    fn partition(&self, handles: PartitionHandles, entry: &BlockCursor, see: &mut Visitor<'_>) -> ControlFlow<()> {
        let filter = handles.filter.map(|handle| Ok((handle, Bytes::new(self.payload(handle)?.1))));
        match filter.transpose() {
            Ok(filter) => see(Ok(TableElement::Partition(filter)))?,
            Err(error) => {
                see(Ok(TableElement::Partition(None)))?;
                see(Err(error))?;
            }
        }
        let index = match self.cursor(handles.index) {
            Ok((index, _)) => index,
            Err(error) => return see(Err(error)),
        };
        see(Ok(TableElement::Index(handles.index, entry.key())))?;
        self.entries(index, handles.index, see, &mut |entry, see| match BlockHandle::decode(entry.value()) {
            Some(handle) => self.data(handle, entry, see),
            None => see(Err(self.damaged(handles.index, "an index block holds an invalid block handle"))),
        })
    }

    fn data(&self, handle: BlockHandle, entry: &BlockCursor, see: &mut Visitor<'_>) -> ControlFlow<()> {
        let (compression, bytes) = match self.payload(handle) {
            Ok((compression, bytes)) => (compression, bytes),
            Err(error) => return see(Err(error)),
        };
        let separator = (entry.key(), entry.stamp());
        see(Ok(TableElement::Data { handle, compression, bytes: bytes.len(), separator }))?;
        match self.block_cursor(handle, bytes) {
            Ok(cursor) => self.entries(cursor, handle, see, &mut |entry, see| {
                see(Ok(TableElement::Version { key: entry.key(), stamp: entry.stamp(), value: entry.value() }))
            }),
            Err(error) => see(Err(error)),
        }
    }

    /// Passes the entries of a block to the visitor; a damaged entry ends the block.
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
        BlockCursor::new(Bytes::new(bytes), origin)
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
