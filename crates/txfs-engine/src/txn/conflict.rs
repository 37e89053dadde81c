//! Typed conflict sets: which parts of the volume a transaction read and wrote.
//!
//! A range is `(space, object, first..=last)`; the layer above decides what it means, for instance (page, inode,
//! page numbers), (name, directory, name hash) or (attribute, inode, group). The engine only asks whether ranges
//! overlap.

use std::collections::BTreeMap;

/// An inclusive range in one object of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConflictRange {
    /// The kind of thing: pages, names, attributes …
    pub space: u8,
    /// The object, an inode number as a rule.
    pub object: u64,
    /// First member.
    pub first: u64,
    /// Last member, inclusive.
    pub last: u64,
}

impl ConflictRange {
    /// True when all of `other` lies in it.
    pub fn covers(&self, other: &ConflictRange) -> bool {
        (self.space, self.object) == (other.space, other.object)
            && self.first <= other.first
            && other.last <= self.last
    }
}

/// A set of ranges; overlapping and adjacent ones are merged.
#[derive(Clone, Debug, Default)]
pub struct ConflictSet {
    /// `(space, object, first)` to `last`; ranges of one object neither overlap nor touch.
    ranges: BTreeMap<(u8, u64, u64), u64>,
}

impl ConflictSet {
    /// An empty set.
    pub const fn new() -> ConflictSet {
        ConflictSet { ranges: BTreeMap::new() }
    }

    /// True when nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of separate ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds one member.
    pub fn insert_point(&mut self, space: u8, object: u64, at: u64) {
        self.insert(space, object, at, at);
    }

    /// Adds the members `first..=last`; an inverted range adds nothing.
    pub fn insert(&mut self, space: u8, object: u64, first: u64, last: u64) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Absorb every range that overlaps or touches, from the right end backwards.
        while let Some((&key, &end)) =
            self.ranges.range((space, object, 0)..=(space, object, last.saturating_add(1))).next_back()
        {
            if end < first.saturating_sub(1) {
                break;
            }
            if key.2 <= first && end >= last {
                return;
            }
            first = first.min(key.2);
            last = last.max(end);
            self.ranges.remove(&key);
        }
        self.ranges.insert((space, object, first), last);
    }

    /// Adds everything that `other` holds.
    pub fn extend(&mut self, other: &ConflictSet) {
        for range in other.iter() {
            self.insert(range.space, range.object, range.first, range.last);
        }
    }

    /// True when the member is in the set.
    pub fn contains(&self, space: u8, object: u64, at: u64) -> bool {
        self.ranges
            .range((space, object, 0)..=(space, object, at))
            .next_back()
            .is_some_and(|(_, &last)| last >= at)
    }

    /// The parts of `range` that are in the set, in order.
    pub fn overlapping(&self, range: &ConflictRange) -> impl Iterator<Item = ConflictRange> + use<'_> {
        let ConflictRange { space, object, first, last } = *range;
        let before = self.ranges.range((space, object, 0)..(space, object, first)).next_back();
        let within = self.ranges.range((space, object, first)..=(space, object, last));
        let parts = before.into_iter().filter(move |(_, end)| **end >= first).chain(within);
        parts.map(move |(start, &end)| ConflictRange {
            space,
            object,
            first: start.2.max(first),
            last: end.min(last),
        })
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = ConflictRange> + '_ {
        self.ranges.iter().map(|(&(space, object, first), &last)| ConflictRange {
            space,
            object,
            first,
            last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(set: &ConflictSet) -> Vec<(u64, u64)> {
        set.iter().map(|range| (range.first, range.last)).collect()
    }

    #[test]
    fn neighbours_merge_and_objects_stay_apart() {
        let mut set = ConflictSet::new();
        set.insert(1, 7, 10, 20);
        set.insert(1, 7, 30, 40);
        set.insert(1, 8, 21, 29);
        set.insert(2, 7, 21, 29);
        assert_eq!(ranges(&set), [(10, 20), (30, 40), (21, 29), (21, 29)]);
        set.insert(1, 7, 21, 29);
        assert_eq!(ranges(&set), [(10, 40), (21, 29), (21, 29)]);
        assert!(set.contains(1, 7, 25) && !set.contains(1, 7, 41) && !set.contains(3, 7, 25));
    }

    #[test]
    fn what_overlaps_is_cut_to_the_range() {
        let mut set = ConflictSet::new();
        set.insert(1, 7, 10, 20);
        set.insert(1, 7, 30, 40);
        set.insert(1, 8, 0, 99);
        let parts = |first, last| {
            let range = ConflictRange { space: 1, object: 7, first, last };
            set.overlapping(&range).map(|part| (part.first, part.last)).collect::<Vec<_>>()
        };
        assert_eq!(parts(15, 30), [(15, 20), (30, 30)]);
        assert_eq!(parts(0, u64::MAX), [(10, 20), (30, 40)]);
        assert_eq!(parts(21, 29), []);
        assert_eq!(parts(12, 13), [(12, 13)]);
    }

    #[test]
    fn whole_range_at_the_limits() {
        let mut set = ConflictSet::new();
        set.insert(1, 1, u64::MAX, u64::MAX);
        set.insert(1, 1, 0, 0);
        assert_eq!(set.len(), 2);
        set.insert(1, 1, 0, u64::MAX);
        assert_eq!(ranges(&set), [(0, u64::MAX)]);
        set.insert(1, 1, 5, 4);
        assert_eq!(set.len(), 1);
    }
}
