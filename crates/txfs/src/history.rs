//! The volume's own record of commits: who committed what, when and why, for `txfs log`.
//!
//! A transaction that was begun with [`crate::TransactionOptions::recorded`] leaves an entry under its commit's number, in the
//! same commit: it is there if and only if the commit is. The same commit drops the oldest entries above the limit. What
//! undoing takes is kept beside it ([`crate::undo`]).
//! Calls outside of transactions leave none, nor do transactions that do not ask for it: those pay nothing.

use std::ops::ControlFlow;

use txfs_engine::{Applied, Read};

use crate::error::{Error, Result};
use crate::records::history::UndoState;
use crate::records::{HistoryRecord, key};
use crate::shared::Shared;
use crate::transaction::apply::delete;
use crate::types::Timestamp;

/// One commit drops so many old entries at most.
const DROPPED_MAX: u64 = 16;

/// A commit that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCommit {
    /// Its place in the order of commits.
    pub sequence: u64,
    /// When it was made.
    pub time: Timestamp,
    /// The process that it was made for; 0 when nobody knew.
    pub process: u32,
    /// The command that it was made for; may be empty.
    pub command: String,
    /// What it was for, in the words of whoever began it; may be empty.
    pub message: String,
    /// Files, directories and other nodes that it made, changed or removed.
    pub nodes: u64,
    /// Names that it added, changed or removed.
    pub names: u64,
    /// Bytes of new file data, whole pages.
    pub data_bytes: u64,
    /// Whether it can be undone.
    pub undo: UndoState,
}

/// Adds the entry of the commit that is being applied, and drops the oldest that are too many; returns the numbers of those
/// commits.
pub(crate) fn record(
    shared: &Shared,
    entry: &HistoryRecord,
    read: &dyn Read,
    applied: &mut Applied,
) -> Result<Vec<u64>> {
    applied.numbered.push((vec![key::HISTORY_TAG], entry.encode()));
    let excess =
        (shared.history.count() + 1).saturating_sub(shared.options.history_commits_max).min(DROPPED_MAX);
    let mut dropped = Vec::new();
    if excess > 0 {
        let (from, to) = key::all(key::HISTORY_TAG);
        read.scan(&from, &to, &mut |key, _| {
            applied.mutations.push(delete(key));
            dropped.extend(key::ino_of(key));
            if (dropped.len() as u64) < excess { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    Ok(dropped)
}

/// The recorded commits before `before`, newest first, `limit` at most.
pub(crate) fn list(read: &dyn Read, before: Option<u64>, limit: usize) -> Result<Vec<RecordedCommit>> {
    let (from, end) = key::all(key::HISTORY_TAG);
    let to = before.map_or(end.to_vec(), |before| key::history(before).to_vec());
    let mut found = Vec::new();
    let mut problem = None;
    if limit == 0 {
        return Ok(found);
    }
    read.scan_back(&from, &to, &mut |key, value| {
        match entry(key, value) {
            Ok(commit) => found.push(commit),
            Err(error) => problem = Some(error),
        }
        match problem.is_none() && found.len() < limit {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    problem.map_or(Ok(found), Err)
}

/// Decodes an entry.
pub(crate) fn entry(key: &[u8], value: &[u8]) -> Result<RecordedCommit> {
    let corrupt = |detail| Error::Corrupt { what: format!("the history of commits: {detail}") };
    let sequence =
        key::ino_of(key).filter(|_| key.len() == 9).ok_or_else(|| corrupt("a key of the wrong length"))?;
    let HistoryRecord { time, process, nodes, names, data_bytes, command, message, undo } =
        HistoryRecord::decode(value).map_err(corrupt)?;
    Ok(RecordedCommit { sequence, time, process, command, message, nodes, names, data_bytes, undo })
}
