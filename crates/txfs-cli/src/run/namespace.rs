//! The command's private view of the file tree: a mount namespace in which the transaction's view covers the mount.
//!
//! Must run in a process with a single thread: Linux lets no other create a user namespace. A process that may not
//! create mount namespaces (not root, or root in a container) makes a user namespace first, in which its own user and
//! group, and nobody else, exist. It stays who it is; what it loses is set-user-id programs such as sudo.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use txfs_protocol::PathText;

use super::control::Bind;
use crate::error::reason;

/// Why the namespace could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The kernel or its administrator forbids user namespaces.
    #[error("cannot create a user namespace: {}", reason(.0))]
    UserNamespace(io::Error),
    /// No mount namespace, although we are allowed to.
    #[error("cannot create a mount namespace: {}", reason(.0))]
    MountNamespace(io::Error),
    /// The identity could not be mapped.
    #[error("cannot map the user into the user namespace (/proc/self/{file}): {}", reason(source))]
    Mapping {
        /// Which file of /proc/self.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The mounts could not be made private.
    #[error("cannot make the mounts private: {}", reason(.0))]
    Propagation(io::Error),
    /// The view could not be bound.
    #[error("cannot bind {} over {}: {}", from.display(), target.display(), reason(error))]
    Bind {
        /// The view.
        from: PathBuf,
        /// The mount point.
        target: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl NamespaceError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            NamespaceError::UserNamespace(_) | NamespaceError::Mapping { .. } => Some(
                "run it as root, or allow user namespaces: sysctl user.max_user_namespaces=10000, \
                 kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0",
            ),
            _ => None,
        }
    }
}

/// Enters a new mount namespace, with a user namespace around it where that is needed, and cuts it off: what is
/// mounted in it stays in it.
pub fn enter_private_mount_namespace() -> Result<(), NamespaceError> {
    match unshare(UnshareFlags::NEWNS) {
        Ok(()) => {}
        Err(Errno::PERM) => enter_user_namespace()?,
        Err(error) => return Err(NamespaceError::MountNamespace(error.into())),
    }
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| NamespaceError::Propagation(error.into()))
}

fn enter_user_namespace() -> Result<(), NamespaceError> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
        .map_err(|error| NamespaceError::UserNamespace(error.into()))?;
    let write = |file: &'static str, content: String| {
        fs::write(Path::new("/proc/self").join(file), content)
            .map_err(|source| NamespaceError::Mapping { file, source })
    };
    // Without this, an unprivileged process may not map groups (it could shed one that forbids it something).
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: only UnshareFlags::FILES is dangerous, and no caller passes it.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Lays each view over its mount point, then puts the file systems that were mounted below back on top.
pub fn bind_views(binds: &[Bind], submounts: &[PathText]) -> Result<(), NamespaceError> {
    // All are picked up before the first one is laid down: it may cover the way to the others.
    let mut views = Vec::new();
    for bind in binds {
        let failed = |error: Errno| NamespaceError::Bind {
            from: bind.source.to_path_buf(),
            target: bind.target.to_path_buf(),
            error: error.into(),
        };
        let view = pick_up(bind.source.as_path(), OpenTreeFlags::empty()).map_err(failed)?;
        views.push((view, bind.target.as_path(), failed));
    }
    // One that cannot be picked up (it has just been unmounted) is left out.
    let kept: Vec<_> = submounts
        .iter()
        .filter_map(|submount| {
            let tree = pick_up(submount.as_path(), OpenTreeFlags::AT_RECURSIVE).ok()?;
            Some((tree, submount.as_path()))
        })
        .collect();
    for (view, target, failed) in views {
        lay_down(&view, target).map_err(failed)?;
    }
    for (tree, target) in kept {
        // A directory that the transaction's snapshot does not have cannot carry a mount: then it is left out.
        let _ = lay_down(&tree, target);
    }
    Ok(())
}

/// A copy of a mount, or of the part of it from a directory on, that is mounted nowhere yet.
fn pick_up(path: &Path, more: OpenTreeFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | more;
    rustix::mount::open_tree(CWD, path, flags)
}

fn lay_down(tree: &OwnedFd, target: &Path) -> rustix::io::Result<()> {
    rustix::mount::move_mount(tree, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
