//! The base view: what everybody sees, each operation a small transaction of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use txfs_engine::Durability;

use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::transaction::session::Session;
use crate::types::{Attributes, Ino};

/// The current state of a volume; each operation is a small ordered transaction of its own, repeated when it
/// conflicts with another, so that operations here never fail with `ECANCELED`.
#[derive(Clone)]
pub struct BaseView {
    shared: Arc<Shared>,
    trace: Option<Arc<AtomicU64>>,
}

impl BaseView {
    pub(crate) fn new(shared: &Arc<Shared>) -> BaseView {
        BaseView { shared: shared.clone(), trace: None }
    }

    /// The same view; each of its operations leaves in `trace` the sequence number of the commit that it made, or else
    /// of the last one that it saw. For checking histories.
    #[doc(hidden)]
    pub fn traced(&self, trace: Arc<AtomicU64>) -> BaseView {
        BaseView { trace: Some(trace), ..self.clone() }
    }

    fn trace(&self, sequence: u64) {
        if let Some(trace) = &self.trace {
            trace.store(sequence, Ordering::Release);
        }
    }

    fn reading<T>(&self, operation: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        let snapshot = self.shared.engine.snapshot();
        self.trace(snapshot.sequence());
        operation(&mut Session::read_only(&self.shared, snapshot))
    }

    fn writing<T>(&self, mut operation: impl FnMut(&mut Session) -> Result<T>) -> Result<T> {
        let mut conflicts = 0u32;
        loop {
            let mut session = Session::new(&self.shared);
            self.trace(session.snapshot.sequence());
            let result = operation(&mut session)?;
            match session.commit(Durability::Ordered) {
                Ok(changes) => {
                    self.trace(changes.sequence);
                    return Ok(result);
                }
                Err(Error::Conflict(_)) => {
                    // Somebody else got through, so there is progress; but let the others run.
                    conflicts += 1;
                    if conflicts.is_multiple_of(16) {
                        std::thread::yield_now();
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn synchronise(&self, _ino: Ino) -> Result<()> {
        Ok(self.shared.engine.sync()?)
    }

    fn reference(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.shared.retain(ino)?.attributes(ino))
    }

    fn dereference(&self, ino: Ino) {
        self.shared.release(ino, 1);
    }
}

crate::view::implement_view!(BaseView);
