//! Attributes in the kernel's form; GETATTR, SETATTR, STATFS, and replies that introduce a node.

use super::{FOREVER, FileSystem, Place, validity};
use crate::errno::Errno;
use crate::nodes::{
    CONTROL_DIRECTORY, NODES_DIRECTORY, NodeId, PROBE_FILE, SNAPSHOTS_DIRECTORY, VIEWS_DIRECTORY,
};
use crate::views::MountView;
use crate::wire::abi::{Attr, AttrOut, EntryOut, SetattrIn, StatfsOut, setattr};
use crate::wire::reply::ReplyBuffer;
use crate::wire::request::Request;
use std::time::Duration;
use txfs::{Attributes, Ino, NodeKind, SetAttributes, SetTime, Timestamp, View};

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o0010;
const ANY_EXECUTE: u32 = 0o0111;

/// An empty file is never read from: the kernel knows its size and answers itself. So in a transaction it has been read
/// once the kernel knows that it is empty.
fn note_empty(view: &MountView, operations: &dyn View, attributes: Attributes) -> txfs::Result<Attributes> {
    if !view.is_base() && attributes.is_file() && attributes.size == 0 {
        operations.read(attributes.ino, 0, 1)?;
    }
    Ok(attributes)
}

impl FileSystem {
    pub(super) fn get_attributes(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let attr = match self.place(request.header.node)? {
            Place::Mount(node) => self.mount_node(node)?,
            Place::Node(view, ino) => {
                let operations = view.view()?;
                to_attr(&note_empty(&view, operations, operations.attributes(ino)?)?)
            }
        };
        push_attr(reply, attr, FOREVER);
        Ok(())
    }

    pub(super) fn set_attributes(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let wanted = request.body().take::<SetattrIn>()?;
        let has = |flag: u32| wanted.valid & flag != 0;
        let time = |set: u32, now: u32, seconds: i64, nanoseconds: u32| match (has(set), has(now)) {
            (true, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::At(Timestamp::new(seconds, nanoseconds))),
            (false, _) => None,
        };
        let mut set = SetAttributes {
            mode: has(setattr::MODE).then_some(wanted.mode & 0o7777),
            uid: has(setattr::UID).then_some(wanted.uid),
            gid: has(setattr::GID).then_some(wanted.gid),
            size: has(setattr::SIZE).then_some(wanted.size),
            atime: time(setattr::ATIME, setattr::ATIME_NOW, wanted.atime, wanted.atime_ns),
            mtime: time(setattr::MTIME, setattr::MTIME_NOW, wanted.mtime, wanted.mtime_ns),
            ctime: has(setattr::CTIME).then(|| SetTime::At(Timestamp::new(wanted.ctime, wanted.ctime_ns))),
        };
        let operations = view.view()?;
        let changes_owner = set.uid.is_some() || set.gid.is_some();
        if changes_owner || has(setattr::KILL_SUIDGID) || set.size.is_some() {
            let before = operations.attributes(ino)?;
            if before.is_file() {
                if (changes_owner || has(setattr::KILL_SUIDGID)) && set.mode.is_none() {
                    set.mode = without_privileges(before.mode);
                }
                drop_capability(operations, &before)?;
            }
        }
        let attributes = operations.set_attributes(ino, &set)?;
        if let Some(size) = set.size {
            view.nodes.mark_pages(ino);
            if !view.is_base() {
                view.nodes.mark_written(ino, size, u64::MAX);
            }
        }
        // The kernel takes these attributes without asking whether a commit has changed them since, so in the base
        // view it must not keep them.
        push_attr(reply, to_attr(&attributes), if view.is_base() { Duration::ZERO } else { FOREVER });
        Ok(())
    }

    pub(super) fn statistics(&self, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let statistics = self.views.base().view()?.statistics()?;
        reply.push(&StatfsOut {
            blocks: statistics.blocks_total,
            blocks_free: statistics.blocks_free,
            blocks_available: statistics.blocks_available,
            files: statistics.files_total.saturating_add(statistics.files_free),
            files_free: statistics.files_free,
            block_bytes: statistics.block_bytes,
            name_bytes_max: statistics.name_bytes_max,
            fragment_bytes: statistics.block_bytes,
            ..Default::default()
        });
        Ok(())
    }

    /// Gives the kernel a reference to a node: counts it, then reads the attributes to send.
    pub(super) fn enter(&self, view: &MountView, ino: Ino) -> Result<EntryOut, Errno> {
        let node = view.node(ino)?;
        let operations = view.view()?;
        let mut attributes = None;
        if view.nodes.add(ino) {
            match operations.opened(ino) {
                // In a transaction that was no read; what the kernel gets to see is one.
                Ok(opened) => attributes = view.is_base().then_some(opened),
                Err(error) => {
                    view.nodes.forget(ino, 1);
                    return Err(error.into());
                }
            }
        }
        let attributes = attributes.map_or_else(|| operations.attributes(ino), Ok);
        match attributes.and_then(|attributes| note_empty(view, operations, attributes)) {
            Ok(attributes) => Ok(to_entry(node, to_attr(&attributes))),
            Err(error) => {
                self.views.forget(node, 1);
                Err(error.into())
            }
        }
    }

    /// Attributes of what only the mount has: directories that all may search and nobody list or change.
    pub(super) fn mount_node(&self, node: NodeId) -> Result<Attr, Errno> {
        let (mode, nlink) = match node {
            CONTROL_DIRECTORY | VIEWS_DIRECTORY | SNAPSHOTS_DIRECTORY | NODES_DIRECTORY => {
                (NodeKind::Directory.mode_bits() | 0o511, 2)
            }
            PROBE_FILE => (NodeKind::File.mode_bits() | 0o444, 1),
            _ => return Err(Errno::STALE),
        };
        let (uid, gid) = self.owner;
        Ok(Attr { ino: node.0, mode, nlink, uid, gid, blksize: 4096, ..Default::default() })
    }
}

/// An entry that the kernel may keep.
pub(super) fn to_entry(node: NodeId, attr: Attr) -> EntryOut {
    let (seconds, nanoseconds) = validity(FOREVER);
    EntryOut {
        node: node.0,
        generation: 0,
        entry_valid_s: seconds,
        attr_valid_s: seconds,
        entry_valid_ns: nanoseconds,
        attr_valid_ns: nanoseconds,
        attr,
    }
}

/// The entry that says: there is no such name, and you may remember that.
pub(super) fn absent() -> EntryOut {
    to_entry(NodeId(0), Attr::default())
}

pub(super) fn to_attr(attributes: &Attributes) -> Attr {
    Attr {
        ino: attributes.ino,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: attributes.atime.seconds,
        mtime: attributes.mtime.seconds,
        ctime: attributes.ctime.seconds,
        atime_ns: attributes.atime.nanoseconds,
        mtime_ns: attributes.mtime.nanoseconds,
        ctime_ns: attributes.ctime.nanoseconds,
        mode: attributes.st_mode(),
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: 4096,
        flags: 0,
    }
}

fn push_attr(reply: &mut ReplyBuffer, attr: Attr, valid: Duration) {
    let (attr_valid_s, attr_valid_ns) = validity(valid);
    reply.push(&AttrOut { attr_valid_s, attr_valid_ns, padding: 0, attr });
}

/// The mode after a write, truncation or change of owner: without set-user-id, and without set-group-id where the
/// group may execute (otherwise the bit means something else). `None` when nothing changes.
pub(super) fn without_privileges(mode: u32) -> Option<u32> {
    let mut left = mode & !SET_USER_ID;
    if mode & GROUP_EXECUTE != 0 {
        left &= !SET_GROUP_ID;
    }
    (left != mode).then_some(left)
}

/// Takes away file capabilities, which do not survive a change of the file. Only what can be executed is looked at,
/// so that ordinary writes cost nothing.
pub(super) fn drop_capability(view: &dyn View, attributes: &Attributes) -> Result<(), Errno> {
    if attributes.mode & ANY_EXECUTE == 0 {
        return Ok(());
    }
    match view.remove_xattr(attributes.ino, b"security.capability") {
        Ok(()) | Err(txfs::Error::NoAttribute) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_dropped_as_linux_does() {
        assert_eq!(without_privileges(0o4755), Some(0o755));
        assert_eq!(without_privileges(0o6755), Some(0o755));
        assert_eq!(without_privileges(0o2745), None, "a group that can't execute keeps its bit");
        assert_eq!(without_privileges(0o2755), Some(0o755));
        assert_eq!(without_privileges(0o1777), None);
    }
}
