//! What can be compared without cycles: values against their writers, reads against the reader's snapshot, sequence
//! numbers against the clock.

use std::collections::HashMap;

use super::anomaly::{Anomaly, Class};
use super::graph::Reads;
use super::record::{History, Outcome};
use super::versions::{Resolved, Versions};

fn anomaly(class: Class, transactions: Vec<usize>, detail: String) -> Anomaly {
    Anomaly { class, real_time: false, transactions, detail }
}

/// Reads that cannot have been.
pub fn impossible_reads(versions: &Versions, reads: &Reads) -> Vec<Anomaly> {
    let contradictions = reads
        .contradictions
        .iter()
        .map(|(reader, detail)| anomaly(Class::Internal, vec![*reader], format!("T{reader}: {detail}")));
    let impossible = reads.impossible.iter().map(|(reader, read, why)| {
        let item = versions.items[read.item];
        let what = format!("T{reader} read {} of {item}", read.value);
        match *why {
            Resolved::Aborted(writer) => anomaly(
                Class::AbortedRead,
                vec![*reader, writer],
                format!("{what}, which T{writer} wrote before it aborted"),
            ),
            Resolved::Intermediate(writer) => anomaly(
                Class::IntermediateRead,
                vec![*reader, writer],
                format!("{what}, which T{writer} overwrote itself"),
            ),
            Resolved::Own => {
                anomaly(Class::Internal, vec![*reader], format!("{what} before it wrote that itself"))
            }
            Resolved::OutOfTime => anomaly(
                Class::StaleRead,
                vec![*reader],
                format!("{what}; every version with that value was gone before, or not yet there"),
            ),
            _ => anomaly(Class::UnwrittenRead, vec![*reader], what),
        }
    });
    contradictions.chain(impossible).collect()
}

/// Reads that are not what the reader's snapshot holds, where both are known exactly.
pub fn snapshot_reads(history: &History, versions: &Versions, reads: &Reads) -> Vec<Anomaly> {
    let mut found = Vec::new();
    for read in &reads.known {
        let chain = versions.chain(read.item);
        let Some(snapshot) = history.records[read.reader].snapshot.filter(|_| chain.exact) else { continue };
        let expected = chain.visible(history, snapshot);
        if chain.value(expected) != chain.value(read.place) {
            let detail = format!(
                "T{} read {} of {}, its snapshot {snapshot} holds {}",
                read.reader,
                chain.value(read.place),
                versions.items[read.item],
                chain.value(expected)
            );
            let writers = [chain.writer(read.place), chain.writer(expected)].into_iter().flatten();
            let transactions = std::iter::once(read.reader).chain(writers).collect();
            found.push(anomaly(Class::NotOfSnapshot, transactions, detail));
        }
    }
    found
}

/// Sequence numbers: no two writers have the same, each commit comes after its snapshot, and what had ended before
/// something else began has the smaller number, in the snapshot as well.
pub fn sequences(history: &History) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let mut wrong = |transactions: Vec<usize>, detail: String| {
        found.push(anomaly(Class::SequenceOrder, transactions, detail));
    };
    let writers = history.records.iter().enumerate().filter(|(_, record)| record.writes());
    let mut taken: HashMap<u64, usize> = HashMap::new();
    let mut ends: Vec<(u64, u64, usize)> = Vec::new();
    for (index, record) in writers {
        let Outcome::Committed(Some(sequence)) = record.outcome else { continue };
        if let Some(other) = taken.insert(sequence, index) {
            wrong(vec![other, index], format!("T{other} and T{index} have the sequence number {sequence}"));
        }
        if record.snapshot.is_some_and(|snapshot| snapshot >= sequence) {
            wrong(vec![index], format!("T{index} committed as {sequence}, not after its snapshot"));
        }
        ends.push((record.ended, sequence, index));
    }
    ends.sort_unstable();
    // The greatest number up to each end.
    let mut greatest: Vec<(u64, usize)> = Vec::with_capacity(ends.len());
    for &(_, sequence, index) in &ends {
        let before = greatest.last().copied().unwrap_or((0, index));
        greatest.push(if sequence > before.0 { (sequence, index) } else { before });
    }
    let before = |moment: u64| {
        let count = ends.partition_point(|(ended, ..)| *ended < moment);
        count.checked_sub(1).map(|last| greatest[last])
    };
    for (index, record) in history.records.iter().enumerate() {
        if let (Some(snapshot), Some((sequence, other))) = (record.snapshot, before(record.began))
            && sequence > snapshot
        {
            let detail = format!(
                "T{other} had committed as {sequence} before T{index} began, whose snapshot is {snapshot}"
            );
            wrong(vec![other, index], detail);
        }
        if let (Some(mine), Some((sequence, other))) = (record.sequence(), before(record.committing))
            && sequence > mine
            && record.writes()
        {
            let detail = format!("T{other}, committed as {sequence}, had ended before T{index} got {mine}");
            wrong(vec![other, index], detail);
        }
    }
    found
}
