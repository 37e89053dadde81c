//! The inode record.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | version: 1 |
//! | 1 | low four bits: kind: 1 file, 2 directory, 3 symlink, 4 fifo, 5 socket, 6 character device, 7 block device; |
//! | | 16 is added when btime is the same as ctime and left out, 32 for mtime, 64 for atime |
//! | 2 | mode: the low twelve permission bits |
//! | n | owner |
//! | n | group |
//! | n | number of names (directories: 2 and one for each subdirectory) |
//! | n | size in bytes |
//! | n | pages that extents cover |
//! | n | directories: the parent; others: the directory of one name, a hint that may be out of date |
//! | n | device number |
//! | n + 4 | ctime: seconds, twice the number or, when negative, -1 less twice the number; nanoseconds (4) |
//! | n + 4 | btime, mtime, atime, those that are not left out |
//!
//! A field of *n* bytes is a number of variable length (`number.rs`). A new file takes 20 to 25 bytes, 110 is the most:
//! there are as many inodes as files, and how many of them fit into a page decides what a look-up among millions costs.

use super::{Malformed, number};
use crate::types::{Attributes, Ino, NodeKind, PAGE_BYTES, Timestamp};

const VERSION: u8 = 1;
/// What most records take at most.
const USUAL_BYTES: usize = 48;
/// In the kind's byte, from btime on: the time is that of the last change of the node.
const SAME_TIME: [u8; 3] = [16, 32, 64];

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
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        let times = [self.btime, self.mtime, self.atime];
        let mut kind = kind_code(self.kind);
        for (time, same) in times.iter().zip(SAME_TIME) {
            kind |= if *time == self.ctime { same } else { 0 };
        }
        bytes.extend_from_slice(&[VERSION, kind]);
        bytes.extend_from_slice(&((self.mode & 0o7777) as u16).to_le_bytes());
        for word in [self.uid, self.gid, self.nlink] {
            number::put(&mut bytes, u64::from(word));
        }
        for long in [self.size, self.pages, self.parent, u64::from(self.rdev)] {
            number::put(&mut bytes, long);
        }
        for time in std::iter::once(self.ctime).chain(times.into_iter().filter(|time| *time != self.ctime)) {
            number::put(&mut bytes, (time.seconds << 1 ^ time.seconds >> 63) as u64);
            bytes.extend_from_slice(&time.nanoseconds.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<InodeRecord, Malformed> {
        const SHORT: Malformed = "an inode record of the wrong length";
        let (&[version, kind, mode_low, mode_high], mut rest) =
            bytes.split_first_chunk::<4>().ok_or(SHORT)?;
        if version != VERSION {
            return Err("an inode record of an unknown version");
        }
        let mut long = || number::take(&mut rest).ok_or("an inode record with an impossible number");
        let word = |long: u64| u32::try_from(long).map_err(|_| "an inode record with an impossible number");
        let (uid, gid, nlink) = (word(long()?)?, word(long()?)?, word(long()?)?);
        let (size, pages, parent, rdev) = (long()?, long()?, long()?, word(long()?)?);
        let mut time = || {
            let seconds = number::take(&mut rest).ok_or("an inode record with an impossible time")?;
            let (nanoseconds, behind) = rest.split_first_chunk::<4>().ok_or(SHORT)?;
            rest = behind;
            let seconds = (seconds >> 1) as i64 ^ -((seconds & 1) as i64);
            Ok::<_, Malformed>(Timestamp { seconds, nanoseconds: u32::from_le_bytes(*nanoseconds) })
        };
        let ctime = time()?;
        let mut unless_same = |same| match kind & same {
            0 => time().and_then(|time| match time == ctime {
                true => Err("an inode record with a time that should be left out"),
                false => Ok(time),
            }),
            _ => Ok(ctime),
        };
        let [btime, mtime, atime] = SAME_TIME;
        let (btime, mtime, atime) = (unless_same(btime)?, unless_same(mtime)?, unless_same(atime)?);
        if !rest.is_empty() {
            return Err(SHORT);
        }
        let record = InodeRecord {
            kind: kind_from_code(kind & !SAME_TIME.iter().sum::<u8>())
                .ok_or("an inode record of an unknown kind")?,
            mode: u32::from(u16::from_le_bytes([mode_low, mode_high])),
            uid,
            gid,
            nlink,
            size,
            pages,
            parent,
            rdev,
            atime,
            mtime,
            ctime,
            btime,
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
        assert_eq!(InodeRecord::decode(&bytes), Ok(sample()));
        let ctime = sample().ctime;
        for same in 0..8 {
            let mut record = sample();
            let times = [&mut record.btime, &mut record.mtime, &mut record.atime];
            for (at, time) in times.into_iter().enumerate().filter(|(at, _)| same >> at & 1 == 1) {
                *time = ctime;
                assert!(at < 3);
            }
            let bytes = record.encode();
            assert_eq!(bytes[1] >> 4, same);
            assert_eq!(InodeRecord::decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn a_new_file_takes_few_bytes() {
        let time = Timestamp::new(1_800_000_000, 123_456_789);
        let record = InodeRecord {
            kind: NodeKind::File,
            mode: 0o644,
            uid: 1000,
            gid: 1000,
            nlink: 1,
            size: 0,
            pages: 0,
            parent: 10_000_000,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        assert_eq!(record.encode().len(), 25);
        assert_eq!(InodeRecord::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn damaged_records_are_errors() {
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(InodeRecord::decode(&bytes[..len]).is_err());
        }
        assert!(InodeRecord::decode(&[&bytes[..], &[0]].concat()).is_err());
        let nanoseconds = bytes.len() - 1;
        for (at, value) in [(0, 2), (1, 0), (1, 8), (1, 0x83), (3, 0xff), (nanoseconds, 0xff)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(InodeRecord::decode(&damaged).is_err(), "byte {at}");
        }
        for (size, pages) in [(u64::MAX, 0), (4096, 2)] {
            let damaged = InodeRecord { size, pages, ..sample() };
            assert!(InodeRecord::decode(&damaged.encode()).is_err());
        }
    }
}
