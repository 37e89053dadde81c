//! A read-only view of one moment.

use std::sync::Arc;

use txfs_engine::Snapshot;

use crate::error::Result;
use crate::shared::Shared;
use crate::transaction::session::Session;
use crate::types::{Attributes, Ino};

/// The volume as it was at one moment, whatever has been committed since; changes fail with `EROFS`. The space that
/// it refers to is not reused while it exists.
#[derive(Clone)]
pub struct SnapshotView {
    shared: Arc<Shared>,
    snapshot: Snapshot,
}

impl SnapshotView {
    pub(crate) fn new(shared: &Arc<Shared>, snapshot: Snapshot) -> SnapshotView {
        SnapshotView { shared: shared.clone(), snapshot }
    }

    /// Sequence number of the last commit that it contains.
    pub fn sequence(&self) -> u64 {
        self.snapshot.sequence()
    }

    fn reading<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        operation(&mut Session::read_only(&self.shared, self.snapshot.clone()))
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
