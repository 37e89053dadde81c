//! Structures and constants of `include/uapi/linux/fuse.h`, named in words. All are plain data in host byte order.

use bytemuck::{Pod, Zeroable};

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The minor version that these structures follow.
pub(crate) const MINOR: u32 = 40;
/// The oldest minor version that we work with (Linux 4.20: 1 MiB requests, cached symlinks).
pub(crate) const MINOR_MIN: u32 = 28;

/// `fuse_in_header`: starts every request.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub extension_words: u16,
    pub padding: u16,
}

/// `fuse_out_header`: starts every reply and notification.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Attr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atime_ns: u32,
    pub mtime_ns: u32,
    pub ctime_ns: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct EntryOut {
    pub node: u64,
    pub generation: u64,
    pub entry_valid_s: u64,
    pub attr_valid_s: u64,
    pub entry_valid_ns: u32,
    pub attr_valid_ns: u32,
    pub attr: Attr,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct AttrOut {
    pub attr_valid_s: u64,
    pub attr_valid_ns: u32,
    pub padding: u32,
    pub attr: Attr,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ForgetOne {
    pub node: u64,
    pub lookups: u64,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct BatchForgetIn {
    pub count: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct MknodIn {
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct MkdirIn {
    pub mode: u32,
    pub umask: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Rename2In {
    pub new_parent: u64,
    pub flags: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SetattrIn {
    pub valid: u32,
    pub padding: u32,
    pub handle: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub atime_ns: u32,
    pub mtime_ns: u32,
    pub ctime_ns: u32,
    pub mode: u32,
    pub unused: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused_too: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct CreateIn {
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
    pub open_flags: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct OpenOut {
    pub handle: u64,
    pub open_flags: u32,
    pub padding: u32,
}

/// `fuse_read_in` and `fuse_write_in`: the same fields.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct TransferIn {
    pub handle: u64,
    pub offset: u64,
    pub size: u32,
    pub transfer_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// `fuse_write_out`, and `fuse_getxattr_out`: a size and padding.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SizeOut {
    pub size: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct StatfsOut {
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_bytes: u32,
    pub name_bytes_max: u32,
    pub fragment_bytes: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SetxattrIn {
    pub size: u32,
    pub flags: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct GetxattrIn {
    pub size: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct FallocateIn {
    pub handle: u64,
    pub offset: u64,
    pub len: u64,
    pub mode: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct LseekIn {
    pub handle: u64,
    pub offset: u64,
    pub whence: u32,
    pub padding: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct CopyRangeIn {
    pub handle_in: u64,
    pub offset_in: u64,
    pub node_out: u64,
    pub handle_out: u64,
    pub offset_out: u64,
    pub len: u64,
    pub flags: u64,
}

/// `fuse_ioctl_in`, followed by what the caller passes.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct IoctlIn {
    pub handle: u64,
    pub flags: u32,
    pub command: u32,
    pub argument: u64,
    pub in_bytes: u32,
    pub out_bytes: u32,
}

/// `fuse_ioctl_out`, followed by what the caller gets.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct IoctlOut {
    pub result: i32,
    pub flags: u32,
    pub in_vectors: u32,
    pub out_vectors: u32,
}

/// `fuse_dirent` without its name.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Dirent {
    pub ino: u64,
    pub offset: u64,
    pub name_len: u32,
    pub kind: u32,
}

/// `fuse_init_in` as far as every supported kernel sends it.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
}

#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_granularity_ns: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub unused: [u32; 7],
}

/// `fuse_notify_inval_inode_out`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct InvalidateInode {
    pub node: u64,
    pub offset: i64,
    pub len: i64,
}

/// `fuse_notify_inval_entry_out`, followed by the name and a zero byte.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct InvalidateEntry {
    pub parent: u64,
    pub name_len: u32,
    pub flags: u32,
}

/// `fuse_notify_prune_out`, followed by node ids of 8 bytes each.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Prune {
    pub count: u32,
    pub padding: u32,
    pub spare: u64,
}

/// Codes of notifications, in the error field of their header.
pub(crate) mod notify {
    pub(crate) const INVALIDATE_INODE: i32 = 2;
    pub(crate) const INVALIDATE_ENTRY: i32 = 3;
    pub(crate) const PRUNE: i32 = 9;
}

/// Flags in the INIT exchange.
pub(crate) mod init_flags {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    pub(crate) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(crate) const IOCTL_DIRECTORY: u32 = 1 << 11;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u32 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
}

/// `valid` of SETATTR.
pub(crate) mod setattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `transfer_flags` of WRITE.
pub(crate) mod write {
    /// A page written back from the cache (by mmap), not a `write` call.
    pub(crate) const CACHE: u32 = 1 << 0;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 2;
}

/// `open_flags` of an open file.
pub(crate) mod open {
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    /// The kernel checks lengths of replies exactly.
    #[test]
    fn sizes_are_the_kernels() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<TransferIn>(), 40);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<CopyRangeIn>(), 56);
        assert_eq!(size_of::<IoctlIn>(), 32);
        assert_eq!(size_of::<IoctlOut>(), 16);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<InvalidateInode>(), 24);
        assert_eq!(size_of::<InvalidateEntry>(), 16);
        assert_eq!(size_of::<Prune>(), 16);
    }
}
