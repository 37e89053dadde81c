//! Changes everything back that a recorded commit has changed, as operations of another transaction.
//!
//! Everything is looked at before anything is changed: what the commit left must still be there, name by name, page by page
//! and attribute by attribute, or there is a conflict and nothing changes. Looking counts as reading, in the same
//! granularity, so that whatever happens between that and the commit is found by the commit's validation. Times and link
//! counts are no conflicts: a time comes back where nobody has moved it since, a link count by its difference.
//!
//! Nodes that the commit made lose the names that it gave them; one that has got another name since stays under that.
//! Nodes that it removed have stayed, without a name, and get their names back, under their old inode numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use txfs_engine::broken::{self, Fault};
use txfs_engine::{Extent, Read};

use super::overlay::TimeIntent;
use super::session::{Session, load_inode, visit_extents};
use crate::conflict::{
    ATTRIBUTE_SPACE, Access, Conflict, ConflictKind, ConflictReport, EXISTS, NAME_SPACE, Other, PAGE_SPACE,
    PARENT, PERMISSIONS, SIZE, XATTR_SPACE,
};
use crate::error::Result;
use crate::records::undo::{Digest, Entry, Made};
use crate::records::{InodeRecord, key, small};
use crate::types::{Ino, NodeKind, PAGE_BYTES, ROOT_INO};
use crate::undo::{NodeChange, UndoData, number_of, visit_old_content};

/// Conflicts that a report lists.
const CONFLICTS_MAX: usize = 100;
/// Pages that are read and written at a time.
const PIECE_PAGES: u64 = 256;

/// What names come and go means for a node.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    /// Names that it gets less those that it loses.
    names: i64,
    /// As a directory: subdirectories that it gets less those that it loses.
    subdirectories: i64,
    /// The directory of a name that it gets.
    parent: Option<Ino>,
}

impl Session {
    /// Changes back what a recorded commit has changed. With conflicts, the session is of no more use.
    pub(crate) fn revert(&mut self, sequence: u64) -> Result<ConflictReport> {
        self.check_writable()?;
        let snapshot = self.snapshot.clone();
        let undo = UndoData::load(&snapshot, number_of(&snapshot, sequence)?)?;
        let mut report = ConflictReport { conflicts: Vec::new(), more: 0 };
        let links = self.examine_names(&undo, &mut report)?;
        self.examine_links(&undo, &links, &mut report)?;
        for (&ino, change) in &undo.nodes {
            self.examine_node(&undo, ino, change, &mut report)?;
        }
        if report.count() > 0 {
            return Ok(report);
        }
        self.put_names_back(&undo, &links)?;
        self.examine_tree(&links, &mut report)?;
        if report.count() > 0 {
            return Ok(report);
        }
        for (&ino, change) in &undo.nodes {
            self.put_node_back(&undo, ino, change)?;
        }
        Ok(report)
    }

    fn object(&self, report: &mut ConflictReport, kind: ConflictKind, ino: Ino) {
        if report.conflicts.len() >= CONFLICTS_MAX {
            report.more += 1;
            return;
        }
        let mut path = self.cheap_path(ino);
        if let (Some(path), ConflictKind::Name { name: Some(name) }) = (&mut path, &kind) {
            path.push(crate::paths::name_to_path(name));
        }
        report.conflicts.push(Conflict { kind, access: Access::Written, ino, path, other: Other::default() });
    }

    // Looking.

    /// Compares the names with what the commit left, and counts what changing them back means for the nodes.
    fn examine_names(
        &mut self,
        undo: &UndoData,
        report: &mut ConflictReport,
    ) -> Result<BTreeMap<Ino, Links>> {
        let mut links: BTreeMap<Ino, Links> = BTreeMap::new();
        for change in &undo.names {
            let directory = change.directory;
            self.check_midway()?;
            let exists = load_inode(&self.snapshot, directory)?.is_some();
            let hash = self.shared.hasher.hash(&change.name);
            self.note_structural(NAME_SPACE, directory, hash, hash);
            let found = self.find(directory, &change.name)?.map(|dirent| (dirent.ino, dirent.kind));
            if !exists || found != change.after {
                let name = Some(change.name.clone());
                self.object(report, ConflictKind::Name { name }, directory);
                continue;
            }
            links.entry(directory).or_default();
            count(&mut links, directory, change.after, -1);
            count(&mut links, directory, change.before, 1);
        }
        Ok(links)
    }

    /// Looks at the nodes that get or lose names.
    fn examine_links(
        &mut self,
        undo: &UndoData,
        links: &BTreeMap<Ino, Links>,
        report: &mut ConflictReport,
    ) -> Result<()> {
        for (&ino, change) in links {
            self.check_midway()?;
            self.note_structural(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS);
            let Some(record) = load_inode(&self.snapshot, ino)? else {
                self.object(report, ConflictKind::Existence, ino);
                continue;
            };
            let is_directory = record.kind == NodeKind::Directory;
            if record.nlink == 0 {
                // It has to be the one that the commit removed, as that left it.
                let mark = self.snapshot.get(&key::removed(ino))?;
                let kept = mark.and_then(|value| small::decode_number(&value).ok()) == Some(undo.number);
                let same = undo.removed.get(&ino) == Some(&crc32c::crc32c(&record.encode()));
                if change.names <= 0 || !kept || !same {
                    self.object(report, ConflictKind::Existence, ino);
                }
                continue;
            }
            if undo.removed.contains_key(&ino) {
                // The commit took its last name, and it has got another since: somebody has undone the commit before.
                self.object(report, ConflictKind::Existence, ino);
                continue;
            }
            let goes = match is_directory {
                true => change.names < 0,
                false => i64::from(record.nlink) + change.names <= 0,
            };
            if is_directory && change.names > 0 {
                // It has come back already, under another name perhaps, and can have one only.
                self.object(report, ConflictKind::Parent, ino);
            }
            if !goes {
                continue;
            }
            let records = undo.nodes.get(&ino).and_then(|node| node.records.as_ref());
            match (undo.created.get(&ino), records) {
                (Some(made), _) => self.examine_made(ino, &record, made, report)?,
                (None, Some((before, after))) if before.nlink == 0 => {
                    self.examine_revived(ino, &record, after, report);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A node that the commit gave its names back, and that goes again: whoever has changed anything of it since has moved its
    /// time. That is cheaper to know than its content, and there are as many as a commit has removed.
    fn examine_revived(
        &mut self,
        ino: Ino,
        record: &InodeRecord,
        left: &InodeRecord,
        report: &mut ConflictReport,
    ) {
        self.note_structural(ATTRIBUTE_SPACE, ino, PERMISSIONS, SIZE);
        self.note_structural(XATTR_SPACE, ino, 0, u64::MAX);
        if record.kind == NodeKind::File {
            self.note_structural(PAGE_SPACE, ino, 0, u64::MAX);
        }
        if permissions(record) != permissions(left) {
            self.object(report, ConflictKind::Permissions, ino);
        } else if record.kind != NodeKind::Directory && (record.size, record.mtime) != (left.size, left.mtime)
        {
            self.object(report, ConflictKind::Pages { first: 0, last: u64::MAX }, ino);
        } else if record.kind != NodeKind::Directory && record.ctime != left.ctime {
            self.object(report, ConflictKind::Existence, ino);
        }
    }

    /// A node that the commit made, and that goes: it must still be as it was made.
    fn examine_made(
        &mut self,
        ino: Ino,
        record: &InodeRecord,
        made: &Made,
        report: &mut ConflictReport,
    ) -> Result<()> {
        self.note_structural(ATTRIBUTE_SPACE, ino, PERMISSIONS, SIZE);
        let (from, to) = key::xattrs(ino);
        self.note_structural(XATTR_SPACE, ino, 0, u64::MAX);
        let mut xattrs = Digest::default();
        self.snapshot.scan(&from, &to, &mut |key, value| {
            // A value that does not decode is as good as another one.
            xattrs.add_xattr(key::xattr_name(key), small::decode_bytes(value).unwrap_or(value));
            ControlFlow::Continue(())
        })?;
        let mut content = Digest::default();
        if record.kind == NodeKind::File {
            self.note_structural(PAGE_SPACE, ino, 0, u64::MAX);
            visit_extents(&self.snapshot, ino, 0, u64::MAX, &mut |first, extent| {
                content.add_pages(first, &extent);
                true
            })?;
        }
        let found = Made::new(record, content, xattrs);
        if (found.mode, found.uid, found.gid) != (made.mode, made.uid, made.gid) {
            self.object(report, ConflictKind::Permissions, ino);
        }
        if found.content != made.content {
            self.object(report, ConflictKind::Pages { first: 0, last: u64::MAX }, ino);
        } else if found.size != made.size {
            self.object(report, ConflictKind::Size, ino);
        }
        if found.xattrs != made.xattrs {
            self.object(report, ConflictKind::ExtendedAttribute, ino);
        }
        Ok(())
    }

    /// A node that was there before the commit: what that changed of it must still be as it left it.
    fn examine_node(
        &mut self,
        undo: &UndoData,
        ino: Ino,
        change: &NodeChange,
        report: &mut ConflictReport,
    ) -> Result<()> {
        self.check_midway()?;
        self.note_structural(ATTRIBUTE_SPACE, ino, EXISTS, EXISTS);
        let record = load_inode(&self.snapshot, ino)?;
        // One without a name is there for those only who have it open, unless this commit took the name.
        let Some(record) = record.filter(|record| record.nlink > 0 || undo.removed.contains_key(&ino)) else {
            self.object(report, ConflictKind::Existence, ino);
            return Ok(());
        };
        if let Some((before, after)) = &change.records {
            if permissions(before) != permissions(after) {
                self.note_structural(ATTRIBUTE_SPACE, ino, PERMISSIONS, PERMISSIONS);
                if permissions(&record) != permissions(after) {
                    self.object(report, ConflictKind::Permissions, ino);
                }
            }
            if before.kind == NodeKind::File && before.size != after.size {
                self.note_structural(ATTRIBUTE_SPACE, ino, SIZE, SIZE);
                self.note_structural(PAGE_SPACE, ino, record.size / PAGE_BYTES, u64::MAX);
                if record.size != after.size {
                    self.object(report, ConflictKind::Size, ino);
                }
            }
        }
        for (name, (_, after)) in &change.xattrs {
            let hash = self.shared.hasher.hash(name);
            self.note_structural(XATTR_SPACE, ino, hash, hash);
            let found = self.snapshot.get(&key::xattr(ino, name))?;
            if found.map(|value| crc32c::crc32c(value.get(1..).unwrap_or_default())) != *after {
                self.object(report, ConflictKind::ExtendedAttribute, ino);
            }
        }
        self.examine_pages(ino, change, report)
    }

    fn examine_pages(&mut self, ino: Ino, change: &NodeChange, report: &mut ConflictReport) -> Result<()> {
        if broken::has(Fault::UndoBlindly) {
            return Ok(());
        }
        let put = |page: u64| {
            let (first, checksums) = change.put.range(..=page).next_back()?;
            checksums.get(usize::try_from(page - first).ok()?).copied()
        };
        for &(first, last) in &change.cleared {
            self.note_structural(PAGE_SPACE, ino, first, last);
            let mut strange = Vec::new();
            let mut seen = 0;
            visit_extents(&self.snapshot, ino, first, last, &mut |start, extent| {
                for (page, checksum) in (start..).zip(&extent.page_checksums) {
                    if (first..=last).contains(&page) {
                        match put(page) {
                            Some(expected) if expected == *checksum => seen += 1,
                            _ => strange.push(page),
                        }
                    }
                }
                true
            })?;
            let runs = change.put.range(..=last);
            let expected: u64 =
                runs.map(|(start, checksums)| within(*start, checksums.len(), first, last)).sum();
            if let (Some(&first), Some(&last)) = (strange.first(), strange.last()) {
                self.object(report, ConflictKind::Pages { first, last }, ino);
            } else if seen != expected {
                // Some are gone.
                self.object(report, ConflictKind::Pages { first, last }, ino);
            }
        }
        Ok(())
    }

    // Changing.

    fn put_names_back(&mut self, undo: &UndoData, links: &BTreeMap<Ino, Links>) -> Result<()> {
        let now = self.now();
        for change in &undo.names {
            self.put_name(change.directory, &change.name, change.before)?;
            self.touch_directory(change.directory, now)?;
        }
        for (&ino, change) in links {
            let node = self.inode_mut(ino)?;
            let is_directory = node.record.kind == NodeKind::Directory;
            let own = match (is_directory, change.names) {
                (true, names) => 2 * names,
                (false, names) => names,
            };
            let delta = own + change.subdirectories;
            if delta != 0 {
                node.add_links(delta);
            }
            if change.names != 0 || change.parent.is_some() {
                node.touch_node(now);
                node.renamed = true;
            }
            if let Some(parent) = change.parent
                && node.record.parent != parent
            {
                node.record.parent = parent;
                node.moved = true;
            }
            if change.parent.is_some() && is_directory {
                self.touch(ATTRIBUTE_SPACE, ino, PARENT, PARENT, true);
            }
        }
        Ok(())
    }

    /// Names must lie in directories that have one, what goes must be empty, and there must be no cycle.
    fn examine_tree(&mut self, links: &BTreeMap<Ino, Links>, report: &mut ConflictReport) -> Result<()> {
        let mut fine = BTreeSet::new();
        for (&ino, change) in links {
            self.check_midway()?;
            let record = self.inode(ino)?;
            if record.kind != NodeKind::Directory {
                continue;
            }
            if change.names < 0 {
                self.note_structural(NAME_SPACE, ino, 0, u64::MAX);
                let mut left = Vec::new();
                self.collect_entries(ino, 0, 1, &mut left)?;
                if !left.is_empty() || record.nlink != 0 {
                    self.object(report, ConflictKind::Listing, ino);
                }
                continue;
            }
            if change.names == 0 && change.parent.is_none() {
                if record.nlink == 0 && self.has_names(ino)? {
                    self.object(report, ConflictKind::Existence, ino);
                }
                continue;
            }
            // The way to the root, unless it has been gone already.
            let mut way = BTreeSet::new();
            let mut at = ino;
            while at != ROOT_INO && !fine.contains(&at) {
                self.note_structural(ATTRIBUTE_SPACE, at, PARENT, PARENT);
                let parent = self.inode(at)?.parent;
                let living = self.inode(parent).is_ok_and(|record| record.nlink > 0);
                if !living || !way.insert(at) {
                    self.object(report, ConflictKind::Parent, ino);
                    way.clear();
                    break;
                }
                at = parent;
            }
            fine.append(&mut way);
        }
        Ok(())
    }

    fn has_names(&mut self, directory: Ino) -> Result<bool> {
        let mut batch = Vec::new();
        self.collect_entries(directory, 0, 1, &mut batch)?;
        Ok(!batch.is_empty())
    }

    fn put_node_back(&mut self, undo: &UndoData, ino: Ino, change: &NodeChange) -> Result<()> {
        self.check_midway()?;
        let now = self.now();
        let mut back = permissions(&self.inode(ino)?);
        let seen = load_inode(&self.snapshot, ino)?;
        let (mut mtime, mut atime) = (None, None);
        if let (Some((before, after)), Some(seen)) = (&change.records, seen) {
            if before.kind == NodeKind::File && before.size != after.size {
                self.set_size(ino, before.size, now)?;
            }
            if permissions(before) != permissions(after) {
                back = permissions(before);
            }
            let moved = |before, after, seen| (before != after && seen == after).then_some(before);
            mtime = moved(before.mtime, after.mtime, seen.mtime);
            atime = moved(before.atime, after.atime, seen.atime);
        }
        self.put_pages_back(undo, ino, change)?;
        for (name, (before, _)) in &change.xattrs {
            let hash = self.shared.hasher.hash(name);
            self.touch(XATTR_SPACE, ino, hash, hash, true);
            self.inode_mut(ino)?.xattrs.insert(name.clone(), before.clone());
        }
        // Last, since writing moves times.
        let other = permissions(&self.inode(ino)?) != back;
        if other {
            self.touch(ATTRIBUTE_SPACE, ino, PERMISSIONS, PERMISSIONS, true);
        }
        let node = self.inode_mut(ino)?;
        (node.record.mode, node.record.uid, node.record.gid) = back;
        node.permissions |= other;
        if let Some(mtime) = mtime {
            (node.record.mtime, node.mtime) = (mtime, TimeIntent::Touched);
        }
        if let Some(atime) = atime {
            (node.record.atime, node.atime) = (atime, TimeIntent::Touched);
        }
        if other || mtime.is_some() || atime.is_some() || !change.xattrs.is_empty() {
            node.touch_node(now);
        }
        Ok(())
    }

    /// Puts the old content into the pages that the commit cleared; what had none becomes a hole.
    fn put_pages_back(&mut self, undo: &UndoData, ino: Ino, change: &NodeChange) -> Result<()> {
        if change.cleared.is_empty() {
            return Ok(());
        }
        let size = self.inode(ino)?.size;
        for &(first, last) in &change.cleared {
            let from = first.saturating_mul(PAGE_BYTES);
            if from >= size {
                continue;
            }
            let to = last.saturating_add(1).saturating_mul(PAGE_BYTES).min(size.next_multiple_of(PAGE_BYTES));
            self.clear_bytes(ino, from, to)?;
        }
        let mut old: Vec<(u64, Extent)> = Vec::new();
        let snapshot = self.snapshot.clone();
        visit_old_content(&snapshot, undo.number, ino, &mut |first, extent| {
            old.push((first, extent));
            Ok(())
        })?;
        for (first, extent) in old {
            self.check_midway()?;
            let mut page = 0;
            while page < u64::from(extent.pages()) {
                let at = (first + page) * PAGE_BYTES;
                let skip = page * PAGE_BYTES;
                let stored = (u64::from(extent.len) - skip).min(PIECE_PAGES * PAGE_BYTES);
                let len = stored.min(size.saturating_sub(at));
                if len > 0 {
                    let mut bytes = vec![0; len as usize];
                    self.shared.engine.read(&extent, skip, &mut bytes)?;
                    self.write(ino, at, &bytes)?;
                }
                page += PIECE_PAGES;
            }
        }
        Ok(())
    }
}

/// Counts a name in `directory` that comes (1) or goes (-1).
fn count(links: &mut BTreeMap<Ino, Links>, directory: Ino, entry: Entry, by: i64) {
    let Some((ino, kind)) = entry else { return };
    let node = links.entry(ino).or_default();
    node.names += by;
    if by > 0 {
        node.parent = Some(directory);
    }
    if kind == NodeKind::Directory {
        links.entry(directory).or_default().subdirectories += by;
    }
}

fn permissions(record: &InodeRecord) -> (u32, u32, u32) {
    (record.mode, record.uid, record.gid)
}

/// How many of `len` pages from `start` on lie between `first` and `last`.
fn within(start: u64, len: usize, first: u64, last: u64) -> u64 {
    let end = start.saturating_add(len as u64).min(last.saturating_add(1));
    end.saturating_sub(start.max(first))
}
