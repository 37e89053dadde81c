//! The inode record.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | kind: 1 file, 2 directory, 3 symlink, 4 fifo, 5 socket, 6 character device, 7 block device |
//! | 2 | 2 | mode: the low twelve permission bits |
//! | 4 | 4 | owner |
//! | 8 | 4 | group |
//! | 12 | 4 | number of names (directories: 2 and one for each subdirectory) |
//! | 16 | 8 | size in bytes |
//! | 24 | 8 | pages that extents cover |
//! | 32 | 8 | directories: the parent; others: the directory of one name, a hint that may be out of date |
//! | 40 | 4 | device number |
//! | 44 | 4 | reserved: 0 |
//! | 48 | 12 | atime: seconds (8, signed), nanoseconds (4) |
//! | 60 | 12 | mtime |
//! | 72 | 12 | ctime |
//! | 84 | 12 | btime |
//!
//! 96 bytes in all.

use super::Malformed;
use crate::types::{Attributes, Ino, NodeKind, PAGE_BYTES, Timestamp};

pub(crate) const INODE_BYTES: usize = 96;
const VERSION: u8 = 1;

/// One inode, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InodeRecord {
    pub(crate) kind: NodeKind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    pub(crate) pages: u64,
    pub(crate) parent: Ino,
    pub(crate) rdev: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) btime: Timestamp,
}

pub(crate) fn kind_code(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::File => 1,
        NodeKind::Directory => 2,
        NodeKind::Symlink => 3,
        NodeKind::Fifo => 4,
        NodeKind::Socket => 5,
        NodeKind::CharacterDevice => 6,
        NodeKind::BlockDevice => 7,
    }
}

pub(crate) fn kind_from_code(code: u8) -> Option<NodeKind> {
    Some(match code {
        1 => NodeKind::File,
        2 => NodeKind::Directory,
        3 => NodeKind::Symlink,
        4 => NodeKind::Fifo,
        5 => NodeKind::Socket,
        6 => NodeKind::CharacterDevice,
        7 => NodeKind::BlockDevice,
        _ => return None,
    })
}

impl InodeRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(INODE_BYTES);
        bytes.push(VERSION);
        bytes.push(kind_code(self.kind));
        bytes.extend_from_slice(&((self.mode & 0o7777) as u16).to_le_bytes());
        for word in [self.uid, self.gid, self.nlink] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for long in [self.size, self.pages, self.parent] {
            bytes.extend_from_slice(&long.to_le_bytes());
        }
        bytes.extend_from_slice(&self.rdev.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            bytes.extend_from_slice(&time.seconds.to_le_bytes());
            bytes.extend_from_slice(&time.nanoseconds.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<InodeRecord, Malformed> {
        let bytes: &[u8; INODE_BYTES] = match bytes.first() {
            Some(&VERSION) => bytes.try_into().map_err(|_| "an inode record of the wrong length")?,
            Some(_) => return Err("an inode record of an unknown version"),
            None => return Err("an empty inode record"),
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let time = |at: usize| Timestamp { seconds: long(at) as i64, nanoseconds: word(at + 8) };
        let record = InodeRecord {
            kind: kind_from_code(bytes[1]).ok_or("an inode record of an unknown kind")?,
            mode: u32::from(u16::from_le_bytes([bytes[2], bytes[3]])),
            uid: word(4),
            gid: word(8),
            nlink: word(12),
            size: long(16),
            pages: long(24),
            parent: long(32),
            rdev: word(40),
            atime: time(48),
            mtime: time(60),
            ctime: time(72),
            btime: time(84),
        };
        if record.mode > 0o7777 {
            return Err("an inode record with impossible mode bits");
        }
        if record.size > i64::MAX as u64 || record.pages > record.size.div_ceil(PAGE_BYTES) {
            return Err("an inode record with an impossible size");
        }
        if [record.atime, record.mtime, record.ctime, record.btime]
            .iter()
            .any(|t| t.nanoseconds > 999_999_999)
        {
            return Err("an inode record with an impossible time");
        }
        Ok(record)
    }

    pub(crate) fn attributes(&self, ino: Ino) -> Attributes {
        Attributes {
            ino,
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            blocks: self.pages.saturating_mul(PAGE_BYTES / 512),
            rdev: self.rdev,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> InodeRecord {
        InodeRecord {
            kind: NodeKind::Symlink,
            mode: 0o7654,
            uid: 1,
            gid: 0xffff_ffff,
            nlink: 3,
            size: 0x1234_5678_9abc,
            pages: 77,
            parent: u64::MAX,
            rdev: 9,
            atime: Timestamp::new(-1, 999_999_999),
            mtime: Timestamp::new(1, 2),
            ctime: Timestamp::new(i64::MAX, 0),
            btime: Timestamp::new(i64::MIN, 1),
        }
    }

    #[test]
    fn what_is_encoded_decodes() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), INODE_BYTES);
        assert_eq!(InodeRecord::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn damaged_records_are_errors() {
        let bytes = sample().encode();
        for len in 0..INODE_BYTES {
            assert!(InodeRecord::decode(&bytes[..len]).is_err());
        }
        for (at, value) in [(0, 2), (1, 0), (1, 8), (3, 0xff), (23, 0xff), (59, 0xff)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(InodeRecord::decode(&damaged).is_err(), "byte {at}");
        }
    }
}
