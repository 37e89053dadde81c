//! An immutable view of all keys at one commit. Taking one costs a reference count; reading through it
//! takes no lock.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::RwLock;

use super::registry::Registration;
use crate::error::Result;
use crate::index::{IndexView, Read};
use crate::named::{Marks, Past};

/// What the sequencer publishes: all keys as of one commit.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The last commit contained.
    pub(crate) sequence: u64,
    /// Its keys and values.
    pub(crate) view: IndexView,
    /// The named snapshots in it, if there are any.
    pub(crate) marks: Option<Arc<Marks>>,
}

/// The latest state. Its lock is a leaf, held for as long as it takes to copy or to replace a pointer: a lock-free cell
/// makes whoever publishes look at every thread that ever read, in the critical section, and took half of the time there.
#[derive(Debug)]
pub(crate) struct Published(RwLock<Arc<State>>);

impl Published {
    pub(crate) fn new(state: State) -> Published {
        Published(RwLock::new(Arc::new(state)))
    }

    pub(crate) fn load(&self) -> Arc<State> {
        self.0.read().clone()
    }

    pub(crate) fn store(&self, state: State) {
        let state = Arc::new(state);
        let before = std::mem::replace(&mut *self.0.write(), state);
        // If nobody else has it, what only it refers to is given back, outside of the lock.
        drop(before);
    }
}

/// A view of the volume as of one commit; it stays as it is whatever others commit, and keeps the space it refers
/// to from being reused.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) state: Arc<State>,
    pub(crate) registration: Arc<Registration>,
    /// Shows the state that a named snapshot has kept.
    pub(crate) past: Option<Arc<Past>>,
}

impl Snapshot {
    /// The last commit contained; of a named snapshot, that of the state through which it is read.
    pub fn sequence(&self) -> u64 {
        self.state.sequence
    }

    /// The number of the named snapshot that it shows, if it shows one.
    pub fn named(&self) -> Option<u64> {
        self.past.as_ref().map(|past| past.id())
    }

    /// Its commit, while file data may be read through it.
    pub(crate) fn reads_at(&self) -> Option<u64> {
        self.registration.reads().then_some(self.state.sequence)
    }

    /// No file data will be read through this snapshot any more, so what only it still refers to can be reused; keys
    /// and values stay readable. Does nothing while there are clones of it.
    pub(crate) fn release_data(&self) {
        if Arc::strong_count(&self.registration) == 1 {
            self.registration.release_data();
        }
    }
}

impl Read for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.past {
            None => self.state.view.get(key),
            Some(past) => past.get(&self.state.view, key),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        match &self.past {
            None => self.state.view.scan(from, to, visit),
            Some(past) => past.scan(&self.state.view, from, to, visit),
        }
    }

    fn scan_back(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        match &self.past {
            None => self.state.view.scan_back(from, to, visit),
            Some(past) => past.scan_back(&self.state.view, from, to, visit),
        }
    }
}
