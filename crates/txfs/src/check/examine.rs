//! The passes over the records of one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use txfs_engine::{Extent, Read, read_saved_value, split_saved_key};

use super::{Problem, ProblemKind, VolumeCheck};
use crate::error::{Error, Result};
use crate::kept;
use crate::records::kept::Stage;
use crate::records::undo::{UNDO_TAG, UndoItem, decode_chunk, is_chunk};
use crate::records::{Bucket, InodeRecord, NameHasher, key, small};
use crate::transaction::apply::load_next_ino;
use crate::types::{Ino, NodeKind, PAGE_BYTES, ROOT_INO};
use crate::undo::decode_old_content;

/// What is known so far.
#[derive(Default)]
struct Examination {
    report: VolumeCheck,
    inodes: BTreeMap<Ino, InodeRecord>,
    /// Inodes whose record does not decode: what else is said about them is not judged.
    unreadable: BTreeSet<Ino>,
    orphans: BTreeSet<Ino>,
    /// Nodes without a name that are kept for undoing a commit, and under which number.
    removed: BTreeMap<Ino, u64>,
    /// Number of names of each node.
    names: BTreeMap<Ino, u64>,
    /// Subdirectories of each directory.
    children: BTreeMap<Ino, Vec<Ino>>,
    symlinks: BTreeMap<Ino, usize>,
    /// Numbers under which data of kept transactions stands.
    shadows: BTreeSet<Ino>,
    /// The state is that of a named snapshot.
    named: bool,
}

/// Examines one state of the volume: the present one, or that of a named snapshot, which says nothing of the volume's own
/// records.
pub(super) fn examine(read: &dyn Read, hasher: &NameHasher, named: bool) -> Result<VolumeCheck> {
    let mut examination = Examination { named, ..Examination::default() };
    for pass in 0..10 {
        let result = match pass {
            3 | 6 | 8 if named => Ok(()),
            0 => examination.read_inodes(read),
            1 => examination.read_orphans(read),
            2 => examination.read_entries(read, hasher),
            3 => examination.read_kept(read),
            4 => examination.read_extents(read),
            5 => examination.read_attachments(read),
            6 => examination.read_history(read),
            7 => examination.read_removed(read),
            8 => examination.read_undo(read),
            _ => examination.check_counter(read),
        };
        match result {
            Ok(()) => {}
            // The index itself is damaged there: say so, and look at the rest.
            Err(Error::Corrupt { what }) => examination.add(ProblemKind::Storage, None, what),
            Err(error) => return Err(error),
        }
    }
    examination.check_tree();
    examination.check_links();
    Ok(examination.report)
}

/// Calls `visit` for every key with a tag.
fn each(read: &dyn Read, tag: u8, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    let (from, to) = key::all(tag);
    read.scan(&from, &to, &mut |key, value| {
        visit(key, value);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

impl Examination {
    fn add(&mut self, kind: ProblemKind, ino: Option<Ino>, message: impl Into<String>) {
        self.report.problems.push(Problem { kind, ino, path: None, message: message.into() });
    }

    /// The node that something is attached to; a problem when there is none.
    fn owner(&mut self, key: &[u8], what: &str) -> Option<(Ino, InodeRecord)> {
        let Some(ino) = key::ino_of(key) else {
            self.add(ProblemKind::Record, None, format!("{what}: its key is too short"));
            return None;
        };
        match self.inodes.get(&ino) {
            Some(record) => Some((ino, record.clone())),
            None if self.unreadable.contains(&ino) => None,
            None => {
                let message = format!("{what} belongs to inode {ino}, which does not exist");
                self.add(ProblemKind::Attachment, Some(ino), message);
                None
            }
        }
    }

    fn read_inodes(&mut self, read: &dyn Read) -> Result<()> {
        each(read, key::INODE_TAG, &mut |key, value| match key::ino_of(key).filter(|_| key.len() == 9) {
            None => self.add(ProblemKind::Record, None, "an inode's key has the wrong length"),
            Some(ino) => match InodeRecord::decode(value) {
                Ok(record) => {
                    *match record.kind {
                        NodeKind::Directory => &mut self.report.directories,
                        NodeKind::File => &mut self.report.files,
                        _ => &mut self.report.others,
                    } += 1;
                    self.inodes.insert(ino, record);
                }
                Err(detail) => {
                    self.unreadable.insert(ino);
                    self.add(ProblemKind::Record, Some(ino), detail);
                }
            },
        })
    }

    fn read_history(&mut self, read: &dyn Read) -> Result<()> {
        each(read, key::HISTORY_TAG, &mut |key, value| {
            if let Err(error) = crate::history::entry(key, value) {
                self.add(ProblemKind::Record, None, error.to_string());
            }
        })
    }

    fn read_removed(&mut self, read: &dyn Read) -> Result<()> {
        each(read, key::REMOVED_TAG, &mut |key, value| {
            let Some((ino, _)) = self.owner(key, "a mark of a node that is kept for undoing") else { return };
            match small::decode_number(value) {
                Ok(number) => {
                    self.removed.insert(ino, number);
                }
                Err(detail) => {
                    self.add(ProblemKind::Record, Some(ino), format!("its mark for undoing: {detail}"));
                }
            }
        })
    }

    fn read_undo(&mut self, read: &dyn Read) -> Result<()> {
        // Marks of which nobody knows what they are for.
        let mut lost = self.removed.clone();
        each(read, UNDO_TAG, &mut |key, value| {
            let number = split_saved_key(key).map(|(_, number, _)| number);
            if !is_chunk(key) {
                if let Err(error) = decode_old_content(key, value) {
                    self.add(ProblemKind::Record, None, error.to_string());
                }
                return;
            }
            match decode_chunk(value) {
                Ok(items) => {
                    for item in items {
                        if let UndoItem::Removed { ino, .. } = item
                            && lost.get(&ino).copied() == number
                        {
                            lost.remove(&ino);
                        }
                    }
                }
                Err(detail) => self.add(ProblemKind::Record, None, detail),
            }
        })?;
        for (ino, number) in lost {
            let message = format!("it is kept for undoing a commit, but nothing else is (number {number})");
            self.add(ProblemKind::Unreachable, Some(ino), message);
        }
        Ok(())
    }

    fn read_kept(&mut self, read: &dyn Read) -> Result<()> {
        let mut names = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (id, header) in kept::headers(read)? {
            ids.insert(id);
            match header {
                Ok(header) if header.stage != Stage::Going && !names.insert(header.name.clone()) => {
                    let message = format!("there are two kept transactions {:?}", header.name);
                    self.add(ProblemKind::Record, None, message);
                }
                Ok(_) => {}
                Err(error) => self.add(ProblemKind::Record, None, error.to_string()),
            }
            let mut problems = Vec::new();
            let mut numbers = vec![id];
            let (from, to) = key::kept_all(id);
            read.scan(&from, &to, &mut |key, value| {
                match kept::examine(key, value) {
                    Ok(None) => {}
                    Ok(Some((ino, state))) => {
                        numbers.extend(state.shadow);
                        numbers.extend(state.is_created().then_some(ino));
                        self.shadows.extend(state.shadow);
                    }
                    Err(detail) => problems.push(format!("kept transaction {id}: {detail}")),
                }
                ControlFlow::Continue(())
            })?;
            problems.into_iter().for_each(|problem| self.add(ProblemKind::Record, None, problem));
            let next = load_next_ino(read)?;
            if let Some(ino) = numbers.into_iter().max().filter(|ino| *ino >= next) {
                let message =
                    format!("a kept transaction uses it, but the next inode number to hand out is {next}");
                self.add(ProblemKind::Counter, Some(ino), message);
            }
        }
        each(read, kept::BASE_TAG, &mut |key, value| {
            let id = split_saved_key(key).map(|(_, id, _)| id);
            if !id.is_some_and(|id| ids.contains(&id)) {
                let message =
                    format!("an old value is saved for kept transaction {id:?}, which does not exist");
                self.add(ProblemKind::Attachment, None, message);
            }
            if let Err(error) = read_saved_value(value) {
                self.add(ProblemKind::Record, None, format!("what is saved for a kept transaction: {error}"));
            }
        })
    }

    fn read_orphans(&mut self, read: &dyn Read) -> Result<()> {
        each(read, key::ORPHAN_TAG, &mut |key, _| {
            if let Some((ino, record)) = self.owner(key, "an orphan mark") {
                self.orphans.insert(ino);
                self.report.orphans += 1;
                if record.nlink != 0 {
                    let message = format!("marked as an orphan, but it counts {} names", record.nlink);
                    self.add(ProblemKind::Attachment, Some(ino), message);
                }
            }
        })
    }

    fn read_entries(&mut self, read: &dyn Read, hasher: &NameHasher) -> Result<()> {
        each(read, key::DIRENT_TAG, &mut |key, value| {
            let Some((directory, record)) = self.owner(key, "a directory entry") else { return };
            if record.kind != NodeKind::Directory {
                return self.add(
                    ProblemKind::Entry,
                    Some(directory),
                    "it has entries, but it is not a directory",
                );
            }
            let (hash, bucket) = match (key::second_of(key), Bucket::decode(value)) {
                (Some(hash), Ok(bucket)) => (hash, bucket),
                (None, _) => {
                    let message = "a directory entry's key has the wrong length";
                    return self.add(ProblemKind::Record, Some(directory), message);
                }
                (_, Err(detail)) => return self.add(ProblemKind::Record, Some(directory), detail),
            };
            for (index, dirent) in bucket.0.iter().enumerate() {
                let name = String::from_utf8_lossy(&dirent.name);
                let mut complain = |what: String| {
                    self.add(ProblemKind::Entry, Some(directory), format!("its entry {name:?} {what}"));
                };
                if hasher.hash(&dirent.name) != hash {
                    complain("lies under the wrong hash: it cannot be looked up".into());
                }
                if bucket.0[..index].iter().any(|other| other.name == dirent.name) {
                    complain("is there twice".into());
                }
                self.add_entry(directory, dirent.ino, dirent.kind, &name);
            }
        })
    }

    fn add_entry(&mut self, directory: Ino, ino: Ino, kind: NodeKind, name: &str) {
        *self.names.entry(ino).or_insert(0) += 1;
        let Some(node) = self.inodes.get(&ino) else {
            if !self.unreadable.contains(&ino) {
                let message = format!("its entry {name:?} names inode {ino}, which does not exist");
                self.add(ProblemKind::Entry, Some(directory), message);
            }
            return;
        };
        if node.kind != kind {
            let message = format!("its entry {name:?} says {kind:?}, but inode {ino} is a {:?}", node.kind);
            return self.add(ProblemKind::Entry, Some(directory), message);
        }
        if kind == NodeKind::Directory {
            let parent = node.parent;
            if self.names.get(&ino).is_some_and(|&count| count > 1) || ino == ROOT_INO {
                let message = format!("its entry {name:?} is a second one of directory inode {ino}");
                self.add(ProblemKind::Tree, Some(directory), message);
            }
            if parent != directory {
                let message = format!("it lies in directory inode {directory}, but says it lies in {parent}");
                self.add(ProblemKind::Tree, Some(ino), message);
            }
            self.children.entry(directory).or_default().push(ino);
        }
    }

    fn read_extents(&mut self, read: &dyn Read) -> Result<()> {
        let mut pages: BTreeMap<Ino, u64> = BTreeMap::new();
        // The file of the last extent, and the page behind it.
        let mut last = (0, 0);
        each(read, key::EXTENT_TAG, &mut |key, value| {
            self.report.extents += 1;
            // In a snapshot, those of transactions that were kept then may have ended since.
            let shadow = key::ino_of(key).filter(|ino| self.named || self.shadows.contains(ino));
            let owned = |ino: &Ino| self.inodes.contains_key(ino) || self.unreadable.contains(ino);
            if let Some(ino) = shadow.filter(|ino| !owned(ino)) {
                let (Some(first), Ok(extent)) = (key::second_of(key), Extent::decode(value)) else {
                    let message = "an extent of a kept transaction does not decode";
                    return self.add(ProblemKind::Record, Some(ino), message);
                };
                if last.0 == ino && first < last.1 {
                    let message = format!("its extents, of a kept transaction, overlap at page {first}");
                    self.add(ProblemKind::Extent, Some(ino), message);
                }
                last = (ino, first.saturating_add(u64::from(extent.pages())));
                return;
            }
            let Some((ino, record)) = self.owner(key, "an extent") else { return };
            let (first, extent) = match (key::second_of(key), Extent::decode(value)) {
                (Some(first), Ok(extent)) => (first, extent),
                (None, _) => {
                    let message = "an extent's key has the wrong length";
                    return self.add(ProblemKind::Record, Some(ino), message);
                }
                (_, Err(error)) => {
                    let message = format!("an extent does not decode: {error}");
                    return self.add(ProblemKind::Record, Some(ino), message);
                }
            };
            let behind = first.saturating_add(u64::from(extent.pages()));
            if record.kind != NodeKind::File {
                let message = format!("it has data, but it is a {:?}", record.kind);
                self.add(ProblemKind::Extent, Some(ino), message);
            }
            if last.0 == ino && first < last.1 {
                let message = format!("its extents overlap at page {first}");
                self.add(ProblemKind::Extent, Some(ino), message);
            }
            if behind > record.size.div_ceil(PAGE_BYTES) {
                let message = format!("pages {first} to {} lie behind its end", behind - 1);
                self.add(ProblemKind::Extent, Some(ino), message);
            }
            last = (ino, behind);
            *pages.entry(ino).or_insert(0) += u64::from(extent.pages());
        })?;
        let wrong: Vec<(Ino, u64, u64)> = self
            .inodes
            .iter()
            .map(|(&ino, record)| (ino, record.pages, pages.get(&ino).copied().unwrap_or(0)))
            .filter(|(_, said, found)| said != found)
            .collect();
        for (ino, said, found) in wrong {
            let message = format!("it counts {said} pages of data, but it has {found}");
            self.add(ProblemKind::Blocks, Some(ino), message);
        }
        Ok(())
    }

    fn read_attachments(&mut self, read: &dyn Read) -> Result<()> {
        each(read, key::SYMLINK_TAG, &mut |key, value| {
            let Some((ino, record)) = self.owner(key, "a symlink's target") else { return };
            match small::decode_bytes(value) {
                _ if record.kind != NodeKind::Symlink => {
                    self.add(ProblemKind::Attachment, Some(ino), "it has a target, but it is not a symlink");
                }
                Ok(target) => {
                    self.symlinks.insert(ino, target.len());
                }
                Err(detail) => self.add(ProblemKind::Record, Some(ino), format!("its target: {detail}")),
            }
        })?;
        let symlinks = self.inodes.iter().filter(|(_, record)| record.kind == NodeKind::Symlink);
        let wrong: Vec<Ino> = symlinks
            .filter(|(ino, record)| self.symlinks.get(ino).is_none_or(|&len| len as u64 != record.size))
            .map(|(&ino, _)| ino)
            .collect();
        for ino in wrong {
            self.add(
                ProblemKind::Attachment,
                Some(ino),
                "its target is missing or has another length than it says",
            );
        }
        each(read, key::XATTR_TAG, &mut |key, value| {
            let Some((ino, _)) = self.owner(key, "an extended attribute") else { return };
            let name = String::from_utf8_lossy(key::xattr_name(key)).into_owned();
            if name.is_empty() {
                self.add(ProblemKind::Record, Some(ino), "an extended attribute without a name");
            }
            if let Err(detail) = small::decode_bytes(value) {
                self.add(ProblemKind::Record, Some(ino), format!("its attribute {name:?}: {detail}"));
            }
        })
    }

    fn check_counter(&mut self, read: &dyn Read) -> Result<()> {
        let next = load_next_ino(read)?;
        if let Some((&ino, _)) = self.inodes.last_key_value()
            && ino >= next
        {
            let message = format!("it is in use, but the next inode number to hand out is {next}");
            self.add(ProblemKind::Counter, Some(ino), message);
        }
        Ok(())
    }

    /// Walks from the root; directories that have an entry but are not met lie in a cycle or below an unreachable one.
    fn check_tree(&mut self) {
        match self.inodes.get(&ROOT_INO) {
            Some(root) if root.kind == NodeKind::Directory => {}
            _ if self.unreadable.contains(&ROOT_INO) => {}
            _ => return self.add(ProblemKind::Tree, Some(ROOT_INO), "there is no root directory"),
        }
        let mut met = BTreeSet::from([ROOT_INO]);
        let mut pending = vec![ROOT_INO];
        while let Some(directory) = pending.pop() {
            for &child in self.children.get(&directory).into_iter().flatten() {
                if met.insert(child) {
                    pending.push(child);
                }
            }
        }
        let lost: Vec<(Ino, bool)> = self
            .inodes
            .iter()
            .filter(|(ino, _)| {
                !self.orphans.contains(ino) && !self.removed.contains_key(ino) && **ino != ROOT_INO
            })
            .filter_map(|(&ino, record)| {
                let named = self.names.contains_key(&ino);
                let reached = match record.kind {
                    NodeKind::Directory => met.contains(&ino),
                    _ => named,
                };
                (!reached).then_some((ino, named))
            })
            .collect();
        for (ino, named) in lost {
            match named {
                true => {
                    self.add(ProblemKind::Tree, Some(ino), "no path from the root leads to this directory")
                }
                false => self.add(
                    ProblemKind::Unreachable,
                    Some(ino),
                    "it has no name and is not marked as an orphan",
                ),
            }
        }
    }

    fn check_links(&mut self) {
        let count = |map: &BTreeMap<Ino, Vec<Ino>>, ino: &Ino| map.get(ino).map_or(0, Vec::len) as u64;
        let wrong: Vec<(Ino, u32, u64)> = self
            .inodes
            .iter()
            .map(|(ino, record)| {
                let names = self.names.get(ino).copied().unwrap_or(0);
                let expected = match record.kind {
                    NodeKind::Directory if names == 0 && *ino != ROOT_INO => 0,
                    NodeKind::Directory => 2 + count(&self.children, ino),
                    _ => names,
                };
                (*ino, record.nlink, expected)
            })
            .filter(|(_, said, expected)| u64::from(*said) != *expected)
            .collect();
        for (ino, said, expected) in wrong {
            let message = format!("its link count is {said}, but it should be {expected}");
            self.add(ProblemKind::LinkCount, Some(ino), message);
        }
    }
}
