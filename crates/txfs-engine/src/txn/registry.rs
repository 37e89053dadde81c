//! Which snapshots are in use: decides what the conflict history must keep and which segments may be recycled.
//!
//! Invariant: entries ascend by sequence number, and each of them counts at least one snapshot. Snapshots are of the
//! latest commit when they are taken, so a new one belongs to the last entry or behind it, and with short transactions
//! there are only a few entries: a deque costs no allocation for a snapshot, a map of counts did.
//!
//! Locking: one small mutex of its own, innermost. A snapshot is registered while that mutex is held *and* the
//! published state is read under it, so the oldest sequence number can never pass a snapshot in the making.
//!
//! Whoever needs space that readers still see waits here until they are gone ([`SnapshotRegistry::wait_for_readers`]).
//! Those who wait hold no other lock. Nor can they wait for each other in a circle: who reads through a snapshot itself
//! only waits for older ones.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Counts the snapshots at each sequence number.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    entries: Mutex<Entries>,
    /// A reader has ended, or segments came free.
    freed: Condvar,
    /// Readers whose transactions have written ahead of their commits.
    placing: AtomicUsize,
}

#[derive(Debug, Default)]
struct Entries {
    list: VecDeque<Entry>,
    /// Threads that wait for `freed`: nobody pays for waking none.
    waiting: usize,
    /// How often segments came free in another way than by the end of a reader.
    freed: u64,
}

/// The snapshots of one commit.
#[derive(Debug)]
struct Entry {
    sequence: u64,
    /// All of them: their transactions may have to be validated.
    active: usize,
    /// Those through which file data may still be read.
    readers: usize,
    /// Somebody has waited for them in vain, and none of them has ended since.
    stalled: bool,
}

/// How waiting for readers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The readers are gone, or segments came free in another way.
    Freed,
    /// None of them has ended for as long as the patience lasted.
    InVain,
}

/// Keeps one snapshot registered; shared by its clones.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<SnapshotRegistry>,
    sequence: u64,
    reads: AtomicBool,
    /// Bytes that its transaction has written to the log ahead of its commit.
    placed_bytes: AtomicU64,
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
        match entries.list.back_mut() {
            Some(last) if last.sequence == sequence => {
                last.active += 1;
                last.readers += 1;
            }
            last => {
                debug_assert!(
                    last.is_none_or(|last| last.sequence < sequence),
                    "an older state was published"
                );
                entries.list.push_back(Entry { sequence, active: 1, readers: 1, stalled: false });
            }
        }
        drop(entries);
        let (reads, placed_bytes) = (AtomicBool::new(true), AtomicU64::new(0));
        (state, Registration { registry: self.clone(), sequence, reads, placed_bytes })
    }

    /// The oldest sequence number in use, or what `published` says when none is.
    pub(crate) fn oldest(&self, published: impl FnOnce() -> u64) -> u64 {
        let entries = self.entries.lock();
        let published = published();
        entries.list.front().map_or(published, |entry| entry.sequence.min(published))
    }

    /// True when file data may still be read through a snapshot of one of these commits.
    pub(crate) fn reads_between(&self, first: u64, last: u64) -> bool {
        let list = &self.entries.lock().list;
        let from = list.partition_point(|entry| entry.sequence < first);
        list.range(from..).take_while(|entry| entry.sequence <= last).any(|entry| entry.readers > 0)
    }

    /// The newest of these commits whose snapshot is still read through.
    pub(crate) fn newest_reader(&self, of: &Range<u64>) -> Option<u64> {
        let entries = self.entries.lock();
        let within = entries.within(of);
        entries.list.range(within).rev().find(|entry| entry.readers > 0).map(|entry| entry.sequence)
    }

    /// True while a transaction is open that has written ahead of its commit. Cleaning then does harm: it takes space that
    /// such a transaction needs, and gains none before its end, since it sees everything where it was.
    pub(crate) fn anybody_places(&self) -> bool {
        self.placing.load(Ordering::Relaxed) > 0
    }

    /// Number of snapshots in use.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().list.iter().map(|entry| entry.active).sum()
    }

    /// Waits until nobody reads through a snapshot of the commits in one of these ranges, whichever it is, or
    /// [`SnapshotRegistry::wake`] is called. It gives up when none of these readers has ended for as long as `patience`;
    /// those for whom somebody has done so before, with `marks`, are not waited for again. Nobody can become such a reader
    /// when the commits behind the ranges were published already.
    pub(crate) fn wait_for_readers(&self, of: &[Range<u64>], patience: Duration, marks: bool) -> Waited {
        let mut entries = self.entries.lock();
        let freed = entries.freed;
        let mut readers = usize::MAX;
        let mut deadline = None;
        loop {
            if entries.freed != freed || of.iter().any(|of| entries.readers(of) == 0) {
                return Waited::Freed;
            }
            if patience.is_zero() || of.iter().all(|of| entries.all_stalled(of)) {
                return Waited::InVain;
            }
            let now = entries.readers_of_all(of);
            if now < readers {
                // The clock is not asked before somebody has to wait.
                deadline = Instant::now().checked_add(patience);
                readers = now;
            }
            entries.waiting += 1;
            let late = match deadline {
                Some(deadline) => self.freed.wait_until(&mut entries, deadline).timed_out(),
                None => {
                    self.freed.wait(&mut entries);
                    false
                }
            };
            entries.waiting -= 1;
            if late && entries.readers_of_all(of) == readers && entries.freed == freed {
                if marks {
                    of.iter().for_each(|of| entries.mark_stalled(of));
                }
                return Waited::InVain;
            }
        }
    }

    /// Segments came free: those who wait for readers look again.
    pub(crate) fn wake(&self) {
        let mut entries = self.entries.lock();
        entries.freed += 1;
        if entries.waiting > 0 {
            self.freed.notify_all();
        }
    }

    /// Counts one reader less, if asked to, and one snapshot less.
    fn uncount(&self, sequence: u64, reader: bool, active: bool) {
        let mut entries = self.entries.lock();
        let index = entries.list.partition_point(|entry| entry.sequence < sequence);
        let Some(entry) = entries.list.get_mut(index).filter(|entry| entry.sequence == sequence) else {
            return;
        };
        entry.readers -= usize::from(reader);
        entry.active -= usize::from(active);
        entry.stalled &= !reader;
        if entry.active == 0 {
            entries.list.remove(index);
        }
        if reader && entries.waiting > 0 {
            self.freed.notify_all();
        }
    }
}

impl Entries {
    fn within(&self, commits: &Range<u64>) -> Range<usize> {
        let index = |sequence| self.list.partition_point(|entry| entry.sequence < sequence);
        index(commits.start)..index(commits.end).max(index(commits.start))
    }

    fn readers(&self, of: &Range<u64>) -> usize {
        self.list.range(self.within(of)).map(|entry| entry.readers).sum()
    }

    /// Who is in several of the ranges counts several times.
    fn readers_of_all(&self, of: &[Range<u64>]) -> usize {
        of.iter().map(|of| self.readers(of)).sum()
    }

    fn all_stalled(&self, of: &Range<u64>) -> bool {
        self.list.range(self.within(of)).all(|entry| entry.stalled || entry.readers == 0)
    }

    fn mark_stalled(&mut self, of: &Range<u64>) {
        let within = self.within(of);
        self.list.range_mut(within).for_each(|entry| entry.stalled = true);
    }
}

impl Registration {
    /// Counts what its transaction writes ahead of its commit; returns what was counted before.
    pub(crate) fn add_placed(&self, bytes: u64) -> u64 {
        let before = self.placed_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 && bytes > 0 {
            self.registry.placing.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// True while file data may be read through this snapshot.
    pub(crate) fn reads(&self) -> bool {
        self.reads.load(Ordering::Acquire)
    }

    /// Nobody reads file data through this snapshot any more.
    pub(crate) fn release_data(&self) {
        if self.reads.swap(false, Ordering::AcqRel) {
            self.registry.uncount(self.sequence, true, false);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if *self.placed_bytes.get_mut() > 0 {
            self.registry.placing.fetch_sub(1, Ordering::Relaxed);
        }
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
        assert_eq!((registry.oldest(|| 9), registry.len()), (3, 3));
        assert!(registry.reads_between(3, 3));
        first.release_data();
        first.release_data();
        assert_eq!(registry.oldest(|| 9), 3);
        assert!(
            registry.reads_between(4, 5) && !registry.reads_between(3, 4) && !registry.reads_between(6, 9)
        );
        drop(second);
        assert!(registry.reads_between(5, 5));
        drop(again);
        assert!(!registry.reads_between(0, 9));
        assert_eq!((registry.oldest(|| 9), registry.len()), (3, 1));
        drop(first);
        assert_eq!((registry.oldest(|| 9), registry.len()), (9, 0));
    }

    #[test]
    fn who_waits_goes_on_when_the_last_reader_has_ended() {
        let registry = Arc::new(SnapshotRegistry::default());
        let register = |sequence: u64| registry.register(|| sequence, |sequence| *sequence).1;
        let (first, second, newer) = (register(3), register(5), register(8));
        let wait = |patience| {
            registry.wait_for_readers(&[Range { start: 3, end: 6 }], Duration::from_millis(patience), true)
        };
        assert_eq!(wait(0), Waited::InVain);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(60_000));
            scope.spawn(move || drop((second, first)));
            assert_eq!(waiting.join().expect("no panic"), Waited::Freed);
        });
        assert_eq!(wait(60_000), Waited::Freed, "newer ones are not waited for");
        drop(newer);
    }

    #[test]
    fn who_waits_in_vain_says_so_and_nobody_waits_for_the_same_again() {
        let registry = Arc::new(SnapshotRegistry::default());
        let register = |sequence: u64| registry.register(|| sequence, |sequence| *sequence).1;
        let (first, second) = (register(3), register(3));
        let wait = |end, patience| registry.wait_for_readers(&[Range { start: 0, end }], patience, true);
        assert_eq!(wait(4, Duration::from_millis(10)), Waited::InVain);
        assert_eq!(wait(4, Duration::MAX), Waited::InVain, "at once");
        // One of them ends: that is hope.
        drop(first);
        let begun = Instant::now();
        assert_eq!(wait(4, Duration::from_millis(10)), Waited::InVain);
        assert!(begun.elapsed() >= Duration::from_millis(10));
        std::thread::scope(|scope| {
            second.release_data();
            let third = register(4);
            let waiting = scope.spawn(|| wait(5, Duration::MAX));
            while registry.entries.lock().waiting == 0 {
                std::thread::yield_now();
            }
            registry.wake();
            assert_eq!(waiting.join().expect("no panic"), Waited::Freed, "segments came free");
            drop(third);
        });
    }

    #[test]
    fn one_who_stays_does_not_hide_that_another_has_ended() {
        let registry = Arc::new(SnapshotRegistry::default());
        let register = |sequence: u64| registry.register(|| sequence, |sequence| *sequence).1;
        let (stays, ends) = (register(3), register(6));
        let wait = |patience| registry.wait_for_readers(&[0..5, 4..8], patience, true);
        assert_eq!(
            registry.wait_for_readers(&[Range { start: 0, end: 5 }], Duration::ZERO, true),
            Waited::InVain
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(Duration::from_secs(60)));
            while registry.entries.lock().waiting == 0 {
                std::thread::yield_now();
            }
            drop(ends);
            assert_eq!(waiting.join().expect("no panic"), Waited::Freed);
        });
        drop(stays);
    }
}
