//! One file system operation and what came of it: the common language of generator, model and real volume.
//!
//! Operations name inodes by number, as the mount does, and carry everything that is needed to run them again.
//! Data is described by a fill seed, so that a printed operation is short and still exact.

use std::fmt;

/// An inode number, as the volume gives it out.
pub type Ino = u64;
/// The root directory.
pub const ROOT_INO: Ino = 1;
/// Granularity of conflicts and checksums, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
}

/// How [`Operation::Rename`] treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renaming {
    /// Replaces it.
    Replace,
    /// Refuses.
    NoReplace,
    /// Swaps both names.
    Exchange,
}

/// What [`Operation::Allocate`] does with the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Reserves space; grows the file unless `keep_size`.
    Reserve {
        /// The size stays.
        keep_size: bool,
    },
    /// Frees the range, which then reads as zeros; the size stays.
    PunchHole,
    /// Zeros the range; grows the file unless `keep_size`.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
}

/// How [`Operation::SetXattr`] treats an existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrSetting {
    /// Creates or replaces.
    Any,
    /// Only creates.
    Create,
    /// Only replaces.
    Replace,
}

/// A name in a directory; prints as text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() > 40 {
            return write!(formatter, "\"{}...\" ({} bytes)", self.0[..8].escape_ascii(), self.0.len());
        }
        write!(formatter, "\"{}\"", self.0.escape_ascii())
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(text.as_bytes().to_vec())
    }
}

/// One operation. Fields mean what they mean in the system call of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the system calls")]
pub enum Operation {
    Lookup { parent: Ino, name: Name },
    Attributes { ino: Ino },
    SetMode { ino: Ino, mode: u32 },
    SetOwner { ino: Ino, uid: u32, gid: u32 },
    Truncate { ino: Ino, size: u64 },
    MakeFile { parent: Ino, name: Name, mode: u32 },
    MakeDirectory { parent: Ino, name: Name, mode: u32 },
    MakeSymlink { parent: Ino, name: Name, target: Vec<u8> },
    MakeFifo { parent: Ino, name: Name, mode: u32 },
    ReadLink { ino: Ino },
    Unlink { parent: Ino, name: Name },
    RemoveDirectory { parent: Ino, name: Name },
    Rename { parent: Ino, name: Name, new_parent: Ino, new_name: Name, renaming: Renaming },
    Link { ino: Ino, parent: Ino, name: Name },
    Read { ino: Ino, offset: u64, len: u64 },
    Write { ino: Ino, offset: u64, len: u64, fill: u64 },
    Append { ino: Ino, len: u64, fill: u64 },
    Allocate { ino: Ino, allocation: Allocation, offset: u64, len: u64 },
    SeekData { ino: Ino, offset: u64 },
    SeekHole { ino: Ino, offset: u64 },
    ReadDirectory { ino: Ino },
    GetXattr { ino: Ino, name: Name },
    SetXattr { ino: Ino, name: Name, len: u64, fill: u64, setting: XattrSetting },
    ListXattrs { ino: Ino },
    RemoveXattr { ino: Ino, name: Name },
    CopyRange { from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64 },
}

impl Operation {
    /// True when success changes the file system. Space is not reserved, so keeping the size leaves nothing to do.
    pub fn mutates(&self) -> bool {
        if let Operation::Allocate { allocation: Allocation::Reserve { keep_size: true }, .. } = self {
            return false;
        }
        !matches!(
            self,
            Operation::Lookup { .. }
                | Operation::Attributes { .. }
                | Operation::ReadLink { .. }
                | Operation::Read { .. }
                | Operation::SeekData { .. }
                | Operation::SeekHole { .. }
                | Operation::ReadDirectory { .. }
                | Operation::GetXattr { .. }
                | Operation::ListXattrs { .. }
        )
    }
}

/// Attributes that model and volume must agree on. Times are left out; sizes of directories are 0 here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of stat")]
pub struct Attributes {
    pub ino: Ino,
    pub kind: Kind,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
}

/// What an operation returned.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Success without a value.
    Done,
    /// An error number.
    Failed(i32),
    /// Attributes of the inode looked up or made.
    Attributes(Attributes),
    /// File data, a link target or an xattr value.
    Bytes(Vec<u8>),
    /// A count or an offset.
    Number(u64),
    /// Directory entries in order of name, without `.` and `..`.
    Entries(Vec<(Name, Ino, Kind)>),
    /// Names of extended attributes, sorted.
    Names(Vec<Name>),
}

impl Outcome {
    /// The error number, if it failed.
    pub fn errno(&self) -> Option<i32> {
        if let Outcome::Failed(errno) = self { Some(*errno) } else { None }
    }

    /// The inode that was looked up or made.
    pub fn ino(&self) -> Option<Ino> {
        if let Outcome::Attributes(attributes) = self { Some(attributes.ino) } else { None }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => write!(formatter, "ok"),
            Outcome::Failed(errno) => write!(formatter, "{}", errno_name(*errno)),
            Outcome::Attributes(attributes) => write!(formatter, "{attributes:?}"),
            Outcome::Bytes(bytes) if bytes.len() <= 24 => write!(formatter, "b\"{}\"", bytes.escape_ascii()),
            Outcome::Bytes(bytes) => {
                let hash = crate::hash::hash_bytes(bytes);
                write!(formatter, "{} bytes, hash {hash:016x}", bytes.len())
            }
            Outcome::Number(number) => write!(formatter, "{number}"),
            Outcome::Entries(entries) => formatter.debug_list().entries(entries).finish(),
            Outcome::Names(names) => formatter.debug_list().entries(names).finish(),
        }
    }
}

/// `len` bytes that depend on `fill` only; different fills differ in nearly every byte. Never all zeros.
pub fn fill_bytes(fill: u64, len: u64) -> Vec<u8> {
    let len = usize::try_from(len).expect("sizes in scenarios are small");
    let mut bytes = Vec::with_capacity(len + 8);
    let mut word = fill | 1;
    while bytes.len() < len {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(fill | 1);
        bytes.extend_from_slice(&(word ^ (word >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The symbolic name of the error numbers that occur here.
pub fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::ENOENT => "ENOENT",
        libc::EIO => "EIO",
        libc::EEXIST => "EEXIST",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENOSPC => "ENOSPC",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::EPERM => "EPERM",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::ECANCELED => "ECANCELED",
        libc::ENODATA => "ENODATA",
        libc::ENXIO => "ENXIO",
        libc::ESTALE => "ESTALE",
        libc::EROFS => "EROFS",
        libc::EFBIG => "EFBIG",
        _ => return format!("errno {errno}"),
    };
    name.to_owned()
}
