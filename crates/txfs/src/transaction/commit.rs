//! The end of a session: its plan goes to the engine, and what became of it is reported.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use txfs_engine::{Commit, ConflictRange, ConflictReport, Durability, EngineError, Read};

use super::apply::{Surroundings, apply};
use super::locate::{Locator, SCAN_ENTRIES_CHEAP};
use super::plan::Plan;
use super::session::Session;
use crate::conflict::{
    ATTRIBUTE_SPACE, Conflict, ConflictKind, EXISTS, NAME_SPACE, PAGE_SPACE, PARENT, PERMISSIONS, XATTR_SPACE,
};
use crate::error::{Error, Result};
use crate::observe::CommitChanges;
use crate::records::{Bucket, key};

impl Session {
    /// Commits what the session has changed. A session that changed nothing needs no commit: what it read was true at
    /// its snapshot.
    pub(crate) fn commit(mut self, durability: Durability) -> Result<CommitChanges> {
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
        let ends = RefCell::new((Vec::new(), Vec::new()));
        let committed = shared.engine.commit(Commit {
            snapshot: &self.snapshot,
            reads: &plan.reads,
            writes: &plan.writes,
            data,
            prepared: &plan.prepared,
            durability,
            apply: &|read, places| {
                let (orphans, removing) = &mut *ends.borrow_mut();
                let begin_removal = &|ino| shared.begin_removal(ino);
                let mut surroundings = Surroundings { begin_removal, orphans, removing };
                Ok(apply(&plan, read, places, &mut surroundings)?)
            },
        });
        let (orphans, removing) = ends.into_inner();
        shared.end_removal(&removing);
        let receipt = committed.map_err(|error| self.explain(error))?;
        // In use when it was applied, perhaps not any more; or only too large to go at once.
        shared.reclaim_or_warn(&orphans);
        Ok(CommitChanges { sequence: receipt.sequence, ..plan.changes })
    }

    /// Says what a conflict is about.
    fn explain(&self, error: EngineError) -> Error {
        match error {
            EngineError::Conflict(ConflictReport { range, sequence, .. }) => {
                Error::Conflict(Box::new(self.describe_conflict(range, sequence)))
            }
            error => match Error::from(error) {
                Error::Conflict(mut conflict) => {
                    conflict.path = self.cheap_path(conflict.ino);
                    Error::Conflict(conflict)
                }
                error => error,
            },
        }
    }

    fn describe_conflict(&self, range: ConflictRange, sequence: u64) -> Conflict {
        let ino = range.object;
        let mut path = self.cheap_path(ino);
        let kind = match range.space {
            PAGE_SPACE => ConflictKind::Pages { first: range.first, last: range.last },
            NAME_SPACE if range.first != range.last => ConflictKind::Listing,
            NAME_SPACE => {
                let name = self.name_at(ino, range.first);
                if let (Some(path), Some(name)) = (&mut path, &name) {
                    path.push(crate::paths::name_to_path(name));
                }
                ConflictKind::Name { name }
            }
            XATTR_SPACE => ConflictKind::ExtendedAttribute,
            ATTRIBUTE_SPACE => match range.first {
                EXISTS => ConflictKind::Existence,
                PERMISSIONS => ConflictKind::Permissions,
                PARENT => ConflictKind::Parent,
                _ => ConflictKind::Size,
            },
            _ => ConflictKind::Existence,
        };
        Conflict { kind, ino, path, sequence }
    }

    /// A path of the inode, in the state that the session saw or else the current one, unless that takes long.
    pub(super) fn cheap_path(&self, ino: crate::Ino) -> Option<std::path::PathBuf> {
        [self.snapshot.clone(), self.shared.engine.snapshot()].into_iter().find_map(|snapshot| {
            let mut session = Session::read_only(&self.shared, snapshot);
            Locator::new(SCAN_ENTRIES_CHEAP).path(&mut session, ino).ok().flatten()
        })
    }

    /// A name with this hash, in the current state or in the one that the session saw.
    fn name_at(&self, directory: crate::Ino, hash: u64) -> Option<Vec<u8>> {
        [self.shared.engine.snapshot(), self.snapshot.clone()].into_iter().find_map(|snapshot| {
            let value = snapshot.get(&key::dirent(directory, hash)).ok().flatten()?;
            Bucket::decode(&value).ok()?.0.into_iter().next().map(|dirent| dirent.name)
        })
    }
}
