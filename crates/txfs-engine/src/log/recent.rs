//! Data that was just committed, kept in memory: it serves readers until the log has been written, and a while
//! longer, because a direct write leaves nothing in the host's page cache.
//!
//! What is not written yet is never dropped. Locking: one mutex of its own, innermost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::format::Extent;

type Place = (u64, u32);

#[derive(Debug, Default)]
struct Inner {
    chunks: BTreeMap<Place, Arc<[u8]>>,
    /// Places in the order of their records, oldest first.
    order: VecDeque<(u64, Place, usize)>,
    bytes: usize,
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
        inner.chunks.insert((segment, offset), chunk);
        Self::shrink(&mut inner, self.budget_bytes);
    }

    /// Notes that records up to `record` can be read from the host file.
    pub(crate) fn written_up_to(&self, record: u64) {
        let mut inner = self.inner.lock();
        inner.written = inner.written.max(record);
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
        match chunk.get(offset - start..offset - start + out.len()) {
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
