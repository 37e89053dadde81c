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
//! | `l` | more was changed by others than is saved: the base is not whole |

use txfs_engine::{Clash, ConflictRange, ConflictSet, Opponent, Origin, TransactionOrigin};

use super::{Bucket, InodeRecord, Malformed, number};
use crate::transaction::overlay::{InodeState, NameState, PageRanges, TimeIntent};
use crate::types::{Ino, PAGE_BYTES, Timestamp};

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

/// A changed entry.
pub(crate) fn encode_name(state: &NameState) -> Vec<u8> {
    let mut out = Writer::new();
    for bucket in [&state.original, &state.current] {
        match bucket.0.is_empty() {
            true => out.bytes(&[]),
            false => out.bytes(&bucket.encode()),
        }
    }
    out.0
}

pub(crate) fn decode_name(bytes: &[u8]) -> Result<NameState, Malformed> {
    let mut from = Reader::new(bytes)?;
    let mut bucket = || match from.bytes()? {
        [] => Ok(Bucket::default()),
        bytes => Bucket::decode(bytes),
    };
    let (original, current) = (bucket()?, bucket()?);
    from.end()?;
    Ok(NameState { original, current })
}

/// Flags of a changed node.
const PERMISSIONS: u8 = 1;
const MOVED: u8 = 2;
const RENAMED: u8 = 4;

fn intent_code(intent: TimeIntent) -> u8 {
    match intent {
        TimeIntent::Keep => 0,
        TimeIntent::Touched => 1,
        TimeIntent::Set => 2,
    }
}

fn intent_from(code: u8) -> Result<TimeIntent, Malformed> {
    Ok(match code & 3 {
        0 => TimeIntent::Keep,
        1 => TimeIntent::Touched,
        2 => TimeIntent::Set,
        _ => return Err(ODD),
    })
}

/// A record whose count of pages is an estimate: never more than a stored one may say.
fn storable(record: &InodeRecord) -> InodeRecord {
    InodeRecord { pages: record.pages.min(record.size.div_ceil(PAGE_BYTES)), ..record.clone() }
}

/// A changed node, but for its data, its masks and its extended attributes.
pub(crate) fn encode_inode(state: &InodeState, shadow: Ino) -> Vec<u8> {
    let mut out = Writer::new();
    let flags = [(state.permissions, PERMISSIONS), (state.moved, MOVED), (state.renamed, RENAMED)];
    out.byte(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum());
    let [atime, mtime, ctime] = [state.atime, state.mtime, state.ctime].map(intent_code);
    out.byte(atime | mtime << 2 | ctime << 4);
    out.signed(state.link_delta);
    out.number(state.cut.map_or(0, |cut| cut + 1));
    out.number(shadow);
    out.bytes(&storable(&state.record).encode());
    out.bytes(&state.original.as_ref().map(|record| storable(record).encode()).unwrap_or_default());
    match &state.target {
        Some(target) => out.bytes(target),
        None => out.bytes(&[]),
    }
    out.0
}

/// The node and the inode number under which its data stands, if it has any.
pub(crate) fn decode_inode(bytes: &[u8]) -> Result<InodeState, Malformed> {
    let mut from = Reader::new(bytes)?;
    let (flags, times) = (from.byte()?, from.byte()?);
    if flags & !(PERMISSIONS | MOVED | RENAMED) != 0 || times >> 6 != 0 {
        return Err(ODD);
    }
    let (link_delta, cut, shadow) = (from.signed()?, from.number()?, from.number()?);
    if i32::try_from(link_delta).is_err() || cut > 1 << 63 {
        return Err(ODD);
    }
    let record = InodeRecord::decode(from.bytes()?)?;
    let original = match from.bytes()? {
        [] => None,
        bytes => Some(InodeRecord::decode(bytes)?),
    };
    let target = from.bytes()?;
    from.end()?;
    let state = InodeState {
        original,
        permissions: flags & PERMISSIONS != 0,
        moved: flags & MOVED != 0,
        renamed: flags & RENAMED != 0,
        atime: intent_from(times)?,
        mtime: intent_from(times >> 2)?,
        ctime: intent_from(times >> 4)?,
        link_delta,
        cut: cut.checked_sub(1),
        target: (!target.is_empty()).then(|| target.to_vec()),
        shadow: (shadow != 0).then_some(shadow),
        ..InodeState::created(record)
    };
    Ok(state)
}

/// Ranges of pages, as many values as it takes.
pub(crate) fn encode_pages(ranges: &PageRanges) -> Vec<Vec<u8>> {
    let ranges: Vec<(u64, u64)> = ranges.iter().collect();
    let encode = |chunk: &[(u64, u64)]| {
        let mut out = Writer::new();
        for (first, last) in chunk {
            out.number(*first);
            out.number(last - first);
        }
        out.0
    };
    ranges.chunks(RANGES_MAX).map(encode).collect()
}

pub(crate) fn decode_pages(bytes: &[u8], ranges: &mut PageRanges) -> Result<(), Malformed> {
    let mut from = Reader::new(bytes)?;
    while !from.0.is_empty() {
        let first = from.number()?;
        ranges.insert(first, first.checked_add(from.number()?).ok_or(ODD)?);
    }
    Ok(())
}

/// Ranges that were read or written, as many values as it takes.
pub(crate) fn encode_ranges(set: &ConflictSet) -> Vec<Vec<u8>> {
    let ranges: Vec<ConflictRange> = set.iter().collect();
    let encode = |chunk: &[ConflictRange]| {
        let mut out = Writer::new();
        chunk.iter().for_each(|range| out.range(range));
        out.0
    };
    ranges.chunks(RANGES_MAX).map(encode).collect()
}

pub(crate) fn decode_ranges(bytes: &[u8], set: &mut ConflictSet) -> Result<(), Malformed> {
    let mut from = Reader::new(bytes)?;
    while !from.0.is_empty() {
        let range = from.range()?;
        set.insert(range.space, range.object, range.first, range.last);
    }
    Ok(())
}

/// A conflict that a commit has noted.
pub(crate) fn encode_conflict(clash: &Clash) -> Vec<u8> {
    let nobody = Origin::default();
    let origin = match &clash.with {
        Opponent::Commit { origin, .. } => origin,
        Opponent::Claim { .. } => &nobody,
    };
    let mut out = Writer::new();
    out.byte(u8::from(clash.written));
    out.range(&clash.range);
    out.time(Timestamp::new(origin.time.0, origin.time.1));
    out.number(origin.process.into());
    let transaction = origin.transaction.as_deref();
    out.number(transaction.map_or(0, |transaction| transaction.number.saturating_add(1)));
    out.text(transaction.map_or("", |transaction| &transaction.command));
    out.text(transaction.map_or("", |transaction| &transaction.label));
    out.0
}

pub(crate) fn decode_conflict(sequence: u64, bytes: &[u8]) -> Result<Clash, Malformed> {
    let mut from = Reader::new(bytes)?;
    let written = match from.byte()? {
        0 => false,
        1 => true,
        _ => return Err(ODD),
    };
    let (range, time, process, number) = (from.range()?, from.time()?, from.word()?, from.number()?);
    let (command, label) = (from.text()?, from.text()?);
    from.end()?;
    let transaction =
        number.checked_sub(1).map(|number| std::sync::Arc::new(TransactionOrigin { number, command, label }));
    let origin = Origin { process, time: (time.seconds, time.nanoseconds), transaction };
    Ok(Clash { range, written, with: Opponent::Commit { sequence, origin } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Dirent;
    use crate::types::NodeKind;

    fn header() -> Header {
        Header {
            stage: Stage::Prepared,
            recorded: true,
            time: Timestamp::new(-5, 7),
            process: 4711,
            snapshot: 9,
            nodes: 3,
            names: 1 << 40,
            data_bytes: u64::MAX,
            meta_bytes: 300,
            name: "order 7".into(),
            command: "make install".into(),
            message: "grüße".into(),
        }
    }

    fn inode() -> InodeState {
        let record = InodeRecord {
            kind: NodeKind::File,
            mode: 0o644,
            uid: 1,
            gid: 2,
            nlink: 1,
            size: 5000,
            pages: 9,
            parent: 1,
            rdev: 0,
            atime: Timestamp::new(1, 2),
            mtime: Timestamp::new(3, 4),
            ctime: Timestamp::new(5, 6),
            btime: Timestamp::new(7, 8),
        };
        InodeState {
            original: Some(InodeRecord { size: 9000, ..record.clone() }),
            permissions: true,
            renamed: true,
            mtime: TimeIntent::Touched,
            atime: TimeIntent::Set,
            link_delta: -1,
            cut: Some(0),
            shadow: Some(77),
            target: Some(b"there".to_vec()),
            ..InodeState::created(record)
        }
    }

    fn name() -> NameState {
        let dirent = Dirent { ino: 7, kind: NodeKind::File, slot: 1, name: b"a".to_vec() };
        NameState { original: Bucket::default(), current: Bucket(vec![dirent]) }
    }

    fn clash() -> Clash {
        let transaction = TransactionOrigin { number: 3, command: "cp".into(), label: "x".into() };
        let origin = Origin { process: 5, time: (6, 7), transaction: Some(transaction.into()) };
        let range = ConflictRange { space: 1, object: 2, first: 3, last: u64::MAX };
        Clash { range, written: true, with: Opponent::Commit { sequence: 99, origin } }
    }

    #[test]
    fn what_is_encoded_decodes() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        let (state, found) = (inode(), decode_inode(&encode_inode(&inode(), 77)).expect("it decodes"));
        let pages_cut = InodeRecord { pages: 2, ..state.record.clone() };
        assert_eq!(
            (found.record, found.original),
            (pages_cut, Some(storable(&state.original.expect("set"))))
        );
        assert_eq!((found.cut, found.link_delta, found.shadow), (Some(0), -1, Some(77)));
        assert_eq!((found.atime, found.mtime, found.ctime), (state.atime, state.mtime, state.ctime));
        assert_eq!((found.permissions, found.moved, found.renamed), (true, false, true));
        assert_eq!(found.target, state.target);
        let found = decode_name(&encode_name(&name())).expect("it decodes");
        assert_eq!((found.original, found.current), (name().original, name().current));
        assert_eq!(decode_conflict(99, &encode_conflict(&clash())), Ok(clash()));
    }

    #[test]
    fn long_lists_take_several_values() {
        let (mut set, mut pages) = (ConflictSet::new(), PageRanges::default());
        for number in 0..2 * RANGES_MAX as u64 + 1 {
            set.insert(1, number % 7, number * 2, number * 2);
            pages.insert(number * 2, number * 2);
        }
        pages.insert(1 << 40, u64::MAX);
        let (values, page_values) = (encode_ranges(&set), encode_pages(&pages));
        assert!(values.len() == 3 && page_values.len() == 3);
        let (mut found, mut found_pages) = (ConflictSet::new(), PageRanges::default());
        values.iter().for_each(|value| decode_ranges(value, &mut found).expect("it decodes"));
        page_values.iter().for_each(|value| decode_pages(value, &mut found_pages).expect("it decodes"));
        assert!(found.iter().eq(set.iter()) && found_pages == pages);
    }

    #[test]
    fn broken_bytes_are_errors_and_never_panic() {
        let mut set = ConflictSet::new();
        set.insert(1, 2, 3, 400);
        let values = [
            header().encode(),
            encode_inode(&inode(), 77),
            encode_name(&name()),
            encode_conflict(&clash()),
            encode_ranges(&set).remove(0),
        ];
        let decode = |bytes: &[u8]| {
            [
                Header::decode(bytes).is_err(),
                decode_inode(bytes).is_err(),
                decode_name(bytes).is_err(),
                decode_conflict(1, bytes).is_err(),
                decode_ranges(bytes, &mut ConflictSet::new()).is_err(),
                decode_pages(bytes, &mut PageRanges::default()).is_err(),
            ]
        };
        for (kind, bytes) in values.iter().enumerate() {
            for len in 0..bytes.len() {
                let errors = decode(&bytes[..len]);
                // A shorter list of ranges is one, too.
                assert!(errors[kind] || (kind == 4 && len == 1), "kind {kind}, {len} bytes");
            }
            for at in 0..bytes.len() {
                for flip in [0xff, 0x80, 1] {
                    let mut broken = bytes.clone();
                    broken[at] ^= flip;
                    decode(&broken);
                }
            }
            assert!(decode(&[&bytes[..], &[0x80]].concat())[kind]);
        }
    }
}
