//! What is done with names: LOOKUP, creating, linking, renaming, removing, listing.

use super::attributes::{absent, to_attr, to_entry};
use super::{FileSystem, Place};
use crate::errno::Errno;
use crate::nodes::{
    CONTROL_DIRECTORY, NODES_DIRECTORY, NodeId, PROBE_FILE, SNAPSHOTS_DIRECTORY, VIEWS_DIRECTORY,
};
use crate::views::MountView;
use crate::wire::abi::{CreateIn, EntryOut, MkdirIn, MknodIn, OpenOut, Rename2In, TransferIn, open};
use crate::wire::reply::{ReplyBuffer, dirent_bytes, direntplus_bytes};
use crate::wire::request::Request;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use txfs::{DirectoryEntry, Ino, NewNode, NodeKind, ROOT_INO, RenameMode};

/// The mount's own directory in the root; no file can have this name there.
const CONTROL_NAME: &[u8] = b".txfs";
const VIEWS_NAME: &[u8] = b"tx";
const PROBE_NAME: &[u8] = b"probe";
const SNAPSHOTS_NAME: &[u8] = b"snapshots";
const NODES_NAME: &[u8] = b"node";

const OPEN_EXCLUSIVE: u32 = 0o200;
const RENAME_NO_REPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const KIND_BITS: u32 = 0o170_000;
/// `d_type` is the mode's kind bits, shifted.
const KIND_SHIFT: u32 = 12;

/// How often a LOOKUP starts again when the file goes away between finding its name and holding its node.
const LOOKUPS_MAX: usize = 16;

impl FileSystem {
    pub(super) fn lookup(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let name = request.body().name()?;
        let entry = match self.place(request.header.node)? {
            Place::Mount(NODES_DIRECTORY) => self.lookup_by_token(name, request.header.uid)?,
            Place::Mount(directory) => self.lookup_in_mount(directory, name)?,
            Place::Node(view, ROOT_INO) if name == CONTROL_NAME => {
                if view.is_base() {
                    to_entry(CONTROL_DIRECTORY, self.mount_node(CONTROL_DIRECTORY)?)
                } else {
                    absent()
                }
            }
            Place::Node(view, parent) => self.lookup_in_view(&view, parent, name)?,
        };
        reply.push(&entry);
        Ok(())
    }

    fn lookup_in_view(&self, view: &MountView, parent: Ino, name: &[u8]) -> Result<EntryOut, Errno> {
        for _ in 0..LOOKUPS_MAX {
            let found = match view.view()?.lookup(parent, name) {
                Ok(found) => found,
                Err(txfs::Error::NotFound) => return Ok(absent()),
                Err(error) => return Err(error.into()),
            };
            match self.enter(view, found.ino) {
                Err(Errno::STALE | Errno::NOENT) => {}
                result => return result,
            }
        }
        Err(Errno::STALE)
    }

    fn lookup_in_mount(&self, directory: NodeId, name: &[u8]) -> Result<EntryOut, Errno> {
        match directory {
            CONTROL_DIRECTORY if name == VIEWS_NAME => {
                Ok(to_entry(VIEWS_DIRECTORY, self.mount_node(VIEWS_DIRECTORY)?))
            }
            CONTROL_DIRECTORY if name == PROBE_NAME => Ok(to_entry(PROBE_FILE, self.mount_node(PROBE_FILE)?)),
            CONTROL_DIRECTORY if name == SNAPSHOTS_NAME => {
                Ok(to_entry(SNAPSHOTS_DIRECTORY, self.mount_node(SNAPSHOTS_DIRECTORY)?))
            }
            CONTROL_DIRECTORY if name == NODES_NAME => {
                Ok(to_entry(NODES_DIRECTORY, self.mount_node(NODES_DIRECTORY)?))
            }
            SNAPSHOTS_DIRECTORY => {
                let view = self.views.snapshot(name)?;
                self.enter(&view, ROOT_INO)
            }
            // Names of views come and go without the kernel's doing: absence is not cached.
            VIEWS_DIRECTORY => match self.views.named(name) {
                Some(view) => self.enter(&view, ROOT_INO),
                None => Err(Errno::NOENT),
            },
            _ => Err(Errno::NOENT),
        }
    }

    pub(super) fn make_node(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let mut body = request.body();
        let wanted = body.take::<MknodIn>()?;
        let kind = kind_of_mode(wanted.mode).ok_or(Errno::INVAL)?;
        if kind == NodeKind::Directory || kind == NodeKind::Symlink {
            return Err(Errno::INVAL);
        }
        let node = self.new_node(request, kind, wanted.mode, wanted.rdev);
        reply.push(&self.make(request, body.name()?, node)?);
        Ok(())
    }

    pub(super) fn make_directory(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let mut body = request.body();
        let wanted = body.take::<MkdirIn>()?;
        let node = self.new_node(request, NodeKind::Directory, wanted.mode, 0);
        reply.push(&self.make(request, body.name()?, node)?);
        Ok(())
    }

    pub(super) fn make_symlink(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let mut body = request.body();
        let name = body.name()?;
        let mut node = self.new_node(request, NodeKind::Symlink, 0o777, 0);
        node.target = Some(body.name()?.to_vec());
        reply.push(&self.make(request, name, node)?);
        Ok(())
    }

    pub(super) fn create(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let mut body = request.body();
        let wanted = body.take::<CreateIn>()?;
        let node = self.new_node(request, NodeKind::File, wanted.mode, 0);
        let entry = match self.make(request, body.name()?, node) {
            // The kernel believes that there is no such file, since a commit has made it only a moment ago. ESTALE
            // makes it look again, so that an open without O_EXCL finds the file, with all checks.
            Err(Errno::EXIST) if wanted.flags & OPEN_EXCLUSIVE == 0 => return Err(Errno::STALE),
            result => result?,
        };
        push_opened(reply, &entry);
        Ok(())
    }

    /// O_TMPFILE: a file that has lost its name before anybody could see it. In a base view of a volume whose process
    /// dies right here, a file `.txfs-tmp…` may stay.
    pub(super) fn create_nameless(
        &self,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Errno> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let wanted = request.body().take::<CreateIn>()?;
        let (view, parent) = self.node(&request.header)?;
        let node = self.new_node(request, NodeKind::File, wanted.mode, 0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".txfs-tmp-{}-{number}", std::process::id()).into_bytes();
        let made = view.view()?.make_node(parent, &name, &node)?;
        let entry = self.enter(&view, made.ino)?;
        if let Err(error) = view.view()?.unlink(parent, &name) {
            self.views.forget(NodeId(entry.node), 1);
            return Err(error.into());
        }
        let attributes = view.view()?.attributes(NodeId(entry.node).ino())?;
        push_opened(reply, &to_entry(NodeId(entry.node), to_attr(&attributes)));
        Ok(())
    }

    fn new_node(&self, request: &Request<'_>, kind: NodeKind, mode: u32, rdev: u32) -> NewNode {
        NewNode {
            kind,
            mode: mode & 0o7777,
            uid: request.header.uid,
            gid: request.header.gid,
            rdev,
            target: None,
        }
    }

    fn make(&self, request: &Request<'_>, name: &[u8], node: NewNode) -> Result<EntryOut, Errno> {
        let (view, parent) = self.node_for_new_name(request.header.node, name)?;
        let made = view.view()?.make_node(parent, name, &node)?;
        self.inherit(&view, parent, &made);
        self.enter(&view, made.ino)
    }

    /// The directory for a new name, unless the name is the mount's own.
    fn node_for_new_name(
        &self,
        directory: u64,
        name: &[u8],
    ) -> Result<(std::sync::Arc<MountView>, Ino), Errno> {
        match self.place(directory)? {
            Place::Mount(_) => Err(Errno::PERM),
            Place::Node(_, ROOT_INO) if name == CONTROL_NAME => Err(Errno::PERM),
            Place::Node(view, ino) => Ok((view, ino)),
        }
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Result<(), Errno> {
        let name = request.body().name()?;
        let (view, parent) = self.node_for_new_name(request.header.node, name)?;
        Ok(view.view()?.unlink(parent, name)?)
    }

    pub(super) fn remove_directory(&self, request: &Request<'_>) -> Result<(), Errno> {
        let name = request.body().name()?;
        let (view, parent) = self.node_for_new_name(request.header.node, name)?;
        Ok(view.view()?.remove_directory(parent, name)?)
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Result<(), Errno> {
        let mut body = request.body();
        let new_parent = body.take::<u64>()?;
        let (name, new_name) = (body.name()?, body.name()?);
        self.rename_to(request.header.node, name, new_parent, new_name, RenameMode::Replace)
    }

    pub(super) fn rename_with_flags(&self, request: &Request<'_>) -> Result<(), Errno> {
        let mut body = request.body();
        let wanted = body.take::<Rename2In>()?;
        let (name, new_name) = (body.name()?, body.name()?);
        let mode = match wanted.flags {
            0 => RenameMode::Replace,
            RENAME_NO_REPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        self.rename_to(request.header.node, name, wanted.new_parent, new_name, mode)
    }

    fn rename_to(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<(), Errno> {
        let (view, parent) = self.node_for_new_name(parent, name)?;
        let (new_view, new_parent) = self.node_for_new_name(new_parent, new_name)?;
        if new_view.index != view.index {
            return Err(Errno::XDEV);
        }
        Ok(view.view()?.rename(parent, name, new_parent, new_name, mode)?)
    }

    pub(super) fn link(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let mut body = request.body();
        let old = NodeId(body.take::<u64>()?);
        let name = body.name()?;
        let (view, parent) = self.node_for_new_name(request.header.node, name)?;
        if old.view() != view.index {
            return Err(Errno::XDEV);
        }
        view.view()?.link(old.ino(), parent, name)?;
        let mut entry = self.enter(&view, old.ino())?;
        if view.is_base() {
            // As with SETATTR: the kernel does not ask whether these attributes are still true.
            (entry.attr_valid_s, entry.attr_valid_ns) = (0, 0);
        }
        reply.push(&entry);
        Ok(())
    }

    pub(super) fn read_link(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        reply.push_bytes(&view.view()?.read_link(ino)?);
        Ok(())
    }

    pub(super) fn read_directory(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let wanted = request.body().take::<TransferIn>()?;
        if let Place::Node(view, ino) = self.place(request.header.node)? {
            for entry in entries(&view, ino, &wanted, dirent_bytes)? {
                reply.push_dirent(entry.ino, entry.cookie, d_type(entry.kind), &entry.name);
            }
        }
        Ok(())
    }

    pub(super) fn read_directory_plus(
        &self,
        request: &Request<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), Errno> {
        let wanted = request.body().take::<TransferIn>()?;
        let Place::Node(view, ino) = self.place(request.header.node)? else { return Ok(()) };
        for entry in entries(&view, ino, &wanted, direntplus_bytes)? {
            // Without a node the kernel takes the name alone: right for "." and "..", and for what has just gone.
            let known = if entry.name == b"." || entry.name == b".." {
                EntryOut::default()
            } else {
                self.enter(&view, entry.ino).unwrap_or_default()
            };
            reply.push_direntplus(&known, entry.ino, entry.cookie, d_type(entry.kind), &entry.name);
        }
        Ok(())
    }
}

/// As many entries as fit, without what only the mount may show. They are collected first: a visit may run under the
/// view's locks.
fn entries(
    view: &MountView,
    ino: Ino,
    wanted: &TransferIn,
    bytes: fn(usize) -> usize,
) -> Result<Vec<DirectoryEntry>, Errno> {
    let mut room = wanted.size as usize;
    let mut found = Vec::new();
    view.view()?.read_directory(ino, wanted.offset, &mut |entry| {
        if ino == ROOT_INO && entry.name == CONTROL_NAME {
            return ControlFlow::Continue(());
        }
        let Some(left) = room.checked_sub(bytes(entry.name.len())) else { return ControlFlow::Break(()) };
        room = left;
        found.push(entry);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn push_opened(reply: &mut ReplyBuffer, entry: &EntryOut) {
    reply.push(entry);
    reply.push(&OpenOut { handle: 0, open_flags: open::KEEP_CACHE, padding: 0 });
}

fn d_type(kind: NodeKind) -> u32 {
    kind.mode_bits() >> KIND_SHIFT
}

fn kind_of_mode(mode: u32) -> Option<NodeKind> {
    [
        NodeKind::File,
        NodeKind::Directory,
        NodeKind::Symlink,
        NodeKind::Fifo,
        NodeKind::Socket,
        NodeKind::CharacterDevice,
        NodeKind::BlockDevice,
    ]
    .into_iter()
    .find(|kind| kind.mode_bits() == mode & KIND_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_modes_agree() {
        assert_eq!(kind_of_mode(0o100_644), Some(NodeKind::File));
        assert_eq!(kind_of_mode(0o010_600), Some(NodeKind::Fifo));
        assert_eq!(kind_of_mode(0o644), None);
        assert_eq!(d_type(NodeKind::Directory), 4);
        assert_eq!(d_type(NodeKind::File), 8);
    }
}
