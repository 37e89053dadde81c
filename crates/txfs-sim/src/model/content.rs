//! What inodes hold: file bytes, attributes and extended attributes.

use std::sync::Arc;

use super::tree::{Body, Tree};
use crate::operation::{Allocation, Ino, Kind, Name, Operation, Outcome, XattrSetting, fill_bytes};

type Result<T> = std::result::Result<T, i32>;

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("sizes in scenarios are small")
}

impl Tree {
    fn bytes(&self, ino: Ino) -> Result<&Vec<u8>> {
        match &self.get(ino)?.body {
            Body::File(bytes) => Ok(bytes),
            Body::Directory { .. } => Err(libc::EISDIR),
            _ => Err(libc::EINVAL),
        }
    }

    fn bytes_mut(&mut self, ino: Ino) -> Result<&mut Vec<u8>> {
        self.bytes(ino)?;
        match self.node_mut(ino).map(|node| &mut node.body) {
            Some(Body::File(bytes)) => Ok(Arc::make_mut(bytes)),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn read(&self, ino: Ino, offset: u64, len: u64) -> Result<Outcome> {
        let bytes = self.bytes(ino)?;
        let start = index(offset).min(bytes.len());
        let end = index(offset + len).min(bytes.len());
        Ok(Outcome::Bytes(bytes[start..end].to_vec()))
    }

    fn put(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let bytes = self.bytes_mut(ino)?;
        let end = index(offset) + data.len();
        if !data.is_empty() {
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[index(offset)..end].copy_from_slice(data);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, ino: Ino, offset: u64, len: u64, fill: u64) -> Result<Outcome> {
        self.put(ino, offset, &fill_bytes(fill, len))?;
        Ok(Outcome::Number(len))
    }

    pub(super) fn append(&mut self, ino: Ino, len: u64, fill: u64) -> Result<Outcome> {
        let offset = self.bytes(ino)?.len() as u64;
        self.put(ino, offset, &fill_bytes(fill, len))?;
        Ok(Outcome::Number(offset))
    }

    pub(super) fn truncate(&mut self, ino: Ino, size: u64) -> Result<Outcome> {
        self.bytes_mut(ino)?.resize(index(size), 0);
        Ok(Outcome::Done)
    }

    pub(super) fn allocate(
        &mut self,
        ino: Ino,
        allocation: Allocation,
        offset: u64,
        len: u64,
    ) -> Result<Outcome> {
        let bytes = self.bytes_mut(ino)?;
        if len == 0 {
            return Err(libc::EINVAL);
        }
        let (zero, grow) = match allocation {
            Allocation::Reserve { keep_size } => (false, !keep_size),
            Allocation::PunchHole => (true, false),
            Allocation::ZeroRange { keep_size } => (true, !keep_size),
        };
        let end = index(offset + len);
        if grow && bytes.len() < end {
            bytes.resize(end, 0);
        }
        if zero {
            let (start, end) = (index(offset).min(bytes.len()), end.min(bytes.len()));
            bytes[start..end].fill(0);
        }
        Ok(Outcome::Done)
    }

    /// With holes kept as zeros, only bounds are known: the first byte that must be data, or the end of the file.
    /// [`crate::compare`] judges what the volume answers by the contents.
    pub(super) fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<Outcome> {
        let bytes = self.bytes(ino)?;
        let start = index(offset);
        if start >= bytes.len() {
            return Err(libc::ENXIO);
        }
        if !data {
            return Ok(Outcome::Number(bytes.len() as u64));
        }
        let found = bytes[start..].iter().position(|byte| *byte != 0);
        Ok(Outcome::Number(found.map_or(bytes.len() as u64, |at| offset + at as u64)))
    }

    pub(super) fn copy_range(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64) -> Result<Outcome> {
        self.bytes(to.0)?;
        let Outcome::Bytes(data) = self.read(from.0, from.1, len)? else { return Err(libc::EINVAL) };
        let copied = data.len() as u64;
        if from.0 == to.0 && from.1 < to.1 + copied && to.1 < from.1 + copied {
            return Err(libc::EINVAL);
        }
        self.put(to.0, to.1, &data)?;
        Ok(Outcome::Number(copied))
    }

    /// What a copy would read; empty for other operations.
    pub(super) fn source_of(&self, operation: &Operation) -> Vec<u8> {
        match operation {
            Operation::CopyRange { from, from_offset, len, .. } => match self.read(*from, *from_offset, *len)
            {
                Ok(Outcome::Bytes(bytes)) => bytes,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Runs an operation that got `seen` before, with what it had read then: the end of a file, the data of a copy.
    pub(super) fn run_with_old_reads(
        &mut self,
        operation: &Operation,
        seen: &Outcome,
        copied: &[u8],
    ) -> Outcome {
        let result = match (operation, seen) {
            (Operation::CopyRange { to, to_offset, .. }, Outcome::Number(_)) => {
                self.put(*to, *to_offset, copied).map(|()| seen.clone())
            }
            (Operation::Append { ino, len, fill }, Outcome::Number(offset)) => {
                self.put(*ino, *offset, &fill_bytes(*fill, *len)).map(|()| seen.clone())
            }
            _ => return self.run(operation, seen.ino()),
        };
        result.unwrap_or_else(Outcome::Failed)
    }

    pub(super) fn set_mode(&mut self, ino: Ino, mode: u32) -> Result<Outcome> {
        let node = self.node_mut(ino).ok_or(libc::ENOENT)?;
        node.mode = mode;
        Ok(Outcome::Attributes(self.attributes(ino)?))
    }

    pub(super) fn set_owner(&mut self, ino: Ino, uid: u32, gid: u32) -> Result<Outcome> {
        let node = self.node_mut(ino).ok_or(libc::ENOENT)?;
        (node.uid, node.gid) = (uid, gid);
        Ok(Outcome::Attributes(self.attributes(ino)?))
    }

    pub(super) fn get_xattr(&self, ino: Ino, name: &Name) -> Result<Outcome> {
        let value = self.get(ino)?.xattrs.get(name).ok_or(libc::ENODATA)?;
        Ok(Outcome::Bytes(value.clone()))
    }

    pub(super) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &Name,
        value: (u64, u64),
        setting: XattrSetting,
    ) -> Result<Outcome> {
        self.check_takes_xattrs(ino)?;
        let exists = self.get(ino)?.xattrs.contains_key(name);
        match setting {
            XattrSetting::Create if exists => return Err(libc::EEXIST),
            XattrSetting::Replace if !exists => return Err(libc::ENODATA),
            _ => {}
        }
        let (fill, len) = value;
        let node = self.node_mut(ino).ok_or(libc::ENOENT)?;
        node.xattrs.insert(name.clone(), fill_bytes(fill, len));
        Ok(Outcome::Done)
    }

    /// `user.` attributes are for files and directories only.
    fn check_takes_xattrs(&self, ino: Ino) -> Result<()> {
        match self.get(ino)?.kind() {
            Kind::File | Kind::Directory => Ok(()),
            Kind::Symlink | Kind::Fifo => Err(libc::EPERM),
        }
    }

    pub(super) fn list_xattrs(&self, ino: Ino) -> Result<Outcome> {
        Ok(Outcome::Names(self.get(ino)?.xattrs.keys().cloned().collect()))
    }

    pub(super) fn remove_xattr(&mut self, ino: Ino, name: &Name) -> Result<Outcome> {
        self.get(ino)?.xattrs.get(name).ok_or(libc::ENODATA)?;
        let node = self.node_mut(ino).ok_or(libc::ENOENT)?;
        node.xattrs.remove(name);
        Ok(Outcome::Done)
    }

    /// Kind of an inode, if it exists.
    pub fn kind(&self, ino: Ino) -> Option<Kind> {
        self.node(ino).map(super::tree::Node::kind)
    }
}
