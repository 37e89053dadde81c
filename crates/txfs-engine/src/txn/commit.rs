//! What a caller hands to [`crate::Engine::commit`], and what it gets back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::conflict::ConflictSet;
use super::history::CommitNote;
use super::kept::KeptStep;
use super::origin::Committer;
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::format::{Extent, Mutation, MutationList};
use crate::index::Read;

/// When a commit is on stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before the commit returns.
    #[default]
    Durable,
    /// With the next durable commit or sync, and in commit order; it reaches the host file within milliseconds.
    Ordered,
    /// As `Ordered`, but it may also be held in memory for up to a second.
    Deferred,
}

/// Up to [`crate::CHUNK_BYTES_MAX`] bytes of file data: whole pages, of which the last may be short. Never empty.
///
/// With it may go the key under which its extent is to stand: data that is written ahead of its commit carries that
/// key in the log, so that the cleaner finds who refers to it. It is a hint; without it, or where it is wrong, the
/// cleaner has to search for longer.
#[derive(Clone, Debug)]
pub struct Chunk(pub Arc<[u8]>, pub Option<ExtentKey>);

/// As [`Chunk`], in memory of the caller's.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a>(pub &'a [u8], pub Option<ExtentKey>);

impl<'a> From<&'a Chunk> for Piece<'a> {
    fn from(chunk: &'a Chunk) -> Piece<'a> {
        Piece(&chunk.0, chunk.1)
    }
}

/// An extent's key where extents belong to numbered objects, at numbered pages: [`crate::EXTENT_KEY_TAG`], the object
/// and the first page, 8 bytes each, big-endian.
pub type ExtentKey = [u8; 17];

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Chunk {
        Chunk(bytes.into(), None)
    }
}

/// What an apply function decided.
#[derive(Debug, Default)]
pub struct Applied {
    /// Changes of the index; each key at most once.
    pub mutations: Vec<Mutation>,
    /// Ranges that turned out to be written only now: they doom others, and are not validated.
    pub also_writes: ConflictSet,
    /// Values under keys that end with the commit's number, which nobody knows before: the keys without it. It is added as 8
    /// bytes, big-endian.
    pub numbered: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Applied {
    /// Makes mutations of what waited for the commit's number.
    pub(crate) fn number(&mut self, sequence: u64) {
        self.mutations.extend(self.numbered.drain(..).map(|(mut key, value)| {
            key.extend_from_slice(&sequence.to_be_bytes());
            Mutation::Put { key, value }
        }));
    }
}

/// Turns the current state, and the places where the commit's data went, into mutations. It must be a pure function:
/// it may be called twice, and it runs inside the sequencing critical section, so it must be quick.
pub type Apply<'a> = &'a dyn Fn(&dyn Read, &[Extent]) -> Result<Applied>;

/// A transaction that wants to commit.
pub struct Commit<'a> {
    /// What it read from. A commit that has to make room first gives up the data that only this snapshot still refers
    /// to, unless there are clones of it: otherwise it would itself hold the space that it needs. So once the commit
    /// has begun, keys and values may be read through it, and file data through a clone.
    pub snapshot: &'a Snapshot,
    /// Ranges that must not have been written since the snapshot.
    pub reads: &'a ConflictSet,
    /// Ranges that must not have been written since the snapshot, and that others must not have read.
    pub writes: &'a ConflictSet,
    /// New file data, in the order in which `apply` gets its places.
    pub data: Vec<Chunk>,
    /// Mutations that are the same whatever the state; they come before those of `apply`, and concern other keys. Where
    /// there are many, nearly all of the work with them is done outside of the critical section.
    pub prepared: &'a MutationList,
    /// When it must be on stable storage.
    pub durability: Durability,
    /// Computes the mutations.
    pub apply: Apply<'a>,
}

static NO_RANGES: ConflictSet = ConflictSet::new();
static NO_MUTATIONS: MutationList = MutationList::new();

impl<'a> Commit<'a> {
    /// One without data that conflicts with nobody, whatever it changes: for what the volume does for itself.
    pub fn quiet(snapshot: &'a Snapshot, durability: Durability, apply: Apply<'a>) -> Commit<'a> {
        let (reads, writes, prepared) = (&NO_RANGES, &NO_RANGES, &NO_MUTATIONS);
        Commit { snapshot, reads, writes, data: Vec::new(), prepared, durability, apply }
    }
}

/// A commit on its way, with what others need to know about it.
pub(crate) struct Candidate<'a> {
    pub(crate) commit: &'a Commit<'a>,
    /// What it writes and who it is; none for a commit that writes no range.
    pub(crate) note: Option<Arc<CommitNote>>,
    /// See [`Committer::age`].
    pub(crate) age: Option<u64>,
    /// It changes places only: named snapshots show the same without what was before, and it is in nobody's way.
    pub(crate) moves: bool,
    /// What it does with a kept transaction.
    pub(crate) step: Option<&'a KeptStep>,
}

impl<'a> Candidate<'a> {
    /// Of a commit that changes the places of extents only, and conflicts with nobody.
    pub(crate) fn of_move(commit: &'a Commit<'a>) -> Candidate<'a> {
        Candidate { commit, note: None, age: None, moves: true, step: None }
    }

    pub(crate) fn new(commit: &'a Commit<'a>, by: Committer, step: Option<&'a KeptStep>) -> Candidate<'a> {
        let ranges: Vec<_> = commit.writes.iter().collect();
        let note = || Arc::new(CommitNote { ranges, origin: by.origin });
        let note = (!commit.writes.is_empty()).then(note);
        Candidate { commit, age: by.age, note, moves: false, step }
    }
}

/// Proof of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The commit's place in the order of all commits.
    pub sequence: u64,
}

/// Keeps a segment from being recycled while data in it is not yet referred to by a commit.
#[derive(Debug)]
pub(crate) struct Pin(Arc<AtomicU64>);

impl Pin {
    pub(crate) fn new(count: &Arc<AtomicU64>) -> Pin {
        count.fetch_add(1, Ordering::AcqRel);
        Pin(count.clone())
    }

    fn is_same(&self, other: &Pin) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Data that was written to the log ahead of its commit ("stealing", exF2FS §4). Its segments stay until this is
/// dropped: keep it until the commit that refers to it has returned, or until the transaction is given up.
#[derive(Debug, Default)]
pub struct Placed {
    pub(crate) extents: Vec<Extent>,
    pub(crate) pins: Vec<Pin>,
}

impl Placed {
    /// Where the chunks went, in their order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Takes that list; from then on this only keeps the segments.
    pub fn take_extents(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.extents)
    }

    /// Keeps what `other` keeps as well.
    pub fn join(&mut self, other: Placed) {
        self.extents.extend(other.extents);
        for pin in other.pins {
            // Data is placed in log order: one pin a segment will do.
            if !self.pins.last().is_some_and(|last| last.is_same(&pin)) {
                self.pins.push(pin);
            }
        }
    }
}
