//! A growable byte buffer whose memory starts on a 4096-byte boundary, as direct I/O demands.
//!
//! Invariant: `len <= blocks.len() * BLOCK_BYTES`. Bytes between `len` and the end of the blocks may be left over from
//! an earlier use; whatever becomes part of the buffer is written first (by data or by zeros), so they never show.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};

/// Alignment of the buffer's memory: enough for every drive and file system that takes direct I/O.
const BLOCK_BYTES: usize = 4096;

/// The unit of allocation. Its alignment is what makes the whole buffer aligned, without unsafe code.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const ZERO_BLOCK: Block = Block([0; BLOCK_BYTES]);

/// Bytes in memory aligned to 4096, for [`crate::DiskFile::write_log`]. Clearing keeps the memory for the next use.
#[derive(Clone, Default)]
pub struct AlignedBuffer {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuffer {
    /// An empty buffer; allocates nothing.
    pub const fn new() -> Self {
        AlignedBuffer { blocks: Vec::new(), len: 0 }
    }

    /// An empty buffer with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        AlignedBuffer { blocks: Vec::with_capacity(bytes.div_ceil(BLOCK_BYTES)), len: 0 }
    }

    /// Number of bytes held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no bytes are held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes fit before the buffer must allocate again.
    pub fn capacity(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES
    }

    /// Forgets the contents, keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Shortens the contents to `len` bytes; does nothing when they are already shorter.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends `data`.
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        let start = self.len;
        self.reach(start + data.len());
        self.len = start + data.len();
        self.as_mut_slice()[start..].copy_from_slice(data);
    }

    /// Appends `count` zero bytes.
    pub fn extend_zeros(&mut self, count: usize) {
        let start = self.len;
        self.reach(start + count);
        self.len = start + count;
        self.as_mut_slice()[start..].fill(0);
    }

    /// Appends zeros until the length is a multiple of `multiple`; a `multiple` of zero or one changes nothing.
    pub fn pad_to(&mut self, multiple: usize) {
        if multiple > 1 {
            self.extend_zeros(self.len.next_multiple_of(multiple) - self.len);
        }
    }

    /// The contents.
    pub fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.len]
    }

    /// The contents, to be changed in place.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.len]
    }

    /// Makes sure that blocks for `len` bytes exist.
    fn reach(&mut self, len: usize) {
        let needed = len.div_ceil(BLOCK_BYTES);
        if needed > self.blocks.len() {
            self.blocks.resize(needed, ZERO_BLOCK);
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(data: &[u8]) -> Self {
        let mut buffer = AlignedBuffer::with_capacity(data.len());
        buffer.extend_from_slice(data);
        buffer
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_at_every_size() {
        let mut buffer = AlignedBuffer::new();
        for _ in 0..40 {
            buffer.extend_from_slice(&[7; 777]);
            assert_eq!(buffer.as_slice().as_ptr() as usize % BLOCK_BYTES, 0);
        }
        assert_eq!(buffer.len(), 40 * 777);
        assert!(buffer.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn padding_is_zero_even_over_old_contents() {
        let mut buffer = AlignedBuffer::with_capacity(8192);
        buffer.extend_from_slice(&[0xff; 8192]);
        buffer.clear();
        buffer.extend_from_slice(&[1, 2, 3]);
        buffer.pad_to(512);
        assert_eq!(buffer.len(), 512);
        assert_eq!(&buffer[..3], &[1, 2, 3]);
        assert!(buffer[3..].iter().all(|byte| *byte == 0));
        buffer.pad_to(512);
        assert_eq!(buffer.len(), 512, "padding a whole multiple adds nothing");
        buffer.pad_to(0);
        assert_eq!(buffer.len(), 512);
    }

    #[test]
    fn truncate_then_extend_shows_no_old_bytes() {
        let mut buffer = AlignedBuffer::from(&[9u8; 600][..]);
        buffer.truncate(100);
        buffer.extend_zeros(50);
        assert_eq!(buffer.len(), 150);
        assert!(buffer[..100].iter().all(|byte| *byte == 9));
        assert!(buffer[100..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn contents_can_be_changed_in_place() {
        let mut buffer = AlignedBuffer::from(&[0u8; 64][..]);
        buffer[10] = 5;
        assert_eq!(buffer.as_slice()[10], 5);
    }
}
