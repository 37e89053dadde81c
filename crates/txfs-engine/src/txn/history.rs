//! Which commit last wrote each range, for as long as a running transaction may have to be compared with it.
//!
//! An interval map of `(space, object, first..=last)` to the sequence number of the last writer. It changes inside the
//! sequencing critical section only, and has a lock of its own, so that open transactions can look whether they are
//! doomed without keeping commits waiting. What no active snapshot can be older than is forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::conflict::ConflictRange;
use super::origin::Origin;
use crate::error::{ConflictReport, Opponent};

type Start = (u8, u64, u64);

#[derive(Clone, Copy, Debug)]
struct Interval {
    last: u64,
    sequence: u64,
}

/// What a commit wrote, and whose it was. Made outside of the critical section.
#[derive(Debug)]
pub struct CommitNote {
    /// In order.
    pub ranges: Vec<ConflictRange>,
    /// Who made it.
    pub origin: Origin,
}

/// The last writers of recently written ranges. Intervals never overlap.
#[derive(Debug, Default)]
pub(crate) struct ConflictHistory {
    intervals: BTreeMap<Start, Interval>,
    /// What each commit wrote, oldest first: says what to forget, and whom to name.
    commits: VecDeque<(u64, Arc<CommitNote>)>,
}

impl ConflictHistory {
    /// Adds those parts of `set` that commits after `snapshot` wrote.
    pub(crate) fn overtaken(
        &self,
        set: impl Iterator<Item = ConflictRange>,
        written: bool,
        snapshot: u64,
        report: &mut ConflictReport,
    ) {
        if self.commits.back().is_none_or(|(sequence, _)| *sequence <= snapshot) {
            return;
        }
        for range in set {
            for (start, interval) in self.overlapping(&range) {
                if interval.sequence > snapshot {
                    let (first, last) = (range.first.max(start.2), range.last.min(interval.last));
                    let range = ConflictRange { first, last, ..range };
                    report.add_with(range, written, || self.opponent(interval.sequence));
                    if report.is_full() {
                        return;
                    }
                }
            }
        }
    }

    fn opponent(&self, sequence: u64) -> Opponent {
        let at = self.commits.partition_point(|(other, _)| *other < sequence);
        let note = self.commits.get(at).filter(|(other, _)| *other == sequence);
        let origin = note.map(|(_, note)| note.origin.clone()).unwrap_or_default();
        Opponent::Commit { sequence, origin }
    }

    /// Adds what commits after `sequence` wrote, oldest first.
    pub(crate) fn since(&self, sequence: u64, notes: &mut Vec<(u64, Arc<CommitNote>)>) {
        let from = self.commits.partition_point(|(other, _)| *other <= sequence);
        notes.extend(self.commits.range(from..).cloned());
    }

    /// Notes what the commit `sequence` wrote.
    pub(crate) fn record(&mut self, note: Arc<CommitNote>, sequence: u64) {
        for range in &note.ranges {
            self.cut_out(range);
            self.intervals
                .insert((range.space, range.object, range.first), Interval { last: range.last, sequence });
        }
        self.commits.push_back((sequence, note));
    }

    /// Forgets what commits up to `oldest` wrote: no snapshot older than that is in use.
    pub(crate) fn forget_up_to(&mut self, oldest: u64) {
        while self.commits.front().is_some_and(|(sequence, _)| *sequence <= oldest) {
            let Some((sequence, note)) = self.commits.pop_front() else { return };
            for range in &note.ranges {
                let stale: Vec<Start> = self
                    .overlapping(range)
                    .filter(|(_, interval)| interval.sequence == sequence)
                    .map(|(start, _)| start)
                    .collect();
                for start in stale {
                    self.intervals.remove(&start);
                }
            }
        }
    }

    /// Number of intervals held, for statistics.
    pub(crate) fn len(&self) -> usize {
        self.intervals.len()
    }

    fn overlapping(&self, range: &ConflictRange) -> impl Iterator<Item = (Start, Interval)> + '_ {
        let object = (range.space, range.object);
        let (first, last) = (range.first, range.last);
        let before = self
            .intervals
            .range((object.0, object.1, 0)..(object.0, object.1, first))
            .next_back()
            .filter(move |(_, interval)| interval.last >= first);
        let within = self.intervals.range((object.0, object.1, first)..=(object.0, object.1, last));
        before.into_iter().chain(within).map(|(start, interval)| (*start, *interval))
    }

    /// Makes room for `range`: what overlaps it is trimmed, split or removed.
    fn cut_out(&mut self, range: &ConflictRange) {
        let overlapping: Vec<(Start, Interval)> = self.overlapping(range).collect();
        for (start, interval) in overlapping {
            self.intervals.remove(&start);
            if start.2 < range.first {
                let left = Interval { last: range.first - 1, ..interval };
                self.intervals.insert(start, left);
            }
            if interval.last > range.last {
                self.intervals.insert((start.0, start.1, range.last + 1), interval);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Clash;
    use crate::txn::conflict::ConflictSet;

    fn set(ranges: &[(u64, u64)]) -> ConflictSet {
        let mut set = ConflictSet::new();
        for &(first, last) in ranges {
            set.insert(1, 1, first, last);
        }
        set
    }

    fn note(set: &ConflictSet) -> Arc<CommitNote> {
        Arc::new(CommitNote { ranges: set.iter().collect(), origin: Origin::default() })
    }

    /// The first range that was overtaken, and by which commit.
    fn first(history: &ConflictHistory, set: &ConflictSet, snapshot: u64) -> Option<u64> {
        let mut report = ConflictReport::default();
        history.overtaken(set.iter(), true, snapshot, &mut report);
        report.clashes.first().and_then(Clash::sequence)
    }

    #[test]
    fn later_writers_split_earlier_ones() {
        let mut history = ConflictHistory::default();
        history.record(note(&set(&[(0, 100)])), 5);
        history.record(note(&set(&[(40, 60)])), 6);
        let found = |from, to, snapshot| first(&history, &set(&[(from, to)]), snapshot);
        assert_eq!(found(0, 10, 4), Some(5));
        assert_eq!(found(50, 50, 5), Some(6));
        assert_eq!(found(61, 100, 5), None);
        assert_eq!(found(101, 200, 0), None);
        assert_eq!(found(50, 50, 6), None);
    }

    #[test]
    fn forgetting_removes_exactly_the_old() {
        let mut history = ConflictHistory::default();
        history.record(note(&set(&[(0, 100)])), 5);
        history.record(note(&set(&[(40, 60), (200, 200)])), 6);
        history.forget_up_to(5);
        assert_eq!(first(&history, &set(&[(0, 300)]), 5), Some(6));
        assert_eq!(first(&history, &set(&[(0, 39), (61, 199)]), 0), None);
        history.forget_up_to(6);
        assert_eq!(history.len(), 0);
    }

    #[test]
    fn everything_that_was_overtaken_is_reported_with_its_commit() {
        let mut history = ConflictHistory::default();
        history.record(note(&set(&[(0, 3)])), 5);
        history.record(note(&set(&[(2, 2), (9, 9)])), 6);
        let mut report = ConflictReport::default();
        history.overtaken(set(&[(1, 2), (8, 20)]).iter(), false, 4, &mut report);
        let found: Vec<_> = report
            .clashes
            .iter()
            .map(|clash| (clash.range.first, clash.range.last, clash.sequence()))
            .collect();
        assert_eq!(found, [(1, 1, Some(5)), (2, 2, Some(6)), (9, 9, Some(6))]);
        assert!(report.clashes.iter().all(|clash| !clash.written) && report.more == 0);
        let mut notes = Vec::new();
        history.since(5, &mut notes);
        assert_eq!(notes.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn agrees_with_a_plain_array() {
        let mut history = ConflictHistory::default();
        let mut last_writer = [0u64; 64];
        let mut state = 12345u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for sequence in 1..2000u64 {
            let from = random(64);
            let to = (from + random(10)).min(63);
            history.record(note(&set(&[(from, to)])), sequence);
            last_writer[from as usize..=to as usize].fill(sequence);
            let oldest = sequence.saturating_sub(20);
            history.forget_up_to(oldest);
            let (from, to) = (random(64), random(64));
            let snapshot = oldest + random(21);
            let expected = (from..=to).any(|at| last_writer[at as usize] > snapshot);
            assert_eq!(first(&history, &set(&[(from, to)]), snapshot).is_some(), expected);
        }
    }
}
