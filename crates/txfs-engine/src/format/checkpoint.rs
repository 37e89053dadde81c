//! The checkpoint record: stored in the index with every checkpoint, in the same atomic commit as its entries. It
//! says up to where the log is contained in the index, and how many live bytes each segment held at that point.
//!
//! ```text
//! offset size  field
//!      0    4  format version
//!      4    4  chain: checksum of the last record before the position
//!      8    8  sequence number of the last commit contained
//!     16    8  number of the next record
//!     24    8  epoch of the last record before the position
//!     32    8  segment of the position
//!     40    4  offset of the position, bytes
//!     44    4  number of segments that follow
//!     48 16*n  segment id, live bytes
//! ```
//! The index file carries its own checksums, so this has none.

use super::cursor::Cursor;
use super::{FORMAT_VERSION, FormatError};

const NAME: &str = "the checkpoint record";

/// A point in the log up to which the index is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Checksum of the last record before the position.
    pub chain: u32,
    /// Last commit contained.
    pub sequence: u64,
    /// Number of the record that follows.
    pub next_record: u64,
    /// Epoch of the last record before the position.
    pub epoch: u64,
    /// Segment of the position.
    pub segment: u64,
    /// Offset of the position in the segment, in bytes.
    pub offset: u32,
    /// Live bytes of every segment that had any, in order of segment ids.
    pub live_bytes: Vec<(u64, u64)>,
}

impl CheckpointRecord {
    /// The bytes of the module's table.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48 + 16 * self.live_bytes.len());
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.chain.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.next_record.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&(self.live_bytes.len() as u32).to_le_bytes());
        for (segment, live) in &self.live_bytes {
            bytes.extend_from_slice(&segment.to_le_bytes());
            bytes.extend_from_slice(&live.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`CheckpointRecord::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<CheckpointRecord, FormatError> {
        let mut cursor = Cursor::new(NAME, bytes);
        let version = cursor.u32()?;
        if version > FORMAT_VERSION {
            return Err(FormatError::Newer { structure: NAME, found: version });
        }
        let chain = cursor.u32()?;
        let sequence = cursor.u64()?;
        let next_record = cursor.u64()?;
        let epoch = cursor.u64()?;
        let segment = cursor.u64()?;
        let offset = cursor.u32()?;
        let count = cursor.u32()? as usize;
        if count > cursor.remaining() / 16 {
            return Err(FormatError::Malformed { structure: NAME, detail: "more segments than bytes" });
        }
        let live_bytes = (0..count)
            .map(|_| Ok((cursor.u64()?, cursor.u64()?)))
            .collect::<Result<Vec<_>, FormatError>>()?;
        cursor.finish()?;
        Ok(CheckpointRecord { chain, sequence, next_record, epoch, segment, offset, live_bytes })
    }
}
