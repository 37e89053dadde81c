//! What is written down while transactions run.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// What was written: unique for each write of an item, or one of the two below.
pub type Value = u64;

/// There is nothing: a removed name or attribute, a page that nobody wrote.
pub const ABSENT: Value = 0;

/// In a listing: it is there, but the listing does not say which version.
pub const UNKNOWN: Value = u64::MAX;

/// The kinds of things that are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Object: file; member: page.
    Page,
    /// Object: directory; member: one of its possible names. The value is the file's number.
    Name,
    /// Object: file. Its owner, in which each writer is recognisable; stands for the whole group of permissions.
    Permissions,
    /// Object: file. The size of a file that is only ever cut and stretched.
    Size,
    /// Object: file. The end of a file that only ever grows.
    End,
    /// Object: file; member: one of its possible extended attributes.
    Xattr,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Page, Kind::Name, Kind::Permissions, Kind::Size, Kind::End, Kind::Xattr];

    /// Its name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Page => "page",
            Kind::Name => "name",
            Kind::Permissions => "permissions",
            Kind::Size => "size",
            Kind::End => "end",
            Kind::Xattr => "xattr",
        }
    }

    /// The kind of a name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One thing that is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// A file or directory.
    pub object: u64,
    /// A page, a name, an attribute; 0 for other kinds.
    pub member: u64,
}

impl Item {
    /// Shorthand.
    pub fn new(kind: Kind, object: u64, member: u64) -> Item {
        Item { kind, object, member }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.name(), self.object)?;
        match self.kind {
            Kind::Page | Kind::Name | Kind::Xattr => write!(formatter, "/{}", self.member),
            _ => Ok(()),
        }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It saw this version.
    Read(Item, Value),
    /// It made this one.
    Write(Item, Value),
    /// It saw to it that the value is at least this. Several that do so at the same time merge: whoever commits less
    /// than there is changes nothing.
    Raise(Item, Value),
    /// It listed all names of a directory, or all attributes of a file: the members that were there, ascending, and
    /// their values (or [`UNKNOWN`]). That others were not there is what makes it a predicate read.
    List(Kind, u64, Box<[(u64, Value)]>),
}

/// What a transaction leaves in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The last value that it wrote.
    pub value: Value,
    /// It merges with others: all that it did was relative to a [`Action::Raise`].
    pub merges: bool,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its place in the order of commits, where known.
    Committed(Option<u64>),
    /// By itself, by a conflict, or by an error. What it read must nevertheless have been one moment of the volume.
    Aborted,
}

/// One transaction, or one call outside of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The thread or process that ran it.
    pub process: u32,
    /// When its beginning was called for. All times are of one clock, in nanoseconds.
    pub began: u64,
    /// When its snapshot had been taken at the latest.
    pub seen: u64,
    /// When its commit was called for.
    pub committing: u64,
    /// When its end was known to whoever ran it.
    pub ended: u64,
    /// Sequence number of the commit that it saw as the last one, where known.
    pub snapshot: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did, in order.
    pub actions: Vec<Action>,
}

impl Record {
    /// True when its writes count.
    pub fn is_committed(&self) -> bool {
        matches!(self.outcome, Outcome::Committed(_))
    }

    /// Its place in the order of commits, where it has one.
    pub fn sequence(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Committed(sequence) => sequence,
            Outcome::Aborted => None,
        }
    }

    /// What it wrote, each item once, with the last value. What it found absent and left absent it did not write.
    pub fn installed(&self) -> HashMap<Item, Installed> {
        let mut installed: HashMap<Item, Installed> = HashMap::new();
        let mut found_absent = HashSet::new();
        for action in &self.actions {
            let (item, value, merges) = match *action {
                Action::Read(item, ABSENT) if !installed.contains_key(&item) => {
                    found_absent.insert(item);
                    continue;
                }
                Action::Write(item, value) => (item, value, false),
                Action::Raise(item, value) => (item, value, true),
                _ => continue,
            };
            installed.entry(item).or_insert(Installed { value, merges }).value = value;
        }
        installed.retain(|item, left| left.value != ABSENT || !found_absent.contains(item));
        installed
    }

    /// True when it wrote anything.
    pub fn writes(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Write(..) | Action::Raise(..)))
    }
}

/// What happened, in no particular order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// All transactions, aborted ones too. What nobody here wrote was [`ABSENT`] in the beginning.
    pub records: Vec<Record>,
}

/// Writes one transaction down while it runs.
pub struct Recorder {
    record: Record,
}

impl Recorder {
    /// It is about to begin.
    pub fn begin(process: u32, now: u64) -> Recorder {
        Recorder {
            record: Record {
                process,
                began: now,
                seen: now,
                committing: now,
                ended: now,
                snapshot: None,
                outcome: Outcome::Aborted,
                actions: Vec::new(),
            },
        }
    }

    /// It has begun.
    pub fn begun(&mut self, now: u64, snapshot: Option<u64>) {
        self.record.seen = now;
        self.record.snapshot = snapshot;
    }

    /// It read an item.
    pub fn read(&mut self, item: Item, value: Value) {
        self.record.actions.push(Action::Read(item, value));
    }

    /// It wrote an item.
    pub fn write(&mut self, item: Item, value: Value) {
        self.record.actions.push(Action::Write(item, value));
    }

    /// It raised an item.
    pub fn raise(&mut self, item: Item, value: Value) {
        self.record.actions.push(Action::Raise(item, value));
    }

    /// It listed members of an object.
    pub fn list(&mut self, kind: Kind, object: u64, mut found: Vec<(u64, Value)>) {
        found.sort_unstable();
        self.record.actions.push(Action::List(kind, object, found.into()));
    }

    /// Its commit is about to be called.
    pub fn committing(&mut self, now: u64) {
        self.record.committing = now;
    }

    /// It has ended.
    pub fn end(mut self, now: u64, outcome: Outcome) -> Record {
        self.record.ended = now;
        self.record.outcome = outcome;
        self.record
    }

    /// A call outside of transactions has ended: all of it happened at one moment since it began.
    pub fn end_call(mut self, now: u64, snapshot: Option<u64>, outcome: Outcome) -> Record {
        self.record.seen = now;
        self.record.snapshot = snapshot;
        self.end(now, outcome)
    }
}
