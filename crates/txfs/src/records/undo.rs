//! What undoing a recorded commit needs to know: a list of items, in chunks of about 16 KiB.
//!
//! A chunk is the value of `u`, number (8), `c`, number of the chunk (4): version 1 (1), then items, each a tag (1) and its
//! fields. *n* is a number of variable length ([`super::number`]), *record* a length (1) and an inode record.
//!
//! | tag | item | fields |
//! | --- | --- | --- |
//! | 1 | a name | directory *n*, length (1), name, then twice (before and after the commit): 0 (1), or 1 (1), inode *n*, kind (1) |
//! | 2 | a node that was there before | inode *n*, *record* before, *record* after |
//! | 3 | an extended attribute | inode *n*, length (1), name; before: 0 (1), or 1 (1), length *n*, value; after: 0 (1), or 1 (1), CRC of the value (4) |
//! | 4 | pages that were put | inode *n*, first page *n*, their number *n*, CRC of each (4) |
//! | 5 | pages whose old content went | inode *n*, first page *n*, last page *n* |
//! | 6 | a node that was made | inode *n*, kind (1), mode (2), owner *n*, group *n*, size *n*, CRC of the content (4), CRC of the extended attributes (4) |
//! | 7 | a node that lost its last name and was kept | inode *n*, CRC of its record (4), pages *n* |
//!
//! The old content itself stands in saved extents under the same number. The number is taken from those for inodes, so it
//! is used once and known before the commit has its own.

use txfs_engine::{Extent, saved_key, split_saved_key};

use super::inode::{kind_code, kind_from_code};
use super::{InodeRecord, Malformed, number};
use crate::types::{Ino, NodeKind};

/// The tag of saved values for undoing.
pub(crate) const UNDO_TAG: u8 = b'u';
/// Of the inner key of a chunk.
const CHUNK_TAG: u8 = b'c';
const VERSION: u8 = 1;
/// A chunk that has got so long is complete.
const CHUNK_BYTES: usize = 16 << 10;

/// What a name stood for.
pub(crate) type Entry = Option<(Ino, NodeKind)>;

/// One thing that a commit has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UndoItem {
    Name { directory: Ino, name: Vec<u8>, before: Entry, after: Entry },
    Node { ino: Ino, before: InodeRecord, after: InodeRecord },
    Xattr { ino: Ino, name: Vec<u8>, before: Option<Vec<u8>>, after: Option<u32> },
    Put { ino: Ino, first: u64, checksums: Vec<u32> },
    Cleared { ino: Ino, first: u64, last: u64 },
    Created { ino: Ino, made: Made },
    Removed { ino: Ino, record: u32, pages: u64 },
}

/// A node as a commit made it; enough to see whether it still is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) kind: NodeKind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) content: u32,
    pub(crate) xattrs: u32,
}

impl Made {
    pub(crate) fn new(record: &InodeRecord, content: Digest, xattrs: Digest) -> Made {
        let InodeRecord { kind, mode, uid, gid, size, .. } = *record;
        // How large a directory is says nothing.
        let size = if kind == NodeKind::File { size } else { 0 };
        Made { kind, mode, uid, gid, size, content: content.0, xattrs: xattrs.0 }
    }
}

/// Checksum of several things in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u32);

impl Digest {
    /// Adds the pages of an extent; extents come in the order of their pages, and how pages are divided among them does not
    /// matter.
    pub(crate) fn add_pages(&mut self, first: u64, extent: &Extent) {
        for (page, checksum) in (first..).zip(&extent.page_checksums) {
            self.0 = crc32c::crc32c_append(self.0, &page.to_le_bytes());
            self.0 = crc32c::crc32c_append(self.0, &checksum.to_le_bytes());
        }
    }

    /// Adds an extended attribute; they come in the order of their names.
    pub(crate) fn add_xattr(&mut self, name: &[u8], value: &[u8]) {
        for bytes in [name, value] {
            self.0 = crc32c::crc32c_append(self.0, &(bytes.len() as u64).to_le_bytes());
            self.0 = crc32c::crc32c_append(self.0, bytes);
        }
    }
}

/// The key of a chunk.
pub(crate) fn chunk_key(number: u64, chunk: u32) -> Vec<u8> {
    let mut inner = [CHUNK_TAG; 5];
    inner[1..].copy_from_slice(&chunk.to_be_bytes());
    saved_key(UNDO_TAG, number, &inner)
}

/// True for the key of a chunk, of whatever number.
pub(crate) fn is_chunk(key: &[u8]) -> bool {
    split_saved_key(key).is_some_and(|(tag, _, inner)| tag == UNDO_TAG && inner.first() == Some(&CHUNK_TAG))
}

/// The range of all keys with a number.
pub(crate) fn keys_of(number: u64) -> (Vec<u8>, Vec<u8>) {
    let end = match number.checked_add(1) {
        Some(next) => saved_key(UNDO_TAG, next, b""),
        None => vec![UNDO_TAG + 1],
    };
    (saved_key(UNDO_TAG, number, b""), end)
}

/// Collects items in chunks.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    number: u64,
    next: u32,
    open: Vec<u8>,
    /// Complete chunks, with their keys.
    pub(crate) chunks: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes in them.
    pub(crate) bytes: u64,
}

impl ChunkWriter {
    /// Chunks get numbers from `first` on.
    pub(crate) fn new(number: u64, first: u32) -> ChunkWriter {
        ChunkWriter { number, next: first, open: Vec::new(), chunks: Vec::new(), bytes: 0 }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn add(&mut self, item: &UndoItem) {
        if self.open.is_empty() {
            self.open.push(VERSION);
        }
        item.encode_into(&mut self.open);
        if self.open.len() >= CHUNK_BYTES {
            self.close();
        }
    }

    /// Completes the last chunk.
    pub(crate) fn close(&mut self) {
        if !self.open.is_empty() {
            let value = std::mem::take(&mut self.open);
            self.bytes += value.len() as u64;
            self.chunks.push((chunk_key(self.number, self.next), value));
            self.next += 1;
        }
    }
}

/// Reads a chunk.
pub(crate) fn decode_chunk(bytes: &[u8]) -> Result<Vec<UndoItem>, Malformed> {
    let (&version, mut rest) = bytes.split_first().ok_or(SHORT)?;
    if version != VERSION {
        return Err("undo data of an unknown version");
    }
    let mut items = Vec::new();
    while !rest.is_empty() {
        items.push(UndoItem::take(&mut rest)?);
    }
    Ok(items)
}

const SHORT: Malformed = "undo data that is too short";

impl UndoItem {
    fn encode_into(&self, bytes: &mut Vec<u8>) {
        match self {
            UndoItem::Name { directory, name, before, after } => {
                bytes.push(1);
                number::put(bytes, *directory);
                put_short(bytes, name);
                put_entry(bytes, *before);
                put_entry(bytes, *after);
            }
            UndoItem::Node { ino, before, after } => {
                bytes.push(2);
                number::put(bytes, *ino);
                put_short(bytes, &before.encode());
                put_short(bytes, &after.encode());
            }
            UndoItem::Xattr { ino, name, before, after } => {
                bytes.push(3);
                number::put(bytes, *ino);
                put_short(bytes, name);
                bytes.push(before.is_some().into());
                if let Some(value) = before {
                    number::put(bytes, value.len() as u64);
                    bytes.extend_from_slice(value);
                }
                bytes.push(after.is_some().into());
                bytes.extend(after.iter().flat_map(|checksum| checksum.to_le_bytes()));
            }
            UndoItem::Put { ino, first, checksums } => {
                bytes.push(4);
                number::put(bytes, *ino);
                number::put(bytes, *first);
                number::put(bytes, checksums.len() as u64);
                bytes.extend(checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
            }
            UndoItem::Cleared { ino, first, last } => {
                bytes.push(5);
                [*ino, *first, *last].into_iter().for_each(|field| number::put(bytes, field));
            }
            UndoItem::Created { ino, made } => {
                bytes.push(6);
                number::put(bytes, *ino);
                bytes.push(kind_code(made.kind));
                bytes.extend_from_slice(&(made.mode as u16).to_le_bytes());
                let fields = [made.uid.into(), made.gid.into(), made.size];
                fields.into_iter().for_each(|field| number::put(bytes, field));
                bytes.extend_from_slice(&made.content.to_le_bytes());
                bytes.extend_from_slice(&made.xattrs.to_le_bytes());
            }
            UndoItem::Removed { ino, record, pages } => {
                bytes.push(7);
                number::put(bytes, *ino);
                bytes.extend_from_slice(&record.to_le_bytes());
                number::put(bytes, *pages);
            }
        }
    }

    fn take(rest: &mut &[u8]) -> Result<UndoItem, Malformed> {
        let tag = take_byte(rest)?;
        let ino = take_number(rest)?;
        Ok(match tag {
            1 => {
                let name = take_short(rest)?.to_vec();
                if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                    return Err("undo data with an impossible name");
                }
                let (before, after) = (take_entry(rest)?, take_entry(rest)?);
                UndoItem::Name { directory: ino, name, before, after }
            }
            2 => {
                let mut record = || InodeRecord::decode(take_short(rest)?);
                let (before, after) = (record()?, record()?);
                UndoItem::Node { ino, before, after }
            }
            3 => {
                let name = take_short(rest)?.to_vec();
                let before = match take_flag(rest)? {
                    true => {
                        let len = usize::try_from(take_number(rest)?).map_err(|_| SHORT)?;
                        Some(take_bytes(rest, len)?.to_vec())
                    }
                    false => None,
                };
                let after = if take_flag(rest)? { Some(take_word(rest)?) } else { None };
                UndoItem::Xattr { ino, name, before, after }
            }
            4 => {
                let (first, count) = (take_number(rest)?, take_number(rest)?);
                let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(4)).ok_or(SHORT)?;
                if count == 0 || first.checked_add(count).is_none() {
                    return Err("undo data with impossible pages");
                }
                let words = take_bytes(rest, len)?.chunks_exact(4);
                let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                UndoItem::Put { ino, first, checksums: words.map(word).collect() }
            }
            5 => {
                let (first, last) = (take_number(rest)?, take_number(rest)?);
                if first > last {
                    return Err("undo data with impossible pages");
                }
                UndoItem::Cleared { ino, first, last }
            }
            6 => {
                let kind = kind_from_code(take_byte(rest)?).ok_or("undo data with an unknown kind")?;
                let mode = take_bytes(rest, 2)?;
                let mode = u32::from(u16::from_le_bytes([mode[0], mode[1]]));
                let word =
                    |number: u64| u32::try_from(number).map_err(|_| "undo data with an impossible owner");
                let (uid, gid, size) =
                    (word(take_number(rest)?)?, word(take_number(rest)?)?, take_number(rest)?);
                let (content, xattrs) = (take_word(rest)?, take_word(rest)?);
                UndoItem::Created { ino, made: Made { kind, mode, uid, gid, size, content, xattrs } }
            }
            7 => UndoItem::Removed { ino, record: take_word(rest)?, pages: take_number(rest)? },
            _ => return Err("undo data with an unknown item"),
        })
    }
}

fn put_short(bytes: &mut Vec<u8>, short: &[u8]) {
    debug_assert!(short.len() <= 255);
    bytes.push(short.len() as u8);
    bytes.extend_from_slice(short);
}

fn put_entry(bytes: &mut Vec<u8>, entry: Entry) {
    bytes.push(entry.is_some().into());
    if let Some((ino, kind)) = entry {
        number::put(bytes, ino);
        bytes.push(kind_code(kind));
    }
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, Malformed> {
    Ok(take_bytes(rest, 1)?[0])
}

fn take_flag(rest: &mut &[u8]) -> Result<bool, Malformed> {
    match take_byte(rest)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("undo data with an impossible mark"),
    }
}

fn take_word(rest: &mut &[u8]) -> Result<u32, Malformed> {
    let bytes = take_bytes(rest, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn take_number(rest: &mut &[u8]) -> Result<u64, Malformed> {
    number::take(rest).ok_or("undo data with an impossible number")
}

fn take_bytes<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (bytes, behind) = rest.split_at_checked(len).ok_or(SHORT)?;
    *rest = behind;
    Ok(bytes)
}

fn take_short<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = take_byte(rest)?;
    take_bytes(rest, len.into())
}

fn take_entry(rest: &mut &[u8]) -> Result<Entry, Malformed> {
    if !take_flag(rest)? {
        return Ok(None);
    }
    let ino = take_number(rest)?;
    let kind = kind_from_code(take_byte(rest)?).ok_or("undo data with an unknown kind")?;
    Ok(Some((ino, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Timestamp;

    fn record(size: u64) -> InodeRecord {
        let time = Timestamp::new(5, 6);
        InodeRecord {
            kind: NodeKind::File,
            mode: 0o644,
            uid: 1000,
            gid: 100,
            nlink: 1,
            size,
            pages: 1,
            parent: 1,
            rdev: 0,
            atime: time,
            mtime: Timestamp::new(9, 9),
            ctime: time,
            btime: time,
        }
    }

    fn items() -> Vec<UndoItem> {
        let made = Made {
            kind: NodeKind::File,
            mode: 0o4755,
            uid: 7,
            gid: u32::MAX,
            size: 1 << 40,
            content: 3,
            xattrs: 4,
        };
        vec![
            UndoItem::Name {
                directory: 1,
                name: b"a".to_vec(),
                before: None,
                after: Some((9, NodeKind::File)),
            },
            UndoItem::Name {
                directory: 3,
                name: vec![b'x'; 255],
                before: Some((2, NodeKind::Fifo)),
                after: None,
            },
            UndoItem::Node { ino: 5, before: record(4096), after: record(9000) },
            UndoItem::Xattr { ino: 5, name: b"user.a".to_vec(), before: Some(vec![1; 300]), after: None },
            UndoItem::Xattr { ino: 5, name: b"user.b".to_vec(), before: None, after: Some(77) },
            UndoItem::Put { ino: 5, first: 10, checksums: vec![1, 2, 3] },
            UndoItem::Cleared { ino: 5, first: 10, last: u64::MAX },
            UndoItem::Created { ino: 9, made },
            UndoItem::Removed { ino: 2, record: 99, pages: 64 },
        ]
    }

    #[test]
    fn items_come_back_in_chunks() {
        let mut writer = ChunkWriter::new(42, 7);
        let items: Vec<UndoItem> = items().into_iter().cycle().take(2000).collect();
        items.iter().for_each(|item| writer.add(item));
        writer.close();
        writer.close();
        assert!(writer.chunks.len() > 2);
        let mut found = Vec::new();
        for (index, (key, value)) in writer.chunks.iter().enumerate() {
            assert_eq!(*key, chunk_key(42, 7 + index as u32));
            assert!(is_chunk(key));
            found.extend(decode_chunk(value).expect("decodes"));
        }
        assert_eq!(found, items);
    }

    #[test]
    fn broken_bytes_are_an_error_and_nothing_worse() {
        let mut writer = ChunkWriter::new(1, 0);
        items().iter().for_each(|item| writer.add(item));
        writer.close();
        let bytes = writer.chunks[0].1.clone();
        let whole = decode_chunk(&bytes).expect("decodes").len();
        for len in 0..bytes.len() {
            assert!(
                decode_chunk(&bytes[..len]).is_ok_and(|items| items.len() < whole)
                    || decode_chunk(&bytes[..len]).is_err()
            );
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut broken = bytes.clone();
                broken[at] ^= 1 << bit;
                let _ = decode_chunk(&broken);
            }
        }
    }

    #[test]
    fn how_pages_are_divided_does_not_matter() {
        let extent = Extent { segment: 1, offset: 0, len: 5 * 4096 - 9, page_checksums: vec![1, 2, 3, 4, 5] };
        let (mut whole, mut parts) = (Digest::default(), Digest::default());
        whole.add_pages(7, &extent);
        parts.add_pages(7, &extent.slice_pages(0, 2));
        parts.add_pages(9, &extent.slice_pages(2, 3));
        assert_eq!(whole, parts);
    }
}
