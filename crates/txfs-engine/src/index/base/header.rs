//! The first sector of the index file: which tree is in force.
//!
//! ```text
//! offset size  field
//!      0    8  "TXFSINDX"
//!      8    4  version of this format: 2
//!     12    4  zero
//!     16    8  generation: number of checkpoints so far
//!     24    8  number of keys
//!     32    8  where the next checkpoint goes on writing, in bytes from the start of the file
//!     40   12  pointer to the root
//!     52   12  pointer to the table of regions (`regions.rs`)
//!     64   12  pointer to the checkpoint record; length 0 before the first checkpoint
//!     76    4  zero
//!     80    8  leaves
//!     88    8  bytes that leaves take in the file
//!     96    8  bytes that branches take
//!    104    8  bytes that leaves of more than the usual size take
//!    112  396  zeros
//!    508    4  CRC-32C of the volume id and the bytes before
//! ```
//! A sector is written whole or not at all, so a crash leaves the old or the new header. A second one to fall back on
//! would be of no use: what it refers to is overwritten by the checkpoint after the next.

use super::pointer::{POINTER_BYTES, Pointer, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"TXFSINDX";
const VERSION: u32 = 2;
const CHECKSUM_AT: usize = SECTOR_BYTES - 4;

/// What the tree consists of; for estimates of what a checkpoint writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) leaves: u64,
    pub(super) leaf_bytes: u64,
    pub(super) branch_bytes: u64,
    pub(super) oversize_bytes: u64,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) generation: u64,
    pub(super) keys: u64,
    pub(super) position: u64,
    pub(super) root: Pointer,
    pub(super) regions: Pointer,
    pub(super) record: Pointer,
    pub(super) sizes: Sizes,
}

impl Header {
    /// `seed` is the CRC-32C of the volume id.
    pub(super) fn encode(&self, seed: u32) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        for (at, number) in [(16, self.generation), (24, self.keys), (32, self.position)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (at, pointer) in [(40, self.root), (52, self.regions), (64, self.record)] {
            bytes[at..at + POINTER_BYTES].copy_from_slice(&pointer.encode());
        }
        let Sizes { leaves, leaf_bytes, branch_bytes, oversize_bytes } = self.sizes;
        for (at, number) in [(80, leaves), (88, leaf_bytes), (96, branch_bytes), (104, oversize_bytes)] {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(seed, &bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The inverse; says what is wrong.
    pub(super) fn decode(bytes: &[u8; SECTOR_BYTES], seed: u32) -> Result<Header, &'static str> {
        let crc = crc32c::crc32c_append(seed, &bytes[..CHECKSUM_AT]);
        if bytes[CHECKSUM_AT..] != crc.to_le_bytes() {
            return Err("its header does not match its checksum, or belongs to another volume");
        }
        if &bytes[..8] != MAGIC {
            return Err("its header does not begin as one of an index file");
        }
        if bytes[8..12] != VERSION.to_le_bytes() {
            return Err("it was written in a format that this version does not know");
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let pointer = |at: usize| {
            let mut pointer = [0; POINTER_BYTES];
            pointer.copy_from_slice(&bytes[at..at + POINTER_BYTES]);
            Pointer::decode(&pointer)
        };
        Ok(Header {
            generation: number(16),
            keys: number(24),
            position: number(32),
            root: pointer(40),
            regions: pointer(52),
            record: pointer(64),
            sizes: Sizes {
                leaves: number(80),
                leaf_bytes: number(88),
                branch_bytes: number(96),
                oversize_bytes: number(104),
            },
        })
    }
}
