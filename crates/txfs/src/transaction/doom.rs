//! Doom: a transaction that cannot commit any more finds that out at its next operation, and not only at its end.
//!
//! Before each operation a transaction looks at the number of the last commit: one atomic load, and as long as nobody
//! else has committed there is nothing more to do. The ranges that newer commits wrote are compared with what the
//! transaction has read and with what it would write if it ended now, which is what the engine will compare at its
//! commit. What an operation touches *after* others have committed is compared with those commits before the next one.
//!
//! A transaction that has changed nothing is never doomed: what it has read was true at its snapshot. Nor is one whose
//! changes have cancelled each other out; should it change something else, everything is looked at once more.
//!
//! The same list of what an operation has touched is what eager transactions and elders claim
//! ([`txfs_engine::ClaimHolder`]).

use std::sync::Arc;

use txfs_engine::{
    CommitNote, ConflictRange, ConflictReport as EngineReport, ConflictSet, EngineError, Opponent,
};

use super::overlay::{InodeState, Overlay};
use super::session::Session;
use crate::conflict::{
    ATTRIBUTE_SPACE, EXISTS, NAME_SPACE, PAGE_SPACE, PARENT, PERMISSIONS, SIZE, XATTR_SPACE,
};
use crate::error::{Error, Result};
use crate::records::NameHasher;
use crate::types::{Ino, NodeKind, PAGE_BYTES};

/// What a transaction knows of the commits after its snapshot.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The last commit with which everything has been compared, but for what is in `fresh`; its snapshot at first.
    looked: u64,
    /// What was touched since, and whether it was written; only kept where commits up to `looked` may have written it,
    /// or where it is to be claimed.
    fresh: Vec<(ConflictRange, bool)>,
    /// What claims the transaction makes.
    claims: Vec<Claims>,
    /// Room for what is looked at.
    notes: Vec<(u64, Arc<CommitNote>)>,
}

/// What a transaction claims while it works.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) holder: Arc<txfs_engine::ClaimHolder>,
    /// What it reads as well.
    pub(crate) reads: bool,
}

impl Watch {
    pub(crate) fn new(snapshot: u64, claims: Vec<Claims>) -> Watch {
        Watch { looked: snapshot, claims, ..Watch::default() }
    }
}

impl Session {
    /// Notes that the present operation has read or written something. Nodes made here are nobody else's.
    pub(super) fn touch(&mut self, space: u8, object: u64, first: u64, last: u64, written: bool) {
        let Some(watch) = &mut self.watch else { return };
        if watch.looked == self.snapshot.sequence() && watch.claims.is_empty() {
            return;
        }
        if first <= last && !self.overlay.is_created(object) {
            watch.fresh.push((ConflictRange { space, object, first, last }, written));
        }
    }

    /// Fails when the transaction could not commit any more. Called before each operation.
    pub(crate) fn check_doomed(&mut self) -> Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let published = self.shared.engine.published();
        if published == watch.looked && watch.fresh.is_empty() {
            return Ok(());
        }
        self.compare(published, true)
    }

    /// What has been written is another: everything is to be compared once more.
    pub(super) fn look_again(&mut self) {
        let snapshot = self.snapshot.sequence();
        if let Some(watch) = &mut self.watch {
            watch.looked = snapshot;
        }
    }

    /// As `check_doomed`, between the pieces of a long operation. What such a one has touched is not all in the overlay yet,
    /// so nothing counts as looked at.
    pub(super) fn check_midway(&mut self) -> Result<()> {
        match &self.watch {
            Some(watch) if watch.looked != self.shared.engine.published() => {
                self.compare(self.shared.engine.published(), false)
            }
            _ => Ok(()),
        }
    }

    fn compare(&mut self, published: u64, settle: bool) -> Result<()> {
        let snapshot = self.snapshot.sequence();
        let Some(mut watch) = self.watch.take() else { return Ok(()) };
        if self.overlay.is_empty() {
            // It has only read. Once it has changed something, everything since the snapshot is looked at.
            if settle {
                watch.fresh.clear();
            }
            self.watch = Some(watch);
            return Ok(());
        }
        let mut report = EngineReport::default();
        if watch.looked > snapshot && !watch.fresh.is_empty() {
            let mut overtaken = EngineReport::default();
            for written in [true, false] {
                let ranges =
                    watch.fresh.iter().filter(|(_, wrote)| *wrote == written).map(|(range, _)| *range);
                self.shared.engine.overtaken(ranges, written, snapshot, &mut overtaken);
            }
            for clash in overtaken.clashes {
                self.meet(&clash.range, |range, written| report.add(range, written, &clash.with));
            }
        }
        if published > watch.looked {
            self.shared.engine.written_since(watch.looked, &mut watch.notes);
            for (sequence, note) in watch.notes.drain(..) {
                let with = Opponent::Commit { sequence, origin: note.origin.clone() };
                for range in &note.ranges {
                    self.meet(range, |range, written| report.add(range, written, &with));
                }
            }
        }
        let changes_nothing = !report.is_empty() && !self.overlay.changes_something();
        if settle {
            watch.fresh.clear();
            watch.looked = if changes_nothing { snapshot } else { published };
        }
        self.watch = Some(watch);
        match report.is_empty() || changes_nothing {
            true => Ok(()),
            false => Err(self.doom(&report)),
        }
    }

    fn doom(&self, report: &EngineReport) -> Error {
        self.shared.engine.count_conflict();
        Error::Conflict(Box::new(self.explain_all(report)))
    }

    /// Visits the parts of a range that the session has written, or else read.
    fn meet(&self, range: &ConflictRange, mut visit: impl FnMut(ConflictRange, bool)) {
        let written = self.overlay.would_write(range, &self.shared.hasher);
        for part in written.iter() {
            visit(part, true);
        }
        for part in self.reads.overlapping(range) {
            if !written.contains(part.space, part.object, part.first) {
                visit(part, false);
            }
        }
        if range.space == ATTRIBUTE_SPACE
            && range.first == EXISTS
            && self.overlay.needs_existence(range.object)
            && !self.reads.contains(ATTRIBUTE_SPACE, range.object, EXISTS)
        {
            visit(ConflictRange { last: EXISTS, ..*range }, false);
        }
    }

    /// Claims what the operation that has just ended touched, where the transaction claims anything. An operation that
    /// fails here has failed as a whole: the transaction cannot go on.
    pub(crate) fn claim_touched(&mut self) -> Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        if watch.claims.is_empty() || watch.fresh.is_empty() {
            return Ok(());
        }
        let mut refused = None;
        for claims in &watch.claims {
            let wanted = watch.fresh.iter().filter(|(_, written)| *written || claims.reads);
            match claims.holder.claim(wanted.map(|(range, _)| *range)) {
                Ok(()) => {}
                Err(EngineError::Conflict(report)) => refused = Some(report),
                Err(error) => return Err(error.into()),
            }
        }
        if watch.looked == self.snapshot.sequence() {
            // Whoever commits from here on is compared with everything.
            watch.fresh.clear();
        }
        match refused {
            Some(report) => Err(self.doom(&report)),
            None => Ok(()),
        }
    }
}

impl Overlay {
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.names.is_empty()
    }

    pub(crate) fn is_created(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(InodeState::is_created)
    }

    /// True when a commit would have something to do; as [`super::plan::Plan`] sees it.
    fn changes_something(&self) -> bool {
        self.names.values().any(|state| state.current != state.original)
            || self.inodes.iter().any(|(&ino, state)| match state.is_created() {
                true => state.record.nlink > 0,
                false => state.is_changed() && !self.is_only_touched(ino, state),
            })
    }

    /// A directory in which names came and went, and are as they were.
    pub(super) fn is_only_touched(&self, ino: Ino, state: &InodeState) -> bool {
        state.record.kind == NodeKind::Directory
            && state.is_only_touched()
            && !self.names.range((ino, 0)..=(ino, u64::MAX)).any(|(_, state)| state.current != state.original)
    }

    /// Whoever changes a node relies on its being there.
    fn needs_existence(&self, ino: Ino) -> bool {
        let state = self.inodes.get(&ino).filter(|state| !state.is_created() && state.is_changed());
        state.is_some_and(|state| !self.is_only_touched(ino, state))
    }

    /// The parts of a range that a commit would write; as [`super::plan::Plan`] sees it.
    fn would_write(&self, range: &ConflictRange, hasher: &NameHasher) -> ConflictSet {
        let ConflictRange { space, object, first, last } = *range;
        let mut met = ConflictSet::new();
        let mut add = |from: u64, to: u64| met.insert(space, object, from.max(first), to.min(last));
        if space == NAME_SPACE {
            if !self.is_created(object) {
                let names = self.names.range((object, first)..=(object, last));
                for ((_, hash), _) in names.filter(|(_, state)| state.current != state.original) {
                    add(*hash, *hash);
                }
            }
            return met;
        }
        let state = self.inodes.get(&object).filter(|state| !state.is_created() && state.is_changed());
        let Some(state) = state else { return met };
        match space {
            PAGE_SPACE => {
                state.data.pages.range(first..=last).for_each(|(&page, _)| add(page, page));
                let from = state.data.placed.range(..=first).next_back().map_or(first, |(&start, _)| start);
                for (&start, extent) in state.data.placed.range(from..=last) {
                    add(start, start + u64::from(extent.pages()) - 1);
                }
                state.data.masked.iter().for_each(|(from, to)| add(from, to));
                if let Some(cut) = state.cut {
                    add(cut / PAGE_BYTES, u64::MAX);
                } else if state.original.as_ref().is_some_and(|original| state.record.size > original.size) {
                    let end = (state.record.size - 1) / PAGE_BYTES;
                    add(end, end);
                }
            }
            ATTRIBUTE_SPACE => {
                let is_directory = state.record.kind == NodeKind::Directory;
                let groups = [
                    (state.permissions, PERMISSIONS),
                    (state.cut.is_some(), SIZE),
                    (state.moved && is_directory, PARENT),
                ];
                groups.iter().filter(|(changed, _)| *changed).for_each(|(_, group)| add(*group, *group));
            }
            XATTR_SPACE => {
                for hash in state.xattrs.keys().map(|name| hasher.hash(name)) {
                    add(hash, hash);
                }
            }
            _ => {}
        }
        met
    }
}
