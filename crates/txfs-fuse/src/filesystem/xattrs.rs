//! Extended attributes. The kernel caches none of them, so they need no invalidation.
//!
//! `system.` attributes are refused: they would be POSIX access control lists, and a list that is stored but not
//! enforced is worse than none.

use super::{FileSystem, Place};
use crate::errno::Errno;
use crate::wire::abi::{GetxattrIn, SetxattrIn, SizeOut};
use crate::wire::reply::ReplyBuffer;
use crate::wire::request::Request;
use txfs::XattrMode;

const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const REFUSED_PREFIX: &[u8] = b"system.";

impl FileSystem {
    pub(super) fn set_xattr(&self, request: &Request<'_>) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let mut body = request.body();
        let wanted = body.take::<SetxattrIn>()?;
        let name = accepted(body.name()?)?;
        let value = body.data(wanted.size as usize)?;
        let mode = match wanted.flags {
            0 => XattrMode::Set,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        Ok(view.view()?.set_xattr(ino, name, value, mode)?)
    }

    pub(super) fn get_xattr(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let Place::Node(view, ino) = self.place(request.header.node)? else { return Err(Errno::NODATA) };
        let mut body = request.body();
        let wanted = body.take::<GetxattrIn>()?;
        let value = view.view()?.get_xattr(ino, accepted(body.name()?)?)?;
        push_sized(reply, &value, wanted.size)
    }

    pub(super) fn list_xattrs(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Result<(), Errno> {
        let wanted = request.body().take::<GetxattrIn>()?;
        let Place::Node(view, ino) = self.place(request.header.node)? else {
            return push_sized(reply, &[], wanted.size);
        };
        let mut names = Vec::new();
        for name in view.view()?.list_xattrs(ino)? {
            names.extend(name);
            names.push(0);
        }
        push_sized(reply, &names, wanted.size)
    }

    pub(super) fn remove_xattr(&self, request: &Request<'_>) -> Result<(), Errno> {
        let (view, ino) = self.node(&request.header)?;
        let name = accepted(request.body().name()?)?;
        Ok(view.view()?.remove_xattr(ino, name)?)
    }
}

fn accepted(name: &[u8]) -> Result<&[u8], Errno> {
    if name.starts_with(REFUSED_PREFIX) { Err(Errno::OPNOTSUPP) } else { Ok(name) }
}

/// With room 0 the caller asks for the size alone.
fn push_sized(reply: &mut ReplyBuffer, value: &[u8], room: u32) -> Result<(), Errno> {
    if room == 0 {
        reply.push(&SizeOut { size: value.len() as u32, padding: 0 });
    } else if value.len() > room as usize {
        return Err(Errno::RANGE);
    } else {
        reply.push_bytes(value);
    }
    Ok(())
}
