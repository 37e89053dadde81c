//! Which commit last wrote each range, for as long as a running transaction may have to be compared with it.
//!
//! An interval map of `(space, object, first..=last)` to the sequence number of the last writer. It changes inside the
//! sequencing critical section only, and has a lock of its own, so that open transactions can look whether they are
//! doomed without keeping commits waiting. What no active snapshot can be older than is forgotten; and so is a commit as
//! soon as later ones have written all that it wrote, so that a snapshot that stays open for a million commits costs
//! memory for the places that they write, and not for each of them.

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

/// A commit whose ranges are remembered.
#[derive(Debug)]
struct Remembered {
    sequence: u64,
    /// None once it has no intervals any more.
    note: Option<Arc<CommitNote>>,
    /// How many intervals it is the last writer of.
    intervals: usize,
}

/// The last writers of recently written ranges. Intervals never overlap.
#[derive(Debug, Default)]
pub(crate) struct ConflictHistory {
    intervals: BTreeMap<Start, Interval>,
    /// What each commit wrote, oldest first: says what to forget, and whom to name.
    commits: VecDeque<Remembered>,
    /// How many of them have no intervals any more.
    overwritten: usize,
}

/// Commits without intervals are removed from the list when they are more than half of it and so many.
const OVERWRITTEN_MIN: usize = 1024;

impl ConflictHistory {
    /// Adds those parts of `set` that commits after `snapshot` wrote.
    pub(crate) fn overtaken(
        &self,
        set: impl Iterator<Item = ConflictRange>,
        written: bool,
        snapshot: u64,
        report: &mut ConflictReport,
    ) {
        if self.commits.back().is_none_or(|last| last.sequence <= snapshot) {
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
        let found = self.position(sequence).and_then(|at| self.commits[at].note.as_ref());
        let origin = found.map(|note| note.origin.clone()).unwrap_or_default();
        Opponent::Commit { sequence, origin }
    }

    /// Adds what commits after `sequence` wrote, oldest first, but for those of which later ones have overwritten
    /// everything.
    pub(crate) fn since(&self, sequence: u64, notes: &mut Vec<(u64, Arc<CommitNote>)>) {
        let from = self.commits.partition_point(|commit| commit.sequence <= sequence);
        let commits = self.commits.range(from..);
        notes.extend(commits.filter_map(|commit| Some((commit.sequence, commit.note.clone()?))));
    }

    fn position(&self, sequence: u64) -> Option<usize> {
        self.commits.binary_search_by_key(&sequence, |commit| commit.sequence).ok()
    }

    /// Notes what the commit `sequence` wrote; once for each commit.
    pub(crate) fn record(&mut self, note: Arc<CommitNote>, sequence: u64) {
        for range in &note.ranges {
            let start = (range.space, range.object, range.first);
            // The same page or name once more: with a snapshot that stays open, that is what most commits are.
            if let Some(interval) = self.intervals.get_mut(&start)
                && interval.last == range.last
            {
                let before = std::mem::replace(&mut interval.sequence, sequence);
                self.replace_interval(before, 0);
                continue;
            }
            self.cut_out(range);
            self.intervals.insert(start, Interval { last: range.last, sequence });
        }
        let intervals = note.ranges.len();
        self.commits.push_back(Remembered { sequence, note: Some(note), intervals });
        if self.overwritten >= OVERWRITTEN_MIN && self.overwritten > self.commits.len() / 2 {
            self.commits.retain(|commit| commit.note.is_some());
            self.overwritten = 0;
        }
    }

    /// Forgets what commits up to `oldest` wrote: no snapshot older than that is in use.
    pub(crate) fn forget_up_to(&mut self, oldest: u64) {
        while self.commits.front().is_some_and(|commit| commit.sequence <= oldest) {
            let Some(Remembered { sequence, note, .. }) = self.commits.pop_front() else { return };
            let Some(note) = note else {
                self.overwritten -= 1;
                continue;
            };
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
            let mut pieces = 0;
            if start.2 < range.first {
                let left = Interval { last: range.first - 1, ..interval };
                self.intervals.insert(start, left);
                pieces += 1;
            }
            if interval.last > range.last {
                self.intervals.insert((start.0, start.1, range.last + 1), interval);
                pieces += 1;
            }
            self.replace_interval(interval.sequence, pieces);
        }
    }

    /// One interval of a commit became so many.
    fn replace_interval(&mut self, sequence: u64, pieces: usize) {
        let Some(at) = self.position(sequence) else { return };
        let commit = &mut self.commits[at];
        commit.intervals = (commit.intervals + pieces).saturating_sub(1);
        if commit.intervals == 0 && commit.note.take().is_some() {
            self.overwritten += 1;
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
    fn commits_of_which_nothing_is_left_cost_nothing() {
        let mut history = ConflictHistory::default();
        let shared = note(&set(&[(0, 9)]));
        for sequence in 1..=100_000u64 {
            let page = sequence % 50;
            let ranges = if sequence == 1 { shared.clone() } else { note(&set(&[(page, page)])) };
            history.record(ranges, sequence);
        }
        assert!(history.commits.len() <= 50 + 2 * OVERWRITTEN_MIN, "{} commits", history.commits.len());
        assert_eq!(history.commits.iter().filter(|commit| commit.note.is_some()).count(), 50);
        assert_eq!(Arc::strong_count(&shared), 1);
        let mut notes = Vec::new();
        history.since(99_990, &mut notes);
        assert_eq!(notes.len(), 10);
        notes.clear();
        history.since(0, &mut notes);
        assert_eq!(notes.len(), 50, "each page with its last writer");
        assert_eq!(first(&history, &set(&[(7, 7)]), 0), Some(100_000 - 50 + 7));
        history.forget_up_to(100_000);
        assert!(history.commits.is_empty() && history.intervals.is_empty() && history.overwritten == 0);
    }

    #[test]
    fn a_commit_with_a_piece_left_is_remembered() {
        let mut history = ConflictHistory::default();
        history.record(note(&set(&[(0, 9)])), 1);
        history.record(note(&set(&[(3, 5)])), 2);
        history.record(note(&set(&[(0, 2)])), 3);
        let mut notes = Vec::new();
        history.since(0, &mut notes);
        assert_eq!(notes.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [1, 2, 3]);
        history.record(note(&set(&[(6, 9)])), 4);
        notes.clear();
        history.since(0, &mut notes);
        assert_eq!(notes.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [2, 3, 4]);
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
