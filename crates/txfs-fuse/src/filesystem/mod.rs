//! Answers the kernel's requests with the operations of the `txfs` crate.
//!
//! A thin adapter: it takes requests apart, finds the view and the inode, and puts replies together; what the
//! operations mean is in `txfs`. It keeps no state of files: OPEN, OPENDIR and FLUSH are answered with ENOSYS, which
//! makes the kernel do without them (and without RELEASE) from then on, so that using a cached file costs no message.
//!
//! Entries, attributes and absent names are cached by the kernel without a time limit; what a commit changes is
//! invalidated (`invalidate`). To keep that free of races, every reply that gives the kernel a new node first counts
//! the reference and only then reads the attributes that it sends: a commit after that finds the node in the table
//! and invalidates it.
//!
//! Threads serve requests and must never wait for the kernel (see `wire::device`).

mod attributes;
mod directories;
mod files;
mod ioctl;
mod xattrs;

use crate::errno::Errno;
use crate::groups::Groups;
use crate::invalidate::Invalidator;
use crate::nodes::{BASE_VIEW, MOUNT_VIEW, NodeId, NodeTable};
use crate::tokens::Tokens;
use crate::views::{MountView, Views};
use crate::wire::abi::{BatchForgetIn, ForgetOne, InHeader};
use crate::wire::opcode::{MessageCounts, Opcode};
use crate::wire::reply::ReplyBuffer;
use crate::wire::request::Request;
use std::sync::Arc;
use std::time::Duration;
use txfs::Ino;

/// How long the kernel may believe what is never wrong: a hundred years.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The file system of one mount.
pub(crate) struct FileSystem {
    pub views: Arc<Views>,
    pub counts: MessageCounts,
    pub invalidator: Arc<Invalidator>,
    /// Names that open files can be opened by in other views.
    pub tokens: Tokens,
    pub groups: Groups,
    /// Owner of `.txfs` and of the views' directory.
    pub owner: (u32, u32),
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The reply buffer's content is sent.
    Reply,
    /// The kernel expects nothing.
    Silence,
}

/// An unversioned request until its reply has been sent.
pub(crate) struct UnversionedRequest<'a> {
    nodes: &'a NodeTable,
    ino: Ino,
    unique: u64,
}

impl Drop for UnversionedRequest<'_> {
    fn drop(&mut self) {
        self.nodes.end_unversioned(self.ino, self.unique);
    }
}

/// What a node id stands for.
pub(super) enum Place {
    /// A node of a view.
    Node(Arc<MountView>, Ino),
    /// `.txfs` or something in it.
    Mount(NodeId),
}

impl FileSystem {
    /// Serves one request. One for which there is no space is tried again once the files that were removed just
    /// before, and that the kernel is about to forget, have given up theirs.
    pub(crate) fn serve(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<Answer, Errno> {
        const ATTEMPTS: u32 = 3;
        self.counts.count(request.header.opcode);
        for _ in 1..ATTEMPTS {
            match self.attempt(request, reply) {
                Err(Errno::NOSPC) => {
                    reply.clear();
                    if !self.views.settle_forgotten() {
                        // The kernel's word may still be on its way, to another thread.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
                answer => return answer,
            }
        }
        self.attempt(request, reply)
    }

    fn attempt(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<Answer, Errno> {
        let opcode = Opcode::from_number(request.header.opcode).ok_or(Errno::NOSYS)?;
        match opcode {
            Opcode::Lookup => self.lookup(request, reply)?,
            Opcode::Forget => {
                self.views.forget(NodeId(request.header.node), request.body().take::<u64>()?);
                return Ok(Answer::Silence);
            }
            Opcode::BatchForget => {
                self.forget_batch(request);
                return Ok(Answer::Silence);
            }
            Opcode::Getattr => self.get_attributes(request, reply)?,
            Opcode::Setattr => self.set_attributes(request, reply)?,
            Opcode::Readlink => self.read_link(request, reply)?,
            Opcode::Symlink => self.make_symlink(request, reply)?,
            Opcode::Mknod => self.make_node(request, reply)?,
            Opcode::Mkdir => self.make_directory(request, reply)?,
            Opcode::Create => self.create(request, reply)?,
            Opcode::Tmpfile => self.create_nameless(request, reply)?,
            Opcode::Unlink => self.unlink(request)?,
            Opcode::Rmdir => self.remove_directory(request)?,
            Opcode::Rename => self.rename(request)?,
            Opcode::Rename2 => self.rename_with_flags(request)?,
            Opcode::Link => self.link(request, reply)?,
            Opcode::Readdir => self.read_directory(request, reply)?,
            Opcode::Readdirplus => self.read_directory_plus(request, reply)?,
            Opcode::Read => self.read(request, reply)?,
            Opcode::Write => self.write(request, reply)?,
            Opcode::Fsync | Opcode::Fsyncdir => self.sync(request)?,
            Opcode::Fallocate => self.allocate(request)?,
            Opcode::Lseek => self.seek(request, reply)?,
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => self.copy_range(request, opcode, reply)?,
            Opcode::Statfs => self.statistics(reply)?,
            Opcode::Setxattr => self.set_xattr(request)?,
            Opcode::Getxattr => self.get_xattr(request, reply)?,
            Opcode::Listxattr => self.list_xattrs(request, reply)?,
            Opcode::Removexattr => self.remove_xattr(request)?,
            Opcode::Ioctl => self.ioctl(request, reply)?,
            Opcode::Release | Opcode::Releasedir | Opcode::Destroy => {}
            // The kernel takes ENOSYS as: never ask again, succeed by yourself.
            Opcode::Open | Opcode::Opendir | Opcode::Flush => return Err(Errno::NOSYS),
            // Requests are short: an interrupted caller waits for the answer. Permissions are the kernel's business
            // (default_permissions), polls are not for files, statx adds nothing but the birth time, and SYNCFS is never
            // sent to mounts like ours.
            Opcode::Interrupt | Opcode::Access | Opcode::Poll | Opcode::Statx | Opcode::Syncfs => {
                return Err(Errno::NOSYS);
            }
            Opcode::Init => return Err(Errno::IO),
        }
        Ok(Answer::Reply)
    }

    /// For a request whose reply the kernel applies without asking how old it is (SETATTR and LINK in the base view):
    /// notes it until the reply has been sent, which is when the result must be dropped.
    pub(crate) fn unversioned(&self, request: &Request<'_>) -> Option<UnversionedRequest<'_>> {
        let node = match Opcode::from_number(request.header.opcode)? {
            Opcode::Setattr => NodeId(request.header.node),
            Opcode::Link => NodeId(request.body().take::<u64>().ok()?),
            _ => return None,
        };
        let (nodes, unique) = (&self.views.base().nodes, request.header.unique);
        (node.view() == BASE_VIEW).then(|| {
            nodes.begin_unversioned(node.ino(), unique);
            UnversionedRequest { nodes, ino: node.ino(), unique }
        })
    }

    fn forget_batch(&self, request: &Request<'_>) {
        let mut body = request.body();
        let Ok(batch) = body.take::<BatchForgetIn>() else { return };
        for _ in 0..batch.count {
            let Ok(forget) = body.take::<ForgetOne>() else { return };
            self.views.forget(NodeId(forget.node), forget.lookups);
        }
    }

    pub(super) fn place(&self, node: u64) -> Result<Place, Errno> {
        let node = NodeId(node);
        if node.view() == MOUNT_VIEW {
            return Ok(Place::Mount(node));
        }
        Ok(Place::Node(self.views.of(node)?, node.ino()))
    }

    /// The view and inode that a request is about, for operations that the mount's own directories do not have.
    pub(super) fn node(&self, header: &InHeader) -> Result<(Arc<MountView>, Ino), Errno> {
        match self.place(header.node)? {
            Place::Node(view, ino) => Ok((view, ino)),
            Place::Mount(_) => Err(Errno::PERM),
        }
    }
}

/// The kernel's form of a duration.
pub(super) fn validity(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

#[cfg(test)]
mod tests;
