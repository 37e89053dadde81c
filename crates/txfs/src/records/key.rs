//! Keys of the ordered map. The table is in [`super`].

use crate::types::Ino;

pub(crate) const INODE_TAG: u8 = b'i';
pub(crate) const DIRENT_TAG: u8 = b'd';
pub(crate) const EXTENT_TAG: u8 = b'e';
pub(crate) const SYMLINK_TAG: u8 = b'l';
pub(crate) const XATTR_TAG: u8 = b'x';
pub(crate) const ORPHAN_TAG: u8 = b'o';
pub(crate) const HISTORY_TAG: u8 = b'h';
pub(crate) const REMOVED_TAG: u8 = b'r';
pub(crate) const KEPT_TAG: u8 = b'k';

/// What follows the number in the key of an entry of a kept transaction.
pub(crate) mod kept {
    pub(crate) const HEADER: u8 = b'h';
    pub(crate) const NAME: u8 = b'n';
    pub(crate) const INODE: u8 = b'i';
    pub(crate) const MASK: u8 = b'm';
    pub(crate) const XATTR: u8 = b'x';
    pub(crate) const READS: u8 = b'r';
    pub(crate) const WRITES: u8 = b'w';
    pub(crate) const CONFLICT: u8 = b'c';
    pub(crate) const MORE: u8 = b'o';
    pub(crate) const LOST: u8 = b'l';
}

/// The meta key of the number above all inode numbers in use.
pub(crate) const NEXT_INO: &[u8] = b"mnext_ino";

fn tagged(tag: u8, ino: Ino) -> [u8; 9] {
    let mut key = [0; 9];
    key[0] = tag;
    key[1..].copy_from_slice(&ino.to_be_bytes());
    key
}

fn tagged_pair(tag: u8, ino: Ino, second: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[..9].copy_from_slice(&tagged(tag, ino));
    key[9..].copy_from_slice(&second.to_be_bytes());
    key
}

pub(crate) fn inode(ino: Ino) -> [u8; 9] {
    tagged(INODE_TAG, ino)
}

pub(crate) fn symlink(ino: Ino) -> [u8; 9] {
    tagged(SYMLINK_TAG, ino)
}

pub(crate) fn orphan(ino: Ino) -> [u8; 9] {
    tagged(ORPHAN_TAG, ino)
}

/// Says for which undo data a node without names is kept.
pub(crate) fn removed(ino: Ino) -> [u8; 9] {
    tagged(REMOVED_TAG, ino)
}

pub(crate) fn history(sequence: u64) -> [u8; 9] {
    tagged(HISTORY_TAG, sequence)
}

pub(crate) fn dirent(directory: Ino, hash: u64) -> [u8; 17] {
    tagged_pair(DIRENT_TAG, directory, hash)
}

pub(crate) fn extent(ino: Ino, page: u64) -> [u8; 17] {
    tagged_pair(EXTENT_TAG, ino, page)
}

/// The key of an entry of a kept transaction: its number, what the entry is, and what else belongs to the key.
pub(crate) fn kept(id: u64, what: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = tagged(KEPT_TAG, id).to_vec();
    key.push(what);
    rest.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// The range of all entries of one kind of a kept transaction.
pub(crate) fn kept_range(id: u64, what: u8) -> (Vec<u8>, Vec<u8>) {
    (kept(id, what, &[]), kept(id, what + 1, &[]))
}

/// The range of all entries of a kept transaction.
pub(crate) fn kept_all(id: u64) -> (Vec<u8>, Vec<u8>) {
    (tagged(KEPT_TAG, id).to_vec(), after_prefix(KEPT_TAG, id))
}

/// What an entry of a kept transaction is, and what follows that in its key.
pub(crate) fn kept_entry(key: &[u8]) -> Option<(u8, &[u8])> {
    key.get(9..)?.split_first().map(|(what, rest)| (*what, rest))
}

/// A number at a place in what `kept_entry` gives.
pub(crate) fn long_at(rest: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(rest.get(at..at + 8)?.try_into().ok()?))
}

/// The first key that comes after all extents of `ino`.
pub(crate) fn extents_end(ino: Ino) -> Vec<u8> {
    after_prefix(EXTENT_TAG, ino)
}

/// The first key that comes after all entries of `directory`.
pub(crate) fn dirents_end(directory: Ino) -> Vec<u8> {
    after_prefix(DIRENT_TAG, directory)
}

pub(crate) fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + name.len());
    key.extend_from_slice(&tagged(XATTR_TAG, ino));
    key.extend_from_slice(name);
    key
}

/// The range of all extended attributes of `ino`.
pub(crate) fn xattrs(ino: Ino) -> (Vec<u8>, Vec<u8>) {
    (tagged(XATTR_TAG, ino).to_vec(), after_prefix(XATTR_TAG, ino))
}

fn after_prefix(tag: u8, ino: Ino) -> Vec<u8> {
    match ino.checked_add(1) {
        Some(next) => tagged(tag, next).to_vec(),
        None => vec![tag + 1],
    }
}

/// The range of all keys with a tag.
pub(crate) fn all(tag: u8) -> ([u8; 1], [u8; 1]) {
    ([tag], [tag + 1])
}

/// The inode number in any key but a meta key.
pub(crate) fn ino_of(key: &[u8]) -> Option<Ino> {
    Some(Ino::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The second number in the key of an extent (first page) or a directory entry (hash).
pub(crate) fn second_of(key: &[u8]) -> Option<u64> {
    if key.len() != 17 {
        return None;
    }
    Some(u64::from_be_bytes(key.get(9..17)?.try_into().ok()?))
}

/// The name in the key of an extended attribute.
pub(crate) fn xattr_name(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}
