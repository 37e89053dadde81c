//! What a kept transaction has read and written, and the conflicts that were noted of it.

use txfs_engine::{Clash, ConflictRange, ConflictSet, Opponent, Origin, TransactionOrigin};

use super::{ODD, RANGES_MAX, Reader, Writer};
use crate::records::Malformed;
use crate::types::Timestamp;

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
