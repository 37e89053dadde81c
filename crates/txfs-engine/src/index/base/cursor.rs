//! Scans of one version of the base.
//!
//! A cursor holds the nodes on its way from the root, so a step within a leaf touches nothing else.

use std::sync::Arc;

use super::cache::Held;
use super::node::Node;
use super::reader::BaseReader;
use crate::index::IndexError;

/// Which way a cursor goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// See [`BaseReader::range`] and [`BaseReader::range_back`].
pub(in crate::index) struct BaseRange<'a> {
    reader: &'a BaseReader,
    direction: Direction,
    /// Where it ends: exclusive going up, inclusive going down.
    end: &'a [u8],
    /// The branches from the root on, each with the entry that is being walked; at the end the leaf with the entry that
    /// comes next. `None` when it lies before the first, `Some(len)` behind the last.
    path: Vec<(Arc<Node>, Option<usize>)>,
    /// The entry that it stands on.
    current: Option<(Arc<Node>, usize)>,
    key: Vec<u8>,
}

impl<'a> BaseRange<'a> {
    pub(super) fn empty(reader: &'a BaseReader) -> BaseRange<'a> {
        BaseRange {
            reader,
            direction: Direction::Up,
            end: &[],
            path: Vec::new(),
            current: None,
            key: Vec::new(),
        }
    }

    /// Going up from `start` on, going down from below `start`.
    pub(super) fn new(
        reader: &'a BaseReader,
        direction: Direction,
        start: &[u8],
        end: &'a [u8],
    ) -> Result<BaseRange<'a>, IndexError> {
        let mut range = BaseRange { direction, end, ..BaseRange::empty(reader) };
        let mut node = reader.version.root.clone();
        while node.level() > 0 {
            let index = match direction {
                Direction::Up => node.child_of(start),
                // Keys below `start`: where it is a child's least key, they are in the child before.
                Direction::Down => node.lower_bound(start).saturating_sub(1),
            };
            let child = range.child(&node, index)?;
            range.path.push((node, Some(index)));
            node = child;
        }
        let next = node.lower_bound(start);
        let next = if direction == Direction::Up { Some(next) } else { next.checked_sub(1) };
        range.path.push((node, next));
        Ok(range)
    }

    fn child(&self, branch: &Node, index: usize) -> Result<Arc<Node>, IndexError> {
        let (reader, pointer) = (self.reader, branch.child(index));
        let held = reader.file.node(&reader.version.table, &pointer, branch.level() - 1)?;
        Held::into_inner(held).ok_or_else(|| reader.file.corrupt_at(&pointer, "is gone"))
    }

    /// Goes to the next entry in the cursor's direction; false when there is none.
    pub(in crate::index) fn step(&mut self) -> Result<bool, IndexError> {
        self.current = None;
        loop {
            let Some((node, next)) = self.path.last_mut() else { return Ok(false) };
            match next.filter(|index| *index < node.len()) {
                Some(index) if node.level() == 0 => {
                    self.key.clear();
                    self.key.extend_from_slice(node.prefix());
                    self.key.extend_from_slice(node.rest(index));
                    let inside = match self.direction {
                        Direction::Up => *self.key < *self.end,
                        Direction::Down => *self.key >= *self.end,
                    };
                    if !inside {
                        self.path.clear();
                        return Ok(false);
                    }
                    *next = after(self.direction, index);
                    self.current = Some((node.clone(), index));
                    return Ok(true);
                }
                Some(index) => {
                    let branch = node.clone();
                    let child = self.child(&branch, index)?;
                    let first = match self.direction {
                        Direction::Up => Some(0),
                        Direction::Down => child.len().checked_sub(1),
                    };
                    self.path.push((child, first));
                }
                None => {
                    self.path.pop();
                    if let Some((_, next)) = self.path.last_mut() {
                        *next = next.and_then(|index| after(self.direction, index));
                    }
                }
            }
        }
    }

    /// Key and value of the entry that the cursor stands on.
    pub(in crate::index) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.current.as_ref().map(|(leaf, index)| (&*self.key, leaf.value(*index)))
    }
}

fn after(direction: Direction, index: usize) -> Option<usize> {
    match direction {
        Direction::Up => Some(index + 1),
        Direction::Down => index.checked_sub(1),
    }
}
