//! Which commit last wrote each range, for as long as a running transaction may have to be compared with it.
//!
//! An interval map of `(space, object, first..=last)` to the sequence number of the last writer. It is only touched
//! inside the sequencing critical section. What no active snapshot can be older than is forgotten.

use std::collections::{BTreeMap, VecDeque};

use super::conflict::{ConflictRange, ConflictSet};

type Start = (u8, u64, u64);

#[derive(Clone, Copy, Debug)]
struct Interval {
    last: u64,
    sequence: u64,
}

/// The last writers of recently written ranges. Intervals never overlap.
#[derive(Debug, Default)]
pub(crate) struct ConflictHistory {
    intervals: BTreeMap<Start, Interval>,
    /// What each commit wrote, oldest first: says what to forget.
    commits: VecDeque<(u64, Vec<ConflictRange>)>,
}

impl ConflictHistory {
    /// The first range of `set` that a commit after `snapshot` wrote, and that commit.
    pub(crate) fn overtaken(&self, set: &ConflictSet, snapshot: u64) -> Option<(ConflictRange, u64)> {
        if self.commits.back().is_none_or(|(sequence, _)| *sequence <= snapshot) {
            return None;
        }
        for range in set.iter() {
            for (start, interval) in self.overlapping(&range) {
                if interval.sequence > snapshot {
                    let (first, last) = (range.first.max(start.2), range.last.min(interval.last));
                    return Some((ConflictRange { first, last, ..range }, interval.sequence));
                }
            }
        }
        None
    }

    /// Notes that the commit `sequence` wrote `set`.
    pub(crate) fn record(&mut self, set: &ConflictSet, sequence: u64) {
        for range in set.iter() {
            self.cut_out(&range);
            self.intervals
                .insert((range.space, range.object, range.first), Interval { last: range.last, sequence });
        }
        self.commits.push_back((sequence, set.iter().collect()));
    }

    /// Forgets what commits up to `oldest` wrote: no snapshot older than that is in use.
    pub(crate) fn forget_up_to(&mut self, oldest: u64) {
        while self.commits.front().is_some_and(|(sequence, _)| *sequence <= oldest) {
            let Some((sequence, ranges)) = self.commits.pop_front() else { return };
            for range in ranges {
                let stale: Vec<Start> = self
                    .overlapping(&range)
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

    fn set(ranges: &[(u64, u64)]) -> ConflictSet {
        let mut set = ConflictSet::new();
        for &(first, last) in ranges {
            set.insert(1, 1, first, last);
        }
        set
    }

    #[test]
    fn later_writers_split_earlier_ones() {
        let mut history = ConflictHistory::default();
        history.record(&set(&[(0, 100)]), 5);
        history.record(&set(&[(40, 60)]), 6);
        let found =
            |first, last, snapshot| history.overtaken(&set(&[(first, last)]), snapshot).map(|hit| hit.1);
        assert_eq!(found(0, 10, 4), Some(5));
        assert_eq!(found(50, 50, 5), Some(6));
        assert_eq!(found(61, 100, 5), None);
        assert_eq!(found(101, 200, 0), None);
        assert_eq!(found(50, 50, 6), None);
    }

    #[test]
    fn forgetting_removes_exactly_the_old() {
        let mut history = ConflictHistory::default();
        history.record(&set(&[(0, 100)]), 5);
        history.record(&set(&[(40, 60), (200, 200)]), 6);
        history.forget_up_to(5);
        assert_eq!(history.overtaken(&set(&[(0, 300)]), 5).map(|hit| hit.1), Some(6));
        assert_eq!(history.overtaken(&set(&[(0, 39), (61, 199)]), 0), None);
        history.forget_up_to(6);
        assert_eq!(history.len(), 0);
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
            let first = random(64);
            let last = (first + random(10)).min(63);
            history.record(&set(&[(first, last)]), sequence);
            last_writer[first as usize..=last as usize].fill(sequence);
            let oldest = sequence.saturating_sub(20);
            history.forget_up_to(oldest);
            let (from, to) = (random(64), random(64));
            let snapshot = oldest + random(21);
            let expected = (from..=to).any(|at| last_writer[at as usize] > snapshot);
            assert_eq!(history.overtaken(&set(&[(from, to)]), snapshot).is_some(), expected);
        }
    }
}
