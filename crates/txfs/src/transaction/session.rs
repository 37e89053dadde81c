//! One transaction at work: a snapshot, an overlay, and what must be validated at commit.
//!
//! A session is used by one thread at a time: [`crate::Transaction`] puts a lock around one, the base view makes one
//! for each operation, and a read-only view uses one that refuses changes.
//!
//! Reads come in two kinds. *Structural* reads (a node that is changed must exist, the ancestors of a moved
//! directory, the emptiness of a removed one) are validated always, since the volume's consistency depends on them.
//! The others are validated in serializable transactions only.

use std::sync::Arc;

use txfs_engine::{Committer, ConflictSet, Extent, Origin, Placed, Read, Snapshot};

use super::doom::{Claims, Watch};
use super::overlay::{InodeState, Overlay};
use super::savepoint::Saved;
use crate::conflict::{ATTRIBUTE_SPACE, EXISTS, NAME_SPACE, PAGE_SPACE, PARENT, SIZE, XATTR_SPACE};
use crate::error::{Error, Result};
use crate::records::{InodeRecord, key};
use crate::shared::Shared;
use crate::types::{Attributes, Ino, NodeKind, Statistics, Timestamp};

pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) snapshot: Snapshot,
    /// Who works with it, if it is a transaction.
    pub(crate) origin: Option<Origin>,
    /// How old that transaction is.
    pub(crate) age: Option<u64>,
    /// What it knows of others' commits, if it is a transaction.
    pub(crate) watch: Option<Watch>,
    /// When it was last changed.
    pub(crate) time: Timestamp,
    /// Reads are recorded: the transaction is serializable.
    pub(crate) recording: bool,
    /// Its commit leaves an entry in the volume's history.
    pub(crate) recorded: bool,
    /// Changes are allowed.
    pub(crate) writable: bool,
    pub(crate) reads: ConflictSet,
    pub(crate) overlay: Overlay,
    /// Keeps what was written ahead of the commit from being reused.
    pub(crate) placed: Option<Placed>,
    /// In the order in which they were taken.
    pub(super) savepoints: Vec<Saved>,
    /// How many have been taken.
    pub(super) savepoints_taken: u64,
}

impl Session {
    /// Of a call outside of transactions.
    pub(crate) fn new(shared: &Arc<Shared>) -> Session {
        shared.give_way_if_short();
        shared.engine.make_way();
        Session::on(shared, shared.engine.snapshot(), false, true)
    }

    /// Of a transaction.
    pub(crate) fn of_transaction(
        shared: &Arc<Shared>,
        recording: bool,
        by: Committer,
        claims: Vec<Claims>,
    ) -> Session {
        shared.give_way_if_short();
        shared.engine.make_way();
        let mut session = Session::on(shared, shared.engine.snapshot(), recording, true);
        session.watch = Some(Watch::new(session.snapshot.sequence(), claims));
        (session.origin, session.age) = (Some(by.origin), by.age);
        session
    }

    pub(crate) fn read_only(shared: &Arc<Shared>, snapshot: Snapshot) -> Session {
        Session::on(shared, snapshot, false, false)
    }

    pub(crate) fn on(shared: &Arc<Shared>, snapshot: Snapshot, recording: bool, writable: bool) -> Session {
        Session {
            shared: shared.clone(),
            snapshot,
            origin: None,
            age: None,
            watch: None,
            time: Timestamp::default(),
            recording,
            recorded: false,
            writable,
            reads: ConflictSet::new(),
            overlay: Overlay::default(),
            placed: None,
            savepoints: Vec::new(),
            savepoints_taken: 0,
        }
    }

    /// The time, for a change.
    pub(crate) fn now(&mut self) -> Timestamp {
        self.time = self.shared.clock.now();
        self.time
    }

    /// On whose behalf it commits. The change of a call outside of transactions was made just now.
    pub(crate) fn committer(&self) -> Committer {
        let origin = match &self.origin {
            Some(origin) => {
                let now = self.shared.clock.now();
                Origin { time: (now.seconds, now.nanoseconds), ..origin.clone() }
            }
            None => {
                let time = (self.time.seconds, self.time.nanoseconds);
                Origin { process: crate::origin::caller(), time, transaction: None }
            }
        };
        Committer { origin, age: self.age }
    }

    // What was read.

    /// A read that is validated in serializable transactions.
    fn note(&mut self, space: u8, object: u64, first: u64, last: u64) {
        if self.recording {
            self.note_structural(space, object, first, last);
        }
    }

    pub(crate) fn note_attributes(&mut self, ino: Ino) {
        self.note(ATTRIBUTE_SPACE, ino, EXISTS, SIZE);
    }

    pub(crate) fn note_exists(&mut self, ino: Ino) {
        self.note(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS);
    }

    pub(crate) fn note_parent(&mut self, ino: Ino) {
        self.note(ATTRIBUTE_SPACE, ino, PARENT, PARENT);
    }

    pub(crate) fn note_name(&mut self, directory: Ino, hash: u64) {
        self.note(NAME_SPACE, directory, hash, hash);
    }

    pub(crate) fn note_names(&mut self, directory: Ino, first: u64, last: u64) {
        self.note(NAME_SPACE, directory, first, last);
    }

    pub(crate) fn note_pages(&mut self, ino: Ino, first: u64, last: u64) {
        self.note(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS);
        self.note(PAGE_SPACE, ino, first, last);
    }

    pub(crate) fn note_xattrs(&mut self, ino: Ino, first: u64, last: u64) {
        self.note(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS);
        self.note(XATTR_SPACE, ino, first, last);
    }

    /// A read that is validated whatever the isolation.
    pub(crate) fn note_structural(&mut self, space: u8, object: u64, first: u64, last: u64) {
        if !self.overlay.is_created(object) {
            self.reads.insert(space, object, first, last);
            self.touch(space, object, first, last, false);
        }
    }

    // Inodes.

    /// The inode as the transaction sees it.
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeRecord> {
        match self.overlay.inodes.get(&ino) {
            Some(state) => Ok(state.record.clone()),
            None => load_inode(&self.snapshot, ino)?.ok_or(Error::Stale { ino }),
        }
    }

    /// The inode, to be changed.
    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Result<&mut InodeState> {
        use std::collections::btree_map::Entry;
        self.check_writable()?;
        if self.watch.is_some() && !self.overlay.inodes.contains_key(&ino) {
            // It must be there at the commit, too.
            self.touch(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS, false);
        }
        match self.overlay.inodes.entry(ino) {
            Entry::Occupied(occupied) => Ok(occupied.into_mut()),
            Entry::Vacant(vacant) => {
                let record = load_inode(&self.snapshot, ino)?.ok_or(Error::Stale { ino })?;
                Ok(vacant.insert(InodeState::existing(record)))
            }
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.writable { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// The inode, if it is a directory.
    pub(crate) fn directory(&self, ino: Ino) -> Result<InodeRecord> {
        let record = self.inode(ino)?;
        match record.kind {
            NodeKind::Directory => Ok(record),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(crate) fn attributes(&mut self, ino: Ino) -> Result<Attributes> {
        self.note_attributes(ino);
        Ok(self.inode(ino)?.attributes(ino))
    }

    pub(crate) fn statistics(&mut self) -> Result<Statistics> {
        self.shared.statistics()
    }
}

/// Reads and decodes an inode.
pub(crate) fn load_inode(read: &dyn Read, ino: Ino) -> Result<Option<InodeRecord>> {
    match read.get(&key::inode(ino))? {
        None => Ok(None),
        Some(bytes) => InodeRecord::decode(&bytes)
            .map(Some)
            .map_err(|detail| Error::Corrupt { what: format!("inode {ino}: {detail}") }),
    }
}

/// The most pages that one extent covers.
const EXTENT_PAGES_MAX: u64 = (txfs_engine::CHUNK_BYTES_MAX as u64) / crate::types::PAGE_BYTES;

/// The extents of `ino` that cover pages from `first` to `last`, with their first pages, ascending.
pub(crate) fn load_extents(read: &dyn Read, ino: Ino, first: u64, last: u64) -> Result<Vec<(u64, Extent)>> {
    let mut found = Vec::new();
    visit_extents(read, ino, first, last, &mut |start, extent| {
        found.push((start, extent));
        true
    })?;
    Ok(found)
}

/// Visits the extents of `ino` that cover pages from `first` to `last`, ascending, while `visit` returns true.
pub(crate) fn visit_extents(
    read: &dyn Read,
    ino: Ino,
    first: u64,
    last: u64,
    visit: &mut dyn FnMut(u64, Extent) -> bool,
) -> Result<()> {
    use std::ops::ControlFlow;
    let mut problem = None;
    let mut left = None;
    // A page that is written over and over has an extent of its own, and finding that takes no scan.
    let only = key::extent(ino, first);
    if first == last
        && let Some(value) = read.get(&only)?
    {
        let (start, extent) = decode_extent(ino, &only, &value)?;
        visit(start, extent);
        return Ok(());
    }
    // The extent that holds the first page starts at that page or up to 63 pages before it. In the common case of an
    // overwrite it is the only one, and this is the only look-up.
    let from = key::extent(ino, first.saturating_sub(EXTENT_PAGES_MAX - 1));
    let to = match first.checked_add(1) {
        Some(next) => key::extent(ino, next).to_vec(),
        None => key::extents_end(ino),
    };
    read.scan_back(&from, &to, &mut |key, value| {
        match decode_extent(ino, key, value) {
            Ok((start, extent)) if start + u64::from(extent.pages()) > first => left = Some((start, extent)),
            Ok(_) => {}
            Err(error) => problem = Some(error),
        }
        ControlFlow::Break(())
    })?;
    if let Some(error) = problem {
        return Err(error);
    }
    if let Some((start, extent)) = left {
        let behind = start + u64::from(extent.pages());
        if !visit(start, extent) || behind > last {
            return Ok(());
        }
    }
    if first >= last {
        return Ok(());
    }
    let end = match last.checked_add(1) {
        Some(next) => key::extent(ino, next).to_vec(),
        None => key::extents_end(ino),
    };
    read.scan(&to, &end, &mut |key, value| match decode_extent(ino, key, value) {
        Ok((start, extent)) => match visit(start, extent) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        },
        Err(error) => {
            problem = Some(error);
            ControlFlow::Break(())
        }
    })?;
    problem.map_or(Ok(()), Err)
}

pub(crate) fn decode_extent(ino: Ino, key: &[u8], value: &[u8]) -> Result<(u64, Extent)> {
    let corrupt = |detail: String| Error::Corrupt { what: format!("extent of inode {ino}: {detail}") };
    let start = key::second_of(key).ok_or_else(|| corrupt("its key has the wrong length".into()))?;
    let extent = Extent::decode(value).map_err(|error| corrupt(format!("at page {start}: {error}")))?;
    if start > PAGE_MAX {
        return Err(corrupt(format!("impossible first page {start}")));
    }
    Ok((start, extent))
}

/// No file reaches beyond this page.
pub(crate) const PAGE_MAX: u64 = (i64::MAX as u64) / crate::types::PAGE_BYTES;
