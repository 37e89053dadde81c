//! Memory: pages that a transaction writes stay in memory up to a budget; above it they are written to the log ahead of
//! the commit ("spilled"), so a transaction may be far larger than memory.
//!
//! What is written in large pieces goes to the log at once, whatever the budget: such pieces are hardly ever written
//! again in the same transaction, and the disk is busy while the program makes the next one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use txfs_engine::{CHUNK_BYTES_MAX, Chunk, Piece, Placed};

use super::overlay::{FileData, InodeState};
use super::session::Session;
use crate::error::Result;
use crate::records::key;
use crate::types::{Ino, PAGE_BYTES};

/// Spilled data goes to the log in batches of about this size.
const SPILL_BATCH_BYTES: usize = 2 << 20;
/// A transaction that has been over its budget once keeps only this share of it in memory from then on, so that writing
/// to the log and working go on side by side instead of in turns.
const BUDGET_SHARE_AFTER_SPILL: usize = 8;
/// A write of at least this many bytes goes to the log at once.
pub(super) const BULK_BYTES_MIN: usize = 1 << 20;
/// A commit brings at most so much data along.
const COMMIT_DATA_BYTES_MAX: usize = 1 << 20;
/// Pages of the longest extent.
const CHUNK_PAGES_MAX: u64 = CHUNK_BYTES_MAX as u64 / PAGE_BYTES;

impl Session {
    pub(super) fn forget_buffered(&mut self, bytes: usize) {
        self.overlay.buffered_bytes -= bytes;
        self.shared.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn spill_if_due(&mut self) -> Result<()> {
        let options = &self.shared.options;
        let own = self.overlay.buffered_bytes;
        let all = self.shared.buffered_bytes.load(Ordering::Relaxed);
        // When the volume's budget is exceeded, whoever writes pays, unless it holds next to nothing itself.
        let budget = match self.overlay.spilled {
            true => options.transaction_memory_bytes / BUDGET_SHARE_AFTER_SPILL,
            false => options.transaction_memory_bytes,
        };
        if own > budget || (all > options.volume_memory_bytes && own >= CHUNK_BYTES_MAX) {
            self.spill()?;
        }
        Ok(())
    }

    /// Data that is too much for the commit's own record goes ahead of it: so it is known where it lies before the
    /// commit begins. Data of files that lost their names again is left out.
    pub(super) fn place_before_commit(&mut self) -> Result<()> {
        if self.overlay.buffered_bytes > COMMIT_DATA_BYTES_MAX {
            self.spill_files(|state| state.record.nlink > 0)?;
        }
        Ok(())
    }

    /// Writes all buffered pages to the log, without a commit; only where they lie stays in memory.
    fn spill(&mut self) -> Result<()> {
        self.overlay.spilled = true;
        self.spill_files(|_| true)
    }

    /// Writes the buffered pages of these nodes to the log.
    pub(super) fn spill_files(&mut self, wanted: impl Fn(&InodeState) -> bool) -> Result<()> {
        let inos: Vec<Ino> = self.overlay.inodes.keys().copied().collect();
        let mut batch = Batch::default();
        for ino in inos {
            let mut from = 0;
            while let Some(state) = self.overlay.inodes.get(&ino).filter(|state| wanted(state)) {
                // A batch at a time: the copies must not take as much memory again.
                let room = SPILL_BATCH_BYTES - batch.bytes;
                let runs = page_runs(ino, &state.data, state.record.size, from, room);
                let Some((first, last)) = runs.last() else { break };
                from = first + (last.0.len() as u64).div_ceil(PAGE_BYTES);
                for (first, chunk) in runs {
                    batch.bytes += chunk.0.len();
                    batch.places.push((ino, first));
                    batch.chunks.push(chunk);
                }
                if batch.bytes >= SPILL_BATCH_BYTES {
                    self.place(std::mem::take(&mut batch))?;
                }
            }
        }
        self.place(batch)
    }

    fn place(&mut self, batch: Batch) -> Result<()> {
        if batch.chunks.is_empty() {
            return Ok(());
        }
        let (shared, snapshot) = (&self.shared, &self.snapshot);
        let placed = shared.giving_way(|| shared.engine.place(Some(snapshot), batch.chunks.clone()))?;
        self.note_placed(batch.places, placed);
        Ok(())
    }

    fn note_placed(&mut self, places: Vec<(Ino, u64)>, mut placed: Placed) {
        let mut freed = 0;
        for ((ino, first), extent) in places.into_iter().zip(placed.take_extents()) {
            if let Some(state) = self.overlay.inodes.get_mut(&ino) {
                freed += state.data.put_placed(first, extent);
            }
        }
        match &mut self.placed {
            Some(before) => before.join(placed),
            None => self.placed = Some(placed),
        }
        self.forget_buffered(freed);
    }

    /// Writes whole pages from `first` on to the log at once. The inode is a file and in the overlay.
    pub(super) fn write_through(&mut self, ino: Ino, first: u64, data: &[u8]) -> Result<()> {
        debug_assert!(data.len().is_multiple_of(PAGE_BYTES as usize));
        let mut page = first;
        for piece in data.chunks(SPILL_BATCH_BYTES) {
            self.check_midway()?;
            let mut places = Vec::new();
            let mut pieces = Vec::new();
            for piece in piece.chunks(CHUNK_BYTES_MAX) {
                places.push((ino, page));
                pieces.push(Piece(piece, Some(key::extent(ino, page))));
                page += piece.len() as u64 / PAGE_BYTES;
            }
            let (shared, snapshot) = (&self.shared, &self.snapshot);
            let placed = shared.giving_way(|| shared.engine.place_pieces(Some(snapshot), &pieces))?;
            self.note_placed(places, placed);
            if let Some(state) = self.overlay.inodes.get_mut(&ino) {
                let behind = state.record.size.div_ceil(PAGE_BYTES);
                let added = page.saturating_sub(behind.max(page - piece.len() as u64 / PAGE_BYTES));
                state.record.pages =
                    state.record.pages.saturating_add(added).min(page.max(state.record.pages));
                state.record.size = state.record.size.max(page * PAGE_BYTES);
            }
        }
        Ok(())
    }
}

/// Chunks of several files on their way to the log.
#[derive(Default)]
struct Batch {
    bytes: usize,
    places: Vec<(Ino, u64)>,
    chunks: Vec<Chunk>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.drop_savepoints(0);
        let bytes = self.overlay.buffered_bytes;
        if bytes > 0 {
            self.shared.buffered_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Joins neighbouring buffered pages from page `from` on into chunks of up to 256 KiB, with their first pages, until
/// these hold `bytes_max`; the page at the end of the file (of `size` bytes) is cut short.
pub(crate) fn page_runs(
    ino: Ino,
    data: &FileData,
    size: u64,
    from: u64,
    bytes_max: usize,
) -> Vec<(u64, Chunk)> {
    let mut runs = Vec::new();
    let mut pages = data.pages.range(from..).peekable();
    let mut bytes = 0;
    while bytes < bytes_max
        && let Some((&first, content)) = pages.next()
    {
        let mut run = vec![content];
        while let Some((_, content)) = pages
            .next_if(|&(&page, _)| page == first + run.len() as u64 && (run.len() as u64) < CHUNK_PAGES_MAX)
        {
            run.push(content);
        }
        let whole = run.len() as u64 * PAGE_BYTES;
        let len = size.saturating_sub(first * PAGE_BYTES).clamp(1, whole) as usize;
        let owner = Some(key::extent(ino, first));
        let chunk = match run.as_slice() {
            [page] if len == page.len() => Chunk((*page).clone(), owner),
            pages => {
                // One allocation of the final type, then one copy.
                let mut joined: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
                if let Some(joined) = Arc::get_mut(&mut joined) {
                    for (target, page) in joined.chunks_mut(PAGE_BYTES as usize).zip(pages) {
                        target.copy_from_slice(&page[..target.len()]);
                    }
                }
                Chunk(joined, owner)
            }
        };
        bytes += chunk.0.len();
        runs.push((first, chunk));
    }
    runs
}
