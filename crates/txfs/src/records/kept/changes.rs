//! What a kept transaction changes: names, nodes, and the pages whose content goes.

use super::{ODD, RANGES_MAX, Reader, Writer};
use crate::records::{Bucket, InodeRecord, Malformed};
use crate::transaction::overlay::{InodeState, NameState, PageRanges, TimeIntent};
use crate::types::{Ino, PAGE_BYTES};

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
pub(super) fn storable(record: &InodeRecord) -> InodeRecord {
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
