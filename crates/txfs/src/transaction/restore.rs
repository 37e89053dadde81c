//! Making a path as it was in a snapshot, as part of a transaction.
//!
//! It is put together from ordinary operations of the transaction, so it conflicts as they do, and a reader sees all of it or
//! nothing. A file or directory that still is what it was at that path is changed in place, as far as it differs, so its other
//! names see that too. What has been replaced by something else makes way for a new node; names of one node in what is
//! restored are names of one node again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use txfs_engine::Durability;

use super::Transaction;
use super::session::{PAGE_MAX, load_extents};
use crate::error::{Error, Result};
use crate::options::TransactionOptions;
use crate::paths::components_reversed;
use crate::snapshot::SnapshotView;
use crate::types::{
    AllocateMode, Attributes, Ino, NewNode, NodeKind, PAGE_BYTES, ROOT_INO, SetAttributes, SetTime, XattrMode,
};
use crate::view::View;
use crate::volume::Volume;

/// How much is compared at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What restoring a path did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Nodes that were made.
    pub made: u64,
    /// Nodes that were there and were changed.
    pub changed: u64,
    /// Names that were removed, because they were not there then or stood for something else.
    pub removed: u64,
    /// Nodes that are as they were.
    pub unchanged: u64,
    /// Bytes of file data that were written.
    pub data_bytes: u64,
}

impl Restored {
    fn add(&mut self, other: Restored) {
        self.made += other.made;
        self.changed += other.changed;
        self.removed += other.removed;
        self.unchanged += other.unchanged;
        self.data_bytes += other.data_bytes;
    }
}

impl Volume {
    /// Makes a path as it was in a named snapshot, in one recorded transaction: a file with its content and attributes, a
    /// directory with everything below. See [`Transaction::restore`].
    pub fn restore(&self, name: &str, path: impl AsRef<Path>, durability: Durability) -> Result<Restored> {
        self.restore_all(name, &[path], durability)
    }

    /// As [`Volume::restore`], with several paths in one transaction. After a conflict it is tried again, ten times in all.
    pub fn restore_all(
        &self,
        name: &str,
        paths: &[impl AsRef<Path>],
        durability: Durability,
    ) -> Result<Restored> {
        const ATTEMPTS: u32 = 10;
        let past = self.open_snapshot(name)?;
        let names: Vec<String> = paths.iter().map(|path| path.as_ref().display().to_string()).collect();
        let label = format!("restore {} from snapshot {name}", names.join(", "));
        let options = TransactionOptions { label, recorded: true, ..TransactionOptions::default() };
        let mut attempts = self.attempts(options);
        loop {
            let tx = attempts.begin();
            let mut all = Restored::default();
            let done = paths.iter().try_for_each(|path| {
                let restored = tx.restore(&past, path)?;
                all.add(restored);
                Ok(())
            });
            match done.and_then(|()| tx.commit(durability)) {
                Ok(_) => return Ok(all),
                Err(error) if !error.is_conflict() || attempts.count() >= ATTEMPTS => return Err(error),
                Err(_) => {}
            }
            drop(tx);
            std::thread::sleep(attempts.pause());
        }
    }
}

impl Transaction {
    /// Makes a path as it was in `past`: a file with its content and attributes, a directory with everything below it, in which
    /// names that were not there then go. Directories on the way that are missing are made. Symbolic links on the way
    /// are not followed. `ENOENT` when there was nothing at that path.
    pub fn restore(&self, past: &SnapshotView, path: impl AsRef<Path>) -> Result<Restored> {
        let path = path.as_ref();
        let mut work = Restore { past, now: self, made: BTreeMap::new(), report: Restored::default() };
        work.path(path).map_err(|error| error.at("restore", path))?;
        Ok(work.report)
    }
}

struct Restore<'a> {
    past: &'a SnapshotView,
    now: &'a Transaction,
    /// What nodes of the snapshot are now.
    made: BTreeMap<Ino, Ino>,
    report: Restored,
}

impl Restore<'_> {
    fn path(&mut self, path: &Path) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let mut names = components_reversed(path.as_os_str().as_bytes());
        if names.iter().any(|name| name == b"..") {
            return Err(Error::Invalid("a path to be restored has no `..`"));
        }
        let Some(last) = (!names.is_empty()).then(|| names.remove(0)) else {
            return self.directory(ROOT_INO, ROOT_INO);
        };
        let (mut then, mut now) = (ROOT_INO, ROOT_INO);
        // Whether there was anything is known before anything is made.
        let mut way = Vec::new();
        while let Some(name) = names.pop() {
            let found = self.past.lookup(then, &name)?;
            if !found.is_directory() {
                return Err(Error::NotDirectory);
            }
            then = found.ino;
            way.push((name, found));
        }
        let found = self.past.lookup(then, &last)?;
        for (name, before) in way {
            now = match self.now.lookup(now, &name) {
                Ok(there) if there.is_directory() => there.ino,
                Ok(_) => return Err(Error::NotDirectory),
                Err(Error::NotFound) => {
                    let made = self.make(&before, now, &name)?;
                    self.attributes(&before, made)?;
                    made
                }
                Err(error) => return Err(error),
            };
        }
        self.node(&found, now, &last)
    }

    /// Makes the name `name` of directory `parent` stand for what `before` was.
    fn node(&mut self, before: &Attributes, parent: Ino, name: &[u8]) -> Result<()> {
        let there = match self.now.lookup(parent, name) {
            Ok(there) => Some(there),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        if let Some(&made) = self.made.get(&before.ino) {
            if there.as_ref().is_some_and(|there| there.ino == made) {
                return Ok(());
            }
            self.make_way(there.as_ref(), parent, name)?;
            return self.now.link(made, parent, name).map(drop);
        }
        let stays = |there: &&Attributes| match before.kind {
            NodeKind::Directory => there.is_directory(),
            kind => there.ino == before.ino && there.kind == kind,
        };
        let ino = match there.as_ref().filter(stays) {
            Some(there) => there.ino,
            None => {
                self.make_way(there.as_ref(), parent, name)?;
                self.make(before, parent, name)?
            }
        };
        match before.kind {
            NodeKind::Directory => return self.directory(before.ino, ino),
            NodeKind::File => {
                self.made.insert(before.ino, ino);
                let changed = self.content(before, ino)?;
                let changed = self.attributes(before, ino)? || changed;
                self.count(ino, before.ino, changed);
            }
            _ => {
                self.made.insert(before.ino, ino);
                let changed = self.attributes(before, ino)?;
                self.count(ino, before.ino, changed);
            }
        }
        Ok(())
    }

    /// Counts a node that was there before; one that was made is counted already.
    fn count(&mut self, ino: Ino, before: Ino, changed: bool) {
        match (ino == before, changed) {
            (false, _) => {}
            (true, true) => self.report.changed += 1,
            (true, false) => self.report.unchanged += 1,
        }
    }

    fn directory(&mut self, then: Ino, now: Ino) -> Result<()> {
        let before = self.past.attributes(then)?;
        let entries = self.past.list_directory(then)?;
        let names: BTreeSet<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        let there = self.now.list_directory(now)?;
        let mut changed = false;
        for entry in there.iter().filter(|entry| !names.contains(entry.name.as_slice())) {
            self.remove(now, &entry.name, entry.ino, entry.kind == NodeKind::Directory)?;
            changed = true;
        }
        for entry in &entries {
            let node = self.past.attributes(entry.ino)?;
            self.node(&node, now, &entry.name)?;
        }
        // Last, since its times move with its names.
        let changed = self.attributes(&before, now)? || changed;
        self.count(now, then, changed);
        Ok(())
    }

    fn make_way(&mut self, there: Option<&Attributes>, parent: Ino, name: &[u8]) -> Result<()> {
        match there {
            Some(there) => self.remove(parent, name, there.ino, there.is_directory()),
            None => Ok(()),
        }
    }

    /// Removes a name, and all below it.
    fn remove(&mut self, parent: Ino, name: &[u8], ino: Ino, directory: bool) -> Result<()> {
        self.report.removed += 1;
        if !directory {
            return self.now.unlink(parent, name);
        }
        // The deepest first, without a call for each level.
        let mut pending = vec![(parent, name.to_vec(), ino, false)];
        while let Some((parent, name, ino, empty)) = pending.pop() {
            if empty {
                self.now.remove_directory(parent, &name)?;
                continue;
            }
            pending.push((parent, name, ino, true));
            for entry in self.now.list_directory(ino)? {
                match entry.kind {
                    NodeKind::Directory => pending.push((ino, entry.name, entry.ino, false)),
                    _ => self.now.unlink(ino, &entry.name)?,
                }
                self.report.removed += 1;
            }
        }
        Ok(())
    }

    fn make(&mut self, before: &Attributes, parent: Ino, name: &[u8]) -> Result<Ino> {
        let target = match before.kind {
            NodeKind::Symlink => Some(self.past.read_link(before.ino)?),
            _ => None,
        };
        let Attributes { kind, mode, uid, gid, rdev, .. } = *before;
        self.report.made += 1;
        Ok(self.now.make_node(parent, name, &NewNode { kind, mode, uid, gid, rdev, target })?.ino)
    }

    /// Makes owner, mode, times and extended attributes as they were; true when some were not.
    fn attributes(&mut self, before: &Attributes, ino: Ino) -> Result<bool> {
        let mut changed = false;
        let (old, new) = (self.past.list_xattrs(before.ino)?, self.now.list_xattrs(ino)?);
        for name in new.iter().filter(|name| !old.contains(name)) {
            self.now.remove_xattr(ino, name)?;
            changed = true;
        }
        for name in old {
            let value = self.past.get_xattr(before.ino, &name)?;
            if !new.contains(&name) || self.now.get_xattr(ino, &name)? != value {
                self.now.set_xattr(ino, &name, &value, XattrMode::Set)?;
                changed = true;
            }
        }
        let there = self.now.attributes(ino)?;
        let differs = |before: u32, there: u32| (before != there).then_some(before);
        let set = SetAttributes {
            mode: differs(before.mode, there.mode),
            uid: differs(before.uid, there.uid),
            gid: differs(before.gid, there.gid),
            atime: (before.atime != there.atime).then_some(SetTime::At(before.atime)),
            mtime: (before.mtime != there.mtime).then_some(SetTime::At(before.mtime)),
            ..SetAttributes::default()
        };
        if set != SetAttributes::default() {
            self.now.set_attributes(ino, &set)?;
            changed = true;
        }
        Ok(changed)
    }

    /// Makes a file's content as it was, writing only what differs; true when something did.
    fn content(&mut self, before: &Attributes, ino: Ino) -> Result<bool> {
        if self.is_same(before, ino)? {
            return Ok(false);
        }
        let there = self.now.attributes(ino)?;
        let mut changed = there.size != before.size;
        if changed {
            self.now.set_attributes(ino, &SetAttributes { size: Some(before.size), ..Default::default() })?;
        }
        let place = |found: Result<u64>, none: u64| match found {
            Ok(offset) => Ok(offset),
            Err(Error::NoSuchPlace) => Ok(none),
            Err(error) => Err(error),
        };
        let mut at = 0;
        while at < before.size {
            let data = place(self.past.seek_data(before.ino, at), before.size)?;
            if data > at {
                if place(self.now.seek_data(ino, at), u64::MAX)? < data {
                    self.now.allocate(ino, AllocateMode::PunchHole, at, data - at)?;
                    changed = true;
                }
                at = data;
                continue;
            }
            let end = place(self.past.seek_hole(before.ino, at), before.size)?.min(before.size);
            while at < end {
                let len = PIECE_BYTES.min((end - at) as usize);
                changed |= self.piece(before.ino, ino, at, len)?;
                at += len as u64;
            }
        }
        Ok(changed)
    }

    /// Compares a piece of a file, which is data, and writes the runs of pages that differ.
    fn piece(&mut self, then: Ino, now: Ino, at: u64, len: usize) -> Result<bool> {
        let (old, new) = (self.past.read(then, at, len)?, self.now.read(now, at, len)?);
        let page = PAGE_BYTES as usize;
        let pages = old.len().div_ceil(page);
        let range = |index: usize| index * page..((index + 1) * page).min(old.len());
        let differs = |index: usize| new.get(range(index)) != Some(&old[range(index)]);
        let mut changed = false;
        let mut index = 0;
        while index < pages {
            let first = index;
            while index < pages && differs(index) {
                index += 1;
            }
            if first < index {
                let bytes = &old[first * page..(index * page).min(old.len())];
                self.now.write(now, at + (first * page) as u64, bytes)?;
                self.report.data_bytes += bytes.len() as u64;
                changed = true;
            }
            index += 1;
        }
        Ok(changed)
    }

    /// True when the file's data still lies where it lay then: then nothing has to be read.
    fn is_same(&self, before: &Attributes, ino: Ino) -> Result<bool> {
        let then = self.past.session()?;
        self.now.run(|session| {
            let record = session.inode(ino)?;
            let pending = session.overlay.inodes.get(&ino);
            if pending.is_some_and(|state| state.is_created() || !state.data.is_empty())
                || record.size != before.size
            {
                return Ok(false);
            }
            let (old, new) = (
                load_extents(&then.snapshot, before.ino, 0, PAGE_MAX)?,
                load_extents(&session.snapshot, ino, 0, PAGE_MAX)?,
            );
            let same = old == new;
            if same {
                session.note_pages(ino, 0, u64::MAX);
            }
            Ok(same)
        })
    }
}
