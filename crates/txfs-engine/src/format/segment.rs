//! A segment's header: says which part of the log the file holds in its present life.
//!
//! ```text
//! offset size  field
//!      0    8  magic "TXFSSEG1"
//!      8    4  CRC-32C of bytes 12 to 64
//!     12    4  format version
//!     16   16  volume id
//!     32    8  segment id
//!     40    8  number of the first record
//!     48    8  epoch of the first record
//!     56    4  chain: the checksum of the record before the first
//!     60    4  reserved, 0
//!     64       zeros to 4096, where the first record starts
//! ```

use super::cursor::Cursor;
use super::{FORMAT_VERSION, FormatError};

/// Bytes before the first record.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

const NAME: &str = "a segment header";
const MAGIC: [u8; 8] = *b"TXFSSEG1";
const ENCODED_BYTES: usize = 64;

/// The fields of a segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The volume that the segment belongs to.
    pub volume_id: [u8; 16],
    /// The segment's own id.
    pub segment: u64,
    /// Number of its first record.
    pub first_record: u64,
    /// Epoch in which this life of the segment began.
    pub epoch: u64,
    /// Checksum of the record before the first.
    pub chain: u32,
}

impl SegmentHeader {
    /// The first 64 bytes of the file.
    pub fn encode(&self) -> [u8; ENCODED_BYTES] {
        let mut bytes = [0; ENCODED_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.volume_id);
        bytes[32..40].copy_from_slice(&self.segment.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_record.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.chain.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads and verifies a header.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, FormatError> {
        let available = bytes.len();
        let bytes = bytes.get(..ENCODED_BYTES).ok_or(FormatError::Truncated {
            structure: NAME,
            needed: ENCODED_BYTES,
            available,
        })?;
        let mut cursor = Cursor::new(NAME, bytes);
        if cursor.array()? != MAGIC {
            return Err(FormatError::Magic { structure: NAME });
        }
        super::verify(NAME, cursor.u32()?, crc32c::crc32c(&bytes[12..]))?;
        let version = cursor.u32()?;
        if version > FORMAT_VERSION {
            return Err(FormatError::Newer { structure: NAME, found: version });
        }
        Ok(SegmentHeader {
            volume_id: cursor.array()?,
            segment: cursor.u64()?,
            first_record: cursor.u64()?,
            epoch: cursor.u64()?,
            chain: cursor.u32()?,
        })
    }
}
