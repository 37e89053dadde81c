//! Named snapshots: the state of all keys at a commit, kept until somebody removes it.
//!
//! Nothing is copied when one is made. While there is one, each commit saves the old value of every key that it changes
//! for the first time since the newest of them, in the same commit (`saving.rs`). What is saved for one snapshot is its
//! *delta*. A snapshot has, for each key, the first value found in the deltas from its own on, and else the present
//! one (`past.rs`). Removing a snapshot merges its delta into the one before it (`removal.rs`).
//!
//! Objects made after a snapshot are known by their numbers: for their keys nothing is saved. The number from which on that
//! holds never falls from one snapshot to the next, so what is new to the newest is new to all.
//!
//! Invariant: a delta has a value for each key of the state that was changed between its snapshot and the next one, and
//! of an object that existed then. Which snapshots there are belongs to the published state, and so a commit knows it
//! inside the critical section.

mod past;
mod removal;
pub(crate) mod saving;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) use self::past::Past;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::format::named::{DELTA_KEY_TAG, NamedSnapshot, SNAPSHOT_KEY_TAG};
use crate::format::saved::{extent_location, split_saved_key};
use crate::format::{FormatError, Mutation};
use crate::index::Read;
use crate::txn::{Applied, Commit, Durability, Snapshot};

/// The snapshots of a state, oldest first; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks(Vec<Mark>);

/// What commits and readers must know of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) id: u64,
    /// See [`NamedSnapshot::objects_from`].
    pub(crate) objects_from: u64,
    pub(crate) going: bool,
}

/// What is kept for a named snapshot alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedStat {
    /// Values in its delta.
    pub values: u64,
    /// File data that they refer to, bytes. Some of it the present state may still refer to as well, in part.
    pub data_bytes: u64,
    /// Bytes of keys and values.
    pub metadata_bytes: u64,
}

/// Says what a new snapshot is, see [`Engine::create_named`].
type Describe<'a> = &'a dyn Fn(&[NamedSnapshot]) -> Result<(u64, Vec<u8>)>;

impl Marks {
    /// Those of a state; `None` when there are none.
    pub(crate) fn load(read: &dyn Read) -> Result<Option<Arc<Marks>>> {
        let marks: Vec<Mark> = list(read)?
            .into_iter()
            .map(|NamedSnapshot { id, objects_from, going, .. }| Mark { id, objects_from, going })
            .collect();
        Ok((!marks.is_empty()).then(|| Arc::new(Marks(marks))))
    }

    /// Those after a commit that made these mutations.
    pub(crate) fn after(
        before: &Option<Arc<Marks>>,
        read: &dyn Read,
        mutations: &[Mutation],
    ) -> Result<Option<Arc<Marks>>> {
        match mutations.iter().any(|mutation| mutation.key().first() == Some(&SNAPSHOT_KEY_TAG)) {
            true => Marks::load(read),
            false => Ok(before.clone()),
        }
    }

    /// The newest one that is not being removed, and it and all after it.
    pub(crate) fn newest(&self) -> Option<(Mark, &[Mark])> {
        let index = self.0.iter().rposition(|mark| !mark.going)?;
        Some((self.0[index], &self.0[index..]))
    }

    fn get(&self, id: u64) -> Option<(usize, Mark)> {
        let index = self.0.binary_search_by_key(&id, |mark| mark.id).ok()?;
        Some((index, self.0[index]))
    }
}

/// All entries, oldest first.
pub(crate) fn list(read: &dyn Read) -> Result<Vec<NamedSnapshot>> {
    let mut found = Vec::new();
    let mut failed = None;
    read.scan(&[SNAPSHOT_KEY_TAG], &[SNAPSHOT_KEY_TAG + 1], &mut |key, value| {
        match NamedSnapshot::decode(key, value) {
            Ok(entry) => found.push(entry),
            Err(error) => failed = Some(error),
        }
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(error) => Err(EngineError::corrupt("the entry of a named snapshot", &error)),
        None => Ok(found),
    }
}

/// The keys of a snapshot's delta.
fn delta_range(tag: u8, id: u64) -> (Vec<u8>, Vec<u8>) {
    let key = |id: u64| [&[tag][..], &id.to_be_bytes()].concat();
    (key(id), id.checked_add(1).map_or(vec![tag + 1], key))
}

impl Engine {
    /// Makes a named snapshot and returns its number. `describe` is given the present ones inside the critical section,
    /// and says from which number on objects do not exist yet, and what the caller wants to know of the snapshot.
    pub fn create_named(&self, durability: Durability, describe: Describe<'_>) -> Result<u64> {
        let snapshot = self.snapshot();
        let receipt = self.commit(Commit::quiet(
            &snapshot,
            // Never deferred: nothing that a snapshot shows is in memory only.
            if durability == Durability::Deferred { Durability::Ordered } else { durability },
            &|read, _| {
                let entries = list(read)?;
                let (objects_from, description) = describe(&entries)?;
                // Numbers that were handed out and lost in a crash are handed out again: what an older snapshot might
                // know must not be new to this one.
                let known = entries.iter().map(|entry| entry.objects_from).max();
                let objects_from = objects_from.max(known.unwrap_or(0));
                let entry = NamedSnapshot { id: 0, objects_from, going: false, description };
                Ok(Applied { numbered: vec![(vec![SNAPSHOT_KEY_TAG], entry.encode())], ..Applied::default() })
            },
        ))?;
        Ok(receipt.sequence)
    }

    /// The named snapshots, oldest first.
    pub fn named(&self) -> Result<Vec<NamedSnapshot>> {
        list(&self.snapshot())
    }

    /// The state that a named snapshot has kept; `None` when there is none of that number, or it is being removed. Like
    /// every snapshot it keeps what it refers to from being reused while it exists; the named one does that by itself,
    /// so it is better to ask for it anew at each use.
    pub fn named_at(&self, id: u64) -> Option<Snapshot> {
        let snapshot = self.snapshot();
        let marks = snapshot.state.marks.clone()?;
        let (index, mark) = marks.get(id)?;
        (!mark.going).then(|| Snapshot { past: Some(Arc::new(Past::new(&marks.0[index..]))), ..snapshot })
    }

    /// Begins to remove a named snapshot: nobody can read it from now on. False when there is none of that number.
    /// [`Engine::finish_removals`] does the rest.
    pub fn begin_removal(&self, id: u64, durability: Durability) -> Result<bool> {
        let snapshot = self.snapshot();
        let found = RefCell::new(false);
        self.commit(Commit::quiet(
            &snapshot,
            if durability == Durability::Deferred { Durability::Ordered } else { durability },
            &|read, _| {
                let entry = list(read)?.into_iter().find(|entry| entry.id == id && !entry.going);
                *found.borrow_mut() = entry.is_some();
                let going = entry.map(|entry| NamedSnapshot { going: true, ..entry });
                let mutations = going
                    .iter()
                    .map(|entry| Mutation::Put { key: NamedSnapshot::key(id), value: entry.encode() });
                Ok(Applied { mutations: mutations.collect(), ..Applied::default() })
            },
        ))?;
        Ok(found.into_inner())
    }

    /// What is saved for a named snapshot. Goes through all of it.
    pub fn saved_for(&self, id: u64) -> Result<SavedStat> {
        let mut stat = SavedStat::default();
        let mut failed: Option<FormatError> = None;
        let (from, to) = delta_range(DELTA_KEY_TAG, id);
        self.snapshot().scan(&from, &to, &mut |key, value| {
            stat.values += 1;
            stat.metadata_bytes += (key.len() + value.len()) as u64;
            match extent_location(key, value) {
                Ok(location) => stat.data_bytes += location.map_or(0, |(_, _, len)| u64::from(len)),
                Err(error) => failed = Some(error),
            }
            ControlFlow::Continue(())
        })?;
        match failed {
            Some(error) => Err(EngineError::corrupt("a value saved for a named snapshot", &error)),
            None => Ok(stat),
        }
    }
}

/// Snapshots that contradict each other, and values that are saved for snapshots that do not exist, or that are none:
/// damage. At most `limit` findings.
pub(crate) fn check_deltas(read: &dyn Read, limit: usize) -> Result<Vec<(Vec<u8>, String)>> {
    let entries = list(read)?;
    let mut problems = Vec::new();
    for pair in entries.windows(2).filter(|pair| pair[0].objects_from > pair[1].objects_from) {
        let what = format!("it takes objects for newer that snapshot {} has", pair[1].id);
        problems.push((NamedSnapshot::key(pair[0].id), what));
    }
    read.scan(&[DELTA_KEY_TAG], &[DELTA_KEY_TAG + 1], &mut |key, value| {
        let belongs = split_saved_key(key).and_then(|(_, id, inner)| {
            let entry = entries.iter().find(|entry| entry.id == id)?;
            Some((entry, crate::format::named::object_of(inner)))
        });
        let what = match belongs {
            None => Some("a value is saved for a snapshot that does not exist".to_owned()),
            Some((_, None)) => Some("a value is saved for a snapshot that is none of its state".to_owned()),
            Some((entry, Some(object))) if object >= entry.objects_from => {
                Some(format!("a value is saved for a snapshot that did not have object {object} yet"))
            }
            Some(_) => crate::format::saved::read_saved_value(value).err().map(|error| error.to_string()),
        };
        problems.extend(what.map(|what| (key.to_vec(), what)));
        match problems.len() < limit {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(problems)
}
