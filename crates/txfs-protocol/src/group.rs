//! What is said about file groups.

use crate::Begun;
use serde::{Deserialize, Serialize};

/// A group of files whose changes belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileGroup {
    /// What it is called by.
    pub key: u32,
    /// The user who made it; he and root may use it.
    pub uid: u32,
    /// How many files and directories belong to it, those included that are gone since somebody looked.
    pub members: u64,
    /// The number of its transaction, while one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<u64>,
}

/// A member of a file group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// Its inode number.
    pub inode: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

/// A group's transaction has begun, or been joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStarted {
    /// The transaction.
    pub begun: Begun,
    /// It was running already.
    pub joined: bool,
    /// The first members; the others can be asked for.
    pub members: Vec<GroupMember>,
    /// How many there are in all.
    pub total: u64,
}
