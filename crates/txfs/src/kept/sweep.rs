//! Removes what is left of kept transactions that have ended, in bounded commits. The header goes last, so that after a
//! crash the next opening goes on.

use std::cell::Cell;
use std::ops::ControlFlow;

use txfs_engine::{Applied, Commit, Durability, Mutation, Read};

use crate::error::Result;
use crate::records::{kept, key};
use crate::shared::Shared;
use crate::transaction::apply::delete;
use crate::types::Ino;

/// One commit removes so many entries at most.
const ENTRIES_MAX: usize = 1024;

/// Removes what is left of these. A failure is no loss, the next opening goes on.
pub(crate) fn finish_all(shared: &Shared, ids: &[u64]) {
    for &id in ids {
        if let Err(error) = finish(shared, id) {
            log::warn!(
                "a kept transaction that has ended could not be removed altogether: {error}; the next opening goes on"
            );
        }
    }
}

fn finish(shared: &Shared, id: u64) -> Result<()> {
    loop {
        let snapshot = shared.engine.snapshot();
        let done = Cell::new(false);
        shared.engine.commit(Commit::quiet(&snapshot, Durability::Ordered, &|read, _| {
            let (mutations, all) = piece(read, id)?;
            done.set(all);
            Ok(Applied { mutations, ..Applied::default() })
        }))?;
        if done.get() {
            return Ok(());
        }
    }
}

/// The next entries that go, and whether those are all.
fn piece(read: &dyn Read, id: u64) -> Result<(Vec<Mutation>, bool)> {
    let mut mutations = Vec::new();
    if !nodes(read, id, &mut mutations)? {
        return Ok((mutations, false));
    }
    let header = key::kept(id, key::kept::HEADER, &[]);
    let (from, to) = key::kept_all(id);
    let mut all = true;
    read.scan(&from, &to, &mut |key, _| {
        if key == header || key::kept_entry(key).is_some_and(|(what, _)| what == key::kept::INODE) {
            return ControlFlow::Continue(());
        }
        if mutations.len() >= ENTRIES_MAX {
            all = false;
            return ControlFlow::Break(());
        }
        mutations.push(delete(key));
        ControlFlow::Continue(())
    })?;
    let (from, to) = super::base_range(id);
    read.scan(&from, &to, &mut |key, _| {
        if mutations.len() >= ENTRIES_MAX {
            all = false;
            return ControlFlow::Break(());
        }
        mutations.push(delete(key));
        ControlFlow::Continue(())
    })?;
    if all {
        mutations.push(delete(header));
    }
    Ok((mutations, all))
}

/// The nodes with the data that stands under numbers of theirs; false when there are more.
fn nodes(read: &dyn Read, id: u64, mutations: &mut Vec<Mutation>) -> Result<bool> {
    let (from, to) = key::kept_range(id, key::kept::INODE);
    let mut found = Vec::new();
    read.scan(&from, &to, &mut |key, value| {
        // What does not decode has no data that could be found; the entry goes all the same.
        let state = kept::decode_inode(value).ok();
        let own = state.as_ref().is_some_and(|state| state.is_created());
        found.push((key.to_vec(), state.and_then(|state| state.shadow), own));
        if found.len() < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let more = found.len() >= ENTRIES_MAX;
    for (key, shadow, own) in found {
        if let Some(shadow) = shadow
            && !(own && read.get(&key::inode(shadow))?.is_some())
            && !extents(read, shadow, mutations)?
        {
            return Ok(false);
        }
        mutations.push(delete(key));
        if mutations.len() >= ENTRIES_MAX {
            return Ok(false);
        }
    }
    Ok(!more)
}

/// The extents of one; false when there are more.
fn extents(read: &dyn Read, shadow: Ino, mutations: &mut Vec<Mutation>) -> Result<bool> {
    let mut all = true;
    read.scan(&key::extent(shadow, 0), &key::extents_end(shadow), &mut |key, _| {
        if mutations.len() >= ENTRIES_MAX {
            all = false;
            return ControlFlow::Break(());
        }
        mutations.push(delete(key));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}
