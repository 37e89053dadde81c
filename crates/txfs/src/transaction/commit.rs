//! The end of a session: its plan goes to the engine, and what became of it is reported.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use txfs_engine::{Commit, Durability};

use super::apply::{Surroundings, apply};
use super::plan::Plan;
use super::session::Session;
use crate::error::Result;
use crate::history;
use crate::observe::CommitChanges;

impl Session {
    /// Commits what the session has changed. A session that changed nothing needs no commit: what it read was true at
    /// its snapshot.
    pub(crate) fn commit(mut self, durability: Durability) -> Result<CommitChanges> {
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
        let mut plan = Plan::new(overlay, reads, &shared.hasher, in_use);
        if plan.is_empty() {
            return nothing_to_add(unchanged);
        }
        let data = std::mem::take(&mut plan.data);
        let by = self.committer();
        let entry = self.recorded.then(|| plan.history_entry(&by.origin));
        let ends = RefCell::new((Vec::new(), Vec::new(), 0));
        let commit = Commit {
            snapshot: &self.snapshot,
            reads: &plan.reads,
            writes: &plan.writes,
            data,
            prepared: &plan.prepared,
            durability,
            apply: &|read, places| {
                let (orphans, removing, dropped) = &mut *ends.borrow_mut();
                let begin_removal = &|ino| shared.begin_removal(ino);
                let mut surroundings = Surroundings { begin_removal, orphans, removing };
                let mut applied = apply(&plan, read, places, &mut surroundings)?;
                if let Some(entry) = &entry {
                    *dropped = history::record(shared, entry, read, &mut applied)?;
                }
                Ok(applied)
            },
        };
        let committed = shared.engine.commit_by(commit, by);
        let (orphans, removing, dropped) = ends.into_inner();
        shared.end_removal(&removing);
        let receipt = committed.map_err(|error| self.explain(error))?;
        if entry.is_some() {
            shared.history.note(dropped);
        }
        // In use when it was applied, perhaps not any more; or only too large to go at once.
        shared.reclaim_or_warn(&orphans);
        Ok(CommitChanges { sequence: receipt.sequence, ..plan.changes })
    }
}
