//! The value of a directory entry: all names of one directory with the same hash, nearly always one.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | version: 1 |
//! | 1 | number of names, 1 to 4 |
//! | n | inode number of the first name, a number of variable length (`number.rs`) |
//! | 1 | its kind, as in the inode record, in the low four bits; its slot, 0 to 3, in the high ones |
//! | 1 | length of the name, 1 to 255 |
//! | m | the name |
//! | ... | the other names in the same way |
//!
//! Names stand in the order of their slots. A name keeps its slot, whatever becomes of the others, so its readdir
//! cookie (hash plus slot) stays valid.

use siphasher::sip::SipHasher13;

use super::inode::{kind_code, kind_from_code};
use super::{Malformed, number};
use crate::types::{Ino, NodeKind};

const VERSION: u8 = 1;

/// Names of one hash that fit into one entry; the cookie's two low bits tell them apart.
pub(crate) const BUCKET_NAMES_MAX: usize = 4;

/// The smallest hash: cookies below are for `.` and `..`.
pub(crate) const HASH_MIN: u64 = 16;

/// The largest hash.
pub(crate) const HASH_MAX: u64 = (u64::MAX >> 1) & !3;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dirent {
    pub(crate) ino: Ino,
    pub(crate) kind: NodeKind,
    /// Tells names of one hash apart.
    pub(crate) slot: u8,
    pub(crate) name: Vec<u8>,
}

/// All names of one hash, in the order of their slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket(pub(crate) Vec<Dirent>);

impl Bucket {
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Dirent> {
        self.0.iter().find(|dirent| dirent.name == name)
    }

    /// Adds a name that is not there yet; false when there is no room for it.
    pub(crate) fn add(&mut self, name: &[u8], ino: Ino, kind: NodeKind) -> bool {
        let taken = |slot: u8| self.0.iter().any(|dirent| dirent.slot == slot);
        let Some(slot) = (0..BUCKET_NAMES_MAX as u8).find(|&slot| !taken(slot)) else { return false };
        let at = self.0.partition_point(|dirent| dirent.slot < slot);
        self.0.insert(at, Dirent { ino, kind, slot, name: name.to_vec() });
        true
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let len: usize = self.0.iter().map(|dirent| 12 + dirent.name.len()).sum();
        let mut bytes = Vec::with_capacity(2 + len);
        bytes.push(VERSION);
        bytes.push(self.0.len() as u8);
        for dirent in &self.0 {
            number::put(&mut bytes, dirent.ino);
            bytes.push(kind_code(dirent.kind) | dirent.slot << 4);
            bytes.push(dirent.name.len() as u8);
            bytes.extend_from_slice(&dirent.name);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Bucket, Malformed> {
        let (&[version, count], mut rest) =
            bytes.split_first_chunk::<2>().ok_or("a directory entry that is too short")?;
        if version != VERSION {
            return Err("a directory entry of an unknown version");
        }
        if count == 0 || usize::from(count) > BUCKET_NAMES_MAX {
            return Err("a directory entry with an impossible number of names");
        }
        let mut dirents: Vec<Dirent> = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let ino = number::take(&mut rest).ok_or("a directory entry with an impossible inode number")?;
            let (&[kind, name_len], tail) =
                rest.split_first_chunk::<2>().ok_or("a directory entry that is too short")?;
            let name = tail.get(..usize::from(name_len)).ok_or("a directory entry that is too short")?;
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                return Err("a directory entry with an impossible name");
            }
            let slot = kind >> 4;
            if usize::from(slot) >= BUCKET_NAMES_MAX || dirents.last().is_some_and(|last| last.slot >= slot) {
                return Err("a directory entry with impossible slots");
            }
            dirents.push(Dirent {
                ino,
                kind: kind_from_code(kind & 15).ok_or("a directory entry of an unknown kind")?,
                slot,
                name: name.to_vec(),
            });
            rest = &tail[name.len()..];
        }
        if !rest.is_empty() {
            return Err("a directory entry with bytes behind its end");
        }
        Ok(Bucket(dirents))
    }
}

/// Turns names into hashes with the volume's secret key.
#[derive(Clone, Debug)]
pub(crate) struct NameHasher {
    key: [u8; 16],
    /// All ones, but for tests that need collisions.
    mask: u64,
}

impl NameHasher {
    pub(crate) fn new(key: [u8; 16]) -> NameHasher {
        NameHasher { key, mask: u64::MAX }
    }

    /// For tests: a hasher of which nearly all names collide.
    #[cfg(test)]
    pub(crate) fn colliding(key: [u8; 16], mask: u64) -> NameHasher {
        NameHasher { key, mask }
    }

    pub(crate) fn hash(&self, name: &[u8]) -> u64 {
        let hash = SipHasher13::new_with_key(&self.key).hash(name) & self.mask;
        ((hash >> 1) & !3).max(HASH_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes() {
        let bucket = Bucket(vec![
            Dirent { ino: 7, kind: NodeKind::File, slot: 1, name: b"a".to_vec() },
            Dirent { ino: u64::MAX, kind: NodeKind::Directory, slot: 3, name: vec![b'x'; 255] },
        ]);
        let bytes = bucket.encode();
        assert_eq!(Bucket::decode(&bytes), Ok(bucket));
        for len in 0..bytes.len() {
            assert!(Bucket::decode(&bytes[..len]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Bucket::decode(&longer).is_err());
        for (at, value) in
            [(0, 0), (1, 0), (1, 5), (2, 0x80), (3, 0x1f), (3, 0x31), (3, 0x41), (5, b'/'), (5, 0)]
        {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(Bucket::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn hashes_leave_room_for_cookies() {
        let hasher = NameHasher::new([3; 16]);
        for number in 0..1000u32 {
            let hash = hasher.hash(&number.to_le_bytes());
            assert!((HASH_MIN..=HASH_MAX).contains(&hash) && hash.is_multiple_of(4));
        }
    }
}
