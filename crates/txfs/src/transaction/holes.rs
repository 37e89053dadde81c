//! Sizes and holes: truncation, `fallocate`, and looking for data and holes.

use super::data::{FILE_BYTES_MAX, page_of, range_end};
use super::overlay::FileData;
use super::session::{Session, visit_extents};
use crate::conflict::{ATTRIBUTE_SPACE, EXISTS, PAGE_SPACE, SIZE};
use crate::error::{Error, Result};
use crate::types::{AllocateMode, Ino, PAGE_BYTES, Timestamp};

impl Session {
    /// Cuts the file or grows it with zeros. Times are the caller's business.
    pub(crate) fn set_size(&mut self, ino: Ino, size: u64, now: Timestamp) -> Result<()> {
        let record = match self.file(ino) {
            Err(Error::Invalid(_)) => return Err(Error::Invalid("only a regular file has a size to set")),
            other => other?,
        };
        if size > FILE_BYTES_MAX {
            return Err(Error::FileTooLarge);
        }
        self.inode_mut(ino)?;
        self.touch(ATTRIBUTE_SPACE, ino, SIZE, SIZE, true);
        self.touch(PAGE_SPACE, ino, page_of(size.min(record.size)), u64::MAX, true);
        if size < record.size {
            self.clear_bytes(ino, size, u64::MAX)?;
            let state = self.inode_mut(ino)?;
            state.record.pages = state.record.pages.min(size.div_ceil(PAGE_BYTES));
        }
        let state = self.inode_mut(ino)?;
        // Also where the size stays or grows: whoever sets it means that nothing lies behind it, and that there are
        // zeros in between.
        let cut = size.min(record.size);
        state.cut = Some(state.cut.map_or(cut, |before| before.min(cut)));
        state.record.size = size;
        state.touch_content(now);
        Ok(())
    }

    /// Makes the bytes from `from` up to `to` (exclusive; `u64::MAX`: all that follow) read as zeros.
    pub(super) fn clear_bytes(&mut self, ino: Ino, from: u64, to: u64) -> Result<()> {
        self.inode_mut(ino)?;
        if from >= to {
            return Ok(());
        }
        self.touch(PAGE_SPACE, ino, page_of(from), if to == u64::MAX { to } else { page_of(to - 1) }, true);
        let (mut first, mut behind) = (page_of(from), if to == u64::MAX { u64::MAX } else { page_of(to) });
        let head = (from % PAGE_BYTES) as usize;
        let tail = if to == u64::MAX { 0 } else { (to % PAGE_BYTES) as usize };
        if head != 0 {
            let end = if behind == first { tail } else { PAGE_BYTES as usize };
            self.clear_in_page(ino, first, head, end)?;
            if behind == first {
                return Ok(());
            }
            first += 1;
        }
        if tail != 0 {
            self.clear_in_page(ino, behind, 0, tail)?;
        }
        if behind != u64::MAX {
            if behind <= first {
                return Ok(());
            }
            behind -= 1;
        }
        if let Some(state) = self.overlay.inodes.get_mut(&ino) {
            let freed = state.data.mask(first, behind);
            self.forget_buffered(freed);
        }
        Ok(())
    }

    /// Zeros part of a page, if it holds anything.
    fn clear_in_page(&mut self, ino: Ino, page: u64, from: usize, to: usize) -> Result<()> {
        match self.page_content(ino, page)? {
            Some(_) => self.patch_page(ino, page, from, &vec![0; to - from]),
            None => {
                // Already zeros, and it must still be so at commit: the page counts as written.
                if let Some(state) = self.overlay.inodes.get_mut(&ino) {
                    state.data.masked.insert(page, page);
                }
                Ok(())
            }
        }
    }

    pub(crate) fn allocate(&mut self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let end = range_end(offset, len)?;
        let record = self.file(ino)?;
        let now = self.now();
        self.note_exists(ino);
        let keep_size = match mode {
            AllocateMode::Reserve { keep_size } => keep_size,
            // Also behind the end of the file: somebody may be writing there at the same time.
            AllocateMode::PunchHole => {
                self.clear_bytes(ino, offset, end)?;
                true
            }
            AllocateMode::ZeroRange { keep_size } => {
                self.clear_bytes(ino, offset, end)?;
                keep_size
            }
        };
        if !keep_size {
            // Whether the file reaches that far already is only known as long as nobody cuts it.
            self.note_structural(ATTRIBUTE_SPACE, ino, SIZE, SIZE);
            self.note_structural(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS);
        }
        let grows = !keep_size && end > record.size;
        if grows {
            self.touch(PAGE_SPACE, ino, page_of(end - 1), page_of(end - 1), true);
        }
        let state = self.inode_mut(ino)?;
        if grows {
            state.record.size = end;
        }
        if grows || !matches!(mode, AllocateMode::Reserve { .. }) {
            state.touch_content(now);
        }
        Ok(())
    }

    pub(crate) fn seek_data(&mut self, ino: Ino, offset: u64) -> Result<u64> {
        let record = self.file(ino)?;
        if offset >= record.size {
            self.note_pages(ino, page_of(offset), u64::MAX);
            return Err(Error::NoSuchPlace);
        }
        let first = page_of(offset);
        let last = page_of(record.size - 1);
        let empty = FileData::default();
        let state = self.overlay.inodes.get(&ino);
        let data = state.map_or(&empty, |state| &state.data);
        let mut found = data.next_held(first).filter(|&page| page <= last);
        if !state.is_some_and(|state| state.is_created()) {
            let until = found.unwrap_or(last);
            visit_extents(&self.snapshot, ino, first, until, &mut |start, extent| {
                let extent_last = until.min(start + u64::from(extent.pages()) - 1);
                let visible = (first.max(start)..=extent_last).find(|&page| !data.hides(page));
                found = visible.or(found);
                visible.is_none()
            })?;
        }
        // Found nothing: anything behind the end would have been found.
        self.note_pages(ino, first, found.unwrap_or(u64::MAX));
        found.map(|page| offset.max(page * PAGE_BYTES)).ok_or(Error::NoSuchPlace)
    }

    pub(crate) fn seek_hole(&mut self, ino: Ino, offset: u64) -> Result<u64> {
        let record = self.file(ino)?;
        if offset >= record.size {
            self.note_pages(ino, page_of(offset), u64::MAX);
            return Err(Error::NoSuchPlace);
        }
        let first = page_of(offset);
        let last = page_of(record.size - 1);
        let empty = FileData::default();
        let state = self.overlay.inodes.get(&ino);
        let data = state.map_or(&empty, |state| &state.data);
        // `next` is the first page not yet known to hold data.
        let mut next = first;
        if !state.is_some_and(|state| state.is_created()) {
            visit_extents(&self.snapshot, ino, first, last, &mut |start, extent| {
                while next < start && data.holds(next) {
                    next += 1;
                }
                if next < start {
                    return false;
                }
                let extent_last = last.min(start + u64::from(extent.pages()) - 1);
                while next <= extent_last && (!data.hides(next) || data.holds(next)) {
                    next += 1;
                }
                next > extent_last
            })?;
        }
        while next <= last && data.holds(next) {
            next += 1;
        }
        // No hole before the end: the end is where it is as long as nobody writes behind it.
        self.note_pages(ino, first, if next <= last { next } else { u64::MAX });
        Ok(offset.max(next * PAGE_BYTES).min(record.size))
    }
}
