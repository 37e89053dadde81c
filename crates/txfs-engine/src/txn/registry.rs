//! Which snapshots are in use: decides what the conflict history must keep and which segments may be recycled.
//!
//! Locking: one small mutex of its own, innermost. A snapshot is registered while that mutex is held *and* the
//! published state is read under it, so the oldest sequence number can never pass a snapshot in the making.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Counts the snapshots at each sequence number.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// All of them: their transactions may have to be validated.
    active: BTreeMap<u64, usize>,
    /// Those through which file data may still be read.
    readers: BTreeMap<u64, usize>,
}

/// Keeps one snapshot registered; shared by its clones.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<SnapshotRegistry>,
    sequence: u64,
    reads: AtomicBool,
}

impl SnapshotRegistry {
    /// Registers what `load` returns, atomically with loading it.
    pub(crate) fn register<S>(
        self: &Arc<Self>,
        load: impl FnOnce() -> S,
        sequence_of: impl FnOnce(&S) -> u64,
    ) -> (S, Registration) {
        let mut counts = self.counts.lock();
        let state = load();
        let sequence = sequence_of(&state);
        *counts.active.entry(sequence).or_default() += 1;
        *counts.readers.entry(sequence).or_default() += 1;
        (state, Registration { registry: self.clone(), sequence, reads: AtomicBool::new(true) })
    }

    /// The oldest sequence number in use, or what `published` says when none is.
    pub(crate) fn oldest(&self, published: impl FnOnce() -> u64) -> u64 {
        let counts = self.counts.lock();
        let published = published();
        counts.active.keys().next().copied().unwrap_or(published).min(published)
    }

    /// As [`SnapshotRegistry::oldest`], among those through which file data may still be read.
    pub(crate) fn oldest_reader(&self, published: impl FnOnce() -> u64) -> u64 {
        let counts = self.counts.lock();
        let published = published();
        counts.readers.keys().next().copied().unwrap_or(published).min(published)
    }

    /// True when file data may still be read through a snapshot of one of these commits.
    pub(crate) fn reads_between(&self, first: u64, last: u64) -> bool {
        first <= last && self.counts.lock().readers.range(first..=last).next().is_some()
    }

    /// Number of snapshots in use.
    pub(crate) fn len(&self) -> usize {
        self.counts.lock().active.values().sum()
    }
}

impl Registration {
    /// Nobody reads file data through this snapshot any more.
    pub(crate) fn release_data(&self) {
        if self.reads.swap(false, Ordering::AcqRel) {
            uncount(&mut self.registry.counts.lock().readers, self.sequence);
        }
    }
}

fn uncount(counts: &mut BTreeMap<u64, usize>, sequence: u64) {
    if let Some(count) = counts.get_mut(&sequence) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&sequence);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.release_data();
        uncount(&mut self.registry.counts.lock().active, self.sequence);
    }
}
