//! The file system's keys and values in the engine's ordered map: bytes to structs and back, no I/O.
//!
//! # Keys
//! Integers in keys are big-endian, so that the byte order of keys is the order of numbers.
//!
//! | key | bytes | value |
//! | --- | --- | --- |
//! | inode | `i`, ino (8) | [`inode`] |
//! | directory entry | `d`, directory ino (8), name hash (8) | [`dirent`] |
//! | extent | `e`, ino (8), first page (8) | the engine's extent: segment, offset, length, checksums |
//! | symlink target | `l`, ino (8) | version 1 (1), the target's bytes |
//! | extended attribute | `x`, ino (8), name (1 to 255) | version 1 (1), the value's bytes |
//! | orphan | `o`, ino (8) | version 1 (1) |
//! | recorded commit | `h`, commit number (8) | [`history`] |
//! | undo data | `u`, number (8), `c`, number (4) | [`undo`] |
//! | old content | `u`, number (8), key of an extent | the engine's saved value |
//! | kept for undo | `r`, ino (8) | version 1 (1), number of the undo data (8, little-endian) |
//! | kept transaction | `k`, its number (8), then as in | [`kept`] |
//! | next inode number | `m`, `next_ino` | version 1 (1), number (8, little-endian) |
//!
//! An extent covers up to 64 pages of 4096 bytes from its first page on; extents of one file never overlap, and pages
//! that no extent covers read as zeros. The last page of an extent may be stored short; the rest of it is zeros, and so
//! is everything that a stored page holds beyond the end of its file.
//!
//! An orphan is a node without a name that was in use, or too large to be removed in one commit, when its last name
//! went. The next opening removes it.
//!
//! The next inode number is above all numbers in use; it runs ahead of them in steps, so numbers are skipped when a
//! volume is opened again.
//!
//! # Name hashes
//! `hash = max(SipHash-1-3(volume's name key, name) >> 1 & !3, 16)`. The volume's key is secret, so nobody can choose
//! names that collide. Up to four names of one hash share an entry; the readdir cookie of a name is its hash plus its
//! slot in the entry.
//!
//! # Values
//! Integers in values are little-endian, most of them of variable length ([`number`]). The first byte is the version of
//! the layout; a decoder refuses versions that it does not know. Decoding never panics.

pub(crate) mod dirent;
pub(crate) mod history;
pub(crate) mod inode;
pub(crate) mod kept;
pub(crate) mod key;
pub(crate) mod number;
pub(crate) mod small;
pub(crate) mod snapshot;
#[cfg(test)]
mod tests;
pub(crate) mod undo;

pub(crate) use dirent::{Bucket, Dirent, NameHasher};
pub(crate) use history::HistoryRecord;
pub(crate) use inode::InodeRecord;
pub(crate) use snapshot::SnapshotRecord;

/// Why stored bytes do not decode.
pub(crate) type Malformed = &'static str;
