//! What a file group's transaction is about: the group's members and what lies directly in member directories.
//!
//! Whether a path leads there is found in the base view, since a look into the transaction's view would count as read, and the
//! program's own calls that pass would conflict with it. What exists in the transaction only lies in a member directory, or
//! has a name that the transaction gave it. What is not the group's is left alone: the call is made as it stands.
//! From a place in the view there is no way back to the base view, so what a relative path finds from there belongs to
//! the transaction.
//! Locks: `Scope::known` is a leaf, taken for a moment.

use super::resolve::{PLACE, Place, entry_status, split};
use super::system::{Fd, Status, c_text, openat, path_of, status, status_of};
use super::{descriptors, locked};
use crate::kernel::Errno;
use crate::transaction::Binding;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Mutex;
use txfs_protocol::{GroupMember, GroupStarted};

/// The members of a running file group, as this process knows them.
#[derive(Debug)]
pub struct Scope {
    key: u32,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By inode number; whether it is a directory.
    members: HashMap<u64, bool>,
    /// Names outside of member directories that the transaction has given, with the directories' inode numbers.
    names: HashSet<(u64, Vec<u8>)>,
}

impl Scope {
    /// Of a group that has started; `more` answers its members from a place in the list on.
    pub fn new(
        key: u32,
        started: GroupStarted,
        more: impl Fn(u64) -> Result<Vec<GroupMember>, Errno>,
    ) -> Result<Scope, Errno> {
        let mut members = started.members;
        while (members.len() as u64) < started.total {
            let page = more(members.len() as u64)?;
            if page.is_empty() {
                break;
            }
            members.extend(page);
        }
        let members = members.into_iter().map(|member| (member.inode, member.directory)).collect();
        Ok(Scope { key, known: Mutex::new(Known { members, ..Known::default() }) })
    }

    /// The group's key.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Whether an inode is a member.
    pub fn has(&self, ino: u64) -> bool {
        locked(&self.known).members.contains_key(&ino)
    }

    /// Whether a name in a directory is the transaction's.
    fn has_name(&self, directory: u64, name: &[u8]) -> bool {
        let known = locked(&self.known);
        known.members.get(&directory) == Some(&true) || known.names.contains(&(directory, name.to_vec()))
    }

    /// Whether the transaction is about what a path leads to in the base view.
    fn covers(&self, device: (u32, u32), directory: RawFd, path: &CStr, follow: bool) -> bool {
        let found = |fd: &Fd| status_of(fd.number()).ok().filter(|found| found.node.device == device);
        let flags = PLACE | if follow { 0 } else { libc::O_NOFOLLOW };
        if let Ok(fd) = openat(directory, path, flags, 0) {
            let Some(status) = found(&fd) else { return false };
            if self.has(status.node.ino) {
                return true;
            }
            // It may have come there by links: where it lies, the kernel knows.
            let Ok(path) = path_of(fd.number()) else { return false };
            let (parent, name, _) = split(&path);
            let lies_in = status_at(parent).filter(|parent| parent.node.device == device);
            return lies_in.is_some_and(|parent| self.has_name(parent.node.ino, name));
        }
        // There is no such thing: what is the last that there is?
        let mut rest = path.to_bytes();
        loop {
            let (parent, name, _) = split(rest);
            if name.is_empty() {
                return false;
            }
            let parent_path = if parent.is_empty() { c".".into() } else { c_text(parent.to_vec()) };
            if let Ok(fd) = openat(directory, &parent_path, PLACE | libc::O_DIRECTORY, 0) {
                return found(&fd).is_some_and(|parent| self.has_name(parent.node.ino, name));
            }
            rest = parent;
        }
    }
}

fn status_at(path: &[u8]) -> Option<Status> {
    status(libc::AT_FDCWD, &c_text(path.to_vec()), libc::AT_SYMLINK_NOFOLLOW).ok()
}

/// Whether the transaction is about what a path leads to.
pub fn concerns(binding: &mut Binding, directory: RawFd, path: &CStr, follow: bool) -> Result<bool, Errno> {
    let Some(shared) = binding.scope() else { return Ok(true) };
    let Some(scope) = &shared.scope else { return Ok(true) };
    if starts_inside(binding, directory, path)? {
        return Ok(true);
    }
    Ok(scope.covers(shared.view.root_node().device, directory, path, follow))
}

/// Whether a path starts at a place in the view.
fn starts_inside(binding: &mut Binding, directory: RawFd, path: &CStr) -> Result<bool, Errno> {
    if path.to_bytes().first() == Some(&b'/') {
        return Ok(false);
    }
    if directory == libc::AT_FDCWD {
        return Ok(binding.virtual_directory().is_some());
    }
    Ok(descriptors::class(binding, directory)?.number().is_some())
}

/// What has been made in a member directory is a member.
pub fn made(binding: &Binding, place: &Place) {
    let Some(shared) = binding.scope() else { return };
    if let Some(scope) = &shared.scope
        && place.inside.is_some()
        && place.status.is_none()
        && let Ok(Some(found)) = entry_status(place.directory.number(), &place.name)
    {
        locked(&scope.known).members.insert(found.node.ino, found.is_directory());
    }
}

/// The transaction has given a name.
pub fn named(binding: &Binding, place: &Place) {
    let Some(shared) = binding.scope() else { return };
    if let Some(scope) = &shared.scope
        && let Ok(directory) = status_of(place.directory.number())
    {
        let name = place.name.to_bytes();
        let name = name.strip_suffix(b"/").unwrap_or(name);
        locked(&scope.known).names.insert((directory.node.ino, name.to_vec()));
    }
}
