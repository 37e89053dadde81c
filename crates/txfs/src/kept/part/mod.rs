//! Commits a part of a kept transaction: what it changes at or below some paths. The rest stays kept.
//!
//! One commit applies the chosen changes, and takes them out of what is stored of the transaction; so after a crash
//! all is kept, or the part is committed and the rest is kept. In the same critical section the rest's ranges take
//! the place of those of the whole.
//!
//! The rest begins with what is chosen, as if it had been made after that: its own other half is no conflict, the records that
//! it began with have the chosen names counted in, and so do those saved of its base. Of nodes that are committed,
//! nothing is saved any more.
//!
//! What counts as a conflict of the part: see [`Grounds`].

mod choose;
mod divide;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use txfs_engine::{
    Applied, Clash, ConflictRange, ConflictSet, Durability, KEPT_NOTES_MAX, KeptStep, Mutation, MutationList,
    Read, read_saved_value, saved_value, split_saved_key,
};

use self::choose::choose;
use self::divide::{Divided, divide};
use super::{BASE_TAG, Reserved, base_range, conflicts, corrupt, end, load, ranges};
use crate::conflict::{ATTRIBUTE_SPACE, ConflictReport, EXISTS, NAME_SPACE, PARENT};
use crate::error::{Error, Result};
use crate::records::kept::{self, Header, Stage};
use crate::records::{InodeRecord, key};
use crate::shared::Shared;
use crate::transaction::apply::{delete, merge, put};
use crate::transaction::keep::{claim_removals, write_inode, write_names, write_ranges};
use crate::transaction::overlay::Overlay;
use crate::transaction::plan::Plan;
use crate::transaction::session::Session;
use crate::transaction::tell_observers;
use crate::types::{Ino, NodeKind};

/// What committing a part of a kept transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPart {
    /// The commit's place in the order of commits.
    pub sequence: u64,
    /// New directories that came along, since something in them was committed.
    pub along: Vec<PathBuf>,
    /// Something is left, and kept under the same name.
    pub remains: bool,
}

/// Commits what one changes at or below some paths, durably.
pub(crate) fn commit(shared: &Arc<Shared>, name: &str, paths: &[PathBuf]) -> Result<KeptPart> {
    if paths.is_empty() {
        return Err(Error::Invalid("a part of a kept transaction needs at least one path"));
    }
    let reserved = shared.kept.take(shared, name)?;
    let id = reserved.id();
    let mut session = Session::new(shared);
    session.now();
    let header = load::header(&session.snapshot, id)?;
    if header.stage == Stage::Prepared {
        return Err(Error::PreparedAsWhole { name: name.to_owned() });
    }
    let choice = {
        let base = shared.engine.snapshot_with_saved(BASE_TAG, id);
        super::check_base(&base, id)?;
        let mut ours = Session::read_only(shared, base.clone());
        ours.overlay = load::overlay(&ours.snapshot, id)?;
        choose(name, &mut ours, &mut Session::read_only(shared, base), paths)?
    };
    let divided = divide(load::overlay(&session.snapshot, id)?, &choice);
    if divided.rest.is_empty() {
        drop(session);
        let receipt = end::commit_reserved(shared, reserved)?;
        return Ok(KeptPart { sequence: receipt.sequence, along: Vec::new(), remains: false });
    }
    session.origin = Some(end::origin(shared, &header));
    session.recorded = header.recorded;
    let sequence = commit_divided(session, &reserved, &header, divided)?;
    if header.recorded {
        shared.expire_history();
    }
    Ok(KeptPart { sequence, along: choice.along, remains: true })
}

fn commit_divided(session: Session, reserved: &Reserved, header: &Header, divided: Divided) -> Result<u64> {
    let shared = session.shared.clone();
    let (id, snapshot) = (reserved.id(), &session.snapshot);
    let mut entries = MutationList::new();
    take_out(&mut entries, id, &divided);
    let Divided { chosen, rest, both } = divided;
    let taken = Taken::of(&chosen, &both);
    let touched: Vec<Ino> = chosen.inodes.keys().copied().collect();

    let mut reads = reads_of_rest(&ranges(snapshot, id, key::kept::READS)?, &chosen, &rest);
    claim_new_directories(&chosen, &rest, &mut reads);
    let mut rest_grounds = Grounds::of(&rest);
    let mut scratch = MutationList::new();
    write_names(&mut scratch, id, &rest);
    for (&ino, state) in &rest.inodes {
        write_inode(&mut scratch, id, ino, state, state.shadow.unwrap_or(0));
    }
    let rest_plan = Plan::new(rest, reads, &shared.hasher, |_| true, None);
    rest_grounds.writes.extend(&rest_plan.writes);
    let (reads, writes) = (rest_plan.reads, rest_grounds.writes.clone());
    write_ranges(&mut scratch, id, key::kept::READS, &reads);
    write_ranges(&mut scratch, id, key::kept::WRITES, &writes);
    replace_ranges(&mut entries, snapshot, id, key::kept::READS, &reads)?;
    replace_ranges(&mut entries, snapshot, id, key::kept::WRITES, &writes)?;
    let header = Header {
        nodes: rest_plan.changes.inodes.len() as u64,
        names: rest_plan.changes.names.len() as u64,
        data_bytes: rest_plan.data_bytes,
        meta_bytes: scratch.as_bytes().len() as u64,
        ..header.clone()
    };
    entries.put(&key::kept(id, key::kept::HEADER, &[]), &header.encode());

    // In use: as for the commit of the whole.
    let mut grounds = Grounds::of(&chosen);
    let mut plan = Plan::new(chosen, ConflictSet::new(), &shared.hasher, |_| true, session.undo_number()?);
    grounds.writes.extend(&plan.writes);
    grounds.reads = plan.reads.clone();
    plan.prepared.append(&entries);
    let counts = |clash: &Clash| grounds.counts(&clash.range, &rest_grounds);
    let refused = |session: &Session| -> Result<Option<ConflictReport>> {
        end::report_of(session, counting(&session.snapshot, id, &counts)?)
    };
    if let Some(report) = refused(&session)? {
        return Err(Error::Conflict(Box::new(report)));
    }
    let step = KeptStep::divide(id, reads, writes);
    let committed = session.commit_plan(plan, Durability::Durable, Some(&step), &|read, applied| {
        if !counting(read, id, &counts)?.is_empty() {
            return Err(Error::Conflict(Box::new(ConflictReport { conflicts: Vec::new(), more: 0 })));
        }
        taken.take(read, id, applied)
    });
    match committed {
        Ok(changes) => {
            tell_observers(&shared, &changes);
            drop(session);
            shared.reclaim_or_warn(&touched);
            Ok(changes.sequence)
        }
        Err(Error::Conflict(met)) => {
            // Noted by a commit that came in between; the report says all of it.
            let mut later = Session::new(&shared);
            later.origin = session.origin.clone();
            Err(Error::Conflict(refused(&later)?.map(Box::new).unwrap_or(met)))
        }
        Err(error) => Err(error),
    }
}

/// What decides whether a conflict that was noted of the whole is one of a part. It is one, unless it is about
/// something that the rest changes and the part does not touch.
///
/// So nothing is lost that others have written, and what the tree's shape depends on holds: nodes that the part
/// changes are there, and are in [`Grounds::nodes`]; directories that it empties and removes, it touches; those that
/// lie above one that it moves are not moved by the rest, or [`choose`] would have refused. What the transaction has
/// only read counts as well, since it may be in what the part writes. It does not for what the rest writes: such a
/// conflict is the reason for committing the other part.
#[derive(Default)]
struct Grounds {
    writes: ConflictSet,
    /// That of which the change makes no sense without.
    reads: ConflictSet,
    /// All nodes that are changed.
    nodes: BTreeSet<Ino>,
    /// Those of them that go.
    removed: BTreeSet<Ino>,
}

impl Grounds {
    /// What can be told before it is a plan.
    fn of(overlay: &Overlay) -> Grounds {
        let mut grounds = Grounds { nodes: overlay.inodes.keys().copied().collect(), ..Grounds::default() };
        let removed = overlay.inodes.iter().filter(|(_, state)| state.record.nlink == 0);
        grounds.removed = removed.map(|(&ino, _)| ino).collect();
        claim_removals(overlay, &mut grounds.writes);
        grounds
    }

    fn counts(&self, range: &ConflictRange, rest: &Grounds) -> bool {
        let meets = |set: &ConflictSet| set.overlapping(range).next().is_some();
        if meets(&self.writes) || meets(&self.reads) {
            return true;
        }
        if rest.writes.overlapping(range).any(|part| part.covers(range)) {
            return false;
        }
        // Of a node that only the rest changes it may have read other parts than it changes; of a directory that only the rest
        // removes, that it is empty.
        let is_rest = rest.nodes.contains(&range.object) && !self.nodes.contains(&range.object);
        let is_place = range.space == ATTRIBUTE_SPACE && range.first <= PARENT && PARENT <= range.last;
        match range.space {
            NAME_SPACE => !(is_rest && rest.removed.contains(&range.object)),
            _ => is_place || !is_rest,
        }
    }
}

/// The noted conflicts that count.
fn counting(read: &dyn Read, id: u64, counts: &dyn Fn(&Clash) -> bool) -> Result<Vec<Clash>> {
    let clashes = conflicts(read, id)?;
    let more = read.get(&key::kept(id, key::kept::MORE, &[]))?.is_some();
    if more || clashes.len() as u64 >= KEPT_NOTES_MAX {
        return Err(Error::NotSupported(
            "committing a part of a kept transaction with more conflicts than are noted: any of them could be about the part",
        ));
    }
    Ok(clashes.into_iter().filter(counts).collect())
}

/// What the transaction has read, but for nodes that go with the part: when the last of their users closes them,
/// their content goes too, and that is nobody's change.
fn reads_of_rest(all: &ConflictSet, chosen: &Overlay, rest: &Overlay) -> ConflictSet {
    let goes = |ino: &Ino| {
        !rest.inodes.contains_key(ino) && chosen.inodes.get(ino).is_some_and(|state| state.record.nlink == 0)
    };
    let mut reads = ConflictSet::new();
    for range in all.iter().filter(|range| !goes(&range.object)) {
        reads.insert(range.space, range.object, range.first, range.last);
    }
    reads
}

/// A directory that the transaction has made is there for others with the part, and may be moved by them: the rest
/// must know, if it moves another one that may lie below it.
fn claim_new_directories(chosen: &Overlay, rest: &Overlay, reads: &mut ConflictSet) {
    let moves = rest.inodes.values().any(|state| state.moved && state.record.kind == NodeKind::Directory);
    let new = chosen.inodes.iter().filter(|(_, state)| state.is_created());
    for (&ino, _) in new.filter(|(_, state)| moves && state.record.kind == NodeKind::Directory) {
        reads.insert_point(ATTRIBUTE_SPACE, ino, EXISTS);
        reads.insert_point(ATTRIBUTE_SPACE, ino, PARENT);
    }
}

/// Takes the entries of what is chosen out of what is stored; of nodes in both parts, those of the rest stand there then.
fn take_out(entries: &mut MutationList, id: u64, divided: &Divided) {
    for (directory, hash) in divided.chosen.names.keys() {
        entries.delete(&key::kept(id, key::kept::NAME, &[&directory.to_be_bytes(), &hash.to_be_bytes()]));
    }
    for (ino, state) in &divided.chosen.inodes {
        let number = ino.to_be_bytes();
        let place = key::kept(id, key::kept::INODE, &[&number]);
        match divided.rest.inodes.get(ino) {
            Some(rest) => entries.put(&place, &kept::encode_inode(rest, rest.shadow.unwrap_or(0))),
            None => entries.delete(&place),
        }
        for (count, _) in (0u32..).zip(kept::encode_pages(&state.data.masked)) {
            entries.delete(&key::kept(id, key::kept::MASK, &[&number, &count.to_be_bytes()]));
        }
        for name in state.xattrs.keys() {
            entries.delete(&key::kept(id, key::kept::XATTR, &[&number, name]));
        }
    }
}

/// Puts a set in the place of the stored one.
fn replace_ranges(
    entries: &mut MutationList,
    read: &dyn Read,
    id: u64,
    what: u8,
    set: &ConflictSet,
) -> Result<()> {
    let values = kept::encode_ranges(set);
    for (count, value) in (0u32..).zip(&values) {
        entries.put(&key::kept(id, what, &[&count.to_be_bytes()]), value);
    }
    let (from, to) = key::kept_range(id, what);
    let mut at = 0;
    read.scan(&from, &to, &mut |key, _| {
        if at >= values.len() {
            entries.delete(key);
        }
        at += 1;
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// What is taken from where it stands in the state that the commit changes: extents, since a cleaner may move and
/// join them, and what was saved of others' changes.
struct Taken {
    /// Numbers under which data of chosen nodes stands.
    shadows: Vec<Ino>,
    /// Nodes that the part commits.
    whole: BTreeSet<Ino>,
    /// Nodes of which it has names only, or names in them.
    shared: Overlay,
}

impl Taken {
    fn of(chosen: &Overlay, both: &BTreeSet<Ino>) -> Taken {
        let mut taken = Taken { shadows: Vec::new(), whole: BTreeSet::new(), shared: Overlay::default() };
        for (&ino, state) in chosen.inodes.iter().filter(|(_, state)| !state.is_created()) {
            taken.shadows.extend(state.shadow);
            if both.contains(&ino) && !choose::has_own_changes(state) {
                taken.shared.inodes.insert(ino, state.clone());
            } else {
                taken.whole.insert(ino);
            }
        }
        taken
    }

    fn take(&self, read: &dyn Read, id: u64, applied: &mut Applied) -> Result<()> {
        let mutations = &mut applied.mutations;
        for &shadow in &self.shadows {
            read.scan(&key::extent(shadow, 0), &key::extents_end(shadow), &mut |key, _| {
                mutations.push(delete(key));
                ControlFlow::Continue(())
            })?;
        }
        let (from, to) = base_range(id);
        let mut problem = None;
        read.scan(&from, &to, &mut |key, value| match self.saved(key, value) {
            Ok(change) => {
                mutations.extend(change);
                ControlFlow::Continue(())
            }
            Err(error) => {
                problem = Some(corrupt(id, error));
                ControlFlow::Break(())
            }
        })?;
        problem.map_or(Ok(()), Err)
    }

    /// What becomes of a value that was saved.
    fn saved(&self, place: &[u8], value: &[u8]) -> Result<Option<Mutation>, crate::records::Malformed> {
        const ODD: &str = "a saved value that does not decode";
        let (_, _, inner) = split_saved_key(place).ok_or(ODD)?;
        let of_node = matches!(
            inner.first(),
            Some(&(key::INODE_TAG | key::EXTENT_TAG | key::SYMLINK_TAG | key::XATTR_TAG))
        );
        let Some(ino) = key::ino_of(inner).filter(|_| of_node) else { return Ok(None) };
        if self.whole.contains(&ino) {
            return Ok(Some(delete(place)));
        }
        let state = self.shared.inodes.get(&ino).filter(|_| inner.first() == Some(&key::INODE_TAG));
        let Some((state, original)) = state.and_then(|state| Some((state, state.original.as_ref()?))) else {
            return Ok(None);
        };
        let Some(saved) = read_saved_value(value).map_err(|_| ODD)? else { return Ok(None) };
        let record = merge(state, original, InodeRecord::decode(saved)?);
        Ok(Some(put(place, saved_value(Some(&record.encode())))))
    }
}
