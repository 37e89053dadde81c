//! The canonical form of a whole tree: two states are equal when their dumps are.
//!
//! Inode numbers are part of it: the model takes them over from the volume, so they carry hard-link identity.

use std::fmt;

use crate::hash::{hash_bytes, mix};
use crate::operation::{Ino, Kind};

/// One path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of stat")]
pub struct DumpEntry {
    /// Path from the root; empty for the root itself.
    pub path: Vec<u8>,
    pub ino: Ino,
    pub kind: Kind,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Files and link targets; 0 for others.
    pub size: u64,
    /// Of file bytes or link target; 0 for others.
    pub content_hash: u64,
    /// Of all extended attributes.
    pub xattrs_hash: u64,
}

impl DumpEntry {
    fn digest(&self) -> u64 {
        let numbers = [
            self.ino,
            self.kind as u64,
            u64::from(self.mode),
            u64::from(self.nlink),
            u64::from(self.uid),
            u64::from(self.gid),
            self.size,
            self.content_hash,
            self.xattrs_hash,
        ];
        numbers.into_iter().fold(hash_bytes(&self.path), mix)
    }
}

impl fmt::Display for DumpEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { b"/".as_slice() } else { &self.path };
        write!(
            formatter,
            "{} inode {} {:?} mode {:o} links {} owner {}:{} size {} content {:016x} xattrs {:016x}",
            path.escape_ascii(),
            self.ino,
            self.kind,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            self.size,
            self.content_hash,
            self.xattrs_hash
        )
    }
}

/// A tree in canonical order: every directory before its entries, entries by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// The root first.
    pub entries: Vec<DumpEntry>,
}

impl Dump {
    /// One number for the whole state.
    pub fn digest(&self) -> u64 {
        self.entries.iter().fold(self.entries.len() as u64, |state, entry| mix(state, entry.digest()))
    }

    /// The first difference, for people; `None` when equal.
    pub fn first_difference(&self, expected: &Dump) -> Option<String> {
        for (found, wanted) in self.entries.iter().zip(&expected.entries) {
            if found != wanted {
                return Some(format!("found    {found}\n  expected {wanted}"));
            }
        }
        if let Some(extra) = self.entries.get(expected.entries.len()) {
            return Some(format!("found {extra}, expected nothing more"));
        }
        let missing = expected.entries.get(self.entries.len())?;
        Some(format!("expected {missing}, found nothing more"))
    }
}
