//! The views of a mount: the base view, and one for each open transaction.
//!
//! A transaction's view is a directory under `.txfs/tx`, named by the transaction's number and a random word, so that
//! only who is told the name gets in; the directory is not listed. When the transaction ends, its view answers ESTALE,
//! and its number is used again only after the kernel has forgotten the last of its nodes, so that an old node id
//! never means something new.
//! A named snapshot has a directory in `.txfs/snapshots`, which is not listed either. Its view is opened when it is looked up,
//! and closed when the kernel has forgotten all of it.
//! Locks: `Views::open` is a leaf; under `TransactionView::held` only the node table's are taken.

use crate::errno::Errno;
use crate::forgotten::Forgotten;
use crate::groups::Key;
use crate::nodes::{BASE_VIEW, MOUNT_VIEW, NodeId, NodeTable, ViewIndex};
use crate::sharing::Sharing;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use txfs::{BaseView, Ino, SnapshotView, Transaction, View, Volume};

/// Who began a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Beginner {
    pub pid: u32,
    pub uid: u32,
    pub command: String,
}

/// One view: what the nodes with its number stand for.
pub(crate) struct MountView {
    pub index: ViewIndex,
    pub nodes: NodeTable,
    pub kind: ViewKind,
    ended: AtomicBool,
}

pub(crate) enum ViewKind {
    Base(BaseView),
    // Boxed: the others are small.
    Transaction(Box<TransactionView>),
    /// A named snapshot: the whole mount, or a directory in `.txfs/snapshots`.
    Snapshot(SnapshotView),
}

pub(crate) struct TransactionView {
    pub transaction: Transaction,
    /// Its directory in `.txfs/tx`.
    pub name: Vec<u8>,
    pub beginner: Beginner,
    pub began: Instant,
    /// Bytes written through the view.
    pub written_bytes: AtomicU64,
    /// Who takes part.
    pub sharing: Sharing,
    /// The file group whose transaction it is.
    pub group: Option<Key>,
    /// Nodes without a name, each kept in the base view by one reference for as long as the kernel knows it here.
    held: Mutex<HashSet<Ino>>,
}

impl TransactionView {
    /// Whether a user may take part, and open files in the view without its name.
    pub(crate) fn is_open_to(&self, uid: u32) -> bool {
        uid == 0 || uid == self.beginner.uid
    }
}

impl MountView {
    fn new(index: ViewIndex, kind: ViewKind) -> Arc<MountView> {
        Arc::new(MountView { index, nodes: NodeTable::new(), kind, ended: AtomicBool::new(false) })
    }

    /// The operations; ESTALE when the transaction is over.
    pub(crate) fn view(&self) -> Result<&dyn View, Errno> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Errno::STALE);
        }
        Ok(self.view_unchecked())
    }

    fn view_unchecked(&self) -> &dyn View {
        match &self.kind {
            ViewKind::Base(base) => base,
            ViewKind::Transaction(transaction) => &transaction.transaction,
            ViewKind::Snapshot(snapshot) => snapshot,
        }
    }

    pub(crate) fn is_base(&self) -> bool {
        matches!(self.kind, ViewKind::Base(_))
    }

    pub(crate) fn transaction(&self) -> Option<&TransactionView> {
        match &self.kind {
            ViewKind::Base(_) | ViewKind::Snapshot(_) => None,
            ViewKind::Transaction(transaction) => Some(transaction),
        }
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<NodeId, Errno> {
        NodeId::new(self.index, ino).ok_or(Errno::OVERFLOW)
    }
}

/// All views of one mount.
pub(crate) struct Views {
    volume: Volume,
    base: Arc<MountView>,
    forgotten: Arc<Forgotten>,
    open: RwLock<Registry>,
    random: RandomState,
}

#[derive(Default)]
struct Registry {
    by_index: HashMap<ViewIndex, Arc<MountView>>,
    by_name: HashMap<Vec<u8>, ViewIndex>,
    /// Views of open transactions by their numbers.
    by_transaction: HashMap<u64, ViewIndex>,
    /// Views of named snapshots, as long as the kernel knows anything of them.
    snapshots: HashMap<Vec<u8>, ViewIndex>,
    last_index: ViewIndex,
}

impl Views {
    /// `shown` takes the place of the volume's present state.
    pub(crate) fn new(volume: Volume, shown: Option<SnapshotView>) -> Views {
        let kind = shown.map_or_else(|| ViewKind::Base(volume.base()), ViewKind::Snapshot);
        let base = MountView::new(BASE_VIEW, kind);
        Views { volume, base, forgotten: Arc::default(), open: RwLock::default(), random: RandomState::new() }
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(crate) fn base(&self) -> &Arc<MountView> {
        &self.base
    }

    /// The view of a node id; ESTALE for one that is no more.
    pub(crate) fn of(&self, node: NodeId) -> Result<Arc<MountView>, Errno> {
        if node.view() == BASE_VIEW {
            return Ok(self.base.clone());
        }
        self.open.read().by_index.get(&node.view()).cloned().ok_or(Errno::STALE)
    }

    /// The view of a directory's name in `.txfs/tx`.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Arc<MountView>> {
        let open = self.open.read();
        open.by_index.get(open.by_name.get(name)?).cloned()
    }

    /// The view of an open transaction, by its number.
    pub(crate) fn of_transaction(&self, number: u64) -> Option<Arc<MountView>> {
        let open = self.open.read();
        open.by_index.get(open.by_transaction.get(&number)?).cloned()
    }

    /// The view of a named snapshot; it is opened where nobody has it open.
    pub(crate) fn snapshot(&self, name: &[u8]) -> Result<Arc<MountView>, Errno> {
        if let Some(view) = self.known_snapshot(name) {
            return Ok(view);
        }
        let text = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let snapshot = self.volume.open_snapshot(text)?;
        let mut open = self.open.write();
        // Another one may have been faster.
        if let Some(view) = open.snapshot(name) {
            return Ok(view);
        }
        let index = open.free_index().ok_or(Errno::OVERFLOW)?;
        let view = MountView::new(index, ViewKind::Snapshot(snapshot));
        open.by_index.insert(index, view.clone());
        open.snapshots.insert(name.to_vec(), index);
        Ok(view)
    }

    /// The view of a named snapshot while the kernel knows nodes of it.
    pub(crate) fn known_snapshot(&self, name: &[u8]) -> Option<Arc<MountView>> {
        self.open.read().snapshot(name)
    }

    /// Opens the view of a transaction that has begun, perhaps that of a file group; `None` when there are too many.
    pub(crate) fn open(
        &self,
        transaction: Transaction,
        beginner: Beginner,
        group: Option<Key>,
    ) -> Option<Arc<MountView>> {
        let id = transaction.id();
        let secret = self.random.hash_one((id, beginner.pid, Instant::now()));
        let name = format!("{id}-{secret:016x}").into_bytes();
        let mut open = self.open.write();
        let index = open.free_index()?;
        let view = MountView::new(
            index,
            ViewKind::Transaction(Box::new(TransactionView {
                transaction,
                name: name.clone(),
                beginner,
                began: Instant::now(),
                written_bytes: AtomicU64::new(0),
                sharing: Sharing::new(),
                group,
                held: Mutex::default(),
            })),
        );
        open.by_index.insert(index, view.clone());
        open.by_name.insert(name, index);
        open.by_transaction.insert(id, index);
        Some(view)
    }

    /// Ends a view after its transaction: from now on it answers ESTALE.
    pub(crate) fn end(&self, view: &MountView) {
        view.ended.store(true, Ordering::Release);
        if let Some(transaction) = view.transaction() {
            let mut open = self.open.write();
            open.by_name.remove(&transaction.name);
            open.by_transaction.remove(&transaction.transaction.id());
        }
        self.retire(view);
    }

    /// Takes back references of the kernel to a node of any view.
    pub(crate) fn forget(&self, node: NodeId, count: u64) {
        let Ok(view) = self.of(node) else { return };
        let ino = node.ino();
        if view.nodes.forget(ino, count) && !(view.is_base() && self.forgotten.add(ino)) {
            view.view_unchecked().closed(ino);
            self.let_go(&view, ino);
        }
        self.retire(&view);
    }

    /// Keeps a node without a name that the kernel now knows in a transaction's view: the program may close what it had
    /// open outside before the transaction ends.
    pub(crate) fn hold(&self, view: &MountView, ino: Ino) -> Result<(), Errno> {
        let Some(open) = view.transaction() else { return Ok(()) };
        if open.held.lock().insert(ino)
            && let Err(error) = self.volume.retain(ino)
        {
            open.held.lock().remove(&ino);
            // One that the transaction has made is its own.
            return if matches!(error, txfs::Error::Stale { .. }) { Ok(()) } else { Err(error.into()) };
        }
        Ok(())
    }

    /// Keeps it no longer, if the kernel has forgotten it.
    fn let_go(&self, view: &MountView, ino: Ino) {
        let Some(open) = view.transaction() else { return };
        let mut held = open.held.lock();
        // Meanwhile somebody may have opened it again.
        let held_no_more = !view.nodes.contains(ino) && held.remove(&ino);
        drop(held);
        if held_no_more && !self.forgotten.add(ino) {
            self.volume.release(ino, 1);
        }
    }

    /// Frees the number of a view that has ended and that the kernel has forgotten.
    fn retire(&self, view: &MountView) {
        let snapshot = matches!(view.kind, ViewKind::Snapshot(_)) && view.index != BASE_VIEW;
        if (snapshot || !view.is_base() && view.ended.load(Ordering::Acquire)) && view.nodes.is_empty() {
            let mut open = self.open.write();
            open.by_index.remove(&view.index);
            if snapshot {
                open.snapshots.retain(|_, index| *index != view.index);
            }
        }
    }

    /// The views of open transactions, oldest first.
    pub(crate) fn transactions(&self) -> Vec<Arc<MountView>> {
        let mut open: Vec<_> = self
            .open
            .read()
            .by_index
            .values()
            .filter(|view| view.transaction().is_some() && !view.ended.load(Ordering::Acquire))
            .cloned()
            .collect();
        open.sort_by_key(|view| view.transaction().map(|transaction| transaction.transaction.id()));
        open
    }

    /// How many transactions' views there are, those included that have ended and that the kernel has not yet forgotten.
    pub(crate) fn known(&self) -> usize {
        let open = self.open.read();
        open.by_index.len() - open.snapshots.len()
    }

    /// From now on what the kernel forgets in the base view gathers for a moment, until `forget_all`.
    pub(crate) fn gather_forgotten(&self) -> std::io::Result<()> {
        self.forgotten.start(self.volume.clone())
    }

    /// Releases at once what has gathered; false when there was nothing.
    pub(crate) fn settle_forgotten(&self) -> bool {
        self.forgotten.settle(&self.volume)
    }

    /// Gives up all references, at the end of the mount: files without a name can go.
    pub(crate) fn forget_all(&self) {
        self.forgotten.stop();
        self.volume.release_all(&self.base.nodes.drain());
    }
}

impl Registry {
    fn snapshot(&self, name: &[u8]) -> Option<Arc<MountView>> {
        self.by_index.get(self.snapshots.get(name)?).cloned()
    }

    fn free_index(&mut self) -> Option<ViewIndex> {
        for _ in 0..MOUNT_VIEW {
            self.last_index = if self.last_index >= MOUNT_VIEW - 1 { 1 } else { self.last_index + 1 };
            if !self.by_index.contains_key(&self.last_index) {
                return Some(self.last_index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_go_round() {
        let mut registry = Registry { last_index: MOUNT_VIEW - 2, ..Registry::default() };
        assert_eq!(registry.free_index(), Some(MOUNT_VIEW - 1));
        assert_eq!(registry.free_index(), Some(1));
        assert_eq!(registry.free_index(), Some(2));
    }
}
