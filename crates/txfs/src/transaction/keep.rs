//! Keeping a transaction: its changes become durable and stay invisible, under a name.
//!
//! All data goes to the log first. Then one commit writes what there is to know: the intents of each node and name, what
//! the transaction has read and written, the places of its data, and a header. New data of a node that exists stands under
//! an inode number of its own (the *shadow*) until it is committed; that of a node made here under the node's own.
//! None of that is visible, and all of it is entries of the index like any other, so that space, checks and cleaning
//! need to know nothing new.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use txfs_engine::{Applied, Apply, Commit, ConflictSet, Durability, KeptClaim, KeptStep, MutationList};

use super::apply::{NEXT_INO_STEP, load_next_ino, put};
use super::overlay::{InodeState, Overlay};
use super::plan::Plan;
use super::session::Session;
use super::{CommitReceipt, State, Transaction, tell_observers};
use crate::conflict::{ATTRIBUTE_SPACE, EXISTS};
use crate::error::{Error, Result};
use crate::kept::{BASE_TAG, KeptSide, Reserved, Witness, check_base, check_name, load};
use crate::records::kept::{self, Header, Stage};
use crate::records::{key, small};
use crate::shared::Shared;
use crate::types::{NodeKind, Timestamp};

impl Transaction {
    /// Ends the transaction without a commit, and keeps what it has changed, durably and under a name: it can be looked at,
    /// committed and aborted later on, also when the volume has been closed and opened again in between. Nobody sees
    /// it until then. What others change in the meantime of what it has read or written makes its commit fail.
    ///
    /// After an error the transaction goes on as if nothing had happened if it was about the name; otherwise it has ended.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// # let volume = txfs::Volume::open(&path)?;
    /// use txfs::Paths;
    ///
    /// let tx = volume.begin();
    /// tx.write_file("report", b"1")?;
    /// tx.keep("monday")?;
    /// assert!(!volume.base().exists("report")?);
    /// assert_eq!(volume.kept()?[0].name, "monday");
    /// volume.commit_kept("monday")?;
    /// assert!(volume.base().exists("report")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(&self, name: &str) -> Result<()> {
        self.end_kept(name, Stage::Kept)
    }

    /// As [`Transaction::keep`], and validates it as a commit would: if that succeeds, its commit is certain to succeed, whenever
    /// it comes. Until then whatever would change what it has read or written is refused with [`crate::Error::Held`].
    /// This is the first phase of a commit in two phases, together with another system.
    pub fn prepare(&self, name: &str) -> Result<()> {
        self.end_kept(name, Stage::Prepared)
    }

    /// Commits, and if that fails because of a conflict, keeps what it has changed under a name, with the conflict
    /// noted. The error is the conflict then, and [`crate::Volume::kept`] has the name. Only a transaction that was
    /// begun with [`crate::TransactionOptions::late_conflicts`] is sure to have its changes still when it comes to
    /// that.
    pub fn commit_or_keep(&self, durability: Durability, name: &str) -> Result<CommitReceipt> {
        check_name(name)?;
        let reserved = self.shared.kept.reserve(&self.shared, name)?;
        let ended = self.end("committed or kept")?;
        let committed = ended.and_then(|mut session| {
            let (overlay, reads) = session.put_aside()?;
            let result = session.commit_in_place(durability);
            match result {
                Err(error) if error.is_conflict() => {
                    (session.overlay, session.reads) = (overlay, reads);
                    session.keep(reserved, Stage::Kept)?;
                    Err(error)
                }
                other => {
                    session.forget_aside(&overlay);
                    other
                }
            }
        });
        match committed {
            Ok(changes) => {
                tell_observers(&self.shared, &changes);
                Ok(CommitReceipt { sequence: changes.sequence })
            }
            Err(error) => {
                *self.state.lock() = State::Ended("its commit failed");
                Err(error)
            }
        }
    }

    /// See [`crate::Volume::kept_view`].
    pub(crate) fn view_kept(shared: &Arc<Shared>, name: &str, side: KeptSide) -> Result<Transaction> {
        let id = shared.kept.id(name)?;
        let snapshot = match side {
            KeptSide::Theirs => shared.engine.snapshot(),
            KeptSide::Base | KeptSide::Ours => shared.engine.snapshot_with_saved(BASE_TAG, id),
        };
        if side != KeptSide::Theirs {
            check_base(&snapshot, id)?;
        }
        let mut session = Session::read_only(shared, snapshot);
        if side == KeptSide::Ours {
            session.overlay = load::overlay(&session.snapshot, id)?;
        }
        let number = shared.next_transaction.fetch_add(1, Ordering::Relaxed);
        Ok(Transaction::of(shared, number, name.to_owned(), session))
    }

    fn end_kept(&self, name: &str, stage: Stage) -> Result<()> {
        check_name(name)?;
        let reserved = self.shared.kept.reserve(&self.shared, name)?;
        let how = if stage == Stage::Kept { "kept" } else { "prepared" };
        let kept = self.end(how)?.and_then(|session| session.keep(reserved, stage));
        if kept.is_err() {
            *self.state.lock() = State::Ended("it could not be kept");
        }
        kept
    }
}

impl Session {
    /// A copy of what it has changed, all data in the log.
    fn put_aside(&mut self) -> Result<(Overlay, ConflictSet)> {
        self.spill_files(|state| !state.is_created() || state.record.nlink > 0)?;
        self.shared.buffered_bytes.fetch_add(self.overlay.buffered_bytes, Ordering::Relaxed);
        Ok((self.overlay.clone(), self.reads.clone()))
    }

    fn forget_aside(&self, overlay: &Overlay) {
        self.shared.buffered_bytes.fetch_sub(overlay.buffered_bytes, Ordering::Relaxed);
    }

    pub(crate) fn keep(mut self, reserved: Reserved, stage: Stage) -> Result<()> {
        self.check_writable()?;
        self.drop_savepoints(0);
        self.spill_files(|state| !state.is_created() || state.record.nlink > 0)?;
        let overlay = std::mem::take(&mut self.overlay);
        self.shared.buffered_bytes.fetch_sub(overlay.buffered_bytes, Ordering::Relaxed);
        let shared = self.shared.clone();
        let id = reserved.id();
        let by = self.committer();
        let reads = std::mem::take(&mut self.reads);
        let plan = Plan::new(overlay.clone(), reads, &shared.hasher, |_| true, None);
        let (mut reads, mut writes) = (plan.reads, plan.writes);
        if plan.inodes.is_empty() && plan.prepared.is_empty() {
            // What it has read was true at its snapshot, and it does no more.
            (reads, writes) = Default::default();
        }
        claim_removals(&overlay, &mut writes);
        let mut header = Header {
            stage,
            recorded: self.recorded,
            time: Timestamp::new(by.origin.time.0, by.origin.time.1),
            process: by.origin.process,
            snapshot: self.snapshot.sequence(),
            nodes: plan.changes.inodes.len() as u64,
            names: plan.changes.names.len() as u64,
            data_bytes: plan.data_bytes,
            meta_bytes: 0,
            name: reserved.name().to_owned(),
            command: String::new(),
            message: String::new(),
        };
        if let Some(transaction) = by.origin.transaction.as_deref() {
            (header.command, header.message) = (transaction.command.clone(), transaction.label.clone());
        }
        let mut entries = MutationList::new();
        write_ranges(&mut entries, id, key::kept::READS, &reads);
        write_ranges(&mut entries, id, key::kept::WRITES, &writes);
        let next_ino = self.write_overlay(&mut entries, id, &overlay)?;
        header.meta_bytes = entries.as_bytes().len() as u64;
        if stage == Stage::Prepared && header.meta_bytes > shared.engine.segment_bytes() / 2 {
            return Err(Error::NotSupported(
                "preparing a transaction whose metadata take more than half a segment of the log: keep or commit it instead",
            ));
        }
        entries.put_new(&key::kept(id, key::kept::HEADER, &[]), &header.encode());
        let step = KeptStep::keep(KeptClaim {
            id,
            name: Arc::from(reserved.name()),
            prepared: stage == Stage::Prepared,
            reads,
            writes,
            noted: ConflictSet::new(),
            notes: 0,
            witness: Arc::new(Witness::new(id, 0)),
        });
        let apply: Apply<'_> = &|read, _| {
            let mut applied = Applied::default();
            if next_ino > load_next_ino(read)? {
                let next = next_ino.saturating_add(NEXT_INO_STEP);
                applied.mutations.push(put(key::NEXT_INO, small::encode_number(next)));
            }
            Ok(applied)
        };
        let quiet = Commit::quiet(&self.snapshot, Durability::Durable, apply);
        let commit = Commit { prepared: &entries, ..quiet };
        shared.engine.commit_step(commit, by, Some(&step)).map_err(|error| self.explain(error))?;
        reserved.settle();
        Ok(())
    }

    /// Writes down the intents; returns a number above all inode numbers that they use.
    fn write_overlay(&self, entries: &mut MutationList, id: u64, overlay: &Overlay) -> Result<u64> {
        let mut next_ino = id + 1;
        write_names(entries, id, overlay);
        for (&ino, state) in &overlay.inodes {
            if state.is_created() {
                next_ino = next_ino.max(ino + 1);
            }
            let gone = state.is_created() && state.record.nlink == 0;
            if gone || !state.is_changed() || overlay.is_only_touched(ino, state) {
                continue;
            }
            let shadow = match () {
                () if state.data.placed.is_empty() => 0,
                () if state.is_created() => ino,
                () => self.shared.next_ino.fetch_add(1, Ordering::Relaxed),
            };
            next_ino = next_ino.max(shadow + 1);
            write_inode(entries, id, ino, state, shadow);
        }
        Ok(next_ino)
    }
}

/// Writes down the changed names.
pub(crate) fn write_names(entries: &mut MutationList, id: u64, overlay: &Overlay) {
    for (&(directory, hash), state) in &overlay.names {
        if state.current != state.original {
            let rest = [&directory.to_be_bytes()[..], &hash.to_be_bytes()];
            entries.put_new(&key::kept(id, key::kept::NAME, &rest), &kept::encode_name(state));
        }
    }
}

/// Writes down one node's intents, its data under the number `shadow`.
pub(crate) fn write_inode(entries: &mut MutationList, id: u64, ino: u64, state: &InodeState, shadow: u64) {
    let number = ino.to_be_bytes();
    entries.put_new(&key::kept(id, key::kept::INODE, &[&number]), &kept::encode_inode(state, shadow));
    for (first, extent) in &state.data.placed {
        entries.put_new(&key::extent(shadow, *first), &extent.encode());
    }
    for (count, value) in (0u32..).zip(kept::encode_pages(&state.data.masked)) {
        entries.put_new(&key::kept(id, key::kept::MASK, &[&number, &count.to_be_bytes()]), &value);
    }
    for (name, value) in &state.xattrs {
        let value = match value {
            Some(value) => small::encode_bytes(&[&[1], &value[..]].concat()),
            None => small::encode_bytes(&[0]),
        };
        entries.put_new(&key::kept(id, key::kept::XATTR, &[&number, name]), &value);
    }
}

pub(crate) fn write_ranges(entries: &mut MutationList, id: u64, what: u8, set: &ConflictSet) {
    for (count, value) in (0u32..).zip(kept::encode_ranges(set)) {
        entries.put_new(&key::kept(id, what, &[&count.to_be_bytes()]), &value);
    }
}

/// A node of which it takes a name may go with that: whether it does is only known when it is applied. Another prepared
/// transaction that changes the node would then be in the way.
pub(crate) fn claim_removals(overlay: &Overlay, writes: &mut ConflictSet) {
    for (&ino, state) in overlay.inodes.iter().filter(|(_, state)| !state.is_created()) {
        let directory = state.record.kind == NodeKind::Directory;
        if state.record.nlink == 0 || (!directory && state.link_delta < 0) {
            writes.insert_point(ATTRIBUTE_SPACE, ino, EXISTS);
        }
    }
}
