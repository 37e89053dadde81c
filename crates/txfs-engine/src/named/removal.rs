//! Removing named snapshots: what was saved for one is merged into the delta before it.
//!
//! It goes step by step, in bounded commits. At each moment an older snapshot finds the right value of every key: it
//! stands in the delta of the one that goes until it stands in the one before. What that one has itself is older, and
//! counts; what belongs to an object that it did not know goes. With the oldest snapshot all that was saved for it goes.
//! The entry of a snapshot goes with the last of its values; until then it says that it is going, so that a removal that a
//! crash ended is taken up again.
//!
//! Several are removed one after the other, the oldest first.

use std::cell::Cell;
use std::ops::ControlFlow;

use super::{Marks, delta_range};
use crate::engine::Engine;
use crate::error::Result;
use crate::format::Mutation;
use crate::format::named::{DELTA_KEY_TAG, NamedSnapshot, object_of};
use crate::format::saved::saved_key;
use crate::index::Read;
use crate::txn::{Applied, Commit, Durability};

/// What one commit merges at most: values, and bytes of these.
const VALUES_MAX: usize = 256;
const BYTES_MAX: usize = 128 << 10;

impl Engine {
    /// Removes all named snapshots whose removal has begun. Two at once do no harm.
    pub fn finish_removals(&self) -> Result<()> {
        while self.removal_step()? {}
        Ok(())
    }

    /// One commit of it; false when there is nothing to do.
    pub fn removal_step(&self) -> Result<bool> {
        let snapshot = self.snapshot();
        let goes = |marks: &Marks| marks.0.iter().any(|mark| mark.going);
        if !snapshot.state.marks.as_deref().is_some_and(goes) {
            return Ok(false);
        }
        let some = Cell::new(false);
        self.commit(Commit::quiet(&snapshot, Durability::Ordered, &|read, _| {
            let mutations = step(read)?;
            some.set(!mutations.is_empty());
            Ok(Applied { mutations, ..Applied::default() })
        }))?;
        Ok(some.get())
    }
}

/// The next mutations.
fn step(read: &dyn Read) -> Result<Vec<Mutation>> {
    let Some(marks) = Marks::load(read)? else { return Ok(Vec::new()) };
    let Some(index) = marks.0.iter().position(|mark| mark.going) else { return Ok(Vec::new()) };
    let going = marks.0[index];
    let before = index.checked_sub(1).map(|before| marks.0[before]);
    let (from, to) = delta_range(DELTA_KEY_TAG, going.id);
    let mut mutations = Vec::new();
    let mut moved = Vec::new();
    let (mut values, mut bytes, mut all) = (0, 0, true);
    read.scan(&from, &to, &mut |key, value| {
        if values == VALUES_MAX || bytes >= BYTES_MAX {
            all = false;
            return ControlFlow::Break(());
        }
        values += 1;
        bytes += key.len() + value.len();
        mutations.push(Mutation::Delete { key: key.to_vec() });
        let inner = key.get(from.len()..).unwrap_or_default();
        if let Some(before) = before
            && object_of(inner).is_some_and(|object| object < before.objects_from)
        {
            moved.push((saved_key(DELTA_KEY_TAG, before.id, inner), value.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    for (key, value) in moved {
        if read.get(&key)?.is_none() {
            mutations.push(Mutation::PutNew { key, value });
        }
    }
    if all {
        mutations.push(Mutation::Delete { key: NamedSnapshot::key(going.id) });
    }
    Ok(mutations)
}
