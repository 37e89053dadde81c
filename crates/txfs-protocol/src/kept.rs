//! What is said about what a volume keeps: named snapshots, kept transactions, recorded commits.

use serde::{Deserialize, Serialize};

use crate::PathText;

/// What committing a part of a kept transaction did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptPart {
    /// The commit's place in the volume's order.
    pub sequence: u64,
    /// New directories that came along, since something in them was committed; from the volume's root.
    pub along: Vec<PathText>,
    /// Something is left, and kept under the same name.
    pub remains: bool,
}

/// A named snapshot of the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedSnapshot {
    /// Its name.
    pub name: String,
    /// When it was made, as in RFC 3339.
    pub time: String,
    /// How long ago that is.
    pub age_ms: u64,
    /// The commit that made it.
    pub sequence: u64,
    /// File data that is kept for it, bytes: at most so much comes free when it is deleted.
    pub pinned_bytes: u64,
    /// What is kept of names, attributes and places, bytes.
    pub metadata_bytes: u64,
    /// It has been deleted, and what was kept for it is about to go.
    pub going: bool,
}

/// What restoring paths did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Nodes that were made.
    pub made: u64,
    /// Nodes that were there and were changed.
    pub changed: u64,
    /// Names that were removed.
    pub removed: u64,
    /// Nodes that are as they were.
    pub unchanged: u64,
    /// Bytes of file data that were written.
    pub data_bytes: u64,
}

/// A kept or prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTransaction {
    /// Its name.
    pub name: String,
    /// What it is.
    pub state: KeptState,
    /// When it was kept, as in RFC 3339.
    pub time: String,
    /// How long ago that is.
    pub age_ms: u64,
    /// The process that it was made for; 0 when nobody knew.
    pub process: u32,
    /// The command that it was made for; may be empty.
    pub command: String,
    /// What it is for; may be empty.
    pub message: String,
    /// Files, directories and other nodes that it makes, changes or removes.
    pub nodes: u64,
    /// Names that it adds, changes or removes.
    pub names: u64,
    /// Bytes of new file data, whole pages.
    pub data_bytes: u64,
    /// Bytes that it keeps in the volume.
    pub pinned_bytes: u64,
    /// Conflicts that are noted; with any it cannot be committed.
    pub conflicts: u64,
}

/// The three states that matter when a kept transaction conflicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptSide {
    /// What it began with.
    Base,
    /// The same with its changes.
    #[default]
    Ours,
    /// The volume as it is now.
    Theirs,
}

/// What a kept transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptState {
    /// Its commit fails after a conflict.
    Kept,
    /// Its commit is certain to succeed.
    Prepared,
}

/// A commit in the volume's history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Its place in the order of commits.
    pub sequence: u64,
    /// When it was made, as in RFC 3339.
    pub time: String,
    /// The process that it was made for; 0 when nobody knew.
    pub process: u32,
    /// The command that it was made for; may be empty.
    pub command: String,
    /// What it was for; may be empty.
    pub message: String,
    /// Files, directories and other nodes that it made, changed or removed.
    pub nodes: u64,
    /// Names that it added, changed or removed.
    pub names: u64,
    /// Bytes of new file data, whole pages.
    pub data_bytes: u64,
    /// Whether it can be undone.
    #[serde(default)]
    pub undo: Undoable,
    /// What is kept for that: old content of files, removed files, and what says what was where.
    #[serde(default)]
    pub kept_bytes: u64,
}

/// Whether a commit in the volume's history can be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undoable {
    /// No: nothing was kept for that.
    #[default]
    No,
    /// As far as nothing is in the way.
    Yes,
    /// No: it was too large.
    TooLarge,
    /// No: newer commits needed what the history may keep.
    Expired,
    /// No: the volume was full.
    GaveWay,
}
