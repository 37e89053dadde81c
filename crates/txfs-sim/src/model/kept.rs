//! Kept and prepared transactions in the model: part of each state, beside its tree.
//!
//! As with conflicts of open transactions the volume decides and the model judges. A kept transaction that has met a conflict
//! must share a unit with a commit; one that commits must still mean the same. Whoever is refused by a prepared one must
//! be about to write what that has read or written; who is let through, and should not have been, is found when it commits.

use super::footprint::{Footprint, Group, Touch};
use super::history::{History, ModelTransaction};
use super::part::{Part, Sight, is_clear, part, sight};
use super::tree::Tree;
use super::undo;
use crate::hash::{hash_bytes, mix};

/// A kept or prepared transaction.
#[derive(Clone, Debug)]
pub struct ModelKept {
    /// Its name.
    pub name: String,
    /// Nobody may change what it has read or written.
    pub prepared: bool,
    /// A conflict is noted: it cannot commit any more.
    pub conflicted: bool,
    /// What it did.
    pub transaction: ModelTransaction,
    /// What it began with: its snapshot, with those parts of it that were committed.
    pub base: Tree,
    /// A part of it was committed: what is left is the difference between what it began with and its view.
    pub divided: bool,
}

/// What can be seen of kept transactions from outside, in the order of their names: name, prepared, conflicted.
pub type Seen = (String, bool, bool);

/// One number for all kept transactions; 0 when there are none.
pub fn digest(kept: &[Seen]) -> u64 {
    kept.iter().fold(0, |state, (name, prepared, conflicted)| {
        mix(mix(state, hash_bytes(name.as_bytes())), 2 + u64::from(*prepared) + 2 * u64::from(*conflicted))
    })
}

/// One number for a state with its kept transactions.
pub fn state_digest(tree: u64, kept: u64) -> u64 {
    if kept == 0 { tree } else { mix(tree, kept) }
}

/// True when a change of this may be noted by a kept transaction, or refused because of a prepared one.
pub fn may_meet(kept: &Footprint, change: &Footprint) -> bool {
    kept.may_conflict_with(change) || may_take_last_name(change, kept)
}

/// Whether a name was the last one is only known when a change is applied.
fn may_take_last_name(change: &Footprint, other: &Footprint) -> bool {
    change.writes.iter().any(|touch| match touch {
        Touch::Attribute { ino, group: Group::LostName } => {
            other.reads.contains(&Touch::Attribute { ino: *ino, group: Group::Exists })
        }
        _ => false,
    })
}

impl History {
    /// What is to be seen of the kept transactions of the present state.
    pub fn kept_seen(&self) -> Vec<Seen> {
        self.kept().iter().map(|kept| (kept.name.clone(), kept.prepared, kept.conflicted)).collect()
    }

    /// The volume has kept or prepared a transaction.
    pub fn keep(
        &mut self,
        name: &str,
        prepared: bool,
        transaction: ModelTransaction,
        step: usize,
    ) -> Result<(), String> {
        if prepared {
            // It must be able to commit now.
            self.clone()
                .commit(transaction.clone(), step, u64::MAX)
                .map_err(|what| format!("prepared, not {what}"))?;
        }
        let mut kept = self.kept().to_vec();
        let base = self.snapshot_of(&transaction).clone();
        let name = name.to_owned();
        kept.push(ModelKept { name, prepared, conflicted: false, transaction, base, divided: false });
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        self.push_kept(kept, step);
        Ok(())
    }

    /// The volume has aborted a kept transaction.
    pub fn abort_kept(&mut self, name: &str, step: usize) {
        let kept = self.kept().iter().filter(|kept| kept.name != name).cloned().collect();
        self.push_kept(kept, step);
    }

    /// The volume has committed a kept transaction.
    pub fn commit_kept(&mut self, name: &str, step: usize) -> Result<Footprint, String> {
        let Some(at) = self.kept().iter().position(|kept| kept.name == name) else {
            return Err(format!("committed {name:?}, which does not exist"));
        };
        let mut left = self.kept().to_vec();
        let ModelKept { conflicted, transaction, base, divided, .. } = left.remove(at);
        if conflicted {
            return Err(format!("committed {name:?} although a conflict was noted"));
        }
        let footprint = transaction.footprint().clone();
        let before = self.newest();
        match divided {
            false => self.commit(transaction, step, u64::MAX)?,
            true => {
                let tree = undo::redo(&base, &transaction.view, self.current())
                    .map_err(|what| format!("committed the rest of {name:?}, although {what}"))?;
                self.push(tree, footprint.clone(), step);
            }
        }
        match self.newest() > before {
            true => self.set_kept(left),
            false => self.push_kept(left, step),
        }
        Ok(footprint)
    }

    /// The volume has committed a part of a kept transaction, and says whether something is left.
    pub fn commit_kept_only(
        &mut self,
        name: &str,
        paths: &[Vec<u8>],
        remains: bool,
        step: usize,
    ) -> Result<Footprint, String> {
        let mut kept = self.kept().to_vec();
        let Some(at) = kept.iter().position(|kept| kept.name == name) else {
            return Err(format!("committed a part of {name:?}, which does not exist"));
        };
        let sight = self.sight(&kept[at]).ok_or("nobody can tell what its paths are")?;
        let mine = &mut kept[at];
        if mine.prepared {
            return Err(format!("committed a part of {name:?}, which is prepared"));
        }
        let Part { tree: with_part, .. } = part(&sight, &mine.base, &mine.transaction.view, paths);
        let tree = undo::redo(&mine.base, &with_part, self.current())
            .map_err(|what| format!("committed a part of {name:?}, although {what}"))?;
        if !remains && with_part.dump().digest() != mine.transaction.view.dump().digest() {
            return Err(format!(
                "nothing is left of {name:?}, although there is more than the part {paths:?}"
            ));
        }
        let footprint = mine.transaction.footprint().clone();
        (mine.base, mine.divided) = (with_part, true);
        if !remains {
            kept.remove(at);
        }
        // At most.
        self.push(tree, footprint.clone(), step);
        self.set_kept(kept);
        Ok(footprint)
    }

    /// What there is to see of a kept transaction, if the model can tell.
    pub fn sight(&self, kept: &ModelKept) -> Option<Sight> {
        sight(&kept.base, &kept.transaction.view, self.current(), kept.conflicted)
    }

    /// True when the model can tell what becomes of the sizes of files when a kept transaction is committed without
    /// its operations.
    pub fn is_clear(&self, kept: &ModelKept) -> bool {
        is_clear(&kept.base, &kept.transaction.view, self.current())
    }

    /// The volume has carried out a change; `seen` is what it says of the kept transactions now, and `newest` was the newest
    /// commit before it. Fails when a conflict is noted that there cannot be.
    pub fn note_kept(
        &mut self,
        seen: &[Seen],
        change: Option<&Footprint>,
        newest: usize,
        step: usize,
    ) -> Result<(), String> {
        if self.kept_seen() == seen {
            return Ok(());
        }
        let mut kept = self.kept().to_vec();
        for (mine, (name, prepared, conflicted)) in kept.iter_mut().zip(seen) {
            if (&mine.name, mine.prepared) != (name, *prepared) || mine.conflicted && !conflicted {
                break;
            }
            if *conflicted && !mine.conflicted {
                let footprint = mine.transaction.footprint();
                if mine.prepared || !change.is_some_and(|change| may_meet(footprint, change)) {
                    return Err(format!(
                        "{name:?} has a conflict, and nothing that it touched was changed: {footprint:?}\n  {change:?}"
                    ));
                }
                mine.conflicted = true;
            }
        }
        match self.newest() > newest {
            true => self.set_kept(kept),
            false => self.push_kept(kept, step),
        }
        match self.kept_seen() == seen {
            true => Ok(()),
            false => Err(format!("kept transactions are {seen:?}, and should be {:?}", self.kept_seen())),
        }
    }

    /// Somebody was refused because of a prepared transaction. Fails when none is in the way.
    pub fn check_held(&self, change: &Footprint, both_ways: bool) -> Result<(), String> {
        let in_the_way = |kept: &ModelKept| {
            let footprint = kept.transaction.footprint();
            kept.prepared && (may_meet(footprint, change) || both_ways && may_meet(change, footprint))
        };
        match self.kept().iter().any(in_the_way) {
            true => Ok(()),
            false => {
                Err(format!("refused because of a prepared transaction, and none is in its way: {change:?}"))
            }
        }
    }
}
