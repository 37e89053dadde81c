//! What a transaction hands to the engine: its intents in the form in which they are applied.
//!
//! Made once, outside of any lock, from what is left in the overlay. Only that counts: a file that was created and
//! unlinked again, a page that was written five times or a name that came and went leave what they left.
//!
//! What does not depend on the state at the time of the commit is put into its final form here: names, which are
//! validated, and nodes made by the transaction as far as it is known where their data lies. For a transaction of many
//! files that is nearly everything, and others do not wait for it.

use std::collections::BTreeMap;

use txfs_engine::{Chunk, ConflictSet, Extent, MutationList, Origin};

use super::overlay::{FileData, InodeState, NameState, Overlay, PageRanges};
use super::spill::page_runs;
use crate::conflict::{
    ATTRIBUTE_SPACE, EXISTS, NAME_SPACE, PAGE_SPACE, PARENT, PERMISSIONS, SIZE, XATTR_SPACE,
};
use crate::observe::CommitChanges;
use crate::records::history::UndoState;
use crate::records::undo::{ChunkWriter, Digest, Made, UndoItem};
use crate::records::{Dirent, HistoryRecord, InodeRecord, NameHasher, key, small};
use crate::types::{Ino, NodeKind, PAGE_BYTES, Timestamp};

/// A transaction's intents, ready to be applied.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) reads: ConflictSet,
    pub(crate) writes: ConflictSet,
    pub(crate) data: Vec<Chunk>,
    /// Changes that are the same whatever the state.
    pub(crate) prepared: MutationList,
    /// Ascending.
    pub(crate) inodes: Vec<InodePlan>,
    /// A number above those of all inodes made here; 0 when none was made.
    pub(crate) next_ino: Ino,
    pub(crate) changes: CommitChanges,
    /// New content, in bytes.
    pub(crate) data_bytes: u64,
    /// What undoing it takes, as far as it is known before it is applied.
    pub(crate) undo: Option<ChunkWriter>,
}

/// One inode's intents.
pub(crate) struct InodePlan {
    pub(crate) ino: Ino,
    pub(crate) state: InodeState,
    /// Ranges of pages whose old content goes, ascending.
    pub(crate) cleared: Vec<(u64, u64)>,
    /// New content by first page, ascending.
    pub(crate) fresh: Fresh,
    /// The data was left out because the node seems to lose its last name.
    pub(crate) data_dropped: bool,
}

/// New content by first page, ascending.
pub(crate) type Fresh = Vec<(u64, Source)>;

/// Where new content is.
pub(crate) enum Source {
    /// In the commit's own data: the number of the chunk.
    Chunk(usize),
    /// In the log already.
    Placed(Extent),
}

impl Plan {
    /// `in_use` says whether an inode must stay although it has no name; `undo` is the number under which it is kept what
    /// undoing takes.
    pub(crate) fn new(
        overlay: Overlay,
        reads: ConflictSet,
        hasher: &NameHasher,
        in_use: impl Fn(Ino) -> bool,
        undo: Option<u64>,
    ) -> Plan {
        let undo = undo.map(|number| ChunkWriter::new(number, 0));
        let mut plan = Plan { reads, undo, ..Plan::default() };
        let created = |ino: &Ino| overlay.inodes.get(ino).is_some_and(InodeState::is_created);
        for (&(directory, hash), state) in &overlay.names {
            if state.current == state.original {
                continue;
            }
            for dirent in state.original.0.iter().filter(|old| state.current.find(&old.name) != Some(old)) {
                plan.changes.names.push((directory, dirent.name.clone()));
            }
            for dirent in state.current.0.iter().filter(|new| state.original.find(&new.name).is_none()) {
                plan.changes.names.push((directory, dirent.name.clone()));
            }
            if !created(&directory) {
                plan.writes.insert_point(NAME_SPACE, directory, hash);
            }
        }
        plan.changes.names.sort();
        for ((directory, hash), state) in overlay.names {
            if state.current == state.original {
                continue;
            }
            if let Some(undo) = &mut plan.undo {
                undo_names(directory, &state, undo);
            }
            let key = key::dirent(directory, hash);
            match state.current.0.is_empty() {
                true => plan.prepared.delete(&key),
                false => plan.prepared.put(&key, &state.current.encode()),
            }
        }
        for (ino, state) in overlay.inodes.into_iter().filter(|(_, state)| state.is_changed()) {
            if state.is_created() {
                plan.next_ino = plan.next_ino.max(ino + 1);
                if state.record.nlink == 0 {
                    continue;
                }
            }
            // names came and went: the directory is as it was, and work that leaves nothing costs no commit
            if state.record.kind == NodeKind::Directory
                && state.is_only_touched()
                && !plan.changes_names_of(ino)
            {
                continue;
            }
            plan.add_inode(ino, state, hasher, &in_use);
        }
        if let Some(undo) = &mut plan.undo {
            undo.close();
            // Its number is one of those for inodes.
            plan.next_ino = plan.next_ino.max(undo.number() + 1);
        }
        plan
    }

    /// Decides that what was collected for undoing is kept, or that it is not.
    pub(crate) fn keep_undo(&mut self, keep: bool) {
        match &mut self.undo {
            Some(undo) if keep => {
                for (key, value) in std::mem::take(&mut undo.chunks) {
                    self.prepared.put_new(&key, &value);
                }
            }
            _ => self.undo = None,
        }
    }

    /// What the volume's history keeps of it.
    pub(crate) fn history_entry(&self, by: &Origin) -> HistoryRecord {
        let transaction = by.transaction.as_deref().cloned().unwrap_or_default();
        HistoryRecord {
            time: Timestamp::new(by.time.0, by.time.1),
            process: by.process,
            nodes: self.changes.inodes.len() as u64,
            names: self.changes.names.len() as u64,
            data_bytes: self.data_bytes,
            command: transaction.command,
            message: transaction.label,
            undo: UndoState::NotKept,
        }
    }

    /// True when there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.prepared.is_empty()
    }

    fn changes_names_of(&self, directory: Ino) -> bool {
        let first = self.changes.names.partition_point(|(other, ..)| *other < directory);
        self.changes.names.get(first).is_some_and(|(other, ..)| *other == directory)
    }

    fn add_inode(
        &mut self,
        ino: Ino,
        mut state: InodeState,
        hasher: &NameHasher,
        in_use: &dyn Fn(Ino) -> bool,
    ) {
        let goes = state.record.nlink == 0 && state.link_delta < 0 && !in_use(ino);
        let data_dropped = goes && !state.data.is_empty();
        let data = std::mem::take(&mut state.data);
        let (cleared, fresh) = match data.is_empty() {
            true => Default::default(),
            false => self.add_data(ino, data, state.record.size, data_dropped),
        };
        self.changes.inodes.push(ino);
        for &(first, last) in &cleared {
            let len = match last {
                u64::MAX => u64::MAX,
                _ => (last - first + 1).saturating_mul(PAGE_BYTES),
            };
            self.changes.data.push((ino, first.saturating_mul(PAGE_BYTES), len));
        }
        if !state.is_created() {
            self.add_conflicts(ino, &state, &cleared, hasher);
        }
        let inode = InodePlan { ino, state, cleared, fresh, data_dropped };
        let located = |(_, source): &(u64, Source)| matches!(source, Source::Placed(_));
        if inode.state.is_created() && !data_dropped && inode.fresh.iter().all(located) {
            self.prepare(inode);
        } else {
            self.inodes.push(inode);
        }
    }

    /// Everything that a node made here consists of. Nobody has had its number before, so there is nothing under its
    /// keys in any state.
    fn prepare(&mut self, inode: InodePlan) {
        let InodePlan { ino, state, fresh, .. } = inode;
        let mut record = InodeRecord { pages: 0, ..state.record };
        if let Some(undo) = &mut self.undo {
            let mut content = Digest::default();
            for (first, source) in &fresh {
                if let Source::Placed(extent) = source {
                    content.add_pages(*first, extent);
                }
            }
            let made = Made::new(&record, content, xattrs_digest(&state.xattrs));
            undo.add(&UndoItem::Created { ino, made });
        }
        if let Some(target) = &state.target {
            self.prepared.put_new(&key::symlink(ino), &small::encode_bytes(target));
        }
        for (first, source) in fresh {
            if let Source::Placed(extent) = source {
                record.pages += u64::from(extent.pages());
                if state.shadow.is_none() {
                    self.prepared.put_new(&key::extent(ino, first), &extent.encode());
                }
            }
        }
        for (name, value) in &state.xattrs {
            if let Some(value) = value {
                self.prepared.put_new(&key::xattr(ino, name), &small::encode_bytes(value));
            }
        }
        self.prepared.put_new(&key::inode(ino), &record.encode());
    }

    /// The ranges of pages that a file's old content leaves, and the new content.
    fn add_data(&mut self, ino: Ino, mut data: FileData, size: u64, drop: bool) -> (Vec<(u64, u64)>, Fresh) {
        let mut cleared: PageRanges = std::mem::take(&mut data.masked);
        let mut fresh = BTreeMap::new();
        for (first, extent) in std::mem::take(&mut data.placed) {
            cleared.insert(first, first + u64::from(extent.pages()) - 1);
            self.data_bytes += u64::from(extent.len);
            fresh.insert(first, Source::Placed(extent));
        }
        if drop {
            data.pages.keys().for_each(|&page| cleared.insert(page, page));
        } else {
            for (first, chunk) in page_runs(ino, &data, size, 0, usize::MAX) {
                let pages = (chunk.0.len() as u64).div_ceil(PAGE_BYTES);
                cleared.insert(first, first + pages - 1);
                fresh.insert(first, Source::Chunk(self.data.len()));
                self.data_bytes += chunk.0.len() as u64;
                self.data.push(chunk);
            }
        }
        (cleared.iter().collect(), fresh.into_iter().collect())
    }

    fn add_conflicts(&mut self, ino: Ino, state: &InodeState, cleared: &[(u64, u64)], hasher: &NameHasher) {
        self.reads.insert_point(ATTRIBUTE_SPACE, ino, EXISTS);
        for &(first, last) in cleared {
            self.writes.insert(PAGE_SPACE, ino, first, last);
        }
        if state.permissions {
            self.writes.insert_point(ATTRIBUTE_SPACE, ino, PERMISSIONS);
        }
        if let Some(cut) = state.cut {
            self.writes.insert_point(ATTRIBUTE_SPACE, ino, SIZE);
            self.writes.insert(PAGE_SPACE, ino, cut / PAGE_BYTES, u64::MAX);
        }
        let grown = state.original.as_ref().is_some_and(|original| state.record.size > original.size);
        if grown && state.cut.is_none() {
            // Growth without data, for those who need to know where the end is: it counts as a write of the last page.
            self.writes.insert_point(PAGE_SPACE, ino, (state.record.size - 1) / PAGE_BYTES);
        }
        if state.moved && state.record.kind == NodeKind::Directory {
            self.writes.insert_point(ATTRIBUTE_SPACE, ino, PARENT);
        }
        for name in state.xattrs.keys() {
            self.writes.insert_point(XATTR_SPACE, ino, hasher.hash(name));
        }
    }
}

/// Checksum of the extended attributes of a node made here.
pub(crate) fn xattrs_digest(xattrs: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Digest {
    let mut digest = Digest::default();
    for (name, value) in xattrs {
        if let Some(value) = value {
            digest.add_xattr(name, value);
        }
    }
    digest
}

/// Adds the names of one entry that changed.
fn undo_names(directory: Ino, state: &NameState, undo: &mut ChunkWriter) {
    let entry = |dirent: &Dirent| (dirent.ino, dirent.kind);
    for old in &state.original.0 {
        let after = state.current.find(&old.name).map(entry);
        if after != Some(entry(old)) {
            let before = Some(entry(old));
            undo.add(&UndoItem::Name { directory, name: old.name.clone(), before, after });
        }
    }
    for new in state.current.0.iter().filter(|new| state.original.find(&new.name).is_none()) {
        let after = Some(entry(new));
        undo.add(&UndoItem::Name { directory, name: new.name.clone(), before: None, after });
    }
}
