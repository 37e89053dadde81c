//! Extended attributes.

use std::ffi::c_int;

use volume::{Ino, XattrMode};

use super::arguments::{Handle, Input, Output, Text};
use super::failure::{Failure, Result, answer, done};
use super::paths::follows;
use super::view::ViewHandle;

/// Copies a value out as `getxattr` does: without room, only its length is told.
fn copy(value: &[u8], buffer: &mut [u8]) -> Result<isize> {
    if buffer.is_empty() {
        return Ok(value.len() as isize);
    }
    let room = buffer.get_mut(..value.len());
    let room = room.ok_or_else(|| Failure::new(libc::ERANGE, "the buffer is too small"))?;
    room.copy_from_slice(value);
    Ok(value.len() as isize)
}

struct Node<'a> {
    view: &'a ViewHandle,
    ino: Ino,
    path: &'a [u8],
}

impl<'a> Node<'a> {
    fn find(view: &'a Handle<ViewHandle>, path: &'a Text, flags: c_int) -> Result<Node<'a>> {
        let (view, path) = (view.get()?, path.path()?);
        let ino = view.find("look for the extended attributes of", path, follows(flags)?)?;
        Ok(Node { view, ino, path })
    }

    fn named<T>(&self, doing: &'static str, result: volume::Result<T>) -> Result<T> {
        result.map_err(|error| Failure::at(doing, self.path, error))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_getxattr(
    view: Handle<ViewHandle>,
    path: Text,
    name: Text,
    mut buffer: Output,
    size: usize,
    flags: c_int,
) -> isize {
    answer(|| {
        let buffer = buffer.slice(size)?;
        let node = Node::find(&view, &path, flags)?;
        let value = node.view.view().get_xattr(node.ino, name.bytes()?);
        copy(&node.named("read an extended attribute of", value)?, buffer)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_setxattr(
    view: Handle<ViewHandle>,
    path: Text,
    name: Text,
    value: Input,
    size: usize,
    flags: c_int,
) -> c_int {
    done(|| {
        let value = value.slice(size)?;
        let mode = match flags & !libc::AT_SYMLINK_NOFOLLOW {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Failure::invalid("unknown flags of an extended attribute")),
        };
        let node = Node::find(&view, &path, flags & libc::AT_SYMLINK_NOFOLLOW)?;
        let set = node.view.view().set_xattr(node.ino, name.bytes()?, value, mode);
        node.named("set an extended attribute of", set)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_listxattr(
    view: Handle<ViewHandle>,
    path: Text,
    mut buffer: Output,
    size: usize,
    flags: c_int,
) -> isize {
    answer(|| {
        let buffer = buffer.slice(size)?;
        let node = Node::find(&view, &path, flags)?;
        let names = node.named("list the extended attributes of", node.view.view().list_xattrs(node.ino))?;
        let mut all = Vec::new();
        for name in names {
            all.extend_from_slice(&name);
            all.push(0);
        }
        copy(&all, buffer)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_removexattr(view: Handle<ViewHandle>, path: Text, name: Text, flags: c_int) -> c_int {
    done(|| {
        let node = Node::find(&view, &path, flags)?;
        let removed = node.view.view().remove_xattr(node.ino, name.bytes()?);
        node.named("remove an extended attribute of", removed)
    })
}
