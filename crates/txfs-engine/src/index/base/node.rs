//! A node of the base: sorted keys and values in one run of bytes, on the disk as in memory.
//!
//! # Format
//! ```text
//! offset size  field
//!      0    1  level: 0 for a leaf, one more than its children's for a branch
//!      1    1  zero
//!      2    2  number of entries
//!      4    2  p: leading bytes that all keys share
//!      6    p  these bytes
//!      …  4*n  table, for each entry: the first two bytes of its key after the shared ones (its head), as a number that
//!              sorts as they do; where the entry begins, from the start of the node
//!      …    …  entries in key order, without gaps: length of the rest of the key (1 byte; from 128 on 2 bytes, the first
//!              with its high bit set), the rest of the key, the value up to the next entry
//! ```
//! Numbers are little-endian. A branch's values are [`Pointer`]s to its children, its keys the least that the child may
//! hold; the first child also takes what is below its key. A node may be longer than 64 KiB only in its last entry.
//!
//! A search compares numbers that stand side by side and then looks at one entry: three or four cache lines of a leaf,
//! and cache lines are what a search among millions of keys costs. Sharing leading bytes halves the keys of inodes and
//! directory entries.
//!
//! # Invariants
//! [`Node::parse`] verifies all of the above but the order of the keys, so that nothing here can read out of bounds
//! whatever the disk says. (That bytes are those that were written, their checksum in the pointer has said before.)

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::pointer::{POINTER_BYTES, Pointer};
use crate::index::keys::common_len;

/// A key with its new value, or none.
pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

const HEADER_BYTES: usize = 6;
/// Bytes of each entry in the table.
pub(super) const ENTRY_FIXED_BYTES: usize = 4;

/// A node that was read or built, and verified.
pub(super) struct Node {
    bytes: Box<[u8]>,
    len: u16,
    shared: u16,
    level: u8,
    /// Checksum of the bytes, as in the pointer to them.
    pub(super) crc: u32,
    /// Somebody used it since the cache looked last.
    pub(super) used: AtomicBool,
}

/// The first two bytes as a number; what sorts differently compares the same way.
fn head(rest_of_key: &[u8]) -> u16 {
    match rest_of_key {
        [] => 0,
        [first] => u16::from_be_bytes([*first, 0]),
        [first, second, ..] => u16::from_be_bytes([*first, *second]),
    }
}

fn rest_len_bytes(len: usize) -> usize {
    if len < 0x80 { 1 } else { 2 }
}

/// Bytes that an entry takes in a node whose keys share `shared` bytes.
pub(super) fn entry_bytes(key_len: usize, shared: usize, value_len: usize) -> usize {
    let rest = key_len - shared;
    ENTRY_FIXED_BYTES + rest_len_bytes(rest) + rest + value_len
}

/// Bytes of a node before its table.
pub(super) fn fixed_bytes(shared: usize) -> usize {
    HEADER_BYTES + shared
}

/// Adds an entry, and what the table says of it at `table`.
fn put_entry(bytes: &mut Vec<u8>, table: &mut usize, rest: &[u8], value: &[u8]) {
    let start = bytes.len();
    put_place(bytes, table, head(rest), start);
    if rest_len_bytes(rest.len()) == 1 {
        bytes.push(rest.len() as u8);
    } else {
        bytes.extend_from_slice(&[0x80 | (rest.len() >> 8) as u8, rest.len() as u8]);
    }
    bytes.extend_from_slice(rest);
    bytes.extend_from_slice(value);
}

fn put_place(bytes: &mut [u8], table: &mut usize, head: u16, start: usize) {
    bytes[*table..*table + 2].copy_from_slice(&head.to_le_bytes());
    bytes[*table + 2..*table + 4].copy_from_slice(&(start as u16).to_le_bytes());
    *table += ENTRY_FIXED_BYTES;
}

impl Node {
    /// Lays out a node of these entries, which are in key order, unique, and short enough (see the format).
    pub(super) fn build<'a>(
        level: u8,
        entries: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) -> Vec<u8> {
        let count = entries.len();
        let first = entries.clone().next().map_or(&[][..], |(key, _)| key);
        let shared = entries.clone().last().map_or(0, |(key, _)| common_len(first, key));
        let size =
            entries.clone().map(|(key, value)| entry_bytes(key.len(), shared, value.len())).sum::<usize>();
        let mut bytes = Vec::with_capacity(fixed_bytes(shared) + size);
        bytes.extend_from_slice(&[level, 0]);
        bytes.extend_from_slice(&(count as u16).to_le_bytes());
        bytes.extend_from_slice(&(shared as u16).to_le_bytes());
        bytes.extend_from_slice(&first[..shared]);
        let mut table = bytes.len();
        bytes.resize(table + count * ENTRY_FIXED_BYTES, 0);
        for (key, value) in entries {
            put_entry(&mut bytes, &mut table, &key[shared..], value);
        }
        bytes
    }

    /// Lays out this leaf with changes made to it, if the result takes `sizes` bytes and all its keys begin with what the
    /// present ones share. Everything between the changes is copied in one piece, so this is much faster than taking the
    /// entries out and building a node of them.
    pub(super) fn patch(&self, changes: &[Change<'_>], sizes: Range<usize>) -> Option<Vec<u8>> {
        let (len, prefix) = (self.len(), self.prefix());
        let mut places = Vec::with_capacity(changes.len());
        let (mut count, mut size) = (len, self.bytes.len());
        for (key, value) in changes {
            let rest = key.strip_prefix(prefix)?;
            let (at, old) = match self.find(key) {
                Ok(at) => (at, Some(self.entry_range(at).len() + ENTRY_FIXED_BYTES)),
                Err(at) => (at, None),
            };
            count = count + usize::from(value.is_some()) - usize::from(old.is_some());
            size = size + value.map_or(0, |value| entry_bytes(rest.len(), 0, value.len())) - old.unwrap_or(0);
            places.push((at, old.is_some()));
        }
        if !sizes.contains(&size) || count == 0 {
            return None;
        }
        let mut table = fixed_bytes(prefix.len());
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&self.bytes[..table]);
        bytes[2..4].copy_from_slice(&(count as u16).to_le_bytes());
        bytes.resize(table + count * ENTRY_FIXED_BYTES, 0);
        let mut next = 0;
        for ((key, value), (at, found)) in changes.iter().zip(places) {
            self.copy_entries(next..at, &mut bytes, &mut table);
            next = at + usize::from(found);
            if let Some(value) = value {
                put_entry(&mut bytes, &mut table, &key[prefix.len()..], value);
            }
        }
        self.copy_entries(next..len, &mut bytes, &mut table);
        Some(bytes)
    }

    fn copy_entries(&self, entries: Range<usize>, bytes: &mut Vec<u8>, table: &mut usize) {
        if entries.is_empty() {
            return;
        }
        let from = self.start(entries.start);
        let to = bytes.len();
        bytes.extend_from_slice(&self.bytes[from..self.entry_range(entries.end - 1).end]);
        for index in entries {
            put_place(bytes, table, self.head(index), self.start(index) - from + to);
        }
    }

    /// Takes bytes that [`Node::build`] or [`Node::patch`] laid out.
    pub(super) fn built(bytes: Vec<u8>, crc: u32) -> Node {
        let number = |at: usize| match bytes.get(at..at + 2) {
            Some(number) => u16::from_le_bytes([number[0], number[1]]),
            None => 0,
        };
        let (level, len, shared) = (bytes.first().copied().unwrap_or(0), number(2), number(4));
        Node { bytes: bytes.into_boxed_slice(), len, shared, level, crc, used: AtomicBool::new(false) }
    }

    /// Takes bytes that were read and verifies their structure.
    pub(super) fn parse(bytes: Vec<u8>, crc: u32) -> Result<Node, &'static str> {
        let node = Node::built(bytes, crc);
        if node.bytes.len() < HEADER_BYTES {
            return Err("is shorter than a node's header");
        }
        let count = node.len();
        let entries_at = node.table_at() + count * ENTRY_FIXED_BYTES;
        if node.bytes.len() < entries_at || node.bytes[1] != 0 {
            return Err("is shorter than its own table of entries");
        }
        let mut end = entries_at;
        for index in 0..count {
            let start = node.start(index);
            let next = if index + 1 < count { node.start(index + 1) } else { node.bytes.len() };
            if start != end || next <= start || next > node.bytes.len() {
                return Err("has entries with gaps");
            }
            let len = usize::from(node.bytes[start]);
            let (len, fixed) = match len < 0x80 {
                true => (len, 1),
                false if next - start < 2 => return Err("has an entry that is cut short"),
                false => ((len & 0x7f) << 8 | usize::from(node.bytes[start + 1]), 2),
            };
            let value_len = (next - start).checked_sub(fixed + len);
            if value_len.is_none() || (node.level() > 0 && value_len != Some(POINTER_BYTES)) {
                return Err("has an entry that is cut short");
            }
            if node.head(index) != head(node.rest(index)) {
                return Err("has a table that contradicts its entries");
            }
            end = next;
        }
        if end != node.bytes.len() || (count == 0 && node.level() > 0) {
            return Err("has bytes that belong to no entry, or no entry at all");
        }
        Ok(node)
    }

    fn number(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Distance from the leaves.
    pub(super) fn level(&self) -> u8 {
        self.level
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Bytes of the node.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn table_at(&self) -> usize {
        fixed_bytes(usize::from(self.shared))
    }

    fn head(&self, index: usize) -> u16 {
        self.number(self.table_at() + ENTRY_FIXED_BYTES * index)
    }

    fn start(&self, index: usize) -> usize {
        usize::from(self.number(self.table_at() + ENTRY_FIXED_BYTES * index + 2))
    }

    /// Where an entry is.
    fn entry_range(&self, index: usize) -> Range<usize> {
        let end = if index + 1 < self.len() { self.start(index + 1) } else { self.bytes.len() };
        self.start(index)..end
    }

    /// Where the rest of an entry's key and its value are.
    fn ranges(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let Range { start, end } = self.entry_range(index);
        let len = usize::from(self.bytes[start]);
        let rest = if len < 0x80 {
            start + 1..start + 1 + len
        } else {
            let len = (len & 0x7f) << 8 | usize::from(self.bytes[start + 1]);
            start + 2..start + 2 + len
        };
        let value = rest.end..end;
        (rest, value)
    }

    /// The bytes that all keys share.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..self.table_at()]
    }

    /// What follows [`Node::prefix`] in an entry's key.
    pub(super) fn rest(&self, index: usize) -> &[u8] {
        &self.bytes[self.ranges(index).0]
    }

    /// An entry's value.
    pub(super) fn value(&self, index: usize) -> &[u8] {
        &self.bytes[self.ranges(index).1]
    }

    /// The whole key of an entry.
    pub(super) fn key(&self, index: usize) -> Vec<u8> {
        [self.prefix(), self.rest(index)].concat()
    }

    /// Puts the whole key of an entry in place of what is in `key`.
    pub(super) fn copy_key(&self, index: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix());
        key.extend_from_slice(self.rest(index));
    }

    /// The child at an entry of a branch.
    pub(super) fn child(&self, index: usize) -> Pointer {
        let mut bytes = [0; POINTER_BYTES];
        let value = self.value(index);
        if value.len() == POINTER_BYTES {
            bytes.copy_from_slice(value);
        }
        Pointer::decode(&bytes)
    }

    /// Where the key is, or where it belongs.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = self.prefix();
        let (start, rest) = key.split_at(key.len().min(prefix.len()));
        match start.cmp(prefix) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.len()),
            Ordering::Equal => {}
        }
        let table = &self.bytes[self.table_at()..][..self.len() * ENTRY_FIXED_BYTES];
        let (table, _) = table.as_chunks::<ENTRY_FIXED_BYTES>();
        let head_of = |place: &[u8; ENTRY_FIXED_BYTES]| u16::from_le_bytes([place[0], place[1]]);
        let head = head(rest);
        let mut low = table.partition_point(|place| head_of(place) < head);
        let mut high = low + table[low..].partition_point(|place| head_of(place) == head);
        while low < high {
            let middle = low.midpoint(high);
            match self.rest(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The entry of a branch under which a key is, if anywhere.
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// The first entry that is not below the key.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        self.find(key).unwrap_or_else(|index| index)
    }
}
