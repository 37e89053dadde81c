//! Keys of the ordered map. The table is in [`super`].

use crate::types::Ino;

pub(crate) const INODE_TAG: u8 = b'i';
pub(crate) const DIRENT_TAG: u8 = b'd';
pub(crate) const EXTENT_TAG: u8 = b'e';
pub(crate) const SYMLINK_TAG: u8 = b'l';
pub(crate) const XATTR_TAG: u8 = b'x';
pub(crate) const ORPHAN_TAG: u8 = b'o';
pub(crate) const HISTORY_TAG: u8 = b'h';

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

pub(crate) fn history(sequence: u64) -> [u8; 9] {
    tagged(HISTORY_TAG, sequence)
}

pub(crate) fn dirent(directory: Ino, hash: u64) -> [u8; 17] {
    tagged_pair(DIRENT_TAG, directory, hash)
}

pub(crate) fn extent(ino: Ino, page: u64) -> [u8; 17] {
    tagged_pair(EXTENT_TAG, ino, page)
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
