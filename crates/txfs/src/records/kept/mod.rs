//! What is stored of a kept or prepared transaction, under the tag `k` and its number: bytes to structs and back.
//!
//! Every value begins with a version (1). Numbers are of variable length ([`super::number`]); texts and byte strings have
//! their length before them, which is such a number.
//!
//! | key: `k`, number (8), then | value |
//! | --- | --- |
//! | `h` | the header: flags; time (seconds as in an inode record, nanoseconds); process, snapshot's commit number, nodes, names, |
//! | | bytes of data, bytes of metadata; name, command, message |
//! | `n`, directory (8), hash (8) | a changed entry: the directory entry before, and the new one, each empty when there is none |
//! | `i`, inode (8) | a changed node: flags (2), times (1), link difference (zigzag), cut + 1 or 0, inode number under which its new |
//! | | data stands or 0; its record, its record before or nothing, the target of a new symlink or nothing |
//! | `m`, inode (8), count (4) | ranges of pages whose content goes: first, last less first |
//! | `x`, inode (8), name | a changed extended attribute: 0 removed, 1 set and the value |
//! | `r`, count (4) | what it has read: space (1), object, first, last less first, for each range |
//! | `w`, count (4) | what it has written, in the same way |
//! | `c`, commit number (8), count (4) | a conflict: flags, the range, time, process, the other transaction's number + 1 or 0, |
//! | | its command, its message |
//! | `o` | there are more conflicts than are noted |
//! | `l` | more was changed by others than is saved: the base is not whole |

mod changes;
mod ranges;
#[cfg(test)]
mod tests;

use txfs_engine::ConflictRange;

use super::{Malformed, number};
use crate::types::Timestamp;
pub(crate) use changes::{decode_inode, decode_name, decode_pages, encode_inode, encode_name, encode_pages};
pub(crate) use ranges::{decode_conflict, decode_ranges, encode_conflict, encode_ranges};

const VERSION: u8 = 1;
/// Longer commands and messages are cut when they are written.
const TEXT_BYTES_MAX: usize = 4000;
/// Ranges in one value.
const RANGES_MAX: usize = 3000;

const ODD: Malformed = "an entry of a kept transaction that does not decode";

/// What a kept transaction is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Kept,
    Prepared,
    /// It was committed or aborted; what is left of it is being removed.
    Going,
}

/// What is known of a kept transaction as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) stage: Stage,
    /// Its commit leaves an entry in the history.
    pub(crate) recorded: bool,
    pub(crate) time: Timestamp,
    pub(crate) process: u32,
    pub(crate) snapshot: u64,
    pub(crate) nodes: u64,
    pub(crate) names: u64,
    pub(crate) data_bytes: u64,
    pub(crate) meta_bytes: u64,
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) message: String,
}

/// Appends the parts of a value.
struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Writer {
        Writer(vec![VERSION])
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, value: u64) {
        number::put(&mut self.0, value);
    }

    fn signed(&mut self, value: i64) {
        self.number((value << 1 ^ value >> 63) as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        let fits = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
        self.bytes(&text.as_bytes()[..fits.unwrap_or(0)]);
    }

    fn time(&mut self, time: Timestamp) {
        self.signed(time.seconds);
        self.number(time.nanoseconds.into());
    }

    fn range(&mut self, range: &ConflictRange) {
        self.byte(range.space);
        self.number(range.object);
        self.number(range.first);
        self.number(range.last.saturating_sub(range.first));
    }
}

/// Takes the parts of a value; whatever is wrong is an error.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, Malformed> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => Ok(Reader(rest)),
            Some(_) => Err("an entry of a kept transaction of an unknown version"),
            None => Err(ODD),
        }
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(ODD)?;
        self.0 = rest;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        number::take(&mut self.0).ok_or(ODD)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| ODD)
    }

    fn signed(&mut self) -> Result<i64, Malformed> {
        let bits = self.number()?;
        Ok((bits >> 1) as i64 ^ -((bits & 1) as i64))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| ODD)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(ODD)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|_| ODD)
    }

    fn time(&mut self) -> Result<Timestamp, Malformed> {
        let time = Timestamp { seconds: self.signed()?, nanoseconds: self.word()? };
        if time.nanoseconds > 999_999_999 { Err(ODD) } else { Ok(time) }
    }

    fn range(&mut self) -> Result<ConflictRange, Malformed> {
        let (space, object, first) = (self.byte()?, self.number()?, self.number()?);
        let last = first.checked_add(self.number()?).ok_or(ODD)?;
        Ok(ConflictRange { space, object, first, last })
    }

    fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(ODD) }
    }
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let stage = match self.stage {
            Stage::Kept => 1,
            Stage::Prepared => 2,
            Stage::Going => 3,
        };
        out.byte(stage | u8::from(self.recorded) << 4);
        out.time(self.time);
        out.number(self.process.into());
        for number in [self.snapshot, self.nodes, self.names, self.data_bytes, self.meta_bytes] {
            out.number(number);
        }
        for text in [&self.name, &self.command, &self.message] {
            out.text(text);
        }
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut from = Reader::new(bytes)?;
        let flags = from.byte()?;
        let stage = match flags & 15 {
            1 => Stage::Kept,
            2 => Stage::Prepared,
            3 => Stage::Going,
            _ => return Err(ODD),
        };
        if flags >> 5 != 0 {
            return Err(ODD);
        }
        let header = Header {
            stage,
            recorded: flags & 16 != 0,
            time: from.time()?,
            process: from.word()?,
            snapshot: from.number()?,
            nodes: from.number()?,
            names: from.number()?,
            data_bytes: from.number()?,
            meta_bytes: from.number()?,
            name: from.text()?,
            command: from.text()?,
            message: from.text()?,
        };
        from.end()?;
        Ok(header)
    }
}
