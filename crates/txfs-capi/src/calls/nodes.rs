//! Files that have no name to be opened by, or another one than in the other view: the owner gives them one.

use super::system::{Fd, numbers};
use crate::kernel::Errno;
use crate::transaction::View;
use std::os::fd::RawFd;
use txfs_protocol::ioctl::{NodePath, TXFS_IOC_NODE};

/// Which view to open a file in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Base,
    View,
}

/// Opens the regular file of a descriptor of the mount in another view; ESTALE where that has no such file.
pub fn open(view: &View, fd: RawFd, flags: i32, side: Side) -> Result<Fd, Errno> {
    let mut node = NodePath::of(if side == Side::View { view.transaction() } else { 0 });
    let at = &raw mut node as usize;
    let asked = numbers(libc::SYS_ioctl, [fd as usize, TXFS_IOC_NODE as usize, at, 0, 0, 0]);
    // An owner that does not know the question, a directory, a descriptor that only names a place.
    asked.map_err(|_| Errno(libc::ESTALE))?;
    view.open_base(node.path(), flags & !libc::O_NOFOLLOW)
}

/// Whether a path below the mount is such a name: of a file of the base view.
pub fn is_name(rest: &[u8]) -> bool {
    super::mounts::below(rest, txfs_protocol::NODES_DIRECTORY.as_bytes()).is_some()
}
