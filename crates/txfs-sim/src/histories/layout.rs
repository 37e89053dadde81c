//! The few things that all clients work on, so that conflicts are frequent.

use super::access::{Access, Outcome};
use crate::history::{Action, History, Item, Kind, Outcome as End, Record, Value};

/// Pages of each file that has pages. Even ones are always written whole.
pub const PAGES: u64 = 4;
/// Possible attributes of each file.
pub const ATTRIBUTES: u64 = 3;
/// Possible names of each directory.
pub const NAMES: u64 = 6;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Inode numbers of what there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Files with pages, an owner and attributes.
    pub files: Vec<u64>,
    /// Files that are cut and stretched.
    pub sized: Vec<u64>,
    /// Files that grow.
    pub growing: Vec<u64>,
    /// Directories whose names come and go.
    pub directories: Vec<u64>,
}

impl Layout {
    /// Names for the setup, in the order of [`Layout::from_numbers`]; those that begin with `d` are directories.
    pub const PATHS: [&'static str; 9] = ["f0", "f1", "f2", "s0", "s1", "g0", "g1", "d0", "d1"];

    /// The layout whose paths have these inode numbers.
    pub fn from_numbers(numbers: &[u64]) -> Layout {
        let of = |prefix: &str| {
            let paths = Layout::PATHS.iter().zip(numbers);
            paths.filter(|(path, _)| path.starts_with(prefix)).map(|(_, number)| *number).collect()
        };
        Layout { files: of("f"), sized: of("s"), growing: of("g"), directories: of("d") }
    }

    /// Gives everything its first version; returns the transaction that did it, with the sequence number 0: everything
    /// else comes later.
    pub fn fill(&self, access: &dyn Access, began: u64, ended: impl FnOnce() -> u64) -> Outcome<Record> {
        let mut actions = Vec::new();
        for &file in &self.files {
            for page in 0..PAGES {
                access.write(file, page, &content(1))?;
                actions.push(Action::Write(Item::new(Kind::Page, file, page), 1));
            }
            access.set_owner(file, 1)?;
            actions.push(Action::Write(Item::new(Kind::Permissions, file, 0), 1));
        }
        for &file in &self.sized {
            access.set_size(file, 1)?;
            actions.push(Action::Write(Item::new(Kind::Size, file, 0), 1));
        }
        for &file in &self.growing {
            access.grow(file, 8)?;
            actions.push(Action::Write(Item::new(Kind::End, file, 0), 16));
        }
        let now = ended();
        Ok(Record {
            process: 0,
            began,
            seen: began,
            committing: began,
            ended: now,
            snapshot: None,
            outcome: End::Committed(Some(0)),
            actions,
        })
    }
}

/// A whole page that holds a value.
pub fn content(value: Value) -> Vec<u8> {
    value.to_le_bytes().repeat(PAGE_BYTES as usize / 8)
}

/// The value that a page holds; nothing where the file is empty.
pub fn value_of(bytes: &[u8]) -> Value {
    bytes.first_chunk().map_or(crate::history::ABSENT, |first| Value::from_le_bytes(*first))
}

/// Transactions that committed, those that did not, and calls outside of transactions: of a history where the latter
/// have process numbers with this bit.
pub const OUTSIDE: u32 = 1 << 16;

/// Counts for people.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Transactions that committed.
    pub committed: u64,
    /// Of these, such as wrote something.
    pub updates: u64,
    /// Transactions that aborted, nearly all by a conflict.
    pub aborted: u64,
    /// Calls outside of transactions.
    pub calls: u64,
}

impl Counts {
    /// Of a history.
    pub fn of(history: &History) -> Counts {
        let mut counts = Counts::default();
        for record in &history.records {
            match (record.process & OUTSIDE != 0, record.is_committed()) {
                (true, _) => counts.calls += 1,
                (false, true) => {
                    counts.committed += 1;
                    counts.updates += u64::from(record.writes());
                }
                (false, false) => counts.aborted += 1,
            }
        }
        counts
    }
}
