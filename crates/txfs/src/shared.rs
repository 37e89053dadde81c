//! What all handles of one open volume share.
//!
//! # Locks
//! `uses`, `observers` and `open_snapshots` are leaves: nothing is called while they are held. `uses` is also taken inside the engine's
//! critical section, by the apply function, which is where it is decided whether a node without a name stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::{Mutex, RwLock};
use txfs_engine::Engine;

use crate::error::{Error, Result};
use crate::kept::KeptNames;
use crate::named::OpenSnapshots;
use crate::observe::CommitObserver;
use crate::options::{Clock, OpenOptions};
use crate::records::{InodeRecord, NameHasher};
use crate::transaction::session::load_inode;
use crate::types::{Ino, NAME_BYTES_MAX, PAGE_BYTES, Statistics};
use crate::undo::retention::HistoryState;

pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) hasher: NameHasher,
    pub(crate) clock: Clock,
    pub(crate) options: OpenOptions,
    /// The next inode number to hand out.
    pub(crate) next_ino: AtomicU64,
    /// The next transaction number to hand out.
    pub(crate) next_transaction: AtomicU64,
    pub(crate) transactions_open: AtomicUsize,
    /// Unwritten data that all transactions hold in memory.
    pub(crate) buffered_bytes: AtomicUsize,
    pub(crate) uses: Mutex<Uses>,
    /// Of the record of commits.
    pub(crate) history: HistoryState,
    pub(crate) kept: KeptNames,
    pub(crate) observers: RwLock<Vec<Arc<dyn CommitObserver>>>,
    pub(crate) open_snapshots: OpenSnapshots,
}

/// Which nodes are in use.
#[derive(Default)]
pub(crate) struct Uses {
    /// References by inode number.
    counts: BTreeMap<Ino, u64>,
    /// Nodes that commits on their way are removing. While a node is here nobody can begin to use it: either it is
    /// gone in a moment, or the commit fails and it can be used again.
    removing: BTreeSet<Ino>,
}

impl Uses {
    /// True when these were the last references.
    fn give_up(&mut self, ino: Ino, count: u64) -> bool {
        match self.counts.get_mut(&ino) {
            Some(known) if *known > count => {
                *known -= count;
                false
            }
            _ => {
                self.counts.remove(&ino);
                true
            }
        }
    }
}

impl Shared {
    pub(crate) fn is_retained(&self, ino: Ino) -> bool {
        self.uses.lock().counts.contains_key(&ino)
    }

    pub(crate) fn nodes_in_use(&self) -> usize {
        self.uses.lock().counts.len()
    }

    /// Begins to use a node that exists, and says what it is. It stays from then on, until it is released.
    pub(crate) fn retain(&self, ino: Ino) -> Result<InodeRecord> {
        {
            let mut uses = self.uses.lock();
            if uses.removing.contains(&ino) {
                return Err(Error::Stale { ino });
            }
            *uses.counts.entry(ino).or_insert(0) += 1;
        }
        // Looked at after the reference was taken: what removed it before that has been published by now.
        let missing = match load_inode(&self.engine.snapshot(), ino) {
            Ok(Some(record)) => return Ok(record),
            Ok(None) => Error::Stale { ino },
            Err(error) => error,
        };
        self.release(ino, 1);
        Err(missing)
    }

    /// Decides that a node goes, unless it is in use; to be followed by `end_removal` when the commit has ended.
    pub(crate) fn begin_removal(&self, ino: Ino) -> bool {
        let mut uses = self.uses.lock();
        let unused = !uses.counts.contains_key(&ino);
        if unused {
            uses.removing.insert(ino);
        }
        unused
    }

    /// The commit that was to remove nodes has ended, well or not.
    pub(crate) fn end_removal(&self, inos: &[Ino]) {
        if !inos.is_empty() {
            let mut uses = self.uses.lock();
            for ino in inos {
                uses.removing.remove(ino);
            }
        }
    }

    /// Gives up references; with the last one a node without a name goes.
    pub(crate) fn release(&self, ino: Ino, count: u64) {
        let last = self.uses.lock().give_up(ino, count);
        if last {
            self.reclaim_or_warn(&[ino]);
        }
    }

    /// Gives up one reference to each node; those without a name that nobody uses any more go together.
    pub(crate) fn release_all(&self, inos: &[Ino]) {
        let unused: Vec<Ino> = {
            let mut uses = self.uses.lock();
            inos.iter().copied().filter(|&ino| uses.give_up(ino, 1)).collect()
        };
        self.reclaim_or_warn(&unused);
    }

    pub(crate) fn statistics(&self) -> Result<Statistics> {
        let space = self.engine.space()?;
        // What is kept for undoing gives way when the space is needed.
        let free_bytes = (space.free_bytes + self.history.bytes()).min(space.total_bytes);
        let block = u64::from(BLOCK_BYTES);
        let handed_out = self.next_ino.load(std::sync::atomic::Ordering::Relaxed) - 1;
        Ok(Statistics {
            block_bytes: BLOCK_BYTES,
            blocks_total: space.total_bytes / block,
            blocks_free: free_bytes / block,
            blocks_available: free_bytes / block,
            files_total: handed_out,
            files_free: u64::from(u32::MAX).saturating_sub(handed_out),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }
}

const BLOCK_BYTES: u32 = PAGE_BYTES as u32;
