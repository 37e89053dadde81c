//! Node ids, and which nodes the kernel knows.
//!
//! A node id is what the kernel calls a file by: `(view << 48) | inode number`. View 0 is the base view, so there node
//! ids and inode numbers agree; view 0xFFFF holds what only the mount has (`.txfs` and what is directly in it).
//! Inode numbers shown to programs never contain the view.
//!
//! A `NodeTable` counts the kernel's references to the nodes of one view: every LOOKUP or CREATE reply (and every
//! entry of READDIRPLUS) adds one before the reply is sent, FORGET takes them back. Since files are opened without a
//! message, a node the kernel knows may be open: it has to outlive its last name (`View::opened`).
//! Locks: the shards are leaves; nothing is called while one is held.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;
use txfs::Ino;

/// Number of a view.
pub(crate) type ViewIndex = u16;

/// The view that everybody sees.
pub(crate) const BASE_VIEW: ViewIndex = 0;
/// The view number of the directories that only the mount has.
pub(crate) const MOUNT_VIEW: ViewIndex = u16::MAX;

/// `.txfs`.
pub(crate) const CONTROL_DIRECTORY: NodeId = NodeId::join(MOUNT_VIEW, 1);
/// `.txfs/tx`.
pub(crate) const VIEWS_DIRECTORY: NodeId = NodeId::join(MOUNT_VIEW, 2);
/// `.txfs/probe`, an empty file.
pub(crate) const PROBE_FILE: NodeId = NodeId::join(MOUNT_VIEW, 3);

/// `.txfs/snapshots`.
pub(crate) const SNAPSHOTS_DIRECTORY: NodeId = NodeId::join(MOUNT_VIEW, 4);

/// `.txfs/node`.
pub(crate) const NODES_DIRECTORY: NodeId = NodeId::join(MOUNT_VIEW, 5);

const INO_BITS: u32 = 48;
const INO_MAX: Ino = (1 << INO_BITS) - 1;

/// What the kernel calls a file by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub u64);

impl NodeId {
    pub(crate) const fn join(view: ViewIndex, ino: Ino) -> NodeId {
        NodeId((view as u64) << INO_BITS | ino)
    }

    /// `None` for an inode number that has no room beside the view's.
    pub(crate) fn new(view: ViewIndex, ino: Ino) -> Option<NodeId> {
        (ino <= INO_MAX).then(|| NodeId::join(view, ino))
    }

    pub(crate) fn view(self) -> ViewIndex {
        (self.0 >> INO_BITS) as ViewIndex
    }

    pub(crate) fn ino(self) -> Ino {
        self.0 & INO_MAX
    }
}

#[derive(Debug, Default)]
struct Node {
    references: u64,
    /// Data of it has passed through the kernel, which may have cached pages, dirty ones too.
    has_pages: bool,
    /// What a transaction's view has written to, ranges of bytes from first to behind last, ascending and apart.
    written: Vec<(u64, u64)>,
    /// The last request whose reply the kernel believes without asking how old it is.
    unversioned: Option<Unversioned>,
}

/// A request about a file's attributes whose reply the kernel applies even if an invalidation came in between. The
/// kernel holds the file's lock from sending the request until it has applied the reply, so there is one at a time,
/// and the next one shows that this one has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unversioned {
    pub unique: u64,
    pub replied: Option<Instant>,
}

const SHARDS: usize = 16;

/// The nodes of one view that the kernel knows.
#[derive(Debug)]
pub(crate) struct NodeTable {
    shards: [Mutex<HashMap<Ino, Node>>; SHARDS],
}

impl NodeTable {
    pub(crate) fn new() -> NodeTable {
        NodeTable { shards: std::array::from_fn(|_| Mutex::new(HashMap::new())) }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Node>> {
        &self.shards[ino as usize % SHARDS]
    }

    /// Adds a reference; true when it is the first.
    pub(crate) fn add(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let node = shard.entry(ino).or_default();
        node.references += 1;
        node.references == 1
    }

    /// Takes references back; true when none is left.
    pub(crate) fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Entry::Occupied(mut entry) = shard.entry(ino) else { return false };
        let node = entry.get_mut();
        node.references = node.references.saturating_sub(count);
        let gone = node.references == 0;
        if gone {
            entry.remove();
        }
        gone
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Ino> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Notes that the kernel may have cached pages of a node.
    pub(crate) fn mark_pages(&self, ino: Ino) {
        if let Some(node) = self.shard(ino).lock().get_mut(&ino) {
            node.has_pages = true;
        }
    }

    /// The nodes of which the kernel may have cached pages.
    pub(crate) fn with_pages(&self) -> Vec<Ino> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().filter(|(_, node)| node.has_pages).map(|(ino, _)| *ino));
        }
        all
    }

    /// Notes that bytes of a node have been written.
    pub(crate) fn mark_written(&self, ino: Ino, offset: u64, len: u64) {
        if let Some(node) = self.shard(ino).lock().get_mut(&ino) {
            add_range(&mut node.written, offset, offset.saturating_add(len));
        }
    }

    /// What has been written to, by node.
    pub(crate) fn written(&self) -> Vec<(Ino, Vec<(u64, u64)>)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let written = shard.iter().filter(|(_, node)| !node.written.is_empty());
            all.extend(written.map(|(ino, node)| (*ino, node.written.clone())));
        }
        all
    }

    pub(crate) fn has_pages(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|node| node.has_pages)
    }

    /// Notes that an unversioned request begins.
    pub(crate) fn begin_unversioned(&self, ino: Ino, unique: u64) {
        if let Some(node) = self.shard(ino).lock().get_mut(&ino) {
            node.unversioned = Some(Unversioned { unique, replied: None });
        }
    }

    /// Notes that its reply has been sent.
    pub(crate) fn end_unversioned(&self, ino: Ino, unique: u64) {
        if let Some(node) = self.shard(ino).lock().get_mut(&ino)
            && node.unversioned.is_some_and(|last| last.unique == unique)
        {
            node.unversioned = Some(Unversioned { unique, replied: Some(Instant::now()) });
        }
    }

    /// The last unversioned request of a node.
    pub(crate) fn unversioned(&self, ino: Ino) -> Option<Unversioned> {
        self.shard(ino).lock().get(&ino)?.unversioned
    }

    /// Drops everything, as at the end of a mount; returns the nodes that were there.
    pub(crate) fn drain(&self) -> Vec<Ino> {
        self.shards
            .iter()
            .flat_map(|shard| shard.lock().drain().map(|(ino, _)| ino).collect::<Vec<_>>())
            .collect()
    }
}

/// How many ranges are kept apart for one node; beyond that the gaps between them count as written too.
const RANGES_MAX: usize = 64;

/// Adds a range to ascending ones that do not touch each other.
fn add_range(ranges: &mut Vec<(u64, u64)>, mut from: u64, mut to: u64) {
    let first = ranges.partition_point(|&(_, end)| end < from);
    let behind = ranges.partition_point(|&(start, _)| start <= to);
    if first < behind {
        from = from.min(ranges[first].0);
        to = to.max(ranges[behind - 1].1);
    }
    ranges.splice(first..behind, [(from, to)]);
    if ranges.len() > RANGES_MAX {
        let end = ranges[RANGES_MAX].1;
        ranges.truncate(RANGES_MAX);
        ranges[RANGES_MAX - 1].1 = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_come_apart() {
        let node = NodeId::new(3, 77).unwrap();
        assert_eq!((node.view(), node.ino()), (3, 77));
        assert_eq!(NodeId::new(BASE_VIEW, 77).unwrap().0, 77);
        assert_eq!(NodeId::new(1, 1 << 48), None);
        assert_eq!(CONTROL_DIRECTORY.view(), MOUNT_VIEW);
    }

    #[test]
    fn ranges_are_joined() {
        let mut ranges = Vec::new();
        for (from, to) in [(10, 20), (30, 40), (50, 60), (20, 25), (41, 45)] {
            add_range(&mut ranges, from, to);
        }
        assert_eq!(ranges, [(10, 25), (30, 40), (41, 45), (50, 60)]);
        add_range(&mut ranges, 35, 50);
        assert_eq!(ranges, [(10, 25), (30, 60)]);
        add_range(&mut ranges, 0, u64::MAX);
        assert_eq!(ranges, [(0, u64::MAX)]);
        let mut many = Vec::new();
        for i in 0..1000 {
            add_range(&mut many, i * 10, i * 10 + 5);
        }
        assert_eq!((many.len(), many[0].0, many[RANGES_MAX - 1].1), (RANGES_MAX, 0, 9995));
        assert!(many.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn references_are_counted() {
        let table = NodeTable::new();
        assert!(table.add(5));
        assert!(!table.add(5));
        assert!(!table.forget(5, 1));
        table.mark_pages(5);
        table.mark_pages(6);
        assert_eq!(table.with_pages(), vec![5]);
        assert!(table.forget(5, 1));
        assert!(!table.forget(5, 1));
        assert!(table.is_empty() && !table.contains(5));
        table.add(9);
        assert!(table.forget(9, 100), "more than there are is no underflow");
    }
}
