//! Operations on attributes: mode, owner, times, size, and extended attributes.

use std::ops::ControlFlow;

use txfs_engine::Read;

use super::overlay::TimeIntent;
use super::session::Session;
use crate::conflict::{ATTRIBUTE_SPACE, PERMISSIONS, XATTR_SPACE};
use crate::error::{Error, Result};
use crate::records::{key, small};
use crate::types::{Attributes, Ino, NAME_BYTES_MAX, NodeKind, SetAttributes, SetTime, XattrMode};

/// The longest value of an extended attribute, as Linux has it.
const XATTR_BYTES_MAX: usize = 65_536;
/// Namespaces whose attributes are stored. `system.` (ACLs) is not: what it says would not be enforced.
const XATTR_NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

fn check_xattr_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::AttributeNameTooLong);
    }
    if !XATTR_NAMESPACES.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
        return Err(Error::NotSupported("extended attributes begin with `user.`, `trusted.` or `security.`"));
    }
    if name.contains(&0) {
        return Err(Error::Invalid("a name must not contain a NUL byte"));
    }
    Ok(())
}

impl Session {
    pub(crate) fn set_attributes(&mut self, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.check_writable()?;
        let now = self.now();
        let moment = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        for time in [set.atime, set.mtime, set.ctime].into_iter().flatten() {
            if moment(time).nanoseconds > 999_999_999 {
                return Err(Error::Invalid("nanoseconds must be below 1,000,000,000"));
            }
        }
        if let Some(size) = set.size {
            self.set_size(ino, size, now)?;
        }
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            self.touch(ATTRIBUTE_SPACE, ino, PERMISSIONS, PERMISSIONS, true);
        }
        let state = self.inode_mut(ino)?;
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            state.permissions = true;
            let record = &mut state.record;
            record.mode = set.mode.map_or(record.mode, |mode| mode & 0o7777);
            record.uid = set.uid.unwrap_or(record.uid);
            record.gid = set.gid.unwrap_or(record.gid);
        }
        if let Some(time) = set.atime {
            state.record.atime = moment(time);
            state.atime = TimeIntent::Set;
        }
        if let Some(time) = set.mtime {
            state.record.mtime = moment(time);
            state.mtime = TimeIntent::Set;
        }
        state.touch_node(now);
        if let Some(time) = set.ctime {
            state.record.ctime = moment(time);
            state.ctime = TimeIntent::Set;
        }
        Ok(state.record.attributes(ino))
    }

    fn note_xattr(&mut self, ino: Ino, name: &[u8]) {
        let at = self.shared.hasher.hash(name);
        self.note_xattrs(ino, at, at);
    }

    fn touch_xattr(&mut self, ino: Ino, name: &[u8]) {
        let at = self.shared.hasher.hash(name);
        self.touch(XATTR_SPACE, ino, at, at, true);
    }

    /// The value as the transaction sees it. The read is noted.
    fn xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.note_xattr(ino, name);
        if let Some(state) = self.overlay.inodes.get(&ino) {
            if let Some(value) = state.xattrs.get(name) {
                return Ok(value.clone());
            }
            if state.is_created() {
                return Ok(None);
            }
        }
        match self.snapshot.get(&key::xattr(ino, name))? {
            None => Ok(None),
            Some(value) => match small::decode_bytes(&value) {
                Ok(value) => Ok(Some(value.to_vec())),
                Err(detail) => {
                    let name = String::from_utf8_lossy(name);
                    Err(Error::Corrupt { what: format!("attribute {name:?} of inode {ino}: {detail}") })
                }
            },
        }
    }

    pub(crate) fn get_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.inode(ino)?;
        check_xattr_name(name)?;
        self.xattr(ino, name)?.ok_or(Error::NoAttribute)
    }

    pub(crate) fn set_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.check_writable()?;
        let record = self.inode(ino)?;
        check_xattr_name(name)?;
        if name.starts_with(b"user.") && !matches!(record.kind, NodeKind::File | NodeKind::Directory) {
            return Err(Error::NotPermitted("only files and directories have `user.` attributes"));
        }
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::AttributeTooLarge);
        }
        match (mode, self.xattr(ino, name)?) {
            (XattrMode::Create, Some(_)) => return Err(Error::Exists),
            (XattrMode::Replace, None) => return Err(Error::NoAttribute),
            _ => {}
        }
        self.touch_xattr(ino, name);
        let now = self.now();
        let state = self.inode_mut(ino)?;
        state.xattrs.insert(name.to_vec(), Some(value.to_vec()));
        state.touch_node(now);
        Ok(())
    }

    pub(crate) fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.inode(ino)?;
        check_xattr_name(name)?;
        self.xattr(ino, name)?.ok_or(Error::NoAttribute)?;
        self.touch_xattr(ino, name);
        let now = self.now();
        let state = self.inode_mut(ino)?;
        state.xattrs.insert(name.to_vec(), None);
        state.touch_node(now);
        Ok(())
    }

    pub(crate) fn list_xattrs(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.inode(ino)?;
        self.note_xattrs(ino, 0, u64::MAX);
        let mut names = std::collections::BTreeSet::new();
        let state = self.overlay.inodes.get(&ino);
        if !state.is_some_and(|state| state.is_created()) {
            let (from, to) = key::xattrs(ino);
            self.snapshot.scan(&from, &to, &mut |key, _| {
                names.insert(key::xattr_name(key).to_vec());
                ControlFlow::Continue(())
            })?;
        }
        for (name, value) in state.iter().flat_map(|state| &state.xattrs) {
            match value {
                Some(_) => names.insert(name.clone()),
                None => names.remove(name),
            };
        }
        Ok(names.into_iter().collect())
    }
}
