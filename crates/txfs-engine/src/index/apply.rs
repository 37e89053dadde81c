//! Writing a memtable into the B-tree, in key order.
//!
//! An insertion walks down from the root, and a leaf that overflows is split into two halves. New inodes, names of a
//! new directory and extents of a new file come as *runs*: many keys in a row between two neighbours of the tree. A run
//! goes through a cursor instead, which packs its keys into full leaves: one walk for all of it, and about half the
//! leaves, which later readers and checkpoints gain from as well.
//!
//! Whether a key begins a run is known only from the tree. So it is asked after some insertions found no such key, and
//! the less often, the more often the answer was no: names in random places of old directories cost next to nothing.

use std::collections::VecDeque;
use std::ops::Bound;

use redb::{ReadableTable, Table};

use super::Memtable;

type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Fewest keys that are worth a cursor.
const RUN_KEYS_MIN: usize = 8;
/// New keys in a row before the tree is asked, after it said no again and again.
const PATIENCE_MAX: usize = 256;

/// Entries in key order, with a look at those to come.
struct Ahead<'a, I> {
    entries: I,
    seen: VecDeque<Entry<'a>>,
}

impl<'a, I: Iterator<Item = Entry<'a>>> Ahead<'a, I> {
    fn next(&mut self) -> Option<Entry<'a>> {
        self.seen.pop_front().or_else(|| self.entries.next())
    }

    /// The entry after `count` others.
    fn peek(&mut self, count: usize) -> Option<Entry<'a>> {
        while self.seen.len() <= count {
            self.seen.push_back(self.entries.next()?);
        }
        self.seen.get(count).copied()
    }
}

/// Makes all changes of the memtable.
pub(super) fn apply(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    entries: &Memtable,
) -> Result<(), redb::Error> {
    let mut entries = Ahead { entries: entries.iter(), seen: VecDeque::with_capacity(RUN_KEYS_MIN) };
    let mut new_keys = 0;
    let mut patience = RUN_KEYS_MIN;
    loop {
        if new_keys >= patience {
            new_keys = 0;
            let found = run(table, &mut entries)?;
            patience = if found { RUN_KEYS_MIN } else { PATIENCE_MAX.min(patience * 2) };
        }
        let Some((key, value)) = entries.next() else { return Ok(()) };
        let old = match value {
            Some(value) => table.insert(key, value)?,
            None => table.remove(key)?,
        };
        new_keys = if value.is_some() && old.is_none() { new_keys + 1 } else { 0 };
    }
}

/// Makes all changes up to the tree's next key, if they are enough.
fn run<'a>(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    entries: &mut Ahead<'a, impl Iterator<Item = Entry<'a>>>,
) -> Result<bool, redb::Error> {
    let (Some((first, _)), Some((last, _))) = (entries.peek(0), entries.peek(RUN_KEYS_MIN - 1)) else {
        return Ok(false);
    };
    let end = table.range::<&[u8]>(first..)?.next().transpose()?.map(|(key, _)| key.value().to_vec());
    let inside = |key: &[u8]| end.as_deref().is_none_or(|end| key < end);
    if !inside(last) {
        return Ok(false);
    }
    let mut cursor = table.lower_bound_mut(Bound::Included(first))?;
    while let Some((key, value)) = entries.peek(0)
        && inside(key)
    {
        // A deletion here is of a key that the tree never had.
        if let Some(value) = value {
            cursor.insert_before(key, value)?;
        }
        entries.next();
    }
    cursor.close()?;
    Ok(true)
}
