//! Sorted entries packed into one node: what the memtable's tree is made of.
//!
//! Packed rather than one allocation per entry, because the commit path copies nodes: a copy is then two allocations
//! and sequential copying, where entries behind reference counts would cost a cache miss each, twice. And searched by
//! integers: the first eight bytes of each key after what all keys of the block have in common stand together in one
//! array, since comparing the keys themselves was two thirds of the cost of an insertion.

use crate::index::keys::common_len;

/// Entries that fit into a block.
pub(super) const ENTRIES_MAX: usize = 33;

/// In `key_lens`: the entry has no value.
const NO_VALUE: u32 = 1 << 31;

/// Room that a copy gets, since the reason for a copy is an insertion.
const SPARE_BYTES: usize = 256;

/// Entries in key order; keys are unique.
///
/// Invariants: the entries' bytes (key, then value) lie in `bytes` in order and without gaps; the first `prefix_len`
/// bytes of all keys are the same; `heads` holds what [`head`] makes of the rest of each key.
#[derive(Debug)]
pub(super) struct Block {
    len: usize,
    prefix_len: usize,
    heads: [u64; ENTRIES_MAX],
    starts: [u32; ENTRIES_MAX],
    key_lens: [u32; ENTRIES_MAX],
    bytes: Vec<u8>,
}

/// The first eight bytes as a number that sorts as they do; what sorts differently compares the same way.
fn head(rest_of_key: &[u8]) -> u64 {
    match rest_of_key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest_of_key.len()].copy_from_slice(rest_of_key);
            u64::from_be_bytes(bytes)
        }
    }
}

impl Default for Block {
    fn default() -> Block {
        Block {
            len: 0,
            prefix_len: 0,
            heads: [0; ENTRIES_MAX],
            starts: [0; ENTRIES_MAX],
            key_lens: [0; ENTRIES_MAX],
            bytes: Vec::new(),
        }
    }
}

impl Clone for Block {
    fn clone(&self) -> Block {
        let mut bytes = Vec::with_capacity(self.bytes.len() + SPARE_BYTES);
        bytes.extend_from_slice(&self.bytes);
        Block { bytes, ..*self }
    }
}

impl Block {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all keys and values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn start(&self, index: usize) -> usize {
        self.starts[index] as usize
    }

    fn value_start(&self, index: usize) -> usize {
        self.start(index) + (self.key_lens[index] & !NO_VALUE) as usize
    }

    fn end(&self, index: usize) -> usize {
        if index + 1 < self.len { self.start(index + 1) } else { self.bytes.len() }
    }

    pub(super) fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index)..self.value_start(index)]
    }

    pub(super) fn value(&self, index: usize) -> Option<&[u8]> {
        let has_value = self.key_lens[index] & NO_VALUE == 0;
        has_value.then(|| &self.bytes[self.value_start(index)..self.end(index)])
    }

    /// Where the key is, or where it belongs.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        if self.len == 0 {
            return Err(0);
        }
        let (start, rest) = key.split_at(key.len().min(self.prefix_len));
        match start.cmp(&self.bytes[..self.prefix_len]) {
            std::cmp::Ordering::Less => return Err(0),
            std::cmp::Ordering::Greater => return Err(self.len),
            std::cmp::Ordering::Equal => {}
        }
        let head = head(rest);
        let heads = &self.heads[..self.len];
        let mut low = heads.partition_point(|other| *other < head);
        let mut high = low + heads[low..].partition_point(|other| *other == head);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Number of keys below `key`.
    pub(super) fn count_below(&self, key: &[u8]) -> usize {
        self.find(key).unwrap_or_else(|index| index)
    }

    /// Number of keys up to and including `key`.
    pub(super) fn count_up_to(&self, key: &[u8]) -> usize {
        self.find(key).map_or_else(|index| index, |index| index + 1)
    }

    /// Inserts a key that is not there yet at the place that [`Block::find`] named. There must be room.
    pub(super) fn insert(&mut self, index: usize, key: &[u8], value: Option<&[u8]>) {
        let at = if index < self.len { self.start(index) } else { self.bytes.len() };
        let value_bytes = value.unwrap_or_default();
        self.resize_gap(at, 0, key.len() + value_bytes.len());
        self.bytes[at..at + key.len()].copy_from_slice(key);
        self.bytes[at + key.len()..][..value_bytes.len()].copy_from_slice(value_bytes);
        self.heads.copy_within(index..self.len, index + 1);
        self.starts.copy_within(index..self.len, index + 1);
        self.key_lens.copy_within(index..self.len, index + 1);
        self.len += 1;
        self.starts[index] = at as u32;
        self.key_lens[index] = key.len() as u32 | if value.is_none() { NO_VALUE } else { 0 };
        self.move_starts(index + 1, key.len() + value_bytes.len(), 0);
        let neighbour = if index == 0 { 1 } else { index - 1 };
        let common = if self.len == 1 { key.len() } else { common_len(key, self.key(neighbour)) };
        if self.len == 1 || common < self.prefix_len {
            self.set_prefix(common);
        } else {
            self.heads[index] = head(&key[self.prefix_len..]);
        }
    }

    /// Gives an existing entry a new value and returns the number of bytes of its old one.
    pub(super) fn replace(&mut self, index: usize, value: Option<&[u8]>) -> usize {
        let (at, old) = (self.value_start(index), self.end(index) - self.value_start(index));
        let value_bytes = value.unwrap_or_default();
        self.resize_gap(at, old, value_bytes.len());
        self.bytes[at..at + value_bytes.len()].copy_from_slice(value_bytes);
        self.key_lens[index] &= !NO_VALUE;
        if value.is_none() {
            self.key_lens[index] |= NO_VALUE;
        }
        self.move_starts(index + 1, value_bytes.len(), old);
        old
    }

    /// Makes the `old` bytes at `at` `new` bytes and moves what follows them.
    fn resize_gap(&mut self, at: usize, old: usize, new: usize) {
        let tail = at + old..self.bytes.len();
        let len = self.bytes.len() - old + new;
        if new > old {
            self.bytes.resize(len, 0);
        }
        self.bytes.copy_within(tail, at + new);
        self.bytes.truncate(len);
    }

    /// Corrects the places of the entries from `index` on after `old` bytes before them became `new`.
    fn move_starts(&mut self, index: usize, new: usize, old: usize) {
        for start in &mut self.starts[index..self.len] {
            *start = (*start as usize + new - old) as u32;
        }
    }

    fn set_prefix(&mut self, prefix_len: usize) {
        self.prefix_len = prefix_len;
        for index in 0..self.len {
            self.heads[index] = head(&self.key(index)[prefix_len..]);
        }
    }

    /// Finds out anew what all keys have in common.
    fn find_prefix(&mut self) {
        if self.len > 0 {
            self.set_prefix(common_len(self.key(0), self.key(self.len - 1)));
        }
    }

    /// Takes the entries from `index` on into a new block.
    pub(super) fn split_off(&mut self, index: usize) -> Block {
        let mut right = Block::default();
        if index < self.len {
            let at = self.start(index);
            right.len = self.len - index;
            right.bytes = self.bytes.split_off(at);
            right.starts[..right.len].copy_from_slice(&self.starts[index..self.len]);
            right.key_lens[..right.len].copy_from_slice(&self.key_lens[index..self.len]);
            right.move_starts(0, 0, at);
            right.find_prefix();
            self.len = index;
            self.find_prefix();
        }
        right
    }

    /// The entry at which about half of the bytes lie behind; both halves have entries if there are two.
    pub(super) fn middle(&self) -> usize {
        let half = self.bytes.len() / 2;
        let index = self.starts[..self.len].partition_point(|start| (*start as usize) < half);
        index.clamp(1, self.len.max(2) - 1)
    }
}
