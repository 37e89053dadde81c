//! The POSIX operations on inode numbers that every way of looking at a volume offers.

use std::ops::ControlFlow;

use crate::error::Result;
use crate::types::{
    AllocateMode, Attributes, DirectoryEntry, Ino, NewNode, NodeKind, RenameMode, SetAttributes, Statistics,
    XattrMode,
};

/// POSIX file system operations on inode numbers.
///
/// [`Transaction`](crate::Transaction) answers from its snapshot and its own changes; [`BaseView`](crate::BaseView)
/// from the current state, each operation a transaction of its own; [`SnapshotView`](crate::SnapshotView) is
/// read-only (changes fail with `EROFS`). Names are bytes without `/` and NUL. Nothing here checks permissions.
///
/// For operations on paths see [`Paths`](crate::Paths).
pub trait View: Send + Sync {
    /// The node that `name` in directory `parent` stands for; `.` and `..` work too.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes>;

    /// Attributes of a node.
    fn attributes(&self, ino: Ino) -> Result<Attributes>;

    /// Changes attributes, the size of a file included, and returns the new ones.
    fn set_attributes(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes>;

    /// Creates a node of any kind under a name that must not exist.
    fn make_node(&self, parent: Ino, name: &[u8], node: &NewNode) -> Result<Attributes>;

    /// Target of a symlink.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Removes a name of anything but a directory.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Renames, replaces or exchanges.
    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()>;

    /// Gives a node another name.
    fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attributes>;

    /// Fills `out` from `offset` as far as the file goes; returns the number of bytes.
    fn read_into(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize>;

    /// Up to `len` bytes from `offset`, fewer at the end of the file.
    fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>>;

    /// Writes `data` at `offset`, growing the file where needed; returns the number of bytes, always all of them.
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;

    /// Writes `data` at the end of the file, in one step; returns the offset where it went.
    fn append(&self, ino: Ino, data: &[u8]) -> Result<u64>;

    /// `fallocate`.
    fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()>;

    /// First byte of data at or after `offset`; `ENXIO` when there is none before the end of the file.
    fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64>;

    /// First byte of a hole at or after `offset` (the end of the file counts as one); `ENXIO` from the end on.
    fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64>;

    /// Copies a range from one file to another (or within one, not overlapping); returns the number of bytes.
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64>;

    /// Visits a directory's entries, `.` and `..` first, that come after `cookie` (0 for the start), in the order
    /// of their cookies, until `visit` breaks. An entry whose visit breaks was not taken: go on with the cookie of
    /// the one before. Cookies stay valid whatever else happens to the directory.
    fn read_directory(
        &self,
        ino: Ino,
        cookie: u64,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Value of an extended attribute; `ENODATA` when there is none.
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Names of all extended attributes, sorted.
    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Removes an extended attribute; `ENODATA` when there is none.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Space and limits of the volume.
    fn statistics(&self) -> Result<Statistics>;

    /// `fsync` of one file or directory: the base view makes everything committed so far durable; in a
    /// transaction and on a snapshot there is nothing to do (a transaction becomes durable as a whole).
    fn sync(&self, ino: Ino) -> Result<()>;

    /// An open file begins to use a node: while it does, the node outlives its last name. Its attributes are those that
    /// it has once nobody can remove it any more.
    #[doc(hidden)]
    fn opened(&self, ino: Ino) -> Result<Attributes>;

    /// The counterpart of `opened`.
    #[doc(hidden)]
    fn closed(&self, ino: Ino);

    /// This view as a trait object.
    #[doc(hidden)]
    fn as_view(&self) -> &dyn View;

    /// Shorthand: creates a regular file.
    fn make_file(&self, parent: Ino, name: &[u8], mode: u32, uid: u32, gid: u32) -> Result<Attributes> {
        self.make_node(parent, name, &NewNode::file(mode, uid, gid))
    }

    /// Shorthand: creates a directory.
    fn make_directory(&self, parent: Ino, name: &[u8], mode: u32, uid: u32, gid: u32) -> Result<Attributes> {
        self.make_node(parent, name, &NewNode::directory(mode, uid, gid))
    }

    /// Shorthand: creates a symbolic link.
    fn make_symlink(
        &self,
        parent: Ino,
        name: &[u8],
        target: &[u8],
        uid: u32,
        gid: u32,
    ) -> Result<Attributes> {
        self.make_node(parent, name, &NewNode::symlink(target, uid, gid))
    }

    /// All entries of a directory but `.` and `..`, in cookie order.
    fn list_directory(&self, ino: Ino) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        self.read_directory(ino, 0, &mut |entry| {
            if !(entry.kind == NodeKind::Directory && (entry.name == b"." || entry.name == b"..")) {
                entries.push(entry);
            }
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }
}

/// Implements [`View`] for a type with two methods that run an operation on a
/// [`Session`](crate::transaction::session::Session): `reading` for those that change nothing, `writing` for the
/// others.
macro_rules! implement_view {
    ($view:ty) => {
        #[rustfmt::skip]
        const _: () = {
            use std::ops::ControlFlow;
            use $crate::types::*;
            use $crate::{Result, View};

            impl View for $view {
                fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
                    self.reading(|session| session.lookup(parent, name))
                }
                fn attributes(&self, ino: Ino) -> Result<Attributes> {
                    self.reading(|session| session.attributes(ino))
                }
                fn set_attributes(&self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
                    self.writing(|session| session.set_attributes(ino, set))
                }
                fn make_node(&self, parent: Ino, name: &[u8], node: &NewNode) -> Result<Attributes> {
                    self.writing(|session| session.make_node(parent, name, node))
                }
                fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
                    self.reading(|session| session.read_link(ino))
                }
                fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
                    self.writing(|session| session.unlink(parent, name))
                }
                fn remove_directory(&self, parent: Ino, name: &[u8]) -> Result<()> {
                    self.writing(|session| session.remove_directory(parent, name))
                }
                fn rename(&self, parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8], mode: RenameMode)
                    -> Result<()>
                {
                    self.writing(|session| session.rename(parent, name, new_parent, new_name, mode))
                }
                fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attributes> {
                    self.writing(|session| session.link(ino, new_parent, new_name))
                }
                fn read_into(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize> {
                    self.reading(|session| session.read_into(ino, offset, out))
                }
                fn read(&self, ino: Ino, offset: u64, len: usize) -> Result<Vec<u8>> {
                    self.reading(|session| session.read(ino, offset, len))
                }
                fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
                    self.writing(|session| session.write(ino, offset, data))
                }
                fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
                    self.writing(|session| session.append(ino, data))
                }
                fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
                    self.writing(|session| session.allocate(ino, mode, offset, len))
                }
                fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64> {
                    self.reading(|session| session.seek_data(ino, offset))
                }
                fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64> {
                    self.reading(|session| session.seek_hole(ino, offset))
                }
                fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
                    self.writing(|session| session.copy_range(from, from_offset, to, to_offset, len))
                }
                fn read_directory(
                    &self,
                    ino: Ino,
                    cookie: u64,
                    visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
                ) -> Result<()> {
                    let mut cookie = cookie;
                    loop {
                        // The visitor runs outside of the session: it may call this view again.
                        let batch = self.reading(|session| session.list_batch(ino, cookie))?;
                        let Some(last) = batch.last() else { return Ok(()) };
                        cookie = last.cookie;
                        for entry in batch {
                            if visit(entry).is_break() {
                                return Ok(());
                            }
                        }
                    }
                }
                fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
                    self.reading(|session| session.get_xattr(ino, name))
                }
                fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
                    self.writing(|session| session.set_xattr(ino, name, value, mode))
                }
                fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
                    self.reading(|session| session.list_xattrs(ino))
                }
                fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
                    self.writing(|session| session.remove_xattr(ino, name))
                }
                fn statistics(&self) -> Result<Statistics> {
                    self.reading(|session| session.statistics())
                }
                fn sync(&self, ino: Ino) -> Result<()> {
                    self.synchronise(ino)
                }
                fn opened(&self, ino: Ino) -> Result<Attributes> {
                    self.reference(ino)
                }
                fn closed(&self, ino: Ino) {
                    self.dereference(ino);
                }
                fn as_view(&self) -> &dyn View {
                    self
                }
            }
        };
    };
}
pub(crate) use implement_view;
