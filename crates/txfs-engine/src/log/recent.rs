//! Data that was just committed, kept in memory: it serves readers until the log has been written, and a while
//! longer, because a direct write leaves nothing in the host's page cache.
//!
//! Bulk data serves only until it is written: it lies in the buffer that is written, and there are a few of these.
//!
//! What is not written yet is never dropped. Locking: one mutex of its own, innermost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::appender::AppendedBulk;
use super::buffers::LogBuffer;
use crate::format::Extent;

type Place = (u64, u32);

/// The bytes at a place.
#[derive(Clone, Debug)]
enum Content {
    Chunk(Arc<[u8]>),
    /// In the buffer of a bulk: where they start, and how many there are.
    Bulk(Arc<LogBuffer>, usize, usize),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Content::Chunk(chunk) => chunk,
            Content::Bulk(buffer, start, len) => &buffer.as_slice()[*start..start + len],
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    chunks: BTreeMap<Place, Content>,
    /// Places in the order of their records, oldest first.
    order: VecDeque<(u64, Place, usize)>,
    bytes: usize,
    /// Places of bulk data that is not known to be written, with the last records of their bulks.
    bulks: VecDeque<(u64, Place)>,
    /// Highest record number that the host file holds.
    written: u64,
}

/// A first-in first-out cache of chunks, by their place in the log.
#[derive(Debug)]
pub(crate) struct RecentData {
    budget_bytes: usize,
    inner: Mutex<Inner>,
}

impl RecentData {
    pub(crate) fn new(budget_bytes: usize) -> RecentData {
        RecentData { budget_bytes, inner: Mutex::default() }
    }

    /// Adds a chunk of record `record`.
    pub(crate) fn insert(&self, segment: u64, offset: u32, record: u64, chunk: Arc<[u8]>) {
        let mut inner = self.inner.lock();
        inner.bytes += chunk.len();
        inner.order.push_back((record, (segment, offset), chunk.len()));
        inner.chunks.insert((segment, offset), Content::Chunk(chunk));
        Self::shrink(&mut inner, self.budget_bytes);
    }

    /// Adds what was just appended and cannot have been written yet.
    pub(crate) fn insert_bulk(&self, bulk: &AppendedBulk) {
        let mut inner = self.inner.lock();
        for extent in &bulk.extents {
            let place = (extent.segment, extent.offset);
            let start = (u64::from(extent.offset) - bulk.buffer_offset) as usize;
            let content = Content::Bulk(bulk.buffer.clone(), start, extent.len as usize);
            inner.chunks.insert(place, content);
            inner.bulks.push_back((bulk.last_record, place));
        }
    }

    /// Notes that records up to `record` can be read from the host file.
    pub(crate) fn written_up_to(&self, record: u64) {
        let mut inner = self.inner.lock();
        inner.written = inner.written.max(record);
        while let Some(&(record, place)) = inner.bulks.front()
            && record <= inner.written
        {
            inner.bulks.pop_front();
            inner.chunks.remove(&place);
        }
        Self::shrink(&mut inner, self.budget_bytes);
    }

    /// Forgets everything in `segment`: it is about to hold something else.
    pub(crate) fn forget_segment(&self, segment: u64) {
        let mut inner = self.inner.lock();
        let mut freed = 0;
        inner.order.retain(|(_, place, len)| {
            let stays = place.0 != segment;
            freed += if stays { 0 } else { *len };
            stays
        });
        inner.bytes -= freed;
        inner.bulks.retain(|(_, place)| place.0 != segment);
        let gone: Vec<Place> =
            inner.chunks.range((segment, 0)..=(segment, u32::MAX)).map(|(place, _)| *place).collect();
        for place in gone {
            inner.chunks.remove(&place);
        }
    }

    /// Copies the bytes from `skip` on of `extent`, if they are here.
    pub(crate) fn read(&self, extent: &Extent, skip: usize, out: &mut [u8]) -> bool {
        let offset = extent.offset as usize + skip;
        let found = {
            let inner = self.inner.lock();
            inner
                .chunks
                .range((extent.segment, 0)..=(extent.segment, extent.offset))
                .next_back()
                .map(|(place, chunk)| (place.1 as usize, chunk.clone()))
        };
        let Some((start, chunk)) = found else { return false };
        match chunk.bytes().get(offset - start..offset - start + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    fn shrink(inner: &mut Inner, budget_bytes: usize) {
        while inner.bytes > budget_bytes {
            match inner.order.front() {
                Some((record, _, _)) if *record <= inner.written => {}
                _ => return,
            }
            if let Some((_, place, len)) = inner.order.pop_front() {
                inner.chunks.remove(&place);
                inner.bytes -= len;
            }
        }
    }
}
