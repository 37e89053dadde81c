//! Cursors over a range of the memtable. They hold no path: the step to the next leaf descends again, by the
//! separator that bounds the current one, so starting a scan costs one descent and no memory.

use super::block::Block;
use super::tree::Node;

/// A key with its value, or with `None` where it was deleted.
pub type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Ascending cursor; see [`super::Memtable::range`].
pub struct Range<'a> {
    root: &'a Node,
    leaf: &'a Block,
    /// The entries of the leaf that are still to come.
    left: std::ops::Range<usize>,
    /// Where the next leaf starts.
    next: Option<&'a [u8]>,
    /// The end of the range, exclusive.
    to: Option<&'a [u8]>,
}

impl<'a> Range<'a> {
    pub(super) fn new(root: &'a Node, from: &'a [u8], to: Option<&'a [u8]>) -> Range<'a> {
        let (leaf, next) = root.leaf_and_next(from);
        let end = to.map_or(leaf.len(), |to| leaf.count_below(to));
        Range { root, leaf, left: leaf.count_below(from)..end, next, to }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some(index) = self.left.next() {
                return Some((self.leaf.key(index), self.leaf.value(index)));
            }
            match self.next {
                Some(next) if self.to.is_none_or(|to| next < to) => {
                    *self = Range::new(self.root, next, self.to)
                }
                _ => return None,
            }
        }
    }
}

/// Descending cursor; see [`super::Memtable::range_back`].
pub struct RangeBack<'a> {
    root: &'a Node,
    leaf: &'a Block,
    /// The entries of the leaf that are still to come, taken from the end.
    left: std::ops::Range<usize>,
    /// Where the leaf starts: all keys of the leaves before it are below.
    start: Option<&'a [u8]>,
    from: &'a [u8],
}

impl<'a> RangeBack<'a> {
    pub(super) fn new(root: &'a Node, from: &'a [u8], to: &'a [u8]) -> RangeBack<'a> {
        let (leaf, start) = root.leaf_below(to);
        RangeBack { root, leaf, left: leaf.count_below(from)..leaf.count_below(to), start, from }
    }
}

impl<'a> Iterator for RangeBack<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some(index) = self.left.next_back() {
                return Some((self.leaf.key(index), self.leaf.value(index)));
            }
            match self.start {
                Some(start) if start > self.from => *self = RangeBack::new(self.root, self.from, start),
                _ => return None,
            }
        }
    }
}
