//! Turns a transaction's intents into changes of the ordered map, against the state at the time of the commit.
//!
//! This runs inside the engine's sequencing critical section, possibly twice, so it is a pure function of the plan,
//! the current state and the places of the data; what it finds out on the way (nodes that lost their last name) goes
//! into a list that every run starts afresh. Everything that could contradict the plan has been validated before;
//! what nevertheless does not fit is refused as a conflict.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use txfs_engine::{Applied, Extent, Mutation, Read};

use super::overlay::{InodeState, TimeIntent, add_links};
use super::plan::{InodePlan, Plan, Source};
use super::session::{PAGE_MAX, load_extents, load_inode, visit_extents};
use super::undo_notes::UndoNotes;
use crate::conflict::{ATTRIBUTE_SPACE, Access, Conflict, ConflictKind, ConflictReport, EXISTS, Other};
use crate::error::{Error, Result};
use crate::records::{InodeRecord, key, small};
use crate::types::{Ino, NodeKind, PAGE_BYTES, Timestamp};

/// A file of up to this many pages is removed in the commit that takes its last name; a larger one becomes an orphan
/// first, and goes in several commits afterwards.
const INLINE_REMOVAL_PAGES_MAX: u64 = 4096;

/// The next inode number is written down in steps, so that most creations need not touch it.
pub(super) const NEXT_INO_STEP: u64 = 1024;

/// What an application has to be told beside the plan.
pub(crate) struct Surroundings<'a> {
    /// Decides that a node goes; false when it is in use and must stay.
    pub(crate) begin_removal: &'a dyn Fn(Ino) -> bool,
    /// Nodes that became orphans.
    pub(crate) orphans: &'a mut Vec<Ino>,
    /// Nodes of which it was decided that they go, in this run or an earlier one.
    pub(crate) removing: &'a mut Vec<Ino>,
    /// Takes down what undoing it takes, if that is wanted.
    pub(crate) undo: Option<&'a mut UndoNotes>,
}

pub(crate) fn put(key: impl Into<Vec<u8>>, value: Vec<u8>) -> Mutation {
    Mutation::Put { key: key.into(), value }
}

pub(crate) fn delete(key: impl Into<Vec<u8>>) -> Mutation {
    Mutation::Delete { key: key.into() }
}

/// Applies a plan, but for what it prepared; `places` says where its data went.
pub(crate) fn apply(
    plan: &Plan,
    read: &dyn Read,
    places: &[Extent],
    surroundings: &mut Surroundings<'_>,
) -> Result<Applied> {
    surroundings.orphans.clear();
    let mut applied = Applied::default();
    for inode in &plan.inodes {
        apply_inode(inode, read, places, surroundings, &mut applied)?;
    }
    if plan.next_ino > 0 && plan.next_ino > load_next_ino(read)? {
        let next = plan.next_ino.saturating_add(NEXT_INO_STEP);
        applied.mutations.push(put(key::NEXT_INO, small::encode_number(next)));
    }
    Ok(applied)
}

pub(crate) fn load_next_ino(read: &dyn Read) -> Result<Ino> {
    let corrupt = |detail: &str| Error::Corrupt { what: format!("the next inode number: {detail}") };
    let value = read.get(key::NEXT_INO)?.ok_or_else(|| corrupt("missing"))?;
    small::decode_number(&value).map_err(corrupt)
}

fn apply_inode(
    inode: &InodePlan,
    read: &dyn Read,
    places: &[Extent],
    surroundings: &mut Surroundings<'_>,
    applied: &mut Applied,
) -> Result<()> {
    let (ino, state) = (inode.ino, &inode.state);
    let mut stored_pages = 0;
    let mut before = None;
    let mut record = match &state.original {
        None => {
            if let Some(target) = &state.target {
                applied.mutations.push(put(key::symlink(ino), small::encode_bytes(target)));
            }
            InodeRecord { pages: 0, ..state.record.clone() }
        }
        Some(original) => {
            let current = load_inode(read, ino)?.ok_or_else(|| vanished(ino))?;
            stored_pages = current.size.div_ceil(PAGE_BYTES);
            before = surroundings.undo.is_some().then(|| current.clone());
            merge(state, original, current)
        }
    };
    if record.nlink == 0 && state.link_delta < 0 {
        applied.also_writes.insert_point(ATTRIBUTE_SPACE, ino, EXISTS);
        if let (Some(undo), Some(before)) = (&mut surroundings.undo, &before) {
            // It stays as it was, without a name, for as long as this can be undone.
            applied.mutations.push(put(key::removed(ino), small::encode_number(undo.number())));
            if inode.data_dropped {
                let record = InodeRecord { nlink: 0, ctime: record.ctime, ..before.clone() };
                undo.removed(ino, &record);
                applied.mutations.push(put(key::inode(ino), record.encode()));
                return Ok(());
            }
        } else if record.pages <= INLINE_REMOVAL_PAGES_MAX && (surroundings.begin_removal)(ino) {
            surroundings.removing.push(ino);
            return remove_node(read, ino, &record, &mut applied.mutations);
        }
        if surroundings.undo.is_none() {
            surroundings.orphans.push(ino);
            applied.mutations.push(put(key::orphan(ino), small::orphan()));
        }
    } else if state.link_delta > 0 && state.original.as_ref().is_some_and(|original| original.nlink == 0) {
        applied.mutations.push(delete(key::orphan(ino)));
        applied.mutations.push(delete(key::removed(ino)));
    } else if inode.data_dropped {
        // Somebody gave the node another name in the meantime: it stays, and its data would be missing.
        return Err(vanished(ino));
    }
    if !inode.cleared.is_empty() && !inode.data_dropped {
        let undo = surroundings.undo.as_deref_mut();
        let delta = replace_extents(inode, read, stored_pages, places, &mut applied.mutations, undo)?;
        record.pages = u64::try_from(i128::from(record.pages) + i128::from(delta)).unwrap_or(0);
    }
    for (name, value) in &state.xattrs {
        let key = key::xattr(ino, name);
        if let (Some(undo), Some(_)) = (&mut surroundings.undo, &before) {
            undo.xattr(read, ino, name, value.as_deref())?;
        }
        match value {
            Some(value) => applied.mutations.push(put(key, small::encode_bytes(value))),
            None if state.is_created() => {}
            None => applied.mutations.push(delete(key)),
        }
    }
    if let Some(undo) = &mut surroundings.undo {
        match &before {
            Some(before) => {
                if before.nlink == 0 && record.kind == NodeKind::Directory {
                    undo.revived(read, inode, &record)?;
                }
                undo.node(ino, before, &record, state.link_delta < 0);
            }
            None => undo.created(inode, &record, |source| source_extent(ino, source, places))?,
        }
    }
    applied.mutations.push(put(key::inode(ino), record.encode()));
    Ok(())
}

fn source_extent(ino: Ino, source: &Source, places: &[Extent]) -> Result<Extent> {
    match source {
        Source::Placed(extent) => Ok(extent.clone()),
        Source::Chunk(index) => places.get(*index).cloned().ok_or_else(|| Error::Corrupt {
            what: format!("inode {ino}: the engine gave no place for chunk {index}"),
        }),
    }
}

fn vanished(ino: Ino) -> Error {
    let other = Other::default();
    let conflict =
        Conflict { kind: ConflictKind::Existence, access: Access::Written, ino, path: None, other };
    Error::Conflict(Box::new(ConflictReport::of(conflict)))
}

/// The current inode with the intents applied.
pub(crate) fn merge(state: &InodeState, original: &InodeRecord, current: InodeRecord) -> InodeRecord {
    let mine = &state.record;
    let mut record = current;
    if state.permissions {
        (record.mode, record.uid, record.gid) = (mine.mode, mine.uid, mine.gid);
    }
    if state.moved {
        record.parent = mine.parent;
    }
    record.nlink = add_links(record.nlink, state.link_delta);
    if state.cut.is_some() {
        record.size = mine.size;
    } else if mine.size > original.size {
        record.size = record.size.max(mine.size);
    }
    record.atime = merge_time(state.atime, mine.atime, original.atime, record.atime);
    record.mtime = merge_time(state.mtime, mine.mtime, original.mtime, record.mtime);
    record.ctime = merge_time(state.ctime, mine.ctime, original.ctime, record.ctime);
    record
}

fn merge_time(intent: TimeIntent, mine: Timestamp, original: Timestamp, current: Timestamp) -> Timestamp {
    match intent {
        TimeIntent::Keep => current,
        TimeIntent::Set => mine,
        // Nobody else moved it: then it may go back as well, for instance from a moment set in the future.
        TimeIntent::Touched if current == original => mine,
        TimeIntent::Touched => mine.max(current),
    }
}

/// Removes everything that a node consists of.
pub(crate) fn remove_node(
    read: &dyn Read,
    ino: Ino,
    record: &InodeRecord,
    mutations: &mut Vec<Mutation>,
) -> Result<()> {
    mutations.push(delete(key::inode(ino)));
    match record.kind {
        NodeKind::Symlink => mutations.push(delete(key::symlink(ino))),
        NodeKind::File if record.pages > 0 => {
            read.scan(&key::extent(ino, 0), &key::extents_end(ino), &mut |key, _| {
                mutations.push(delete(key));
                ControlFlow::Continue(())
            })?;
        }
        _ => {}
    }
    let (from, to) = key::xattrs(ino);
    read.scan(&from, &to, &mut |key, _| {
        mutations.push(delete(key));
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// Takes the cleared ranges out of the file's extents and puts the new content in; returns by how many pages the
/// file's allocation changed. No extent lies behind the file's first `stored_pages`, so appending looks for none.
fn replace_extents(
    inode: &InodePlan,
    read: &dyn Read,
    stored_pages: u64,
    places: &[Extent],
    mutations: &mut Vec<Mutation>,
    mut undo: Option<&mut UndoNotes>,
) -> Result<i64> {
    let ino = inode.ino;
    // What a node made here consists of is taken down as a whole.
    let mut undo = undo.take().filter(|_| !inode.state.is_created());
    if let Some(undo) = &mut undo {
        inode.cleared.iter().for_each(|&(first, last)| undo.cleared(ino, first, last));
    }
    let mut delta = 0;
    // What stands at each first page afterwards; `None`: the old extent there goes. All old extents that are touched are
    // in it before the new ones come.
    let mut after: BTreeMap<u64, Option<Extent>> = BTreeMap::new();
    let mut behind = 0;
    for &(first, last) in inode.cleared.iter().take_while(|(first, _)| *first < stored_pages) {
        let last = last.min(stored_pages - 1);
        visit_extents(read, ino, first, last, &mut |start, extent| {
            // One extent can reach into several ranges; it is cut at all of them when met first.
            if start >= behind {
                behind = start + 1;
                delta -= cut_extent(start, &extent, &inode.cleared, &mut after, &mut |first, gone| {
                    if let Some(undo) = &mut undo {
                        undo.old_content(ino, first, &gone);
                    }
                });
            }
            true
        })?;
    }
    let fresh = match inode.state.shadow {
        // Data of a kept transaction: the cleaner may have moved it a moment ago.
        Some(shadow) => {
            let kept = load_extents(read, shadow, 0, PAGE_MAX)?;
            mutations.extend(kept.iter().map(|(first, _)| delete(key::extent(shadow, *first))));
            kept
        }
        None => {
            let located = |(first, fresh): &(u64, Source)| Ok((*first, source_extent(ino, fresh, places)?));
            inode.fresh.iter().map(located).collect::<Result<_>>()?
        }
    };
    // Ascending.
    let mut new = Vec::new();
    for (first, extent) in fresh {
        delta += i64::from(extent.pages());
        if let Some(undo) = &mut undo {
            undo.put(ino, first, &extent);
        }
        if after.insert(first, Some(extent)).is_none() {
            new.push(first);
        }
    }
    mutations.reserve(after.len() + 1);
    mutations.extend(after.into_iter().map(|(first, extent)| {
        let key = key::extent(ino, first);
        match extent {
            // There is none at this page: the engine need not look for one either.
            Some(extent) if new.binary_search(&first).is_ok() => {
                Mutation::PutNew { key: key.to_vec(), value: extent.encode() }
            }
            Some(extent) => put(key, extent.encode()),
            None => delete(key),
        }
    }));
    Ok(delta)
}

/// Puts what the cleared ranges leave of an old extent into `after`, and hands out what goes; returns the number of pages
/// that go.
fn cut_extent(
    start: u64,
    extent: &Extent,
    cleared: &[(u64, u64)],
    after: &mut BTreeMap<u64, Option<Extent>>,
    goes: &mut dyn FnMut(u64, Extent),
) -> i64 {
    let behind = start + u64::from(extent.pages());
    let mut gone = 0;
    let mut at = start;
    after.insert(start, None);
    let mut keep = |from: u64, to: u64| {
        if from < to {
            after.insert(from, Some(extent.slice_pages((from - start) as u32, (to - from) as u32)));
        }
    };
    let from = cleared.partition_point(|&(_, last)| last < start);
    for &(first, last) in cleared[from..].iter().take_while(|(first, _)| *first < behind) {
        let first = first.max(start);
        let end = last.saturating_add(1).min(behind);
        keep(at, first);
        gone += (end - first) as i64;
        goes(first, extent.slice_pages((first - start) as u32, (end - first) as u32));
        at = end;
    }
    keep(at, behind);
    gone
}
