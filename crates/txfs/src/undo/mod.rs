//! Undoing recorded commits: what is kept for it, for how long, and what it takes to read it.
//!
//! A recorded commit takes down what it changes, in the same commit (`transaction/undo_notes.rs`): names and attributes with
//! what they were and what they are then, the checksums of the pages that it puts, and the extents of those that it
//! replaces, as saved values. Nodes that lose their last name stay as they are, without a name, and are marked. Undoing is
//! a transaction that puts everything back (`transaction/revert.rs`), unless what the commit left is not there any more.
//!
//! [`retention`] decides how long all of that stays.

mod blame;
mod diff;
pub(crate) mod retention;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use txfs_engine::{Durability, Extent, Read, read_saved_value, split_saved_key};

use crate::error::{Error, Result};
use crate::options::TransactionOptions;
use crate::records::history::UndoState;
use crate::records::undo::{Entry, Made, UndoItem, decode_chunk, is_chunk, keys_of};
use crate::records::{HistoryRecord, InodeRecord, key};
use crate::transaction::{CommitReceipt, Transaction};
use crate::types::Ino;
use crate::volume::Volume;

/// How often undoing is tried where others come in between.
const ATTEMPTS_MAX: u32 = 50;

impl Volume {
    /// Changes back everything that a recorded commit has changed, and nothing else, in a new transaction, which is recorded
    /// itself and so can be undone.
    ///
    /// [`Error::UndoConflict`] says where what the commit left is not there any more, and nothing changes then. Times are no
    /// conflicts; link counts come back by their difference. [`Error::NotUndoable`] says why a commit cannot be undone at
    /// all: what that takes is kept for a while only ([`crate::OpenOptions::history_bytes_max`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// # let volume = txfs::Volume::open(&path)?;
    /// use txfs::{Durability, Paths, TransactionOptions};
    ///
    /// volume.base().write_file("data", b"as it was")?;
    /// let tx = volume.begin_with(TransactionOptions { recorded: true, ..Default::default() });
    /// tx.write_file("data", b"changed")?;
    /// tx.write_file("new", b"made")?;
    /// let sequence = tx.commit(Durability::Durable)?.sequence;
    ///
    /// let undone = volume.undo(sequence, Durability::Durable)?;
    /// assert_eq!(volume.base().read_file("data")?, b"as it was");
    /// assert!(volume.base().read_file("new").is_err());
    /// volume.undo(undone.sequence, Durability::Durable)?;
    /// assert_eq!(volume.base().read_file("data")?, b"changed");
    /// # Ok(())
    /// # }
    /// ```
    pub fn undo(&self, sequence: u64, durability: Durability) -> Result<CommitReceipt> {
        let mut attempt = self.attempts(undo_options(sequence, TransactionOptions::default()));
        loop {
            let tx = attempt.begin();
            let outcome = self.revert_in(&tx, sequence).and_then(|()| tx.commit(durability));
            match outcome {
                Err(error) if error.is_conflict() && attempt.count() < ATTEMPTS_MAX => {}
                outcome => return outcome,
            }
            drop(tx);
            std::thread::sleep(attempt.pause());
        }
    }

    /// A transaction in which everything is changed back already, to be looked at, and to be committed or not. It may conflict
    /// with others as any transaction.
    pub fn begin_undo(&self, sequence: u64, options: TransactionOptions) -> Result<Transaction> {
        let tx = self.begin_with(undo_options(sequence, options));
        self.revert_in(&tx, sequence)?;
        Ok(tx)
    }

    fn revert_in(&self, tx: &Transaction, sequence: u64) -> Result<()> {
        let mut report = tx.revert(sequence)?;
        if report.count() == 0 {
            return Ok(());
        }
        tx.abort();
        blame::name_others(self, sequence, &mut report)?;
        Err(Error::UndoConflict { sequence, report: Box::new(report) })
    }
}

fn undo_options(sequence: u64, mut options: TransactionOptions) -> TransactionOptions {
    options.recorded = true;
    if options.label.is_empty() {
        options.label = format!("undo {sequence}");
    }
    options
}

/// What a commit has changed, by what it is about.
#[derive(Debug, Default)]
pub(crate) struct UndoData {
    /// The number under which it is kept.
    pub(crate) number: u64,
    pub(crate) names: Vec<NameChange>,
    pub(crate) nodes: BTreeMap<Ino, NodeChange>,
    pub(crate) created: BTreeMap<Ino, Made>,
    /// Checksums of the records of nodes that stay without a name.
    pub(crate) removed: BTreeMap<Ino, u32>,
}

#[derive(Debug)]
pub(crate) struct NameChange {
    pub(crate) directory: Ino,
    pub(crate) name: Vec<u8>,
    pub(crate) before: Entry,
    pub(crate) after: Entry,
}

/// The value before, and the checksum of the one after.
pub(crate) type XattrChange = (Option<Vec<u8>>, Option<u32>);

/// A node that was there before.
#[derive(Debug, Default)]
pub(crate) struct NodeChange {
    pub(crate) records: Option<(InodeRecord, InodeRecord)>,
    /// By name.
    pub(crate) xattrs: BTreeMap<Vec<u8>, XattrChange>,
    /// Checksums of runs of pages, by their first page.
    pub(crate) put: BTreeMap<u64, Vec<u32>>,
    /// Ranges of pages, first to last.
    pub(crate) cleared: Vec<(u64, u64)>,
}

impl UndoData {
    /// All that is kept under a number.
    pub(crate) fn load(read: &dyn Read, number: u64) -> Result<UndoData> {
        let mut data = UndoData { number, ..UndoData::default() };
        let mut problem = None;
        let (from, to) = keys_of(number);
        // Chunks come before extents.
        read.scan(&from, &to, &mut |key, value| {
            if !is_chunk(key) {
                return ControlFlow::Break(());
            }
            match decode_chunk(value) {
                Ok(items) => items.into_iter().for_each(|item| data.add(item)),
                Err(detail) => problem = Some(corrupt(detail)),
            }
            if problem.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        problem.map_or(Ok(data), Err)
    }

    fn add(&mut self, item: UndoItem) {
        match item {
            UndoItem::Name { directory, name, before, after } => {
                self.names.push(NameChange { directory, name, before, after });
            }
            UndoItem::Node { ino, before, after } => {
                self.nodes.entry(ino).or_default().records = Some((before, after));
            }
            UndoItem::Xattr { ino, name, before, after } => {
                self.nodes.entry(ino).or_default().xattrs.insert(name, (before, after));
            }
            UndoItem::Put { ino, first, checksums } => {
                self.nodes.entry(ino).or_default().put.insert(first, checksums);
            }
            UndoItem::Cleared { ino, first, last } => {
                self.nodes.entry(ino).or_default().cleared.push((first, last));
            }
            UndoItem::Created { ino, made } => {
                self.created.insert(ino, made);
            }
            UndoItem::Removed { ino, record, .. } => {
                self.removed.insert(ino, record);
            }
        }
    }
}

/// Visits the old content of a file that is kept under a number, in the order of its pages.
pub(crate) fn visit_old_content(
    read: &dyn Read,
    number: u64,
    ino: Ino,
    visit: &mut dyn FnMut(u64, Extent) -> Result<()>,
) -> Result<()> {
    use crate::records::undo::UNDO_TAG;
    use txfs_engine::saved_key;
    let from = saved_key(UNDO_TAG, number, &key::extent(ino, 0));
    let to = saved_key(UNDO_TAG, number, &key::extents_end(ino));
    let mut outcome = Ok(());
    read.scan(&from, &to, &mut |key, value| {
        outcome = decode_old_content(key, value).and_then(|(first, extent)| visit(first, extent));
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}

pub(crate) fn decode_old_content(key: &[u8], value: &[u8]) -> Result<(u64, Extent)> {
    let first = split_saved_key(key).and_then(|(_, _, inner)| key::second_of(inner));
    let first = first.ok_or_else(|| corrupt("a key of the wrong length"))?;
    let extent = read_saved_value(value)
        .map_err(|error| corrupt(&error.to_string()))?
        .ok_or_else(|| corrupt("old content without a place"))?;
    let extent = Extent::decode(extent).map_err(|error| corrupt(&error.to_string()))?;
    if first > crate::transaction::session::PAGE_MAX {
        return Err(corrupt("an impossible first page"));
    }
    Ok((first, extent))
}

fn corrupt(detail: &str) -> Error {
    Error::Corrupt { what: format!("what is kept for undoing a commit: {detail}") }
}

/// The number under which it is kept what undoing this commit takes, or why there is none.
pub(crate) fn number_of(read: &dyn Read, sequence: u64) -> Result<u64> {
    let value = read.get(&key::history(sequence))?.ok_or(Error::NotUndoable {
        sequence,
        why: "it is not in the history: only commits of `txfs run` and others that asked for it are, and the oldest \
              are dropped",
    })?;
    let record = HistoryRecord::decode(&value)
        .map_err(|detail| Error::Corrupt { what: format!("the history of commits: {detail}") })?;
    let why = match record.undo {
        UndoState::Kept { number, .. } => return Ok(number),
        UndoState::NotKept => "nothing was kept for that when it was made",
        UndoState::TooLarge => "it would have kept more than the history may, when it was made",
        UndoState::Expired => "no longer: newer commits needed what the history may keep",
        UndoState::GaveWay => "no longer: the volume was full, and the space was needed",
    };
    Err(Error::NotUndoable { sequence, why })
}
