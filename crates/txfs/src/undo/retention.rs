//! How long recorded commits can be undone: a number of commits and a number of bytes, the oldest go first.
//!
//! What undoing a commit takes goes in steps. The first says in the history that the commit cannot be undone any more; the
//! others remove what was kept, a bounded part each, so that no commit is longer than another. What a crash leaves half
//! way is found when the volume is opened, since no entry of the history refers to it.
//!
//! A volume that is full gives up what it keeps before anybody is told so.
//!
//! Locks: `purging` is held by whoever removes; commits are made under it. The other one is a leaf.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use txfs_engine::{Applied, Commit, Durability, EngineError, Read, split_saved_key};

use crate::conflict::{ATTRIBUTE_SPACE, EXISTS};
use crate::error::{Error, Result};
use crate::records::history::UndoState;
use crate::records::undo::{UNDO_TAG, UndoItem, decode_chunk, is_chunk, keys_of};
use crate::records::{HistoryRecord, key, small};
use crate::shared::Shared;
use crate::transaction::apply::{delete, put};
use crate::transaction::session::load_inode;
use crate::types::Ino;

/// Keys that one commit removes.
const KEYS_MAX: usize = 1024;
/// Nodes after which it takes no further chunk.
const NODES_MAX: usize = 1024;
/// Steps that a recorded commit makes for older ones; where more is to be removed, the next ones go on.
const STEPS_MAX: usize = 32;
/// What the history keeps unless the volume was opened with another limit: this much, or a tenth of the space.
const BYTES_MAX: u64 = 1 << 30;

/// What is known of the history without reading it.
#[derive(Debug, Default)]
pub(crate) struct HistoryState {
    count: AtomicU64,
    /// Of all that is kept for undoing.
    bytes: AtomicU64,
    bytes_max: Mutex<Option<u64>>,
    kept: Mutex<KeptCommits>,
    purging: Mutex<()>,
}

#[derive(Debug, Default)]
struct KeptCommits {
    /// Number and bytes by commit.
    commits: BTreeMap<u64, (u64, u64)>,
    /// Numbers to which nothing refers any more.
    going: VecDeque<u64>,
}

impl HistoryState {
    /// Reads the history.
    pub(crate) fn load(read: &dyn Read, bytes_max: Option<u64>) -> Result<HistoryState> {
        let state = HistoryState { bytes_max: Mutex::new(bytes_max), ..HistoryState::default() };
        let (from, to) = key::all(key::HISTORY_TAG);
        read.scan(&from, &to, &mut |key, value| {
            state.count.fetch_add(1, Ordering::Relaxed);
            // What does not decode is for those who read it.
            if let (Some(sequence), Ok(record)) = (key::ino_of(key), HistoryRecord::decode(value)) {
                state.keep(sequence, record.undo);
            }
            ControlFlow::Continue(())
        })?;
        let mut kept = state.kept.lock();
        let referred: BTreeSet<u64> = kept.commits.values().map(|(number, _)| *number).collect();
        let mut next = Some(0);
        while let Some(number) = next {
            next = None;
            read.scan(&keys_of(number).0, &[UNDO_TAG + 1], &mut |key, _| {
                next = split_saved_key(key).map(|(_, number, _)| number);
                ControlFlow::Break(())
            })?;
            if let Some(found) = next {
                if !referred.contains(&found) {
                    kept.going.push_back(found);
                }
                next = found.checked_add(1);
            }
        }
        drop(kept);
        Ok(state)
    }

    pub(crate) fn set_bytes_max(&self, bytes: Option<u64>) {
        *self.bytes_max.lock() = bytes;
    }

    /// Entries in the history.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes that are kept for undoing.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many commits can be undone.
    pub(crate) fn undoable(&self) -> u64 {
        self.kept.lock().commits.len() as u64
    }

    fn keep(&self, sequence: u64, undo: UndoState) {
        if let UndoState::Kept { number, bytes } = undo {
            self.kept.lock().commits.insert(sequence, (number, bytes));
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn forget(&self, sequence: u64) {
        let mut kept = self.kept.lock();
        if let Some((number, bytes)) = kept.commits.remove(&sequence) {
            kept.going.push_back(number);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// A commit has added its entry and dropped others.
    pub(crate) fn note(&self, sequence: u64, undo: UndoState, dropped: &[u64]) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_sub((dropped.len() as u64).min(self.count()), Ordering::Relaxed);
        self.keep(sequence, undo);
        dropped.iter().for_each(|sequence| self.forget(*sequence));
    }

    /// What is kept under a number is not referred to.
    pub(crate) fn note_unused(&self, number: u64) {
        self.kept.lock().going.push_back(number);
    }

    /// True when there is something that could be given up.
    pub(crate) fn is_keeping(&self) -> bool {
        let kept = self.kept.lock();
        !kept.commits.is_empty() || !kept.going.is_empty()
    }
}

impl Shared {
    /// What the history may keep, in bytes.
    pub(crate) fn history_bytes_max(&self) -> Result<u64> {
        match *self.history.bytes_max.lock() {
            Some(limit) => Ok(limit),
            None => Ok(BYTES_MAX.min(self.engine.space()?.total_bytes / 10)),
        }
    }

    /// Keeps to the limits after a commit was recorded. A failure is no loss: the next one tries again.
    pub(crate) fn expire_history(&self) {
        let expired = self.history_bytes_max().and_then(|limit| {
            let _purging = self.history.purging.lock();
            while self.history.bytes() > limit && self.give_up_oldest(UndoState::Expired)? {}
            (0..STEPS_MAX).try_for_each(|_| self.purge_step().map(drop))
        });
        if let Err(error) = expired {
            log::warn!("removing what was kept for undoing old commits: {error}");
        }
    }

    /// Removes what no entry of the history refers to: what a crash left half way.
    pub(crate) fn purge_unused(&self) -> Result<()> {
        let _purging = self.history.purging.lock();
        while self.purge_step()? {}
        Ok(())
    }

    /// Gives up what is kept for the oldest commit, since its space is needed; false when nothing was left to give up.
    pub(crate) fn give_way(&self) -> bool {
        let _purging = self.history.purging.lock();
        let gave_up = || {
            let mut removed = false;
            while self.purge_step()? {
                removed = true;
            }
            if !removed && self.give_up_oldest(UndoState::GaveWay)? {
                while self.purge_step()? {
                    removed = true;
                }
            }
            Ok::<bool, Error>(removed)
        };
        gave_up().unwrap_or_else(|error| {
            log::warn!("giving up what is kept for undoing commits: {error}");
            false
        })
    }

    /// Before somebody begins to write: what the history keeps is none of the space that is needed.
    pub(crate) fn give_way_if_short(&self) {
        if !self.engine.is_short_of_space() || !self.history.is_keeping() {
            return;
        }
        // Dead data is cleaned away; only where there is hardly any is that no use.
        while let Ok(space) = self.engine.space() {
            if space.free_bytes >= space.total_bytes / 16 || !self.give_way() {
                return;
            }
        }
    }

    /// Runs `step` again, after giving up what is kept for undoing, as long as it finds no space and there is something to
    /// give up.
    pub(crate) fn giving_way<T>(
        &self,
        mut step: impl FnMut() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        loop {
            match step() {
                Err(EngineError::NoSpace { .. } | EngineError::SpaceHeld { .. })
                    if self.history.is_keeping() && self.give_way() => {}
                other => return other,
            }
        }
    }

    /// Says in the history that the oldest of the commits that can be undone cannot be undone any more; false when there is
    /// none.
    fn give_up_oldest(&self, why: UndoState) -> Result<bool> {
        let oldest = self.history.kept.lock().commits.first_key_value().map(|(sequence, _)| *sequence);
        let Some(sequence) = oldest else { return Ok(false) };
        let entry = key::history(sequence);
        self.quiet_commit(&|read| {
            let mut applied = Applied::default();
            if let Some(value) = read.get(&entry)?
                && let Ok(mut record) = HistoryRecord::decode(&value)
            {
                record.undo = why;
                applied.mutations.push(put(entry, record.encode()));
            }
            Ok(applied)
        })?;
        self.history.forget(sequence);
        Ok(true)
    }

    /// Removes a part of what nothing refers to; false when there is no more of it.
    fn purge_step(&self) -> Result<bool> {
        let Some(number) = self.history.kept.lock().going.front().copied() else { return Ok(false) };
        let outcome = RefCell::new((Vec::new(), 0));
        self.quiet_commit(&|read| {
            let (orphans, removed) = &mut *outcome.borrow_mut();
            orphans.clear();
            let applied = purge(read, number, orphans)?;
            *removed = applied.mutations.len();
            Ok(applied)
        })?;
        let (orphans, removed) = outcome.into_inner();
        self.reclaim_or_warn(&orphans);
        if removed == 0 {
            let mut kept = self.history.kept.lock();
            if kept.going.front() == Some(&number) {
                kept.going.pop_front();
            }
            return Ok(!kept.going.is_empty());
        }
        Ok(true)
    }

    /// A commit that conflicts with nobody.
    fn quiet_commit(&self, apply: &dyn Fn(&dyn Read) -> Result<Applied>) -> Result<()> {
        self.engine.commit(Commit::quiet(&self.engine.snapshot(), Durability::Ordered, &|read, _| {
            Ok(apply(read)?)
        }))?;
        Ok(())
    }
}

/// Takes a part of what is kept under `number` out of the map. Nodes that were kept for it become orphans.
fn purge(read: &dyn Read, number: u64, orphans: &mut Vec<Ino>) -> Result<Applied> {
    let mut applied = Applied::default();
    let mut removed = Vec::new();
    let (from, to) = keys_of(number);
    let mut keys = 0;
    read.scan(&from, &to, &mut |key, value| {
        applied.mutations.push(delete(key));
        if is_chunk(key) {
            // One that does not decode keeps nodes until the next check finds them.
            for item in decode_chunk(value).unwrap_or_default() {
                if let UndoItem::Removed { ino, .. } = item {
                    removed.push(ino);
                }
            }
        }
        keys += 1;
        match keys < KEYS_MAX && removed.len() < NODES_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    for ino in removed {
        let mark = read.get(&key::removed(ino))?;
        if mark.and_then(|value| small::decode_number(&value).ok()) != Some(number) {
            continue;
        }
        applied.mutations.push(delete(key::removed(ino)));
        if load_inode(read, ino)?.is_some_and(|record| record.nlink == 0) {
            applied.mutations.push(put(key::orphan(ino), small::orphan()));
            applied.also_writes.insert_point(ATTRIBUTE_SPACE, ino, EXISTS);
            orphans.push(ino);
        }
    }
    Ok(applied)
}
