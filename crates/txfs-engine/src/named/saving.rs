//! What a commit saves for the newest named snapshot.
//!
//! Runs inside the critical section, against the state that the commit is about to change, and only while there is a
//! snapshot. A key is saved once: its first change since the snapshot finds nothing in the delta. While newer snapshots
//! are being removed, their deltas count as well: what they have of a key is older than its present value, and is about to
//! be merged into this delta.
//!
//! What is saved are ordinary mutations of the same commit, so recovery knows nothing of snapshots.

use super::{Mark, Marks};
use crate::broken::{self, Fault};
use crate::error::Result;
use crate::format::Mutation;
use crate::format::mutation::Changes;
use crate::format::named::{DELTA_KEY_TAG, object_of};
use crate::format::saved::{saved_key, saved_value};
use crate::index::{IndexView, Read};
use crate::txn::prepared::Prepared;

/// Which of many prepared mutations concern objects that a snapshot knows; found outside of the critical section.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// The snapshot.
    id: u64,
    keys: Vec<Vec<u8>>,
}

impl Candidates {
    /// Of these encoded mutations, for the newest snapshot there is now.
    pub(crate) fn of(encoded: &[u8], marks: &Marks) -> Option<Candidates> {
        let (target, _) = marks.newest()?;
        // What does not decode is refused by who applies it.
        let changes = Changes::of(encoded).flatten();
        let keys = changes.filter(|change| target.keeps(change.key)).map(|change| change.key.to_vec());
        Some(Candidates { id: target.id, keys: keys.collect() })
    }
}

impl Mark {
    /// True when the snapshot shows this key as it was.
    fn keeps(&self, key: &[u8]) -> bool {
        object_of(key).is_some_and(|object| object < self.objects_from)
    }
}

/// Adds the mutations that save what a commit is going to replace.
pub(crate) fn save(
    view: &IndexView,
    marks: &Marks,
    prepared: &Prepared<'_>,
    mutations: &mut Vec<Mutation>,
) -> Result<()> {
    let Some((target, deltas)) = marks.newest() else { return Ok(()) };
    let saving = Saving { view, target, deltas };
    let mut saved = Vec::new();
    for mutation in mutations.iter() {
        saving.save(mutation.key(), &mut saved)?;
    }
    if !broken::has(Fault::UnsavedPrepared) {
        match &prepared.candidates {
            Some(candidates) if candidates.id == target.id => {
                for key in &candidates.keys {
                    saving.save(key, &mut saved)?;
                }
            }
            _ => {
                for change in Changes::of(prepared.encoded).flatten() {
                    saving.save(change.key, &mut saved)?;
                }
            }
        }
    }
    mutations.append(&mut saved);
    Ok(())
}

struct Saving<'a> {
    view: &'a IndexView,
    target: Mark,
    /// The target's, and those after it.
    deltas: &'a [Mark],
}

impl Saving<'_> {
    fn save(&self, key: &[u8], saved: &mut Vec<Mutation>) -> Result<()> {
        if !self.target.keeps(key) {
            return Ok(());
        }
        for mark in self.deltas {
            if self.view.get(&saved_key(DELTA_KEY_TAG, mark.id, key))?.is_some() {
                return Ok(());
            }
        }
        let value = saved_value(self.view.get(key)?.as_deref());
        saved.push(Mutation::PutNew { key: saved_key(DELTA_KEY_TAG, self.target.id, key), value });
        Ok(())
    }
}
