//! A read-only view of one moment: of one that somebody holds on to, or of one that has a name.

use std::sync::Arc;

use txfs_engine::Snapshot;

use crate::error::Result;
use crate::named::Reading;
use crate::shared::Shared;
use crate::transaction::session::Session;
use crate::types::{Attributes, Ino};

/// The volume as it was at one moment, whatever has been committed since; changes fail with `EROFS`. The space that
/// it refers to is not reused while it exists.
#[derive(Clone)]
pub struct SnapshotView {
    shared: Arc<Shared>,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Moment(Snapshot),
    Named(Arc<Reading>),
}

impl SnapshotView {
    pub(crate) fn new(shared: &Arc<Shared>, snapshot: Snapshot) -> SnapshotView {
        SnapshotView { shared: shared.clone(), source: Source::Moment(snapshot) }
    }

    pub(crate) fn of_named(shared: &Arc<Shared>, reading: Reading) -> SnapshotView {
        SnapshotView { shared: shared.clone(), source: Source::Named(Arc::new(reading)) }
    }

    /// Sequence number of the last commit that it contains.
    pub fn sequence(&self) -> u64 {
        match &self.source {
            Source::Moment(snapshot) => snapshot.sequence(),
            Source::Named(reading) => reading.sequence(),
        }
    }

    /// A session that reads it.
    pub(crate) fn session(&self) -> Result<Session> {
        let snapshot = match &self.source {
            Source::Moment(snapshot) => snapshot.clone(),
            Source::Named(reading) => reading.state()?,
        };
        Ok(Session::read_only(&self.shared, snapshot))
    }

    fn reading<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        operation(&mut self.session()?)
    }

    fn writing<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        self.reading(operation)
    }

    fn synchronise(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    fn reference(&self, ino: Ino) -> Result<Attributes> {
        self.reading(|session| session.attributes(ino))
    }

    fn dereference(&self, _ino: Ino) {}
}

crate::view::implement_view!(SnapshotView);
