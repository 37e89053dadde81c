//! Transactions: a snapshot, the changes made on top of it, and the commit.
//!
//! [`overlay`] holds the changes as intents; [`session`], [`names`], [`rename`], [`listing`], [`attributes`], [`data`]
//! and [`holes`] are the operations that make them; [`savepoint`] undoes some; [`revert`] undoes what a commit did;
//! [`spill`] keeps their memory bounded; [`plan`] puts them into the form in which [`apply`] carries them out against
//! the state at the time of the [`commit`], and [`undo_notes`] takes down what undoing that would take; [`doom`] finds
//! out early that it cannot; [`explain`] says what a conflict is about; [`changes`] lists them for people.
//!
//! # Locking
//! One mutex around the session of a transaction: operations of several threads on one transaction take turns. It is
//! not held during a commit, nor while an observer or a visitor of a listing is called.

pub(crate) mod apply;
pub(crate) mod attributes;
pub(crate) mod changes;
pub(crate) mod commit;
pub(crate) mod data;
pub(crate) mod doom;
pub(crate) mod explain;
pub(crate) mod holes;
pub(crate) mod keep;
pub(crate) mod listing;
pub(crate) mod locate;
pub(crate) mod names;
#[cfg(test)]
mod names_tests;
pub(crate) mod overlay;
pub(crate) mod plan;
pub(crate) mod rename;
pub(crate) mod restore;
pub(crate) mod revert;
pub(crate) mod savepoint;
pub(crate) mod session;
pub(crate) mod spill;
pub(crate) mod undo_notes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use txfs_engine::{ClaimKind, Committer, Durability, Snapshot};

use crate::conflict::ConflictReport;
use crate::error::{Error, Result};
use crate::options::{Isolation, Policy, TransactionOptions};
use crate::shared::Shared;
use crate::snapshot::SnapshotView;
use crate::types::{Attributes, Ino, Timestamp};
use changes::Change;
use doom::Claims;
use session::Session;

/// A transaction: a snapshot of the volume, and changes that nobody else sees before the commit.
///
/// All methods take `&self`; operations of several threads are carried out one after the other. Dropped without a
/// commit, it is aborted.
///
/// Two transactions conflict when one has written what the other has read or written: a page of a file, a name in a
/// directory, a group of attributes. The first to commit wins; the other gets [`Error::Conflict`], which says what it
/// was about, at its next operation or at its commit, and from then on nothing but that.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("vol");
/// # txfs::Volume::create(&path)?;
/// # let volume = txfs::Volume::open(&path)?;
/// use txfs::{Durability, Paths, View};
///
/// volume.base().write_file("data", &[0; 8192])?;
/// let (one, two, three) = (volume.begin(), volume.begin(), volume.begin());
/// let ino = volume.base().resolve("data")?;
/// one.write(ino, 0, b"first page")?;
/// two.write(ino, 4096, b"second page")?;
/// three.write(ino, 100, b"first page again")?;
/// one.commit(Durability::Durable)?;
/// two.commit(Durability::Durable)?;
/// let error = three.commit(Durability::Durable).unwrap_err();
/// assert!(error.is_conflict());
/// assert!(error.to_string().contains("data: bytes 0 to 4095"));
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    shared: Arc<Shared>,
    id: u64,
    label: String,
    snapshot_sequence: u64,
    state: Mutex<State>,
}

enum State {
    // Boxed: a session is large, and `State` is moved when the transaction ends.
    Open(Box<Session>),
    /// It cannot commit any more, and all that it held is given up: every operation fails, until it is ended.
    Doomed(Box<ConflictReport>),
    /// Why it ended.
    Ended(&'static str),
}

/// What a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitReceipt {
    /// Place in the order of commits. A transaction that changed nothing gets its snapshot's.
    pub sequence: u64,
}

impl Transaction {
    pub(crate) fn begin(shared: &Arc<Shared>, options: TransactionOptions) -> Transaction {
        Transaction::begin_as(shared, options, None, None)
    }

    /// `age` is the number of the first attempt at the same, if this is not it; `claims` are those of an elder.
    pub(crate) fn begin_as(
        shared: &Arc<Shared>,
        options: TransactionOptions,
        age: Option<u64>,
        claims: Option<Claims>,
    ) -> Transaction {
        let id = shared.next_transaction.fetch_add(1, Ordering::Relaxed);
        let origin = options.origin(id, Timestamp::default());
        let mut claims: Vec<Claims> = claims.into_iter().collect();
        if options.policy.unwrap_or(shared.options.policy) == Policy::Eager {
            let origin = options.origin(id, shared.clock.now());
            let holder = shared.engine.hold(ClaimKind::Eager, id, origin);
            claims.push(Claims { holder: Arc::new(holder), reads: false });
        }
        let recording = options.isolation == Isolation::Serializable;
        let by = Committer { origin, age: Some(age.unwrap_or(id)) };
        let mut session = Session::of_transaction(shared, recording, by, claims);
        session.recorded = options.recorded;
        if options.late_conflicts {
            session.watch = None;
        }
        Transaction::of(shared, id, options.label, session)
    }

    fn of(shared: &Arc<Shared>, id: u64, label: String, session: Session) -> Transaction {
        shared.transactions_open.fetch_add(1, Ordering::Relaxed);
        Transaction {
            shared: shared.clone(),
            id,
            label,
            snapshot_sequence: session.snapshot.sequence(),
            state: Mutex::new(State::Open(Box::new(session))),
        }
    }

    /// Publishes the changes, all or none, and ends the transaction whatever the result. After an error the volume
    /// is as if the transaction had never been; only a failed flush leaves it open what the next opening will find.
    pub fn commit(&self, durability: Durability) -> Result<CommitReceipt> {
        let committed = self.end("committed")?.and_then(|session| session.commit(durability));
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

    /// Drops the changes and ends the transaction. Ending an ended transaction does nothing.
    pub fn abort(&self) {
        // The session is dropped outside of the lock.
        let _ = self.end("aborted");
    }

    /// Its session, or why it was doomed; an error when it has ended before.
    fn end(&self, how: &'static str) -> Result<Result<Box<Session>>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Ended(how)) {
            State::Open(session) => {
                self.shared.transactions_open.fetch_sub(1, Ordering::Relaxed);
                Ok(Ok(session))
            }
            State::Doomed(report) => {
                self.shared.transactions_open.fetch_sub(1, Ordering::Relaxed);
                Ok(Err(Error::Conflict(report)))
            }
            State::Ended(before) => {
                *state = State::Ended(before);
                Err(Error::TransactionEnded(before))
            }
        }
    }

    /// Looks at the session, whether it is doomed or not.
    fn look<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        match &mut *self.state.lock() {
            State::Open(session) => operation(session),
            State::Doomed(report) => Err(Error::Conflict(report.clone())),
            State::Ended(how) => Err(Error::TransactionEnded(how)),
        }
    }

    /// Carries out an operation of a transaction that is not doomed, before it and after it.
    fn run<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        let session = match &mut *state {
            State::Open(session) => session,
            State::Doomed(report) => return Err(Error::Conflict(report.clone())),
            State::Ended(how) => return Err(Error::TransactionEnded(how)),
        };
        let result = session.check_doomed().and_then(|()| {
            let result = operation(session)?;
            session.claim_touched()?;
            Ok(result)
        });
        if let Err(Error::Conflict(report)) = &result {
            let before = std::mem::replace(&mut *state, State::Doomed(report.clone()));
            // What it held is given up outside of the lock.
            drop(state);
            drop(before);
        }
        result
    }

    fn reading<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        self.run(operation)
    }

    fn writing<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let result = self.run(operation);
        if matches!(result, Err(Error::Engine(_))) {
            // The store failed in the midst of an operation: what is there of it must not be committed.
            let _ = self.end("the store failed during one of its operations");
        }
        result
    }

    fn synchronise(&self, _ino: Ino) -> Result<()> {
        // A transaction becomes durable as a whole, when it commits.
        self.run(|_| Ok(()))
    }

    fn reference(&self, ino: Ino) -> Result<Attributes> {
        // The snapshot and the overlay keep the node for as long as the transaction lives. That it was opened is not a
        // read: what is read of it is noted when it is.
        self.run(|session| Ok(session.inode(ino)?.attributes(ino)))
    }

    fn dereference(&self, _ino: Ino) {}

    /// True until commit or abort.
    pub fn is_open(&self) -> bool {
        !matches!(&*self.state.lock(), State::Ended(_))
    }

    /// Why none of its operations works any more, if one of them has failed because of a conflict. All that is left to do
    /// is to abort it, and to try again.
    pub fn conflict(&self) -> Option<ConflictReport> {
        match &*self.state.lock() {
            State::Doomed(report) => Some((**report).clone()),
            _ => None,
        }
    }

    /// Number of this transaction, unique while the volume is open.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The label that it was begun with.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Sequence number of the commit that it sees as the last one.
    pub fn snapshot_sequence(&self) -> u64 {
        self.snapshot_sequence
    }

    /// Unwritten data that the transaction holds in memory, in bytes.
    pub fn buffered_bytes(&self) -> Result<usize> {
        self.look(|session| Ok(session.overlay.buffered_bytes))
    }

    /// Changes everything back that a commit has changed, as far as nothing is in the way; says what is.
    pub(crate) fn revert(&self, sequence: u64) -> Result<ConflictReport> {
        self.writing(|session| session.revert(sequence))
    }

    /// What the transaction has changed so far, sorted by path.
    pub fn changes(&self) -> Result<Vec<Change>> {
        self.look(changes::list)
    }

    /// The volume as the transaction found it, without its own changes.
    pub fn before(&self) -> Result<SnapshotView> {
        let snapshot: Snapshot = self.look(|session| Ok(session.snapshot.clone()))?;
        Ok(SnapshotView::new(&self.shared, snapshot))
    }
}

/// Tells those who want to know what a commit has changed.
pub(crate) fn tell_observers(shared: &Shared, changes: &crate::CommitChanges) {
    if changes.inodes.is_empty() && changes.names.is_empty() {
        return;
    }
    let observers = shared.observers.read().clone();
    for observer in observers {
        observer.committed(changes);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.abort();
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Transaction")
            .field("id", &self.id)
            .field("label", &self.label)
            .field("snapshot_sequence", &self.snapshot_sequence)
            .finish_non_exhaustive()
    }
}

crate::view::implement_view!(Transaction);
