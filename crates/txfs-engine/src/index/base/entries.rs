//! Entries of one level of the tree on their way from old nodes into new ones.
//!
//! One run of bytes, so that moving an entry costs a copy and no allocation.

use super::node::{self, Node, entry_bytes};
use super::pointer::Pointer;
use crate::index::keys::{common_len, shortest_between};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Where each entry starts, its key ends and it ends.
    spans: Vec<(u32, u32, u32)>,
}

/// A piece of [`Entries`] that becomes one node.
pub(super) struct Piece<'a> {
    entries: &'a Entries,
    spans: std::ops::Range<usize>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        let (start, key_end, _) = self.spans[index];
        &self.bytes[start as usize..key_end as usize]
    }

    pub(super) fn value(&self, index: usize) -> &[u8] {
        let (_, key_end, end) = self.spans[index];
        &self.bytes[key_end as usize..end as usize]
    }

    /// Adds an entry behind all others; its key comes in two parts.
    pub(super) fn push(&mut self, key: [&[u8]; 2], value: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key[0]);
        self.bytes.extend_from_slice(key[1]);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.spans.push((start, key_end, self.bytes.len() as u32));
    }

    /// Adds all entries of a node. `bound` is what its first key is to be, where it is a branch: the least that may
    /// stand below it.
    pub(super) fn push_node(&mut self, node: &Node, bound: &[u8]) {
        for index in 0..node.len() {
            match (index, node.level()) {
                (0, 1..) => self.push([bound, &[]], node.value(0)),
                _ => self.push([node.prefix(), node.rest(index)], node.value(index)),
            }
        }
    }

    /// Adds all of `more`.
    pub(super) fn append(&mut self, more: &Entries) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&more.bytes);
        self.spans.extend(more.spans.iter().map(|(start, key, end)| (start + at, key + at, end + at)));
    }

    /// Takes the last entry away: its key and, in a branch, its child.
    pub(super) fn pop_child(&mut self) -> Option<(Vec<u8>, Pointer)> {
        let last = self.len().checked_sub(1)?;
        let child = Pointer::decode(self.value(last).first_chunk()?);
        let key = self.key(last).to_vec();
        let (start, ..) = self.spans.pop()?;
        self.bytes.truncate(start as usize);
        Some((key, child))
    }

    /// Divides the entries among as few nodes as hold them, about evenly.
    pub(super) fn pieces(&self, level: u8) -> impl Iterator<Item = Piece<'_>> {
        let bytes_max = super::bytes_max(level);
        let shared = match self.len() {
            0 => 0,
            len => common_len(self.key(0), self.key(len - 1)),
        };
        let room = bytes_max - node::fixed_bytes(shared).min(bytes_max / 2);
        let size = move |index: usize| entry_bytes(self.key(index).len(), shared, self.value(index).len());
        let mut left: usize = (0..self.len()).map(size).sum();
        let mut next = 0;
        std::iter::from_fn(move || {
            if next == self.len() {
                return None;
            }
            let target = left / left.div_ceil(room).max(1);
            let (start, mut taken) = (next, 0);
            while next < self.len() {
                let more = size(next);
                if taken > 0 && (taken + more > room || taken + more / 2 > target) {
                    break;
                }
                taken += more;
                next += 1;
            }
            left -= taken;
            Some(Piece { entries: self, spans: start..next })
        })
    }
}

impl Piece<'_> {
    /// The node of these entries.
    pub(super) fn build(&self, level: u8) -> Vec<u8> {
        let entries = self.entries;
        Node::build(level, self.spans.clone().map(|index| (entries.key(index), entries.value(index))))
    }

    /// The least key that belongs to this piece and not to the one before: as short as it can be.
    pub(super) fn separator(&self, level: u8) -> &[u8] {
        let first = self.entries.key(self.spans.start);
        if level > 0 || self.spans.start == 0 {
            return first;
        }
        shortest_between(self.entries.key(self.spans.start - 1), first)
    }
}
