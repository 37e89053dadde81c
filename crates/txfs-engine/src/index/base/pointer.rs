//! Where a node or another piece of the index file lies, and what its bytes must be.
//!
//! ```text
//! offset size  field
//!      0    4  offset in the file, in sectors of 512 bytes
//!      4    4  length in bytes
//!      8    4  CRC-32C of the volume id and the bytes
//! ```
//! The checksum stands with who refers to the bytes, not with the bytes: so it also tells what is whole but old, as after
//! a write that the disk acknowledged and lost, or that went elsewhere. Since the header has the pointer to the root, its
//! checksum covers all of the tree.

/// Unit of places in the index file, in bytes: what a disk writes as a whole.
pub(super) const SECTOR_BYTES: usize = 512;
/// Bytes of a stored pointer.
pub(super) const POINTER_BYTES: usize = 12;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pointer {
    pub(super) sector: u32,
    pub(super) len: u32,
    pub(super) crc: u32,
}

impl Pointer {
    pub(super) fn encode(&self) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        bytes[..4].copy_from_slice(&self.sector.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; POINTER_BYTES]) -> Pointer {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        Pointer {
            sector: u32::from_le_bytes([a, b, c, d]),
            len: u32::from_le_bytes([e, f, g, h]),
            crc: u32::from_le_bytes([i, j, k, l]),
        }
    }

    /// Where the bytes are in the file.
    pub(super) fn offset(&self) -> u64 {
        u64::from(self.sector) * SECTOR_BYTES as u64
    }

    /// Bytes that it takes in the file.
    pub(super) fn space(&self) -> u64 {
        u64::from(self.len).next_multiple_of(SECTOR_BYTES as u64)
    }
}
