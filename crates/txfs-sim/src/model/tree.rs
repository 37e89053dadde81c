//! One state of the model file system: plain maps, files as plain bytes (a hole is zeros).
//!
//! Cloning a tree copies one map of reference counts, so every commit may keep its own. An inode whose link count
//! is zero stays until [`Tree::reclaim`] says that nobody holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::dump::{Dump, DumpEntry};
use crate::hash::{hash_bytes, mix};
use crate::operation::{Attributes, Ino, Kind, Name, Operation, Outcome, ROOT_INO};

/// What an inode holds.
#[derive(Clone, Debug)]
pub enum Body {
    /// A regular file's bytes.
    File(Arc<Vec<u8>>),
    /// A directory's entries without `.` and `..`.
    Directory {
        /// Name to inode.
        entries: BTreeMap<Name, Ino>,
        /// What `..` names.
        parent: Ino,
    },
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
}

/// One inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; a directory counts `.` and its subdirectories' `..`.
    pub nlink: u32,
    /// Contents.
    pub body: Body,
    /// Extended attributes.
    pub xattrs: BTreeMap<Name, Vec<u8>>,
    /// Cache of [`Node::content_hash`]; reset by [`Tree::node_mut`].
    content_hash: OnceLock<u64>,
}

impl Node {
    pub(super) fn new(mode: u32, nlink: u32, body: Body) -> Self {
        Node { mode, uid: 0, gid: 0, nlink, body, xattrs: BTreeMap::new(), content_hash: OnceLock::new() }
    }

    /// What kind of inode this is.
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Directory { .. } => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Fifo => Kind::Fifo,
        }
    }

    /// Length in bytes of a file or link target; 0 for others.
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(bytes) => bytes.len() as u64,
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }

    /// Hash of the file's bytes or the link's target; 0 for others.
    pub fn content_hash(&self) -> u64 {
        *self.content_hash.get_or_init(|| match &self.body {
            Body::File(bytes) => hash_bytes(bytes),
            Body::Symlink(target) => hash_bytes(target),
            _ => 0,
        })
    }

    /// Hash of all extended attributes.
    pub fn xattrs_hash(&self) -> u64 {
        hash_xattrs(self.xattrs.iter().map(|(name, value)| (name.0.as_slice(), value.as_slice())))
    }
}

/// Hash of extended attributes given in order of name.
pub fn hash_xattrs<'a>(xattrs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> u64 {
    xattrs.fold(0, |state, (name, value)| mix(mix(state, hash_bytes(name)), hash_bytes(value)))
}

/// One state of the whole file system.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Ino, Arc<Node>>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty root directory, as a fresh volume has it.
    pub fn new() -> Self {
        let root = Node::new(0o755, 2, Body::Directory { entries: BTreeMap::new(), parent: ROOT_INO });
        Tree { nodes: BTreeMap::from([(ROOT_INO, Arc::new(root))]) }
    }

    /// An inode, linked or not.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(Arc::as_ref)
    }

    /// All inodes.
    pub fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node.as_ref()))
    }

    /// Inodes with at least one name.
    pub fn linked(&self, kind: Kind) -> Vec<Ino> {
        self.nodes().filter(|(_, node)| node.kind() == kind && node.nlink > 0).map(|(ino, _)| ino).collect()
    }

    pub(super) fn node_mut(&mut self, ino: Ino) -> Option<&mut Node> {
        let node = Arc::make_mut(self.nodes.get_mut(&ino)?);
        node.content_hash = OnceLock::new();
        Some(node)
    }

    pub(super) fn add(&mut self, ino: Ino, node: Node) {
        let before = self.nodes.insert(ino, Arc::new(node));
        assert!(before.is_none(), "the volume gave out inode {ino} while it was in use");
    }

    /// Puts an inode, whether there is one of that number or not.
    pub(super) fn put_node(&mut self, ino: Ino, node: Node) {
        self.nodes.insert(ino, Arc::new(node));
    }

    pub(super) fn put_parent(&mut self, ino: Ino, to: Ino) {
        if let Some(Body::Directory { parent, .. }) = self.node_mut(ino).map(|node| &mut node.body) {
            *parent = to;
        }
    }

    /// Sets every link count to what the names say.
    pub(super) fn count_names(&mut self) {
        let mut links: BTreeMap<Ino, u32> = BTreeMap::from([(ROOT_INO, 2)]);
        for (ino, node) in self.nodes() {
            let Body::Directory { entries, .. } = &node.body else { continue };
            for child in entries.values() {
                let directory = self.node(*child).is_some_and(|node| node.kind() == Kind::Directory);
                *links.entry(*child).or_default() += if directory { 2 } else { 1 };
                *links.entry(ino).or_default() += u32::from(directory);
            }
        }
        let inos: Vec<Ino> = self.nodes.keys().copied().collect();
        for ino in inos {
            let count = links.get(&ino).copied().unwrap_or(0);
            if self.node(ino).is_some_and(|node| node.nlink != count)
                && let Some(node) = self.node_mut(ino)
            {
                node.nlink = count;
            }
        }
    }

    pub(super) fn get(&self, ino: Ino) -> Result<&Node, i32> {
        self.node(ino).ok_or(libc::ENOENT)
    }

    pub(crate) fn entries(&self, ino: Ino) -> Result<&BTreeMap<Name, Ino>, i32> {
        match &self.get(ino)?.body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(libc::ENOTDIR),
        }
    }

    pub(super) fn entries_mut(&mut self, ino: Ino) -> &mut BTreeMap<Name, Ino> {
        match self.node_mut(ino).map(|node| &mut node.body) {
            Some(Body::Directory { entries, .. }) => entries,
            _ => panic!("inode {ino} is no directory: the caller has checked"),
        }
    }

    pub(super) fn parent_of(&self, ino: Ino) -> Option<Ino> {
        match self.node(ino).map(|node| &node.body) {
            Some(Body::Directory { parent, .. }) => Some(*parent),
            _ => None,
        }
    }

    /// Drops inodes without a name that nobody holds.
    pub fn reclaim(&mut self, retained: &BTreeSet<Ino>) {
        self.nodes.retain(|ino, node| node.nlink > 0 || retained.contains(ino));
    }

    /// What `stat` shows.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes, i32> {
        let node = self.get(ino)?;
        Ok(Attributes {
            ino,
            kind: node.kind(),
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            size: node.size(),
        })
    }

    /// Runs one operation. `new_ino` is the number that the volume gave to an inode that the operation makes; the
    /// model takes it over, so that both speak of the same inodes.
    pub fn run(&mut self, operation: &Operation, new_ino: Option<Ino>) -> Outcome {
        self.try_run(operation, new_ino).unwrap_or_else(Outcome::Failed)
    }

    fn try_run(&mut self, operation: &Operation, new_ino: Option<Ino>) -> Result<Outcome, i32> {
        use Operation as O;
        match operation {
            O::Lookup { parent, name } => self.lookup(*parent, name),
            O::Attributes { ino } => Ok(Outcome::Attributes(self.attributes(*ino)?)),
            O::SetMode { ino, mode } => self.set_mode(*ino, *mode),
            O::SetOwner { ino, uid, gid } => self.set_owner(*ino, *uid, *gid),
            O::MakeFile { parent, name, mode } => {
                self.make(*parent, name, new_ino, Node::new(*mode, 1, Body::File(Arc::default())))
            }
            O::MakeDirectory { parent, name, mode } => {
                let body = Body::Directory { entries: BTreeMap::new(), parent: *parent };
                self.make(*parent, name, new_ino, Node::new(*mode, 2, body))
            }
            O::MakeSymlink { parent, name, target } => {
                self.make(*parent, name, new_ino, Node::new(0o777, 1, Body::Symlink(target.clone())))
            }
            O::MakeFifo { parent, name, mode } => {
                self.make(*parent, name, new_ino, Node::new(*mode, 1, Body::Fifo))
            }
            O::ReadLink { ino } => self.read_link(*ino),
            O::Unlink { parent, name } => self.unlink(*parent, name),
            O::RemoveDirectory { parent, name } => self.remove_directory(*parent, name),
            O::Rename { parent, name, new_parent, new_name, renaming } => {
                self.rename((*parent, name), (*new_parent, new_name), *renaming)
            }
            O::Link { ino, parent, name } => self.link(*ino, *parent, name),
            O::ReadDirectory { ino } => self.read_directory(*ino),
            O::Truncate { ino, size } => self.truncate(*ino, *size),
            O::Read { ino, offset, len } => self.read(*ino, *offset, *len),
            O::Write { ino, offset, len, fill } => self.write(*ino, *offset, *len, *fill),
            O::Append { ino, len, fill } => self.append(*ino, *len, *fill),
            O::Allocate { ino, allocation, offset, len } => self.allocate(*ino, *allocation, *offset, *len),
            O::SeekData { ino, offset } => self.seek(*ino, *offset, true),
            O::SeekHole { ino, offset } => self.seek(*ino, *offset, false),
            O::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range((*from, *from_offset), (*to, *to_offset), *len)
            }
            O::GetXattr { ino, name } => self.get_xattr(*ino, name),
            O::SetXattr { ino, name, len, fill, setting } => {
                self.set_xattr(*ino, name, (*fill, *len), *setting)
            }
            O::ListXattrs { ino } => self.list_xattrs(*ino),
            O::RemoveXattr { ino, name } => self.remove_xattr(*ino, name),
        }
    }

    /// Everything reachable from the root, in order of path.
    pub fn dump(&self) -> Dump {
        let mut entries = Vec::new();
        self.dump_into(ROOT_INO, &mut Vec::new(), &mut entries);
        Dump { entries }
    }

    fn dump_into(&self, ino: Ino, path: &mut Vec<u8>, out: &mut Vec<DumpEntry>) {
        let Some(node) = self.node(ino) else { panic!("the model has a name for inode {ino} and no inode") };
        out.push(DumpEntry {
            path: path.clone(),
            ino,
            kind: node.kind(),
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            size: node.size(),
            content_hash: node.content_hash(),
            xattrs_hash: node.xattrs_hash(),
        });
        if let Body::Directory { entries, .. } = &node.body {
            for (name, child) in entries {
                let len = path.len();
                path.push(b'/');
                path.extend_from_slice(&name.0);
                self.dump_into(*child, path, out);
                path.truncate(len);
            }
        }
    }
}
