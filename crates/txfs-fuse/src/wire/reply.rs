//! Puts a reply together, in a buffer that its thread uses again and again.

use super::abi::{Dirent, EntryOut, OutHeader};
use bytemuck::Pod;

/// A reply in the making: room for the header, then the payload.
///
/// Bytes behind the end stay as earlier replies left them, so that the room for a large read is not cleared each time.
#[derive(Debug)]
pub(crate) struct ReplyBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl ReplyBuffer {
    pub(crate) fn new() -> ReplyBuffer {
        ReplyBuffer { bytes: vec![0; size_of::<OutHeader>()], len: size_of::<OutHeader>() }
    }

    /// Drops the payload.
    pub(crate) fn clear(&mut self) {
        self.len = size_of::<OutHeader>();
    }

    #[cfg(test)]
    pub(crate) fn payload_len(&self) -> usize {
        self.len - size_of::<OutHeader>()
    }

    /// Makes the payload `len` bytes longer; what is there is arbitrary.
    fn grow(&mut self, len: usize) -> &mut [u8] {
        let start = self.len;
        self.len += len;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        &mut self.bytes[start..self.len]
    }

    pub(crate) fn push<T: Pod>(&mut self, structure: &T) {
        self.push_bytes(bytemuck::bytes_of(structure));
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Gives `fill` room for `len` bytes of payload and keeps as many as it says; it finds arbitrary bytes there.
    pub(crate) fn fill<E>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let start = self.len;
        let filled = fill(self.grow(len))?;
        self.len = start + filled.min(len);
        Ok(())
    }

    /// Adds a directory entry: `dirent`, its name, padding to eight bytes.
    pub(crate) fn push_dirent(&mut self, ino: u64, offset: u64, kind: u32, name: &[u8]) {
        self.push(&Dirent { ino, offset, name_len: name.len() as u32, kind });
        self.push_bytes(name);
        let padding = self.len.next_multiple_of(8) - self.len;
        self.grow(padding).fill(0);
    }

    /// Adds an entry with attributes; with node 0 the kernel takes only the name.
    pub(crate) fn push_direntplus(
        &mut self,
        entry: &EntryOut,
        ino: u64,
        offset: u64,
        kind: u32,
        name: &[u8],
    ) {
        self.push(entry);
        self.push_dirent(ino, offset, kind, name);
    }

    /// The finished message.
    pub(crate) fn finish(&mut self, unique: u64, error: i32) -> &[u8] {
        if error != 0 {
            self.clear();
        }
        let header = OutHeader { len: self.len as u32, error: -error, unique };
        self.bytes[..size_of::<OutHeader>()].copy_from_slice(bytemuck::bytes_of(&header));
        &self.bytes[..self.len]
    }
}

/// The bytes that an entry takes in READDIR.
pub(crate) fn dirent_bytes(name_len: usize) -> usize {
    (size_of::<Dirent>() + name_len).next_multiple_of(8)
}

/// The bytes that an entry takes in READDIRPLUS.
pub(crate) fn direntplus_bytes(name_len: usize) -> usize {
    size_of::<EntryOut>() + dirent_bytes(name_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_its_header_and_padding() {
        let mut reply = ReplyBuffer::new();
        reply.push_dirent(5, 17, 4, b"abc");
        assert_eq!(reply.payload_len(), dirent_bytes(3));
        let bytes = reply.finish(9, 0).to_vec();
        assert_eq!(bytes.len(), 16 + 32);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 48);
        assert_eq!(reply.finish(9, 2).len(), 16);
        assert_eq!(i32::from_ne_bytes(reply.finish(9, 2)[4..8].try_into().unwrap()), -2);
    }

    #[test]
    fn a_failed_fill_is_cleared_by_the_error() {
        let mut reply = ReplyBuffer::new();
        assert!(reply.fill(100, |_| Err::<usize, ()>(())).is_err());
        assert_eq!(reply.finish(1, 5).len(), 16);
        reply.clear();
        reply
            .fill(100, |out| {
                out[0] = 1;
                Ok::<usize, ()>(3)
            })
            .unwrap();
        assert_eq!(reply.payload_len(), 3);
    }
}
