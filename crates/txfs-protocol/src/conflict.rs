//! Why a transaction could not commit, as it goes over the socket and into `txfs run --json`.

use crate::PathText;
use serde::{Deserialize, Serialize};

/// All that a transaction has met, as far as a report goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictReport {
    /// The first hundred conflicts; those about what the transaction has written come first.
    pub conflicts: Vec<Conflict>,
    /// How many more there are.
    pub more: u64,
    /// All of it in one sentence.
    pub message: String,
}

/// Somebody changed something that the transaction has read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What both touched.
    #[serde(flatten)]
    pub kind: ConflictKind,
    /// What the transaction did with it.
    pub access: Access,
    /// Where, as far as it can be told: a path relative to the volume's root.
    pub path: PathText,
    /// The inode (for names: of the directory).
    pub inode: u64,
    /// The other one.
    pub other: Other,
    /// All of it in one sentence.
    pub message: String,
}

/// What two transactions can collide on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ConflictKind {
    /// The same 4 KiB pages of a file.
    Pages {
        /// Number of the first page.
        first_page: u64,
        /// Number of the last page; none: all that follow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_page: Option<u64>,
    },
    /// The same name in a directory.
    Name,
    /// An attribute of a file or directory.
    Attribute {
        /// `existence`, `permissions`, `size`, `parent` or `xattr`.
        attribute: String,
    },
    /// The list of a directory's names.
    Scan,
}

/// What a transaction did with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It has read it, and perhaps nothing more.
    Read,
    /// It has written it.
    Write,
}

/// What the other one has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherState {
    /// It has committed.
    #[default]
    Committed,
    /// It is open, has written it, and is eager.
    Writing,
    /// It is open, older, and was refused several times.
    Elder,
}

/// Whom a transaction has met; what is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    /// What it has done so far.
    #[serde(default)]
    pub state: OtherState,
    /// The number of its commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// When it committed, or when it began where it is open, as in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The number of the transaction; none for a call outside of transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<u64>,
    /// The process that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What it was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
