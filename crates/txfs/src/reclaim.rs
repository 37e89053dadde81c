//! Removing nodes that have lost their last name and that nobody uses any more ("orphans").
//!
//! Many small ones go in one commit, a large one in several, so that no commit is longer than another. The apply
//! function runs inside the engine's critical section, perhaps twice, and starts afresh each time; it is there that a
//! node is looked at for the last time and that it is decided that it goes.

use std::cell::RefCell;
use std::ops::ControlFlow;

use txfs_engine::{Applied, Commit, Durability, Extent, Read};

use crate::conflict::{ATTRIBUTE_SPACE, EXISTS};
use crate::error::Result;
use crate::records::{InodeRecord, key};
use crate::shared::Shared;
use crate::transaction::apply::{delete, put, remove_node};
use crate::transaction::session::load_inode;
use crate::types::{Ino, NodeKind, PAGE_BYTES};

/// Extents that one commit removes.
const EXTENTS_MAX: usize = 1024;
/// Nodes that one commit removes.
const NODES_MAX: usize = 256;

impl Shared {
    /// Removes those of the nodes that are orphans and that nobody uses. A failure is no loss, the next opening removes
    /// them.
    pub(crate) fn reclaim_or_warn(&self, inos: &[Ino]) {
        for inos in inos.chunks(NODES_MAX) {
            let Err(error) = self.reclaim(inos) else { continue };
            if let [ino] = inos {
                log::warn!(
                    "inode {ino} has no name any more and could not be removed: {error}; the next opening does it"
                );
            } else {
                // One of them is in the way of the others, or all of them together take too much.
                inos.chunks(1).for_each(|one| self.reclaim_or_warn(one));
            }
        }
    }

    fn reclaim(&self, inos: &[Ino]) -> Result<()> {
        let mut left = inos.to_vec();
        loop {
            let snapshot = self.engine.snapshot();
            let mut orphans = Vec::new();
            for ino in left {
                if snapshot.get(&key::orphan(ino))?.is_some() && !self.is_retained(ino) {
                    orphans.push(ino);
                }
            }
            if orphans.is_empty() {
                return Ok(());
            }
            let unfinished = RefCell::new(Vec::new());
            let committed = self.engine.commit(Commit::quiet(&snapshot, Durability::Ordered, &|read, _| {
                Ok(self.remove_orphans(read, &orphans, &mut unfinished.borrow_mut())?)
            }));
            self.end_removal(&orphans);
            committed?;
            left = unfinished.into_inner();
        }
    }

    /// What removing the orphans takes, as far as one commit goes; the others are `unfinished`.
    fn remove_orphans(&self, read: &dyn Read, orphans: &[Ino], unfinished: &mut Vec<Ino>) -> Result<Applied> {
        unfinished.clear();
        let mut applied = Applied::default();
        let mut room = EXTENTS_MAX;
        for &ino in orphans {
            if room == 0 || !self.remove_orphan(read, ino, &mut room, &mut applied)? {
                unfinished.push(ino);
            }
        }
        Ok(applied)
    }

    /// False when only a part of it has gone.
    fn remove_orphan(
        &self,
        read: &dyn Read,
        ino: Ino,
        room: &mut usize,
        applied: &mut Applied,
    ) -> Result<bool> {
        if read.get(&key::orphan(ino))?.is_none() || !self.begin_removal(ino) {
            return Ok(true);
        }
        let Some(record) = load_inode(read, ino)? else {
            applied.mutations.push(delete(key::orphan(ino)));
            return Ok(true);
        };
        let before = applied.mutations.len();
        let mut behind = None;
        let mut all = true;
        let mut gone = 0;
        if record.kind == NodeKind::File {
            let (from, to) = (key::extent(ino, 0), key::extents_end(ino));
            read.scan_back(&from, &to, &mut |key, value| {
                if *room == 0 {
                    all = false;
                    return ControlFlow::Break(());
                }
                *room -= 1;
                gone += Extent::decode(value).map_or(0, |extent| u64::from(extent.pages()));
                behind = key::second_of(key);
                applied.mutations.push(delete(key));
                ControlFlow::Continue(())
            })?;
        }
        applied.also_writes.insert_point(ATTRIBUTE_SPACE, ino, EXISTS);
        match behind {
            Some(page) if !all => {
                let pages = record.pages.saturating_sub(gone);
                let size = record.size.min(page.saturating_mul(PAGE_BYTES));
                let record = InodeRecord { pages, size, ..record };
                applied.mutations.push(put(key::inode(ino), record.encode()));
            }
            _ => {
                applied.mutations.truncate(before);
                remove_node(read, ino, &record, &mut applied.mutations)?;
                applied.mutations.push(delete(key::orphan(ino)));
            }
        }
        Ok(all)
    }
}
