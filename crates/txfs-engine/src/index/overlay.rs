//! A throw-away copy of the index file, for checking it while it is in use.
//!
//! redb's own integrity check needs the database to itself, and writes to it. Here it runs on a second database over
//! the same frames, whose writes stay in memory and are dropped with it.
//!
//! Nobody may write to the file meanwhile; `store.rs` holds its lock for that.

use std::collections::HashMap;
use std::fmt;
use std::io;

use parking_lot::Mutex;

use super::frames::{FramedFile, PAGE_BYTES};

/// See the module's documentation.
pub(super) struct Overlay {
    below: FramedFile,
    written: Mutex<Written>,
}

struct Written {
    len: u64,
    /// By offset; the header is the entry at 0.
    pages: HashMap<u64, Vec<u8>>,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Overlay").field("below", &self.below).finish_non_exhaustive()
    }
}

impl Overlay {
    pub(super) fn new(below: FramedFile) -> io::Result<Overlay> {
        let len = redb::StorageBackend::len(&below)?;
        Ok(Overlay { below, written: Mutex::new(Written { len, pages: HashMap::new() }) })
    }
}

/// The pages that a request covers: their offsets, and their parts of the buffer. A short request, which is for
/// the header, is one page.
fn offsets(offset: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |page: u64| offset.saturating_add(page * PAGE_BYTES as u64))
}

impl redb::StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        for (offset, out) in offsets(offset).zip(out.chunks_mut(PAGE_BYTES)) {
            match self.written.lock().pages.get(&offset) {
                Some(page) if page.len() >= out.len() => out.copy_from_slice(&page[..out.len()]),
                _ => self.below.read(offset, out)?,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written.lock().len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock();
        for (offset, page) in offsets(offset).zip(data.chunks(PAGE_BYTES)) {
            written.pages.insert(offset, page.to_vec());
        }
        Ok(())
    }
}
