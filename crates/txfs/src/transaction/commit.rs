//! The end of a session: its plan goes to the engine, and what became of it is reported.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use txfs_engine::{Applied, Commit, Durability, EngineError, Extent, KeptStep, Read};

use super::apply::{Surroundings, apply};
use super::plan::Plan;
use super::session::Session;
use super::undo_notes::UndoNotes;
use crate::error::Result;
use crate::history;
use crate::observe::CommitChanges;
use crate::records::HistoryRecord;
use crate::records::history::UndoState;
use crate::records::undo::ChunkWriter;
use crate::shared::Shared;

impl Session {
    /// Commits what the session has changed. A session that changed nothing needs no commit: what it read was true at
    /// its snapshot.
    pub(crate) fn commit(mut self, durability: Durability) -> Result<CommitChanges> {
        let changes = self.commit_in_place(durability)?;
        if self.recorded {
            // Its own snapshot would keep what that frees.
            let shared = self.shared.clone();
            drop(self);
            shared.expire_history();
        }
        Ok(changes)
    }

    /// The same; what it had changed is gone afterwards, whatever the result.
    pub(crate) fn commit_in_place(&mut self, durability: Durability) -> Result<CommitChanges> {
        self.check_writable()?;
        self.drop_savepoints(0);
        self.place_before_commit()?;
        let overlay = std::mem::take(&mut self.overlay);
        self.shared.buffered_bytes.fetch_sub(overlay.buffered_bytes, Ordering::Relaxed);
        let unchanged = CommitChanges { sequence: self.snapshot.sequence(), ..CommitChanges::default() };
        let shared = &self.shared;
        // A durable commit makes everything before it durable, whether it adds something or not.
        let nothing_to_add = |unchanged| {
            if durability == Durability::Durable {
                shared.engine.sync()?;
            }
            Ok(unchanged)
        };
        if overlay.inodes.is_empty() {
            return nothing_to_add(unchanged);
        }
        let in_use = |ino| shared.is_retained(ino);
        let reads = std::mem::take(&mut self.reads);
        let plan = Plan::new(overlay, reads, &shared.hasher, in_use, self.undo_number()?);
        if plan.is_empty() {
            return nothing_to_add(unchanged);
        }
        self.commit_plan(plan, durability, None, &|_, _| Ok(()))
    }

    /// Under which is kept what undoing its commit takes.
    pub(crate) fn undo_number(&self) -> Result<Option<u64>> {
        let keeps = self.recorded && self.shared.history_bytes_max()? > 0;
        Ok(keeps.then(|| self.shared.next_ino.fetch_add(1, Ordering::Relaxed)))
    }

    /// Commits a plan; `also` adds what belongs to the commit beside it, in the critical section.
    pub(crate) fn commit_plan(
        &self,
        mut plan: Plan,
        durability: Durability,
        step: Option<&KeptStep>,
        also: &dyn Fn(&dyn Read, &mut Applied) -> Result<()>,
    ) -> Result<CommitChanges> {
        let shared = &self.shared;
        let bytes_max = if self.recorded { shared.history_bytes_max()? } else { 0 };
        let number = plan.undo.as_ref().map(ChunkWriter::number);
        plan.keep_undo(plan.undo.as_ref().is_some_and(|undo| undo.bytes <= bytes_max));
        let mut data = std::mem::take(&mut plan.data);
        let by = self.committer();
        let mut recording = Recording {
            entry: self.recorded.then(|| plan.history_entry(&by.origin)),
            number: plan.undo.as_ref().map(ChunkWriter::number),
            bytes_prepared: plan.undo.as_ref().map_or(0, |undo| undo.bytes),
            bytes_max,
            otherwise: if number.is_some() { UndoState::TooLarge } else { UndoState::NotKept },
        };
        let ends = RefCell::new((Vec::new(), Vec::new(), Recorded::default()));
        let committed = loop {
            // As long as something can be given up, there may be another attempt.
            let again = recording.number.is_some() || shared.history.bytes() > 0;
            let commit = Commit {
                snapshot: &self.snapshot,
                reads: &plan.reads,
                writes: &plan.writes,
                data: if again { data.clone() } else { std::mem::take(&mut data) },
                prepared: &plan.prepared,
                durability,
                apply: &|read, places| {
                    let (orphans, removing, recorded) = &mut *ends.borrow_mut();
                    let begin_removal = &|ino| shared.begin_removal(ino);
                    let surroundings = Surroundings { begin_removal, orphans, removing, undo: None };
                    let mut applied = recording.apply(shared, &plan, read, places, surroundings, recorded)?;
                    also(read, &mut applied)?;
                    Ok(applied)
                },
            };
            let committed = shared.engine.commit_step(commit, by.clone(), step);
            match committed {
                Err(EngineError::NoSpace { .. } | EngineError::SpaceHeld { .. }) if again => {
                    if shared.give_way() {
                        continue;
                    }
                    if recording.number.take().is_none() {
                        break committed;
                    }
                    // What it replaces is not kept then.
                    recording.otherwise = UndoState::GaveWay;
                }
                Err(EngineError::NoSpace { .. } | EngineError::SpaceHeld { .. })
                    if step.is_some_and(KeptStep::assure) => {}
                committed => break committed,
            }
        };
        let (orphans, removing, recorded) = ends.into_inner();
        shared.end_removal(&removing);
        let receipt = committed.map_err(|error| self.explain(error))?;
        if recording.entry.is_some() {
            shared.history.note(receipt.sequence, recorded.undo, &recorded.dropped);
            if let (Some(number), false) = (number, matches!(recorded.undo, UndoState::Kept { .. })) {
                shared.history.note_unused(number);
            }
        }
        // In use when it was applied, perhaps not any more; or only too large to go at once.
        shared.reclaim_or_warn(&orphans);
        Ok(CommitChanges { sequence: receipt.sequence, ..plan.changes })
    }
}

/// What a recorded commit has to take down beside its changes.
struct Recording {
    entry: Option<HistoryRecord>,
    /// Under which what undoing takes is to be kept, if it is.
    number: Option<u64>,
    /// What the plan holds of it already.
    bytes_prepared: u64,
    bytes_max: u64,
    /// What the history says if nothing is kept.
    otherwise: UndoState,
}

/// What it has taken down.
#[derive(Default)]
struct Recorded {
    undo: UndoState,
    /// Commits whose entries it dropped.
    dropped: Vec<u64>,
}

impl Recording {
    /// Applies the plan with all that is to be recorded.
    fn apply(
        &self,
        shared: &Shared,
        plan: &Plan,
        read: &dyn Read,
        places: &[Extent],
        surroundings: Surroundings<'_>,
        recorded: &mut Recorded,
    ) -> Result<Applied> {
        let Surroundings { begin_removal, orphans, removing, .. } = surroundings;
        *recorded = Recorded { undo: self.otherwise, dropped: Vec::new() };
        let mut applied = None;
        if let Some(number) = self.number {
            let mut notes = UndoNotes::new(number);
            let mut with_notes = Surroundings {
                begin_removal,
                orphans: &mut *orphans,
                removing: &mut *removing,
                undo: Some(&mut notes),
            };
            let mut changes = apply(plan, read, places, &mut with_notes)?;
            let (mutations, bytes) = notes.finish();
            let bytes = bytes + self.bytes_prepared;
            if bytes <= self.bytes_max {
                changes.mutations.extend(mutations);
                recorded.undo = UndoState::Kept { number, bytes };
                applied = Some(changes);
            }
        }
        let mut applied = match applied {
            Some(applied) => applied,
            None => {
                apply(plan, read, places, &mut Surroundings { begin_removal, orphans, removing, undo: None })?
            }
        };
        if let Some(entry) = &self.entry {
            let entry = HistoryRecord { undo: recorded.undo, ..entry.clone() };
            recorded.dropped = history::record(shared, &entry, read, &mut applied)?;
        }
        Ok(applied)
    }
}
