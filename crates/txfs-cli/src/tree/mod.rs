//! Trees of files, wherever they are: `txfs put` and `get` copy from one to the other, `ls` and `cat` look at one.
//!
//! A volume that is mounted is reached as a directory of the host ([`host::HostTree`]), any other through the library
//! ([`volume::VolumeTree`]).

pub mod copy;
pub mod host;
pub mod volume;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

/// What something in a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

impl Kind {
    /// The kind bits of st_mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => libc::S_IFREG,
            Kind::Directory => libc::S_IFDIR,
            Kind::Symlink => libc::S_IFLNK,
            Kind::Fifo => libc::S_IFIFO,
            Kind::Socket => libc::S_IFSOCK,
            Kind::CharacterDevice => libc::S_IFCHR,
            Kind::BlockDevice => libc::S_IFBLK,
        }
    }

    /// From st_mode.
    pub fn from_mode(mode: u32) -> Kind {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFLNK => Kind::Symlink,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR => Kind::CharacterDevice,
            libc::S_IFBLK => Kind::BlockDevice,
            _ => Kind::File,
        }
    }

    /// For JSON.
    pub fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharacterDevice => "character-device",
            Kind::BlockDevice => "block-device",
        }
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// What is known about something in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// The low twelve bits of st_mode.
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Allocated 512-byte units.
    pub blocks: u64,
    pub links: u64,
    pub device: u64,
    pub accessed: Time,
    pub modified: Time,
    /// The same for all names of one file, and for nothing else in the tree.
    pub identity: (u64, u64),
}

impl Node {
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }

    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

/// A tree to read from.
pub trait Source {
    /// Something in the tree.
    type Id: Clone;
    /// An open file.
    type File;

    /// The place at a path from the tree's root; `follow`: a symbolic link at its end is followed.
    fn resolve(&self, path: &Path, follow: bool) -> io::Result<Self::Id>;
    fn node(&self, id: &Self::Id) -> io::Result<Node>;
    /// What is in a directory, sorted by name.
    fn children(&self, id: &Self::Id) -> io::Result<Vec<(OsString, Self::Id)>>;
    fn link_target(&self, id: &Self::Id) -> io::Result<OsString>;
    fn xattrs(&self, id: &Self::Id) -> io::Result<Vec<(OsString, Vec<u8>)>>;
    fn open(&self, id: &Self::Id) -> io::Result<Self::File>;
    /// Fills the buffer as far as the file goes.
    fn read_at(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// The next range with data at or after `offset`, in a file of this size; the rest are holes.
    fn next_data(&self, file: &Self::File, offset: u64, size: u64) -> io::Result<Option<(u64, u64)>>;
}

/// A tree to write to.
pub trait Sink {
    /// Something in the tree.
    type Id: Clone;
    /// An open file.
    type File;

    /// The place at a path from the tree's root, links followed; `None` when nothing is there.
    fn lookup(&self, path: &Path) -> io::Result<Option<(Self::Id, Node)>>;
    /// What a name in a directory stands for.
    fn child(&self, parent: &Self::Id, name: &OsStr) -> io::Result<Option<(Self::Id, Node)>>;
    /// Removes anything but a directory.
    fn remove(&self, parent: &Self::Id, name: &OsStr) -> io::Result<()>;
    fn make_directory(&self, parent: &Self::Id, name: &OsStr) -> io::Result<Self::Id>;
    fn make_file(&self, parent: &Self::Id, name: &OsStr) -> io::Result<(Self::Id, Self::File)>;
    fn make_link(&self, parent: &Self::Id, name: &OsStr, target: &OsStr) -> io::Result<Self::Id>;
    /// Pipes, sockets and devices.
    fn make_special(&self, parent: &Self::Id, name: &OsStr, node: &Node) -> io::Result<Self::Id>;
    /// Another name for what is there.
    fn hard_link(&self, existing: &Self::Id, parent: &Self::Id, name: &OsStr) -> io::Result<()>;
    fn write_at(&self, file: &Self::File, offset: u64, data: &[u8]) -> io::Result<()>;
    fn set_size(&self, file: &Self::File, size: u64) -> io::Result<()>;
    fn set_xattr(&self, id: &Self::Id, name: &OsStr, value: &[u8]) -> io::Result<()>;
    /// Owner (as far as we may), permissions and times.
    fn set_attributes(&self, id: &Self::Id, node: &Node) -> io::Result<()>;
}

/// A path inside a tree, from its root: no `.`, no `..` that would lead out of it, no leading slash.
pub fn inside(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        for (given, expected) in
            [("/", ""), ("", ""), ("/a/./b/", "a/b"), ("../../etc/passwd", "etc/passwd"), ("a/../../b", "b")]
        {
            assert_eq!(inside(Path::new(given)), Path::new(expected), "{given}");
        }
    }
}
