//! Reading file data: from memory while it is recent, else from its segment, every page against its checksum.

use crate::broken::{self, Fault};
use crate::engine::Shared;
use crate::error::{EngineError, Result};
use crate::format::{Extent, PAGE_BYTES};
use crate::log::Segment;
use crate::txn::deferred::DEFERRED_SEGMENT;

impl Shared {
    pub(crate) fn read(&self, extent: &Extent, skip: u64, out: &mut [u8]) -> Result<()> {
        let end = skip + out.len() as u64;
        if end > u64::from(extent.len) {
            let detail = format!("bytes {skip} to {end} were asked of an extent of {} bytes", extent.len);
            return Err(EngineError::Corrupt { place: Segment::file_name(extent.segment), detail });
        }
        if extent.segment >= DEFERRED_SEGMENT && !out.is_empty() {
            return match self.deferred.read(extent, skip as usize, out) {
                true => Ok(()),
                false => Err(EngineError::Corrupt {
                    place: "an extent of a deferred commit".into(),
                    detail: "its data is not in memory; restore the file from a backup".into(),
                }),
            };
        }
        if out.is_empty() || self.recent.read(extent, skip as usize, out) {
            return Ok(());
        }
        let segment = self.pool.get(extent.segment).ok_or_else(|| EngineError::Corrupt {
            place: Segment::file_name(extent.segment),
            detail: "the file is missing, and file data lies in it".into(),
        })?;
        read_verified(&segment, extent, skip, out).map_err(|error| self.lost(error))
    }

    /// What cannot be read after a failed write or flush may never have reached the disk: that is no damage. Recent data is
    /// still in memory then, but not all of it.
    fn lost(&self, error: EngineError) -> EngineError {
        match (error, self.writer.check()) {
            (EngineError::Corrupt { place, .. }, Err(EngineError::Poisoned { cause })) => {
                EngineError::Lost { place, cause }
            }
            (error, _) => error,
        }
    }
}

/// Reads whole pages around the range wanted, verifies them, and copies the range out.
fn read_verified(segment: &Segment, extent: &Extent, skip: u64, out: &mut [u8]) -> Result<()> {
    let page_bytes = PAGE_BYTES as u64;
    let first = skip / page_bytes;
    let last = (skip + out.len() as u64 - 1) / page_bytes;
    let start = first * page_bytes;
    let end = ((last + 1) * page_bytes).min(u64::from(extent.len));
    let doing = || {
        format!("reading {} bytes of {} at {}", end - start, segment.name(), u64::from(extent.offset) + start)
    };
    let read = |buffer: &mut [u8]| {
        segment
            .file
            .read_at(u64::from(extent.offset) + start, buffer)
            .map_err(|error| EngineError::io(doing(), error))?;
        verify_pages(segment, extent, first as usize, buffer)
    };
    if start == skip && end - start == out.len() as u64 {
        return read(out);
    }
    let mut pages = vec![0; (end - start) as usize];
    read(&mut pages)?;
    let from = (skip - start) as usize;
    out.copy_from_slice(&pages[from..from + out.len()]);
    Ok(())
}

fn verify_pages(segment: &Segment, extent: &Extent, first: usize, pages: &[u8]) -> Result<()> {
    for (index, page) in pages.chunks(PAGE_BYTES).enumerate() {
        let computed = crc32c::crc32c(page);
        let stored = extent.page_checksums.get(first + index).copied();
        if stored != Some(computed) && !broken::has(Fault::IgnoreChecksum) {
            let offset = extent.offset as usize + (first + index) * PAGE_BYTES;
            let detail =
                format!("the page at offset {offset} fails its checksum: restore the file from a backup");
            return Err(EngineError::Corrupt { place: segment.name(), detail });
        }
    }
    Ok(())
}
