//! Which snapshots are in use: decides what the conflict history must keep and which segments may be recycled.
//!
//!
//! Invariant: entries ascend by sequence number, and each of them counts at least one snapshot. Snapshots are of the
//! latest commit when they are taken, so a new one belongs to the last entry or behind it, and with short transactions
//! there are only a few entries: a deque costs no allocation for a snapshot, a map of counts did.
//!
//! Locking: one small mutex of its own, innermost. A snapshot is registered while that mutex is held *and* the
//! published state is read under it, so the oldest sequence number can never pass a snapshot in the making.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Counts the snapshots at each sequence number.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    entries: Mutex<VecDeque<Entry>>,
}

/// The snapshots of one commit.
#[derive(Debug)]
struct Entry {
    sequence: u64,
    /// All of them: their transactions may have to be validated.
    active: usize,
    /// Those through which file data may still be read.
    readers: usize,
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
        let mut entries = self.entries.lock();
        let state = load();
        let sequence = sequence_of(&state);
        match entries.back_mut() {
            Some(last) if last.sequence == sequence => {
                last.active += 1;
                last.readers += 1;
            }
            last => {
                debug_assert!(
                    last.is_none_or(|last| last.sequence < sequence),
                    "an older state was published"
                );
                entries.push_back(Entry { sequence, active: 1, readers: 1 });
            }
        }
        drop(entries);
        (state, Registration { registry: self.clone(), sequence, reads: AtomicBool::new(true) })
    }

    /// The oldest sequence number in use, or what `published` says when none is.
    pub(crate) fn oldest(&self, published: impl FnOnce() -> u64) -> u64 {
        let entries = self.entries.lock();
        let published = published();
        entries.front().map_or(published, |entry| entry.sequence.min(published))
    }

    /// As [`SnapshotRegistry::oldest`], among those through which file data may still be read.
    pub(crate) fn oldest_reader(&self, published: impl FnOnce() -> u64) -> u64 {
        let entries = self.entries.lock();
        let published = published();
        let oldest = entries.iter().find(|entry| entry.readers > 0);
        oldest.map_or(published, |entry| entry.sequence.min(published))
    }

    /// True when file data may still be read through a snapshot of one of these commits.
    pub(crate) fn reads_between(&self, first: u64, last: u64) -> bool {
        let entries = self.entries.lock();
        let from = entries.partition_point(|entry| entry.sequence < first);
        entries.range(from..).take_while(|entry| entry.sequence <= last).any(|entry| entry.readers > 0)
    }

    /// Number of snapshots in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().iter().map(|entry| entry.active).sum()
    }

    /// Counts one reader less, if asked to, and one snapshot less.
    fn uncount(&self, sequence: u64, reader: bool, active: bool) {
        let mut entries = self.entries.lock();
        let index = entries.partition_point(|entry| entry.sequence < sequence);
        let Some(entry) = entries.get_mut(index).filter(|entry| entry.sequence == sequence) else { return };
        entry.readers -= usize::from(reader);
        entry.active -= usize::from(active);
        if entry.active == 0 {
            entries.remove(index);
        }
    }
}

impl Registration {
    /// Nobody reads file data through this snapshot any more.
    pub(crate) fn release_data(&self) {
        if self.reads.swap(false, Ordering::AcqRel) {
            self.registry.uncount(self.sequence, true, false);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.uncount(self.sequence, *self.reads.get_mut(), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_apart() {
        let registry = Arc::new(SnapshotRegistry::default());
        let register = |sequence: u64| registry.register(|| sequence, |sequence| *sequence).1;
        let (first, second, again) = (register(3), register(5), register(5));
        assert_eq!((registry.oldest(|| 9), registry.oldest_reader(|| 9), registry.len()), (3, 3, 3));
        first.release_data();
        first.release_data();
        assert_eq!((registry.oldest(|| 9), registry.oldest_reader(|| 9)), (3, 5));
        assert!(
            registry.reads_between(4, 5) && !registry.reads_between(3, 4) && !registry.reads_between(6, 9)
        );
        drop(second);
        assert!(registry.reads_between(5, 5));
        drop(again);
        assert!(!registry.reads_between(0, 9));
        assert_eq!((registry.oldest(|| 9), registry.oldest_reader(|| 9), registry.len()), (3, 9, 1));
        drop(first);
        assert_eq!((registry.oldest(|| 9), registry.len()), (9, 0));
    }
}
