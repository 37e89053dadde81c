//! The passes over the records of one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use txfs_engine::{Extent, Read};

use super::{Problem, ProblemKind, VolumeCheck};
use crate::error::{Error, Result};
use crate::records::{Bucket, InodeRecord, NameHasher, key, small};
use crate::transaction::apply::load_next_ino;
use crate::types::{Ino, NodeKind, PAGE_BYTES, ROOT_INO};

/// What is known so far.
#[derive(Default)]
struct Examination {
    report: VolumeCheck,
    inodes: BTreeMap<Ino, InodeRecord>,
    /// Inodes whose record does not decode: what else is said about them is not judged.
    unreadable: BTreeSet<Ino>,
    orphans: BTreeSet<Ino>,
    /// Number of names of each node.
    names: BTreeMap<Ino, u64>,
    /// Subdirectories of each directory.
    children: BTreeMap<Ino, Vec<Ino>>,
    symlinks: BTreeMap<Ino, usize>,
}

/// Examines one state of the volume.
pub(super) fn examine(read: &dyn Read, hasher: &NameHasher) -> Result<VolumeCheck> {
    let mut examination = Examination::default();
    for pass in 0..7 {
        let result = match pass {
            0 => examination.read_inodes(read),
            1 => examination.read_orphans(read),
            2 => examination.read_entries(read, hasher),
            3 => examination.read_extents(read),
            4 => examination.read_attachments(read),
            5 => examination.read_history(read),
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
            .filter(|(ino, _)| !self.orphans.contains(ino) && **ino != ROOT_INO)
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
