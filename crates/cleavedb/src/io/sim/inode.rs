//! One simulated file, independent of its names: the content that the process sees, the durable content, and the changes
//! between them.
//!
//! The model of power loss: each sector independently holds what the kernel had there at some moment since the last sync.
//! So any subset of the changes may have reached the disk, torn at sectors, in any order between sectors, but never a later
//! change of a sector without the earlier ones of the same sector.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::content::{Content, PAGE, pages_of};
use crate::sched::random::Random;

/// Bytes that a disk writes atomically.
pub(super) const SECTOR: usize = 512;

/// Which unsynced changes survive a power loss.
#[derive(Debug, Clone, Copy)]
pub(super) enum Survival {
    /// Nothing.
    Nothing,
    /// All changes up to this position in the order of all changes of the disk; the next one may be torn.
    Until(u64),
    /// Each change at random.
    Some,
}

/// A change that is not durable yet, with its position in the order of all changes of the disk.
#[derive(Debug, Clone)]
enum FileChange {
    Write { order: u64, offset: u64, bytes: Arc<[u8]> },
    SetLen { order: u64, len: u64 },
}

/// What a power loss does to one change.
enum WriteFate {
    Kept,
    Torn,
    Lost,
}

/// A simulated file.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    current: Content,
    durable: Content,
    unsynced: Vec<FileChange>,
    /// Pages of `current` that the next sync writes, and those of them that were changed through a mapping.
    dirty: BTreeSet<u64>,
    dirty_mapped: BTreeSet<u64>,
    /// The minimum length of the file since the last sync.
    len_min: u64,
    /// Pages without allocated space: punched out, or skipped by a write behind them.
    holes: BTreeSet<u64>,
    /// Number of open files and mappings of this inode.
    pub(super) handles: usize,
    /// The disk has vanished with the file, so that its handles never work again.
    pub(super) is_lost: bool,
}

impl Inode {
    /// A file whose content is durable.
    pub(super) fn settled(content: Content) -> Inode {
        Inode { len_min: content.len(), current: content.clone(), durable: content, ..Inode::default() }
    }

    /// Replaces the content by durable content; handles stay open.
    pub(super) fn replace(&mut self, content: Content) {
        *self = Inode { handles: self.handles, is_lost: self.is_lost, ..Inode::settled(content) };
    }

    /// The content that the process sees.
    pub(super) fn content(&self) -> &Content {
        &self.current
    }

    pub(super) fn len(&self) -> u64 {
        self.current.len()
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, order: u64) {
        if bytes.is_empty() {
            return;
        }
        let end = self.len().div_ceil(PAGE as u64);
        self.holes.extend(end..offset / PAGE as u64);
        self.current.write(bytes, offset);
        pages_of(offset, bytes.len() as u64).for_each(|page| {
            self.holes.remove(&page);
        });
        self.dirty.extend(pages_of(offset, bytes.len() as u64));
        self.unsynced.push(FileChange::Write { order, offset, bytes: bytes.into() });
    }

    /// Replaces a range by zeros without space; it becomes durable like a write of zeros.
    pub(super) fn punch(&mut self, offset: u64, len: u64, order: u64) {
        let len = len.min(self.len().saturating_sub(offset));
        self.write(&vec![0; len as usize], offset, order);
        self.holes.extend(pages_of(offset, len));
    }

    /// The first range between two offsets whose pages have space.
    pub(super) fn first_data(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let to = to.min(self.len());
        let mut pages = pages_of(from, to.saturating_sub(from)).skip_while(|page| self.holes.contains(page));
        let begin = pages.next()?;
        let end = pages.take_while(|page| !self.holes.contains(page)).last().unwrap_or(begin) + 1;
        Some((from.max(begin * PAGE as u64), to.min(end * PAGE as u64)))
    }

    /// Number of pages without space.
    pub(super) fn hole_pages(&self) -> u64 {
        self.holes.len() as u64
    }

    pub(super) fn set_len(&mut self, len: u64, order: u64) {
        self.current.set_len(len);
        drop(self.holes.split_off(&len.div_ceil(PAGE as u64)));
        self.len_min = self.len_min.min(len);
        self.unsynced.push(FileChange::SetLen { order, len });
    }

    /// A write through a mapping, whose pages the kernel may write back at any time: before a dirty page is changed again,
    /// its old state reaches the disk with probability 1 in 8.
    pub(super) fn write_mapped(&mut self, bytes: &[u8], offset: u64, random: &mut Random) {
        for page in pages_of(offset, bytes.len() as u64) {
            if self.dirty_mapped.contains(&page) && random.one_in(8) {
                self.durable.put_page(page, self.current.page(page));
            }
            self.dirty_mapped.insert(page);
            self.dirty.insert(page);
        }
        self.current.write(bytes, offset);
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        self.durable.set_len(self.durable.len().min(self.len_min));
        self.durable.set_len(self.current.len());
        for &page in &self.dirty {
            self.durable.put_page(page, self.current.page(page));
        }
        self.mark_clean();
    }

    /// A failed sync: some changes are on the disk; the others count as clean, and no later sync writes them.
    pub(super) fn sync_failed(&mut self, random: &mut Random) {
        self.durable = self.after_power_loss(Survival::Some, random);
        self.mark_clean();
    }

    /// Bit rot: flips one bit in the current and in the durable content, where they have the byte.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        for content in [&mut self.current, &mut self.durable] {
            let mut byte = [0];
            let found = content.read(&mut byte, offset) == 1;
            if found {
                content.write(&[byte[0] ^ (1 << bit)], offset);
            }
        }
    }

    fn mark_clean(&mut self) {
        self.unsynced.clear();
        self.dirty.clear();
        self.dirty_mapped.clear();
        self.len_min = self.current.len();
    }

    /// The positions of its unsynced changes in the order of all changes.
    pub(super) fn unsynced_orders(&self) -> impl Iterator<Item = u64> {
        self.unsynced.iter().map(|change| match change {
            FileChange::Write { order, .. } | FileChange::SetLen { order, .. } => *order,
        })
    }

    /// The content on the disk after a power loss now.
    pub(super) fn after_power_loss(&self, survival: Survival, random: &mut Random) -> Content {
        let mut left = self.durable.clone();
        // The kernel's content at the moment of each change: surviving sectors are copied from it.
        let mut kernel = self.durable.clone();
        for change in &self.unsynced {
            match change {
                FileChange::SetLen { order, len } => {
                    kernel.set_len(*len);
                    if matches!(fate(survival, *order, random), WriteFate::Kept) {
                        left.set_len(*len);
                    }
                }
                FileChange::Write { order, offset, bytes } => {
                    kernel.write(bytes, *offset);
                    let fate = fate(survival, *order, random);
                    if !matches!(fate, WriteFate::Lost) {
                        let torn = matches!(fate, WriteFate::Torn);
                        keep_sectors(&mut left, &kernel, *offset, bytes.len(), torn, random);
                    }
                }
            }
        }
        for &page in &self.dirty_mapped {
            let kept = match survival {
                Survival::Nothing => false,
                Survival::Until(_) => !random.one_in(8),
                Survival::Some => random.one_in(2),
            };
            if kept {
                left.put_page(page, self.current.page(page));
            }
        }
        left
    }
}

fn fate(survival: Survival, order: u64, random: &mut Random) -> WriteFate {
    match survival {
        Survival::Nothing => WriteFate::Lost,
        Survival::Until(last) if order <= last => WriteFate::Kept,
        Survival::Until(last) if order == last + 1 && random.one_in(2) => WriteFate::Torn,
        Survival::Until(_) => WriteFate::Lost,
        Survival::Some => match random.below(8) {
            0..3 => WriteFate::Kept,
            3 => WriteFate::Torn,
            _ => WriteFate::Lost,
        },
    }
}

/// Copies the sectors of one write, all or some of them, from the kernel's content.
fn keep_sectors(left: &mut Content, kernel: &Content, offset: u64, len: usize, torn: bool, random: &mut Random) {
    let sector = SECTOR as u64;
    let end = offset + len as u64;
    for number in offset / sector..end.div_ceil(sector) {
        if torn && random.one_in(2) {
            continue;
        }
        let mut bytes = [0; SECTOR];
        let count = kernel.read(&mut bytes, number * sector);
        left.write(&bytes[..count], number * sector);
    }
    // The new length may be on the disk without the bytes that extended the file.
    if torn && random.one_in(2) {
        left.set_len(left.len().max(end));
    }
}
