//! Who wants to know what a transaction's commit changed: a mount, to invalidate the kernel's caches.

use crate::types::Ino;

/// What one commit changed, as far as somebody who caches has to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitChanges {
    /// Sequence number of the commit.
    pub sequence: u64,
    /// Nodes whose attributes (size, times, link count, mode, extended attributes) changed, ascending.
    pub inodes: Vec<Ino>,
    /// Names that appeared, went or changed their meaning: directory and name, ascending.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Data that changed: node, first byte, number of bytes (`u64::MAX`: to the end), ascending.
    pub data: Vec<(Ino, u64, u64)>,
}

/// Is told of every successful commit of a [`Transaction`](crate::Transaction) (operations of the base view are
/// not reported: they come through the cache that would be invalidated).
///
/// Called on the committing thread after the commit is visible, with no lock of the volume held.
pub trait CommitObserver: Send + Sync {
    /// A commit has become visible.
    fn committed(&self, changes: &CommitChanges);
}
