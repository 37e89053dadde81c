//! Judges what the volume returned against what the model returns.
//!
//! Equality, but for the answers that POSIX leaves open: where holes are reported.

use crate::model::Tree;
use crate::model::tree::Body;
use crate::operation::{Operation, Outcome, PAGE_BYTES};

fn file_bytes(tree: &Tree, ino: u64) -> &[u8] {
    match tree.node(ino).map(|node| &node.body) {
        Some(Body::File(bytes)) => bytes,
        _ => &[],
    }
}

/// True when `actual` is a right answer; `before` is the tree that the operation ran on.
pub fn agrees(operation: &Operation, expected: &Outcome, actual: &Outcome, before: &Tree) -> bool {
    match (operation, expected, actual) {
        (Operation::SeekData { ino, offset }, Outcome::Number(first), actual) => {
            let size = file_bytes(before, *ino).len() as u64;
            match actual {
                // A page of zeros may be data.
                Outcome::Number(found) => (*offset..=*first).contains(found) && *found < size,
                Outcome::Failed(errno) => *errno == libc::ENXIO && *first == size,
                _ => false,
            }
        }
        (Operation::SeekHole { ino, offset }, Outcome::Number(_), Outcome::Number(found)) => {
            let bytes = file_bytes(before, *ino);
            let size = bytes.len() as u64;
            let page_end = (found / PAGE_BYTES + 1) * PAGE_BYTES;
            let hole = (*found).min(size) as usize..page_end.min(size) as usize;
            (*offset..=size).contains(found) && bytes[hole].iter().all(|byte| *byte == 0)
        }
        // Inodes that do not exist any more: the volume may know that they once did.
        (_, Outcome::Failed(libc::ENOENT), Outcome::Failed(libc::ESTALE)) => true,
        // Which of two errors is found first is nobody's business.
        (Operation::Link { ino, .. }, Outcome::Failed(_), Outcome::Failed(libc::EEXIST))
            if before.node(*ino).is_none() =>
        {
            true
        }
        (Operation::Rename { .. }, Outcome::Failed(libc::ENOTEMPTY), Outcome::Failed(libc::EISDIR)) => true,
        (_, Outcome::Failed(libc::ENOENT), Outcome::Failed(libc::ENAMETOOLONG)) => true,
        // Setting a mode or an owner answers with attributes in some interfaces; what counts is in the next stat.
        (Operation::SetMode { .. } | Operation::SetOwner { .. }, Outcome::Attributes(_), Outcome::Done) => {
            true
        }
        _ => expected == actual,
    }
}

/// True when an outcome that a transaction saw still holds when the transaction is run again at its commit: the
/// meaning of serializable. Attributes are left out (link counts and sizes that merely grow never conflict), and a
/// read is compared as far as both go, with zeros beyond: another transaction may have grown the file elsewhere.
pub fn still_holds(operation: &Operation, seen: &Outcome, replayed: &Outcome) -> bool {
    match (operation, seen, replayed) {
        (_, Outcome::Attributes(seen), Outcome::Attributes(replayed)) => {
            seen.ino == replayed.ino && seen.kind == replayed.kind
        }
        (Operation::Read { .. }, Outcome::Bytes(seen), Outcome::Bytes(replayed)) => {
            grew_by_zeros(seen, replayed)
        }
        // Which of several mistakes is found first may depend on what nobody else's business is.
        (_, Outcome::Failed(_), Outcome::Failed(_)) => true,
        (Operation::SeekData { .. } | Operation::SeekHole { .. }, ..) => true,
        _ => seen == replayed,
    }
}

/// True when two readings of one range are equal but for zeros that one of them has behind the end of the other.
pub fn grew_by_zeros(before: &[u8], after: &[u8]) -> bool {
    let common = before.len().min(after.len());
    before[..common] == after[..common]
        && before[common..].iter().chain(&after[common..]).all(|byte| *byte == 0)
}
