//! The simulated directory: names as programs see them, names on stable storage, and the changes in between.
//!
//! Host file systems commit directory changes through a journal, in order: a crash keeps a prefix of those that were
//! not synced.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Names and the files they stand for, by file id.
pub(super) type NameMap = BTreeMap<Arc<str>, u64>;

#[derive(Clone)]
pub(super) struct NameInDoubt {
    /// Position in the order of all changes on this disk.
    pub(super) order: u64,
    pub(super) change: NameChange,
}

#[derive(Clone)]
pub(super) enum NameChange {
    Create { name: Arc<str>, file: u64 },
    Rename { from: Arc<str>, to: Arc<str> },
    Remove { name: Arc<str> },
}

#[derive(Clone, Default)]
pub(super) struct Names {
    /// What programs see.
    pub(super) cached: NameMap,
    /// What a power cut leaves when it loses everything in doubt.
    pub(super) stable: NameMap,
    pub(super) in_doubt: Vec<NameInDoubt>,
    /// A sync failed: `cached` holds changes that will never reach stable storage.
    diverged: bool,
}

impl NameChange {
    /// Does nothing where the name it starts from is missing (possible only after a failed sync lost it).
    fn apply(&self, names: &mut NameMap) {
        match self {
            NameChange::Create { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

impl Names {
    /// A directory that is entirely on stable storage.
    pub(super) fn settled(names: NameMap) -> Self {
        Names { cached: names.clone(), stable: names, in_doubt: Vec::new(), diverged: false }
    }

    pub(super) fn change(&mut self, order: u64, change: NameChange) {
        change.apply(&mut self.cached);
        self.in_doubt.push(NameInDoubt { order, change });
    }

    pub(super) fn flush(&mut self) {
        if self.diverged {
            self.stable = self.survivors(&mut |_| true);
        } else {
            self.stable = self.cached.clone();
        }
        self.in_doubt.clear();
    }

    /// A sync that failed: some first changes reached stable storage, the others never will.
    pub(super) fn fail_flush(&mut self, random: &mut fastrand::Rng) {
        let mut left = random.usize(0..=self.in_doubt.len());
        self.stable = self.survivors(&mut |_| {
            let kept = left > 0;
            left = left.saturating_sub(1);
            kept
        });
        self.in_doubt.clear();
        self.diverged = true;
    }

    /// The names after a crash that keeps changes up to the first for which `keep` says no.
    pub(super) fn survivors(&self, keep: &mut dyn FnMut(&NameInDoubt) -> bool) -> NameMap {
        let mut names = self.stable.clone();
        for entry in &self.in_doubt {
            if !keep(entry) {
                break;
            }
            entry.change.apply(&mut names);
        }
        names
    }
}
