//! The open /dev/fuse of one mount: requests come out of it, replies and notifications go in.
//!
//! Any number of threads may use it at once; the kernel hands each request to one reader. Notifications may wait for
//! page locks and directory locks that are held by requests under way, so a thread that serves requests must never
//! send one (see `invalidate`).

use super::abi::{InvalidateEntry, InvalidateInode, OutHeader, Prune, notify};
use rustix::io::Errno as SystemErrno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

/// The kernel's end of a mount.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Device {
        Device(descriptor)
    }

    /// Reads one request; `None` when the file system is unmounted.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                // ENOENT: the request was interrupted before it was read.
                Err(SystemErrno::NOENT | SystemErrno::INTR | SystemErrno::AGAIN) => {}
                Err(SystemErrno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a finished reply. An error means that nobody waits for it any more, or that the mount is gone.
    pub(crate) fn reply(&self, message: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.0, message)?;
        Ok(())
    }

    /// Tells the kernel to drop what it knows of a node: its attributes, and its pages from `offset` for `len` bytes
    /// (0: to the end; a negative offset: no pages). Dirty pages are written back first. False when the kernel does
    /// not know the node.
    pub(crate) fn invalidate_inode(&self, node: u64, offset: i64, len: i64) -> io::Result<bool> {
        let message = InvalidateInode { node, offset, len };
        self.notify(notify::INVALIDATE_INODE, &[bytemuck::bytes_of(&message)])
    }

    /// Tells the kernel to drop a name, be it cached as present or as absent. False when it does not know it.
    pub(crate) fn invalidate_entry(&self, parent: u64, name: &[u8]) -> io::Result<bool> {
        let message = InvalidateEntry { parent, name_len: name.len() as u32, flags: 0 };
        self.notify(notify::INVALIDATE_ENTRY, &[bytemuck::bytes_of(&message), name, &[0]])
    }

    /// Tells the kernel to give up the cached names of nodes that nobody uses. Linux 6.18 and newer do; older ones refuse.
    pub(crate) fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        let message = Prune { count: nodes.len() as u32, ..Prune::default() };
        self.notify(notify::PRUNE, &[bytemuck::bytes_of(&message), bytemuck::cast_slice(nodes)]).map(drop)
    }

    fn notify(&self, code: i32, parts: &[&[u8]]) -> io::Result<bool> {
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader { len: len as u32, error: code, unique: 0 };
        let mut slices = vec![IoSlice::new(bytemuck::bytes_of(&header))];
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        loop {
            match rustix::io::writev(&self.0, &slices) {
                Ok(_) => return Ok(true),
                Err(SystemErrno::NOENT | SystemErrno::NOTDIR) => return Ok(false),
                Err(SystemErrno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
