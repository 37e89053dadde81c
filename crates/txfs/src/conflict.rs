//! What two transactions can conflict over: the meaning of the engine's conflict ranges, and the report that says so.

use std::fmt;
use std::path::PathBuf;

use crate::types::{Ino, PAGE_BYTES, Timestamp};

// The spaces of the engine's conflict ranges. The object is always an inode number.

/// Pages of a file: members are page numbers.
pub(crate) const PAGE_SPACE: u8 = 1;
/// Names in a directory: members are name hashes.
pub(crate) const NAME_SPACE: u8 = 2;
/// Attribute groups of a node: members are the constants below.
pub(crate) const ATTRIBUTE_SPACE: u8 = 3;
/// Extended attributes of a node: members are hashes of their names.
pub(crate) const XATTR_SPACE: u8 = 4;

/// Written when the node's last name goes; read by whoever changes the node.
pub(crate) const EXISTS: u64 = 0;
/// Mode, owner and group.
pub(crate) const PERMISSIONS: u64 = 1;
/// Written when a file is cut; growth writes nothing here.
pub(crate) const SIZE: u64 = 2;
/// Written when a directory gets another parent; read of all ancestors of the new parent.
pub(crate) const PARENT: u64 = 3;

/// Why a transaction cannot commit: all that it has met, as far as a report goes. There is always at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictReport {
    /// The first hundred conflicts; those about what the transaction has written come first.
    pub conflicts: Vec<Conflict>,
    /// How many more there are; nobody counts beyond ten thousand.
    pub more: u64,
}

/// Somebody changed something that a transaction has read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What both touched.
    pub kind: ConflictKind,
    /// What this transaction did with it.
    pub access: Access,
    /// The node (for names: the directory) concerned.
    pub ino: Ino,
    /// A path of the node (for names: of the entry, where it could be found out).
    pub path: Option<PathBuf>,
    /// The other one, as far as it is known.
    pub other: Other,
}

/// What a transaction did with the thing in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It has read it, and perhaps nothing more.
    Read,
    /// It has written it.
    Written,
}

/// What the other one has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherState {
    /// It has committed.
    #[default]
    Committed,
    /// It has written it, has not committed yet, and is eager, as this transaction is.
    Writing,
    /// It has not committed yet, and others have to give way: it is older and was refused several times.
    Elder,
}

/// Whom a transaction has met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// What it has done.
    pub state: OtherState,
    /// The number of its commit.
    pub sequence: Option<u64>,
    /// When it committed; where it has not, when it began.
    pub time: Option<Timestamp>,
    /// The number of the transaction; none for a call outside of transactions.
    pub transaction: Option<u64>,
    /// The process that it was made for.
    pub process: Option<u32>,
    /// That process's command, or that of the transaction; none when it has ended meanwhile.
    pub command: Option<String>,
    /// What it was for: the transaction's label, if it has one.
    pub message: Option<String>,
}

/// What two transactions both touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// Pages of a file: the first and the last page number.
    Pages {
        /// First page.
        first: u64,
        /// Last page, inclusive.
        last: u64,
    },
    /// A name in a directory; `name` where known.
    Name {
        /// The name, where it could be found out.
        name: Option<Vec<u8>>,
    },
    /// A listing of a directory.
    Listing,
    /// The node was removed.
    Existence,
    /// Mode, owner or group.
    Permissions,
    /// The size, cut or set.
    Size,
    /// The place of a directory in the tree.
    Parent,
    /// An extended attribute, or the list of them.
    ExtendedAttribute,
}

impl ConflictReport {
    /// Of one conflict.
    pub(crate) fn of(conflict: Conflict) -> ConflictReport {
        ConflictReport { conflicts: vec![conflict], more: 0 }
    }

    /// How many conflicts there are, listed or not.
    pub fn count(&self) -> u64 {
        self.conflicts.len() as u64 + self.more
    }
}

impl fmt::Display for ConflictReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.conflicts.first() {
            Some(first) => write!(formatter, "{first}")?,
            None => write!(formatter, "something unknown")?,
        }
        match self.count() {
            0 | 1 => Ok(()),
            more => write!(formatter, ", and {} more", more - 1),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "{}", path.display())?,
            None => write!(formatter, "inode {}", self.ino)?,
        }
        write!(formatter, ": {} ({})", self.kind, self.other)
    }
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConflictKind::Pages { first, last } => {
                let begin = first.saturating_mul(PAGE_BYTES);
                match *last >= u64::MAX / PAGE_BYTES {
                    true => write!(formatter, "bytes from {begin} on"),
                    false => write!(formatter, "bytes {begin} to {}", (last + 1) * PAGE_BYTES - 1),
                }
            }
            ConflictKind::Name { .. } => write!(formatter, "the name"),
            ConflictKind::Listing => write!(formatter, "the list of names"),
            ConflictKind::Existence => write!(formatter, "its existence"),
            ConflictKind::Permissions => write!(formatter, "mode or owner"),
            ConflictKind::Size => write!(formatter, "the size"),
            ConflictKind::Parent => write!(formatter, "its place in the tree"),
            ConflictKind::ExtendedAttribute => write!(formatter, "an extended attribute"),
        }
    }
}

impl fmt::Display for Other {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.state, self.sequence) {
            (OtherState::Committed, Some(sequence)) => write!(formatter, "changed by commit {sequence}")?,
            (OtherState::Committed, None) => write!(formatter, "changed by another commit")?,
            (OtherState::Writing, _) => write!(formatter, "being written by an open transaction, begun")?,
            (OtherState::Elder, _) => write!(formatter, "kept for an older transaction, begun")?,
        }
        if let Some(time) = self.time {
            write!(formatter, " at {time}")?;
        }
        if let Some(process) = self.process {
            write!(formatter, " by process {process}")?;
        }
        if let Some(command) = &self.command {
            write!(formatter, ", `{command}`")?;
        }
        if let Some(message) = &self.message {
            write!(formatter, ", {message:?}")?;
        }
        Ok(())
    }
}
