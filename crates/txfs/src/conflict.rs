//! What two transactions can conflict over: the meaning of the engine's conflict ranges.

use std::fmt;
use std::path::PathBuf;

use crate::types::{Ino, PAGE_BYTES};

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

/// Why a transaction could not commit: somebody committed a change to something that it has read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What both touched.
    pub kind: ConflictKind,
    /// The node (for names: the directory) concerned.
    pub ino: Ino,
    /// A path of the node (for names: of the entry, where it could be found out).
    pub path: Option<PathBuf>,
    /// Sequence number of the other commit.
    pub sequence: u64,
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

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "{}", path.display())?,
            None => write!(formatter, "inode {}", self.ino)?,
        }
        match &self.kind {
            ConflictKind::Pages { first, last } => {
                let begin = first.saturating_mul(PAGE_BYTES);
                if *last >= u64::MAX / PAGE_BYTES {
                    write!(formatter, ": bytes from {begin} on")?;
                } else {
                    write!(formatter, ": bytes {begin} to {}", (last + 1) * PAGE_BYTES - 1)?;
                }
            }
            ConflictKind::Name { .. } => write!(formatter, ": the name")?,
            ConflictKind::Listing => write!(formatter, ": the list of names")?,
            ConflictKind::Existence => write!(formatter, ": its existence")?,
            ConflictKind::Permissions => write!(formatter, ": mode or owner")?,
            ConflictKind::Size => write!(formatter, ": the size")?,
            ConflictKind::Parent => write!(formatter, ": its place in the tree")?,
            ConflictKind::ExtendedAttribute => write!(formatter, ": an extended attribute")?,
        }
        write!(formatter, " (changed by commit {})", self.sequence)
    }
}
