//! IOCTL: what can be asked about open files of a mount (`txfs_protocol::ioctl`).
//!
//! The kernel passes on what the number says: so many bytes in, so many out. It does not tell how the file is open, so
//! where that matters the file's mode is asked instead.

use super::FileSystem;
use crate::errno::Errno;
use crate::groups::{GroupError, Key};
use crate::views::MountView;
use crate::wire::abi::{EntryOut, InHeader, IoctlIn, IoctlOut};
use crate::wire::reply::ReplyBuffer;
use crate::wire::request::{Body, Request};
use txfs::{Attributes, Ino, NodeKind};
use txfs_protocol::NODES_DIRECTORY;
use txfs_protocol::ioctl::{GroupKey, NodePath, TXFS_IOC_GROUP_ADD, TXFS_IOC_GROUP_REMOVE, TXFS_IOC_NODE};

const GROUP_WRITE: u32 = 0o020;
const OWNER_WRITE: u32 = 0o200;
const OTHERS_WRITE: u32 = 0o002;

impl FileSystem {
    pub(super) fn ioctl(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let mut body = request.body();
        let wanted = body.take::<IoctlIn>()?;
        let done = IoctlOut::default();
        match wanted.command {
            TXFS_IOC_NODE => {
                let asked = NodePath::from_bytes(input::<{ size_of::<NodePath>() }>(&wanted, &mut body)?);
                let asked = asked.ok_or(Errno::INVAL)?;
                if (wanted.out_bytes as usize) < size_of::<NodePath>() {
                    return Err(Errno::INVAL);
                }
                let answer = self.name_node(&request.header, asked.transaction)?;
                reply.push(&done);
                reply.push_bytes(&answer.to_bytes());
            }
            TXFS_IOC_GROUP_ADD | TXFS_IOC_GROUP_REMOVE => {
                let group = GroupKey::from_bytes(input::<{ size_of::<GroupKey>() }>(&wanted, &mut body)?);
                let group = group.filter(|group| group.reserved == 0).ok_or(Errno::INVAL)?;
                self.change_group(&request.header, group.key, wanted.command == TXFS_IOC_GROUP_ADD)?;
                reply.push(&done);
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(())
    }

    /// Gives a regular file, wherever it is open, a name under which the caller finds it in a view.
    fn name_node(&self, header: &InHeader, transaction: u64) -> Result<NodePath, Errno> {
        // A file of a transaction that has ended is still good for this.
        let (_, ino) = self.node(header)?;
        let view = match transaction {
            0 => self.views.base().clone(),
            number => {
                let view = self.views.of_transaction(number).ok_or(Errno::STALE)?;
                let open = view.transaction().ok_or(Errno::STALE)?;
                if !open.is_open_to(header.uid) {
                    return Err(Errno::PERM);
                }
                view
            }
        };
        // That it is looked for is no read; what the caller finds when he uses the name is.
        let attributes = look(&view, ino)?;
        match attributes.kind {
            NodeKind::File => {}
            // The kernel knows a directory by one name only.
            NodeKind::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        let token = self.tokens.give(view.node(ino)?, header.uid)?;
        let path = [NODES_DIRECTORY.as_bytes(), b"/", &token].concat();
        NodePath::answer(transaction, &path).ok_or(Errno::RANGE)
    }

    /// What a name stands for that `TXFS_IOC_NODE` has given. The kernel is not to remember it.
    pub(super) fn lookup_by_token(&self, name: &[u8], uid: u32) -> Result<EntryOut, Errno> {
        let (token, node) = self.tokens.take(name, uid).ok_or(Errno::NOENT)?;
        let view = self.views.of(node)?;
        let mut entry = self.enter(&view, node.ino())?;
        if entry.attr.nlink == 0
            && let Err(error) = self.views.hold(&view, node.ino())
        {
            self.views.forget(node, 1);
            return Err(error);
        }
        (entry.entry_valid_s, entry.entry_valid_ns) = (0, 0);
        // The kernel has the directory locked until it has taken this answer, so this comes after that.
        self.invalidator.drop_used_name(token);
        Ok(entry)
    }

    fn change_group(&self, header: &InHeader, key: Key, add: bool) -> Result<(), Errno> {
        // A member is what everybody sees, through whichever view it is open.
        let (_, ino) = self.node(header)?;
        let base = self.views.base();
        if !base.is_base() {
            return Err(Errno::ROFS);
        }
        let attributes = look(base, ino)?;
        if attributes.nlink == 0 {
            return Err(Errno::NOENT);
        }
        if !matches!(attributes.kind, NodeKind::File | NodeKind::Directory) {
            return Err(Errno::INVAL);
        }
        if !may_write(header, &attributes) {
            return Err(Errno::ACCES);
        }
        let directory = attributes.kind == NodeKind::Directory;
        match add {
            true => self.groups.add(key, header.uid, ino, directory)?,
            false => self.groups.remove(key, header.uid, ino)?,
        }
        Ok(())
    }

    /// What has been created becomes a member of its directory's group.
    pub(super) fn inherit(&self, view: &MountView, parent: Ino, made: &Attributes) {
        if matches!(made.kind, NodeKind::File | NodeKind::Directory)
            && self.groups.created(view, parent, made.ino, made.kind == NodeKind::Directory)
        {
            self.groups.sweep(|ino| self.has_name(ino));
        }
    }

    /// Whether an inode is there in the base view, and has a name.
    pub(crate) fn has_name(&self, ino: Ino) -> bool {
        let attributes = self.views.base().view().map(|base| base.attributes(ino));
        match attributes {
            Ok(Ok(attributes)) => attributes.nlink > 0,
            Ok(Err(error)) => !matches!(error, txfs::Error::Stale { .. } | txfs::Error::NotFound),
            Err(_) => true,
        }
    }
}

/// The bytes that the caller passes, if there are as many as the number says.
fn input<'a, const BYTES: usize>(wanted: &IoctlIn, body: &mut Body<'a>) -> Result<&'a [u8], Errno> {
    match wanted.in_bytes as usize == BYTES {
        true => body.data(BYTES),
        false => Err(Errno::INVAL),
    }
}

/// The attributes of an inode, without reading them in a transaction.
fn look(view: &MountView, ino: Ino) -> Result<Attributes, Errno> {
    let operations = view.view()?;
    match view.transaction() {
        None => Ok(operations.attributes(ino)?),
        Some(_) => {
            let attributes = operations.opened(ino)?;
            operations.closed(ino);
            Ok(attributes)
        }
    }
}

/// Whether a caller may write a file, by its mode.
fn may_write(header: &InHeader, attributes: &Attributes) -> bool {
    let mode = attributes.mode;
    match header.uid {
        0 => true,
        uid if uid == attributes.uid => mode & OWNER_WRITE != 0,
        _ if in_group(header, attributes.gid) => mode & GROUP_WRITE != 0,
        _ => mode & OTHERS_WRITE != 0,
    }
}

/// Whether a caller, who waits for the answer, is in a group.
fn in_group(header: &InHeader, gid: u32) -> bool {
    if header.gid == gid {
        return true;
    }
    // The other groups are not in the request.
    let status = std::fs::read_to_string(format!("/proc/{}/status", header.pid)).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().any(|group| group.parse() == Ok(gid))
}

impl From<GroupError> for Errno {
    fn from(error: GroupError) -> Errno {
        match error {
            GroupError::Unknown => Errno::INVAL,
            GroupError::NotAllowed => Errno::PERM,
            GroupError::Running => Errno::BUSY,
            GroupError::IsMember => Errno::EXIST,
            GroupError::NoMember => Errno::NOENT,
            GroupError::TooMany => Errno::DQUOT,
        }
    }
}
