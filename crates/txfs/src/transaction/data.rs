//! Operations on file data: reads through the overlay, writes into it, copies. Sizes and holes are in
//! [`super::holes`].
//!
//! A page that is written only in part is merged with what the transaction sees of it, and counts as written whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use txfs_engine::Extent;

use super::overlay::PageSource;
use super::session::{Session, load_extents};
use super::spill::BULK_BYTES_MIN;
use crate::conflict::PAGE_SPACE;
use crate::error::{Error, Result};
use crate::records::InodeRecord;
use crate::types::{Ino, NodeKind, PAGE_BYTES};

/// The largest size of a file.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// A long copy is carried out in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

pub(super) fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES
}

pub(super) fn range_end(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).filter(|&end| end <= FILE_BYTES_MAX).ok_or(Error::FileTooLarge)
}

/// A run of pages in one extent that is to be read.
struct StoredRun<'a> {
    extent: &'a Extent,
    /// Page number of the extent's first page.
    start: u64,
    /// Pages wanted.
    first: u64,
    last: u64,
}

impl StoredRun<'_> {
    /// Which bytes of the file it gives a buffer of `len` bytes at `offset`: the first, and the one behind the last.
    fn bytes(&self, offset: u64, len: usize) -> Option<(u64, u64)> {
        let from = offset.max(self.first * PAGE_BYTES);
        let stored_end = self.start * PAGE_BYTES + u64::from(self.extent.len);
        let to = (offset + len as u64).min((self.last + 1) * PAGE_BYTES).min(stored_end);
        (from < to).then_some((from, to))
    }
}

impl Session {
    pub(super) fn file(&self, ino: Ino) -> Result<InodeRecord> {
        let record = self.inode(ino)?;
        match record.kind {
            NodeKind::File => Ok(record),
            NodeKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Notes what a read of `len` bytes learns of a file of `size` bytes. Who gets fewer than asked for has learned
    /// where the file ends: then whatever is written behind the end, however far behind, would have given more.
    fn note_read(&mut self, ino: Ino, size: u64, offset: u64, len: u64) {
        let Some(before_last) = len.checked_sub(1) else { return };
        let wanted_last = offset.saturating_add(before_last);
        let last = if wanted_last >= size { u64::MAX } else { page_of(wanted_last) };
        self.note_pages(ino, page_of(offset), last);
    }

    pub(crate) fn read_into(&mut self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize> {
        let record = self.file(ino)?;
        if out.is_empty() {
            return Ok(0);
        }
        self.note_read(ino, record.size, offset, out.len() as u64);
        if offset >= record.size {
            return Ok(0);
        }
        let len = (record.size - offset).min(out.len() as u64) as usize;
        self.read_exact(ino, offset, &mut out[..len])?;
        Ok(len)
    }

    pub(crate) fn read(&mut self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>> {
        let size = self.file(ino)?.size;
        self.note_read(ino, size, offset, len as u64);
        let len = size.saturating_sub(offset).min(len as u64) as usize;
        let mut out = Vec::new();
        out.try_reserve_exact(len).map_err(|_| Error::Invalid("more bytes than there is memory for"))?;
        out.resize(len, 0);
        self.read_exact(ino, offset, &mut out)?;
        Ok(out)
    }

    /// Fills `out` with what the transaction sees; the range lies within the file.
    fn read_exact(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let (first, last) = (page_of(offset), page_of(offset + out.len() as u64 - 1));
        let state = self.overlay.inodes.get(&ino);
        let data = state.map(|state| &state.data).filter(|data| !data.is_empty());
        let Some(state) = state else { return self.read_stored(ino, offset, out) };
        out.fill(0);
        if !state.is_created() {
            for (start, extent) in load_extents(&self.snapshot, ino, first, last)? {
                let extent_last = start + u64::from(extent.pages()) - 1;
                let (from, to) = (first.max(start), last.min(extent_last));
                match data {
                    None => {
                        let run = StoredRun { extent: &extent, start, first: from, last: to };
                        self.read_run(ino, &run, offset, out)?;
                    }
                    Some(data) => {
                        for (from, to) in visible_runs(from, to, |page| !data.hides(page)) {
                            let run = StoredRun { extent: &extent, start, first: from, last: to };
                            self.read_run(ino, &run, offset, out)?;
                        }
                    }
                }
            }
        }
        let Some(data) = data else { return Ok(()) };
        let placed_from = data.placed.range(..=first).next_back().map_or(first, |(&start, _)| start);
        for (&start, extent) in data.placed.range(placed_from..=last) {
            let extent_last = start + u64::from(extent.pages()) - 1;
            let (from, to) = (first.max(start), last.min(extent_last));
            if from <= to {
                let run = StoredRun { extent, start, first: from, last: to };
                self.read_run(ino, &run, offset, out)?;
            }
        }
        for (&page, content) in data.pages.range(first..=last) {
            let page_offset = page * PAGE_BYTES;
            let from = offset.max(page_offset);
            let to = (offset + out.len() as u64).min(page_offset + content.len() as u64);
            if from < to {
                let source = &content[(from - page_offset) as usize..(to - page_offset) as usize];
                out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }

    /// As `read_exact`, for a file that the transaction has not changed: only holes are filled with zeros, since large
    /// reads are bound by memory.
    fn read_stored(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<()> {
        let (first, last) = (page_of(offset), page_of(offset + out.len() as u64 - 1));
        let mut filled = 0;
        for (start, extent) in load_extents(&self.snapshot, ino, first, last)? {
            let extent_last = start + u64::from(extent.pages()) - 1;
            let run =
                StoredRun { extent: &extent, start, first: first.max(start), last: last.min(extent_last) };
            let Some((from, to)) = run.bytes(offset, out.len()) else { continue };
            self.read_run(ino, &run, offset, out)?;
            if let Some(hole) = out.get_mut(filled..(from - offset) as usize) {
                hole.fill(0);
            }
            filled = (to - offset) as usize;
        }
        out[filled..].fill(0);
        Ok(())
    }

    /// Reads the wanted pages of an extent into their places in `out`, which starts at `offset` of the file.
    fn read_run(&self, ino: Ino, run: &StoredRun<'_>, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some((from, to)) = run.bytes(offset, out.len()) else { return Ok(()) };
        let stored = run.start * PAGE_BYTES;
        let target = &mut out[(from - offset) as usize..(to - offset) as usize];
        self.shared.engine.read(run.extent, from - stored, target).map_err(|error| {
            let error = Error::from(error);
            if let Error::Corrupt { what } = &error {
                let name = match self.cheap_path(ino) {
                    Some(path) => format!("{} (inode {ino})", path.display()),
                    None => format!("inode {ino}"),
                };
                return Error::Corrupt { what: format!("{name}, bytes {from} to {}: {what}", to - 1) };
            }
            error
        })
    }

    pub(crate) fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.check_writable()?;
        let end = range_end(offset, data.len() as u64)?;
        if data.is_empty() {
            self.file(ino)?;
            return Ok(0);
        }
        self.touch(PAGE_SPACE, ino, page_of(offset), page_of(end - 1), true);
        let now = self.now();
        // A quarter of the budget: small budgets have small pieces that count as large.
        if data.len() >= BULK_BYTES_MIN.min(self.shared.options.transaction_memory_bytes / 4) {
            self.write_bulk(ino, offset, data)?;
        } else {
            self.write_piece(ino, offset, data)?;
            self.spill_if_due()?;
        }
        let state = self.inode_mut(ino)?;
        state.record.size = state.record.size.max(end);
        state.touch_content(now);
        Ok(data.len())
    }

    /// Whole pages go straight to the log; what the write leaves of its first and last page goes the usual way.
    fn write_bulk(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.writable_file(ino)?;
        let first = offset.div_ceil(PAGE_BYTES);
        let (head, rest) = data.split_at(data.len().min((first * PAGE_BYTES - offset) as usize));
        let (pages, tail) = rest.split_at(rest.len() - rest.len() % PAGE_BYTES as usize);
        if !head.is_empty() {
            self.write_piece(ino, offset, head)?;
        }
        self.write_through(ino, first, pages)?;
        if !tail.is_empty() {
            self.write_piece(ino, first * PAGE_BYTES + pages.len() as u64, tail)?;
        }
        self.spill_if_due()
    }

    fn writable_file(&mut self, ino: Ino) -> Result<()> {
        match self.inode_mut(ino)?.record.kind {
            NodeKind::File => Ok(()),
            NodeKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    fn write_piece(&mut self, ino: Ino, offset: u64, mut data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        self.writable_file(ino)?;
        let mut at = offset;
        while !data.is_empty() {
            let page = page_of(at);
            let within = (at % PAGE_BYTES) as usize;
            let len = data.len().min(PAGE_BYTES as usize - within);
            let (piece, rest) = data.split_at(len);
            if len == PAGE_BYTES as usize {
                self.put_page(ino, page, piece.into());
            } else {
                self.patch_page(ino, page, within, piece)?;
            }
            at += len as u64;
            data = rest;
        }
        // The size moves with each piece, so that spilling knows how long the last page is.
        let state = self.inode_mut(ino)?;
        state.record.size = state.record.size.max(end);
        Ok(())
    }

    fn put_page(&mut self, ino: Ino, page: u64, content: Arc<[u8]>) {
        let Some(state) = self.overlay.inodes.get_mut(&ino) else { return };
        let behind = state.record.size.div_ceil(PAGE_BYTES);
        if page >= behind {
            state.record.pages = state.record.pages.saturating_add(1).min(page + 1);
        }
        let grown = state.data.put_page(page, content);
        self.overlay.buffered_bytes += grown;
        self.shared.buffered_bytes.fetch_add(grown, Ordering::Relaxed);
    }

    /// Overwrites part of a page with `piece`.
    pub(super) fn patch_page(&mut self, ino: Ino, page: u64, within: usize, piece: &[u8]) -> Result<()> {
        let Some(state) = self.overlay.inodes.get_mut(&ino) else { return Err(Error::Stale { ino }) };
        if let Some(buffer) = state.data.pages.get_mut(&page) {
            Arc::make_mut(buffer)[within..within + piece.len()].copy_from_slice(piece);
            return Ok(());
        }
        let mut content = self.page_content(ino, page)?.unwrap_or_else(zero_page);
        Arc::make_mut(&mut content)[within..within + piece.len()].copy_from_slice(piece);
        self.put_page(ino, page, content);
        Ok(())
    }

    /// A page as the transaction sees it; `None` when it is a hole.
    pub(super) fn page_content(&self, ino: Ino, page: u64) -> Result<Option<Arc<[u8]>>> {
        let state = self.overlay.inodes.get(&ino);
        let source = state.map_or(PageSource::Stored, |state| state.data.page(page));
        let mut content = zero_page();
        let buffer = Arc::make_mut(&mut content);
        match source {
            PageSource::Buffered(known) => return Ok(Some(known.clone())),
            PageSource::Masked => return Ok(None),
            PageSource::Placed { extent, index } => {
                let start = page - u64::from(index);
                let run = StoredRun { extent, start, first: page, last: page };
                self.read_run(ino, &run, page * PAGE_BYTES, buffer)?;
            }
            PageSource::Stored => {
                let stored_size = match state {
                    Some(state) => state.original.as_ref().map_or(0, |original| original.size),
                    None => u64::MAX,
                };
                if page * PAGE_BYTES >= stored_size {
                    return Ok(None);
                }
                let extents = load_extents(&self.snapshot, ino, page, page)?;
                let Some((start, extent)) = extents.first() else { return Ok(None) };
                let run = StoredRun { extent, start: *start, first: page, last: page };
                self.read_run(ino, &run, page * PAGE_BYTES, buffer)?;
            }
        }
        Ok(Some(content))
    }

    pub(crate) fn append(&mut self, ino: Ino, data: &[u8]) -> Result<u64> {
        self.check_writable()?;
        let offset = self.file(ino)?.size;
        // Where the end is decides what the file becomes: that nobody else grew it is validated always.
        self.note_structural(PAGE_SPACE, ino, page_of(offset), u64::MAX);
        self.write(ino, offset, data)?;
        Ok(offset)
    }

    pub(crate) fn copy_range(
        &mut self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.check_writable()?;
        let size = self.file(from)?.size;
        self.file(to)?;
        self.note_exists(to);
        // All that was asked for, as a read does: somebody may be writing behind the end.
        self.note_read(from, size, from_offset, len);
        let len = len.min(size.saturating_sub(from_offset));
        let from_end = from_offset.saturating_add(len);
        let to_end = range_end(to_offset, len)?;
        if from == to && from_offset < to_end && to_offset < from_end {
            return Err(Error::Invalid("the two ranges of a copy overlap"));
        }
        let mut done = 0;
        while done < len {
            self.check_midway()?;
            let piece = self.read(from, from_offset + done, (len - done).min(PIECE_BYTES as u64) as usize)?;
            if piece.is_empty() {
                break;
            }
            self.write(to, to_offset + done, &piece)?;
            done += piece.len() as u64;
        }
        Ok(done)
    }
}

fn zero_page() -> Arc<[u8]> {
    Arc::new([0; PAGE_BYTES as usize])
}

/// Runs of pages in `first..=last` for which `visible` holds.
fn visible_runs(first: u64, last: u64, visible: impl Fn(u64) -> bool) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for page in (first..=last).filter(|&page| visible(page)) {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == page => *end = page,
            _ => runs.push((page, page)),
        }
    }
    runs
}
