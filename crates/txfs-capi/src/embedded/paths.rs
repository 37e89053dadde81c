//! Functions that take paths.

use std::ffi::c_int;

use volume::{NewNode, RenameMode, SetAttributes};

use super::arguments::{Handle, Out, Output, Text, Times};
use super::failure::{Failure, Result, answer, done};
use super::status;
use super::view::ViewHandle;

/// Whether the flags say to follow a symbolic link at the end.
pub fn follows(flags: c_int) -> Result<bool> {
    match flags {
        0 => Ok(true),
        libc::AT_SYMLINK_NOFOLLOW => Ok(false),
        _ => Err(Failure::invalid("unknown flags: 0 or AT_SYMLINK_NOFOLLOW")),
    }
}

/// Adds what was to be done and where.
fn at<T>(doing: &'static str, path: &[u8], result: volume::Result<T>) -> Result<T> {
    result.map_err(|error| Failure::at(doing, path, error))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_stat(
    view: Handle<ViewHandle>,
    path: Text,
    result: Out<libc::stat>,
    flags: c_int,
) -> c_int {
    done(|| {
        result.check()?;
        let (view, path) = (view.get()?, path.path()?);
        let ino = view.find("stat", path, follows(flags)?)?;
        let node = at("stat", path, view.view().attributes(ino))?;
        result.put(status::stat(&view.core, &node));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_statvfs(view: Handle<ViewHandle>, result: Out<libc::statvfs>) -> c_int {
    done(|| {
        result.check()?;
        let view = view.get()?;
        result.put(status::statvfs(&view.core, &view.view().statistics()?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_mkdir(view: Handle<ViewHandle>, path: Text, mode: libc::mode_t) -> c_int {
    done(|| {
        let (view, path) = (view.get()?, path.path()?);
        let (uid, gid) = view.core.owner;
        let node = NewNode::directory(mode & 0o7777, uid, gid);
        let make = || {
            let (parent, name) = view.place().parent(path)?;
            view.view().make_node(parent, &name, &node).map(drop)
        };
        at("create the directory", path, make())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_unlink(view: Handle<ViewHandle>, path: Text) -> c_int {
    done(|| {
        let (view, path) = (view.get()?, path.path()?);
        let parent = view.place().parent(path);
        at("remove", path, parent.and_then(|(parent, name)| view.view().unlink(parent, &name)))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_rmdir(view: Handle<ViewHandle>, path: Text) -> c_int {
    done(|| {
        let (view, path) = (view.get()?, path.path()?);
        let parent = view.place().parent(path);
        at(
            "remove the directory",
            path,
            parent.and_then(|(parent, name)| view.view().remove_directory(parent, &name)),
        )
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_rename(view: Handle<ViewHandle>, from: Text, to: Text, flags: u32) -> c_int {
    done(|| {
        let (view, from, to) = (view.get()?, from.path()?, to.path()?);
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Failure::invalid("unknown flags of a rename")),
        };
        let rename = || {
            let (parent, name) = view.place().parent(from)?;
            let (new_parent, new_name) = view.place().parent(to)?;
            view.view().rename(parent, &name, new_parent, &new_name, mode)
        };
        at("rename", from, rename())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_link(view: Handle<ViewHandle>, from: Text, to: Text) -> c_int {
    done(|| {
        let (view, from, to) = (view.get()?, from.path()?, to.path()?);
        let link = || {
            let ino = view.place().find(from, false)?;
            let (parent, name) = view.place().parent(to)?;
            view.view().link(ino, parent, &name).map(drop)
        };
        at("create the link", to, link())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_symlink(view: Handle<ViewHandle>, target: Text, path: Text) -> c_int {
    done(|| {
        let (view, target, path) = (view.get()?, target.path()?, path.path()?);
        let (uid, gid) = view.core.owner;
        let make = || {
            let (parent, name) = view.place().parent(path)?;
            view.view().make_node(parent, &name, &NewNode::symlink(target, uid, gid)).map(drop)
        };
        at("create the symbolic link", path, make())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_readlink(
    view: Handle<ViewHandle>,
    path: Text,
    mut buffer: Output,
    size: usize,
) -> isize {
    answer(|| {
        let (view, path) = (view.get()?, path.path()?);
        let buffer = buffer.slice(size)?;
        if buffer.is_empty() {
            return Err(Failure::invalid("no room for the target"));
        }
        let ino = view.find("read the symbolic link", path, false)?;
        let target = at("read the symbolic link", path, view.view().read_link(ino))?;
        let length = target.len().min(buffer.len());
        buffer[..length].copy_from_slice(&target[..length]);
        Ok(length as isize)
    })
}

fn set(
    doing: &'static str,
    view: &Handle<ViewHandle>,
    path: &Text,
    follow: bool,
    set: &SetAttributes,
) -> Result<()> {
    let (view, path) = (view.get()?, path.path()?);
    let ino = view.find(doing, path, follow)?;
    at(doing, path, view.view().set_attributes(ino, set).map(drop))
}

/// The owner to set: -1 leaves one as it is.
pub fn new_owner(uid: libc::uid_t, gid: libc::gid_t) -> SetAttributes {
    let given = |id: u32| Some(id).filter(|id| *id != u32::MAX);
    SetAttributes { uid: given(uid), gid: given(gid), ..SetAttributes::default() }
}

/// The size to set.
pub fn new_size(size: libc::off_t) -> Result<SetAttributes> {
    let size = u64::try_from(size).map_err(|_| Failure::invalid("the size is negative"))?;
    Ok(SetAttributes { size: Some(size), ..SetAttributes::default() })
}

/// The times to set.
pub fn new_times(times: &Times) -> Result<SetAttributes> {
    let [atime, mtime] = status::times(times)?;
    Ok(SetAttributes { atime, mtime, ..SetAttributes::default() })
}

/// The mode to set.
pub fn new_mode(mode: libc::mode_t) -> SetAttributes {
    SetAttributes { mode: Some(mode & 0o7777), ..SetAttributes::default() }
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_chmod(view: Handle<ViewHandle>, path: Text, mode: libc::mode_t) -> c_int {
    done(|| set("change the mode of", &view, &path, true, &new_mode(mode)))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_chown(
    view: Handle<ViewHandle>,
    path: Text,
    uid: libc::uid_t,
    gid: libc::gid_t,
    flags: c_int,
) -> c_int {
    done(|| set("change the owner of", &view, &path, follows(flags)?, &new_owner(uid, gid)))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_utimens(view: Handle<ViewHandle>, path: Text, times: Times, flags: c_int) -> c_int {
    done(|| set("change the times of", &view, &path, follows(flags)?, &new_times(&times)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_truncate(view: Handle<ViewHandle>, path: Text, size: libc::off_t) -> c_int {
    done(|| set("truncate", &view, &path, true, &new_size(size)?))
}
