//! Operations on names: lookup, creation, removal, links. Renames and listings have files of their own.

use std::sync::atomic::Ordering;

use txfs_engine::Read;

use super::overlay::{InodeState, NameState};
use super::session::Session;
use crate::conflict::NAME_SPACE;
use crate::error::{Error, Result};
use crate::records::{Bucket, Dirent, InodeRecord, key, small};
use crate::types::{Attributes, Ino, NAME_BYTES_MAX, NewNode, NodeKind, Timestamp};

/// The most names that a node can have.
pub(super) const LINKS_MAX: u32 = i32::MAX as u32;
/// The longest target of a symlink, as Linux has it.
const TARGET_BYTES_MAX: usize = 4095;

/// Refuses names that no directory can hold.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::NotFound);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Error::Invalid("a name must not contain a slash or a NUL byte"));
    }
    Ok(())
}

pub(super) fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl Session {
    pub(crate) fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let ordinary = !matches!(name, b"." | b"..") && check_name(name).is_ok();
        // What has entries is a directory: its own inode, among millions of files a page of its own to be found, is
        // read only when there is none.
        let found = if ordinary { self.find(parent, name)? } else { None };
        let Some(dirent) = found else {
            let directory = self.directory(parent)?;
            return match name {
                b"." => Ok(directory.attributes(parent)),
                b".." => {
                    self.note_parent(parent);
                    Ok(self.inode(directory.parent)?.attributes(directory.parent))
                }
                _ => Err(check_name(name).err().unwrap_or(Error::NotFound)),
            };
        };
        match self.inode(dirent.ino) {
            Ok(record) => Ok(record.attributes(dirent.ino)),
            Err(Error::Stale { ino }) => {
                let name = String::from_utf8_lossy(name);
                let what = format!(
                    "the entry {name:?} of directory inode {parent} names inode {ino}, which is missing"
                );
                Err(Error::Corrupt { what })
            }
            Err(error) => Err(error),
        }
    }

    /// The entry of a name. The read is noted.
    pub(crate) fn find(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        let hash = self.shared.hasher.hash(name);
        self.note_name(directory, hash);
        match self.overlay.names.get(&(directory, hash)) {
            Some(state) => Ok(state.current.find(name).cloned()),
            None => {
                let bucket = load_bucket(&self.snapshot, directory, hash)?;
                Ok(bucket.0.into_iter().find(|dirent| dirent.name == name))
            }
        }
    }

    /// Removes, adds or replaces an entry; `dirent` is what the name stands for afterwards.
    pub(super) fn put_name(
        &mut self,
        directory: Ino,
        name: &[u8],
        dirent: Option<(Ino, NodeKind)>,
    ) -> Result<()> {
        use std::collections::btree_map::Entry;
        let hash = self.shared.hasher.hash(name);
        self.touch(NAME_SPACE, directory, hash, hash, true);
        let state = match self.overlay.names.entry((directory, hash)) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => {
                let created = self.overlay.inodes.get(&directory).is_some_and(InodeState::is_created);
                let original =
                    if created { Bucket::default() } else { load_bucket(&self.snapshot, directory, hash)? };
                vacant.insert(NameState { current: original.clone(), original })
            }
        };
        let names = &mut state.current.0;
        let at = names.iter().position(|known| known.name == name);
        match (at, dirent) {
            (Some(at), None) => {
                names.remove(at);
            }
            (Some(at), Some((ino, kind))) => {
                names[at].ino = ino;
                names[at].kind = kind;
            }
            (None, Some((ino, kind))) => {
                if !state.current.add(name, ino, kind) {
                    // With a secret 61-bit hash this takes more names than any disk holds.
                    return Err(Error::NoSpace);
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Reads everything that an operation is going to change, so that it fails, if at all, before it has changed
    /// anything.
    pub(super) fn prepare(&mut self, inos: &[Ino]) -> Result<()> {
        inos.iter().try_for_each(|&ino| self.inode_mut(ino).map(drop))
    }

    pub(super) fn touch_directory(&mut self, directory: Ino, now: Timestamp) -> Result<()> {
        self.inode_mut(directory)?.touch_content(now);
        Ok(())
    }

    /// The directory, if names can be added to it.
    pub(super) fn living_directory(&self, ino: Ino) -> Result<InodeRecord> {
        let directory = self.directory(ino)?;
        if directory.nlink == 0 { Err(Error::NotFound) } else { Ok(directory) }
    }

    pub(crate) fn make_node(&mut self, parent: Ino, name: &[u8], node: &NewNode) -> Result<Attributes> {
        self.check_writable()?;
        let directory = self.living_directory(parent)?;
        if is_dots(name) {
            return Err(Error::Exists);
        }
        check_name(name)?;
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let is_directory = node.kind == NodeKind::Directory;
        if is_directory && directory.nlink >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let target = match (node.kind, &node.target) {
            (NodeKind::Symlink, None) => return Err(Error::Invalid("a symbolic link needs a target")),
            (NodeKind::Symlink, Some(target)) if target.is_empty() => return Err(Error::NotFound),
            (NodeKind::Symlink, Some(target)) if target.len() > TARGET_BYTES_MAX => {
                return Err(Error::NameTooLong);
            }
            (NodeKind::Symlink, Some(target)) => Some(target.clone()),
            _ => None,
        };
        let now = self.now();
        let inherits = directory.mode & 0o2000 != 0;
        let mut mode = node.mode & 0o7777;
        if inherits && is_directory {
            mode |= 0o2000;
        }
        let ino = self.shared.next_ino.fetch_add(1, Ordering::Relaxed);
        let record = InodeRecord {
            kind: node.kind,
            mode,
            uid: node.uid,
            gid: if inherits { directory.gid } else { node.gid },
            nlink: if is_directory { 2 } else { 1 },
            size: target.as_ref().map_or(0, |target| target.len() as u64),
            pages: 0,
            parent,
            rdev: match node.kind {
                NodeKind::CharacterDevice | NodeKind::BlockDevice => node.rdev,
                _ => 0,
            },
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let attributes = record.attributes(ino);
        self.prepare(&[parent])?;
        self.put_name(parent, name, Some((ino, node.kind)))?;
        let directory = self.inode_mut(parent)?;
        directory.touch_content(now);
        if is_directory {
            directory.add_links(1);
        }
        let state = InodeState { target, ..InodeState::created(record) };
        self.overlay.inodes.insert(ino, state);
        Ok(attributes)
    }

    pub(crate) fn read_link(&mut self, ino: Ino) -> Result<Vec<u8>> {
        let record = self.inode(ino)?;
        if record.kind != NodeKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        self.note_exists(ino);
        if let Some(target) = self.overlay.inodes.get(&ino).and_then(|state| state.target.clone()) {
            return Ok(target);
        }
        let corrupt =
            |detail: &str| Error::Corrupt { what: format!("target of symlink inode {ino}: {detail}") };
        let value = self.snapshot.get(&key::symlink(ino))?.ok_or_else(|| corrupt("missing"))?;
        Ok(small::decode_bytes(&value).map_err(corrupt)?.to_vec())
    }

    pub(crate) fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.directory(parent)?;
        if is_dots(name) {
            return Err(Error::IsDirectory);
        }
        check_name(name)?;
        let dirent = self.find(parent, name)?.ok_or(Error::NotFound)?;
        if dirent.kind == NodeKind::Directory {
            return Err(Error::IsDirectory);
        }
        self.prepare(&[parent, dirent.ino])?;
        let now = self.now();
        self.put_name(parent, name, None)?;
        self.touch_directory(parent, now)?;
        self.drop_link(dirent.ino, now)
    }

    /// A node that is not a directory loses a name.
    pub(super) fn drop_link(&mut self, ino: Ino, now: Timestamp) -> Result<()> {
        let node = self.inode_mut(ino)?;
        node.add_links(-1);
        node.touch_node(now);
        Ok(())
    }

    pub(crate) fn remove_directory(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.directory(parent)?;
        match name {
            b"." => return Err(Error::Invalid("a directory cannot be removed by the name `.`")),
            b".." => return Err(Error::NotEmpty),
            _ => check_name(name)?,
        }
        let dirent = self.find(parent, name)?.ok_or(Error::NotFound)?;
        if dirent.kind != NodeKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.check_empty(dirent.ino)?;
        self.prepare(&[parent, dirent.ino])?;
        let now = self.now();
        self.put_name(parent, name, None)?;
        self.drop_directory(dirent.ino, now)?;
        let directory = self.inode_mut(parent)?;
        directory.touch_content(now);
        directory.add_links(-1);
        Ok(())
    }

    /// An empty directory loses its name; both of its own links go.
    pub(super) fn drop_directory(&mut self, ino: Ino, now: Timestamp) -> Result<()> {
        let node = self.inode_mut(ino)?;
        let links = i64::from(node.record.nlink);
        node.add_links(-links);
        node.touch_node(now);
        Ok(())
    }

    /// Fails unless a directory is empty; that all of its names were looked at is validated at commit.
    pub(super) fn check_empty(&mut self, directory: Ino) -> Result<()> {
        self.note_structural(NAME_SPACE, directory, 0, u64::MAX);
        let mut batch = Vec::new();
        self.collect_entries(directory, 0, 1, &mut batch)?;
        if batch.is_empty() { Ok(()) } else { Err(Error::NotEmpty) }
    }

    pub(crate) fn link(&mut self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attributes> {
        self.check_writable()?;
        self.living_directory(new_parent)?;
        if is_dots(new_name) {
            return Err(Error::Exists);
        }
        check_name(new_name)?;
        if self.find(new_parent, new_name)?.is_some() {
            return Err(Error::Exists);
        }
        let record = self.inode(ino)?;
        if record.kind == NodeKind::Directory {
            return Err(Error::NotPermitted("a directory can have one name only"));
        }
        // A node without a name can get one (again) while somebody uses it: so a nameless temporary file is published.
        if record.nlink == 0 && !self.overlay.inodes.contains_key(&ino) && !self.shared.is_retained(ino) {
            return Err(Error::NotFound);
        }
        if record.nlink >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.prepare(&[new_parent, ino])?;
        let now = self.now();
        self.put_name(new_parent, new_name, Some((ino, record.kind)))?;
        self.touch_directory(new_parent, now)?;
        let node = self.inode_mut(ino)?;
        node.add_links(1);
        node.touch_node(now);
        Ok(node.record.attributes(ino))
    }
}

/// Reads and decodes an entry; an empty one where there is none.
pub(crate) fn load_bucket(read: &dyn Read, directory: Ino, hash: u64) -> Result<Bucket> {
    match read.get(&key::dirent(directory, hash))? {
        None => Ok(Bucket::default()),
        Some(bytes) => Bucket::decode(&bytes).map_err(|detail| Error::Corrupt {
            what: format!("entry {hash:016x} of directory inode {directory}: {detail}"),
        }),
    }
}
