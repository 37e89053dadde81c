//! An immutable view of all keys at one commit. Taking one costs a reference count; readers never lock.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::registry::Registration;
use crate::error::Result;
use crate::index::{IndexView, Read};

/// What the sequencer publishes: all keys as of one commit.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The last commit contained.
    pub(crate) sequence: u64,
    /// Its keys and values.
    pub(crate) view: IndexView,
}

/// A view of the volume as of one commit; it stays as it is whatever others commit, and keeps the space it refers
/// to from being reused.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) state: Arc<State>,
    pub(crate) registration: Arc<Registration>,
}

impl Snapshot {
    /// The last commit contained.
    pub fn sequence(&self) -> u64 {
        self.state.sequence
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
        self.state.view.get(key)
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.state.view.scan(from, to, visit)
    }

    fn scan_back(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.state.view.scan_back(from, to, visit)
    }
}
