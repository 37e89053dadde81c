//! Seeded random scenarios: the next action is chosen from the model's present state, so that operations hit things
//! that exist, collide with each other, and fail in every way at times. The same seed and the same answers of the
//! volume give the same scenario.

mod operations;
mod profile;

pub use profile::{PROFILES, PROFILES_IN_TURN, Profile, profile};

use fastrand::Rng;

use crate::model::part::changed_paths;
use crate::model::{History, ModelTransaction};
use crate::operation::{Ino, Kind, Operation};

/// How far a commit must have come when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On stable storage.
    Durable,
    /// In the order of commits.
    Ordered,
    /// As ordered, and it may be held back.
    Deferred,
}

/// One step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what they are")]
pub enum Action {
    /// An operation outside transactions.
    Base(Operation),
    /// Opens a transaction in a slot.
    Begin { slot: usize, serializable: bool, recorded: bool },
    /// An operation in a transaction.
    Inside { slot: usize, operation: Operation },
    /// Marks a moment of a transaction.
    Save { slot: usize },
    /// Goes back to one of these moments.
    RollBack { slot: usize, savepoint: usize },
    /// Ends a transaction.
    Commit { slot: usize, durability: Durability },
    /// Drops a transaction.
    Abort { slot: usize },
    /// Ends a transaction by keeping or preparing it under a name.
    Keep { slot: usize, name: String, prepared: bool },
    /// Commits a kept transaction.
    CommitKept { name: String },
    /// Commits what a kept transaction changes at or below some paths.
    CommitKeptOnly { name: String, paths: Vec<Vec<u8>> },
    /// Drops a kept transaction.
    AbortKept { name: String },
    /// Makes a named snapshot.
    CreateSnapshot { name: String, durability: Durability },
    /// Deletes one.
    DeleteSnapshot { name: String },
    /// Makes everything durable.
    Sync,
    /// Writes the index and lets the log before it go.
    Checkpoint,
    /// Moves live data out of some segments.
    Clean { segments_max: u64 },
    /// Hands ordered commits to the host without a flush.
    WritePending,
    /// Closes the volume in good order and opens it again.
    Reopen,
    /// Undoes the commit at an index of the model's history, which the volume knows by another number.
    Undo { commit: usize, sequence: u64 },
    /// The kernel takes a reference to an inode.
    Retain { ino: Ino },
    /// The kernel drops its reference.
    Release { ino: Ino },
}

/// Chooses actions.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Rng,
    profile: &'static Profile,
}

/// Names of snapshots.
const SNAPSHOT_NAMES: [&str; 3] = ["red", "green", "blue"];

impl Durability {
    /// The same in the words of the volume.
    pub(crate) fn of_volume(self) -> txfs::Durability {
        match self {
            Durability::Durable => txfs::Durability::Durable,
            Durability::Ordered => txfs::Durability::Ordered,
            Durability::Deferred => txfs::Durability::Deferred,
        }
    }
}

/// Names of kept transactions.
const KEPT_NAMES: [&str; 3] = ["one", "two", "three"];

/// Savepoints of one transaction.
const SAVEPOINTS_MAX: usize = 4;

/// Picks an index by weight.
fn weighted(random: &mut Rng, weights: &[u32]) -> usize {
    let mut at = random.u32(0..weights.iter().sum::<u32>().max(1));
    for (index, weight) in weights.iter().enumerate() {
        if at < *weight {
            return index;
        }
        at -= weight;
    }
    0
}

impl Generator {
    /// A generator whose choices depend on `seed` and on what it is shown only.
    pub fn new(seed: u64, profile: &'static Profile) -> Self {
        Generator { random: Rng::with_seed(seed), profile }
    }

    fn durability(&mut self) -> Durability {
        match weighted(&mut self.random, &self.profile.durability_weights) {
            0 => Durability::Durable,
            1 => Durability::Ordered,
            _ => Durability::Deferred,
        }
    }

    fn filled_slot(&mut self, slots: &[Option<ModelTransaction>]) -> Option<usize> {
        let filled: Vec<usize> = (0..slots.len()).filter(|slot| slots[*slot].is_some()).collect();
        self.random.choice(filled)
    }

    /// The next step, given the state of the volume and of the open transactions.
    pub fn next(&mut self, history: &History, slots: &[Option<ModelTransaction>]) -> Action {
        loop {
            let choice = weighted(&mut self.random, &self.profile.action_weights());
            if let Some(action) = self.try_action(choice, history, slots) {
                return action;
            }
        }
    }

    fn try_action(
        &mut self,
        choice: usize,
        history: &History,
        slots: &[Option<ModelTransaction>],
    ) -> Option<Action> {
        let action = match choice {
            0 => {
                let retained = history.retained().iter().copied().collect::<Vec<_>>();
                Action::Base(self.operation(history.current(), &retained))
            }
            1 => {
                let slot = slots.iter().take(self.profile.transactions_max).position(Option::is_none)?;
                let serializable = self.random.u32(0..4) > 0;
                let percent = self.profile.recorded_percent;
                let recorded = percent > 0 && self.random.u32(0..100) < percent;
                Action::Begin { slot, serializable, recorded }
            }
            2 => {
                let slot = self.filled_slot(slots)?;
                let transaction = slots[slot].as_ref()?;
                let operation = self.operation(&transaction.view, &[]);
                if !transaction.is_serializable() && transaction.changes_again(&operation) {
                    return None;
                }
                Action::Inside { slot, operation }
            }
            3 => {
                let slot = self.filled_slot(slots)?;
                let durability = self.durability();
                Action::Commit { slot, durability }
            }
            4 => Action::Abort { slot: self.filled_slot(slots)? },
            5 => Action::Sync,
            6 => Action::Checkpoint,
            7 => Action::WritePending,
            8 => Action::Reopen,
            9 => Action::Retain { ino: self.random.choice(history.current().linked(Kind::File))? },
            10 => Action::Release { ino: self.random.choice(history.retained().iter().copied())? },
            11 => {
                let slot = self.filled_slot(slots)?;
                (slots[slot].as_ref()?.savepoints() < SAVEPOINTS_MAX).then_some(Action::Save { slot })?
            }
            12 => {
                let slot = self.filled_slot(slots)?;
                let savepoint = self.random.choice(0..slots[slot].as_ref()?.savepoints())?;
                Action::RollBack { slot, savepoint }
            }
            13 => Action::Clean { segments_max: self.random.u64(1..4) },
            14 => {
                let slot = self.filled_slot(slots)?;
                let name = self
                    .random
                    .choice(KEPT_NAMES)
                    .filter(|name| history.kept().iter().all(|kept| kept.name != *name))?;
                Action::Keep { slot, name: name.to_owned(), prepared: self.random.bool() }
            }
            15 => {
                let kept = self.random.choice(history.kept())?;
                let known = !kept.divided || history.is_clear(kept);
                known.then(|| Action::CommitKept { name: kept.name.clone() })?
            }
            16 => Action::AbortKept { name: self.random.choice(history.kept())?.name.clone() },
            18 => {
                let name = self.random.choice(SNAPSHOT_NAMES)?;
                let free = !history.named().contains_key(name);
                free.then(|| Action::CreateSnapshot { name: name.to_owned(), durability: self.durability() })?
            }
            20 => {
                let kept = self.random.choice(history.kept()).filter(|kept| history.is_clear(kept))?;
                let changed: Vec<Vec<u8>> = changed_paths(&history.sight(kept)?).into_iter().collect();
                let mut paths = Vec::new();
                for _ in 0..self.random.usize(1..4) {
                    let mut path = self.random.choice(&changed)?.clone();
                    if self.random.u32(0..4) == 0 {
                        // The directory that it is in.
                        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                        path.truncate(end);
                    }
                    paths.push(path);
                }
                Action::CommitKeptOnly { name: kept.name.clone(), paths }
            }
            19 => Action::DeleteSnapshot { name: self.random.choice(history.named().keys())?.clone() },
            _ => {
                let recorded = history.recorded();
                // The last ones more often than those of long ago.
                let back = self.random.usize(0..=recorded.len()).min(self.random.usize(0..=recorded.len()));
                let commit = *recorded.iter().rev().nth(back)?;
                Action::Undo { commit, sequence: history.commits()[commit].recorded? }
            }
        };
        Some(action)
    }
}
