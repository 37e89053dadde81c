//! A log record: what one commit (or one piece of a large one) appends.
//!
//! ```text
//! offset size  field
//!      0    4  magic "TXR1"
//!      4    4  CRC-32C of everything after this field: the rest of the header, the data, the mutations
//!      8    8  first half of the volume id
//!     16    8  record number; consecutive over the whole log
//!     24    8  epoch: how often the volume had been opened when the record was written
//!     32    8  sequence number of the commit (0 for a data record)
//!     40    4  chain: the CRC field of the record before this one
//!     44    1  kind: 1 commit, 2 part (mutations of a commit that follows), 3 data (no mutations)
//!     45    1  flags, 0
//!     46    2  parts: how many part records right before this one belong to its commit
//!     48    4  data length, bytes
//!     52    4  mutation length, bytes
//!     56    8  durable: the highest record number known to be on stable storage when this record was made
//!     64    d  data
//!   64+d    m  mutations
//!      …       zeros to a multiple of 8
//! ```
//! Records follow each other at multiples of 8 bytes; each *write* starts on a sector, so a record is at the end of
//! its predecessor or at the next sector boundary, never elsewhere. What an older life of a recycled segment left
//! behind has a lower record number; what a session wrote beyond the point where recovery stopped has a lower epoch
//! than the records that took its place, and the chain does not fit: both are rejected.
//!
//! The durable field tells damage from an ordinary torn end: when recovery finds no valid record `r`, but a later
//! one that says that `r` was durable, then acknowledged data has been lost by the medium and the volume says so,
//! instead of quietly going back in time.

use super::FormatError;
use super::checksum::Shift;
use super::cursor::Cursor;

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 64;
/// Records start at multiples of this many bytes.
pub const RECORD_ALIGN: usize = 8;

const NAME: &str = "a log record";
const MAGIC: [u8; 4] = *b"TXR1";
const CHECKSUMMED_FROM: usize = 8;

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// Completes a commit: its mutations, after those of the parts right before it, take effect.
    Commit = 1,
    /// Mutations of the commit that follows; nothing without it.
    Part = 2,
    /// Data that a later commit refers to; garbage without one.
    Data = 3,
}

/// The fields of a record's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// What the record is for.
    pub kind: RecordKind,
    /// Part records right before a commit record that belong to it; others are left from a commit given up.
    pub parts: u16,
    /// First half of the volume id.
    pub volume: u64,
    /// Consecutive number.
    pub number: u64,
    /// Opening of the volume that wrote it.
    pub epoch: u64,
    /// Sequence number of the commit.
    pub sequence: u64,
    /// Checksum of the record before.
    pub chain: u32,
    /// Highest record number known to be durable when this one was made.
    pub durable: u64,
    /// Bytes of data after the header.
    pub data_len: u32,
    /// Bytes of mutations after the data.
    pub mutation_len: u32,
}

/// The checksum of a record's data and mutations together, and what so many bytes do to the header's before them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyChecksum {
    pub(crate) value: u32,
    pub(crate) shift: Shift,
}

impl RecordHeader {
    /// Bytes of header, data and mutations.
    pub fn body_end(&self) -> usize {
        RECORD_HEADER_BYTES + self.data_len as usize + self.mutation_len as usize
    }

    /// Bytes that the record takes in the log, its padding included.
    pub fn record_len(&self) -> usize {
        self.body_end().next_multiple_of(RECORD_ALIGN)
    }

    /// The header with its checksum, given the record's two other pieces.
    pub fn seal(&self, data: &[&[u8]], mutations: &[u8]) -> ([u8; RECORD_HEADER_BYTES], u32) {
        self.seal_with(|header| {
            let checksum = data.iter().fold(header, |before, piece| crc32c::crc32c_append(before, piece));
            crc32c::crc32c_append(checksum, mutations)
        })
    }

    /// The same, when the checksum of data and mutations is known.
    pub(crate) fn seal_known(&self, body: BodyChecksum) -> ([u8; RECORD_HEADER_BYTES], u32) {
        self.seal_with(|header| body.shift.join(header, body.value))
    }

    /// `whole` turns the header's checksum into the record's.
    fn seal_with(&self, whole: impl FnOnce(u32) -> u32) -> ([u8; RECORD_HEADER_BYTES], u32) {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.volume.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.chain.to_le_bytes());
        bytes[44] = self.kind as u8;
        bytes[46..48].copy_from_slice(&self.parts.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.data_len.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.mutation_len.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.durable.to_le_bytes());
        let checksum = whole(crc32c::crc32c(&bytes[CHECKSUMMED_FROM..]));
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    /// Reads a header; the checksum is returned and not compared, since it covers the body too.
    pub fn decode(bytes: &[u8]) -> Result<(RecordHeader, u32), FormatError> {
        let mut cursor = Cursor::new(NAME, bytes);
        if cursor.array()? != MAGIC {
            return Err(FormatError::Magic { structure: NAME });
        }
        let checksum = cursor.u32()?;
        let volume = cursor.u64()?;
        let number = cursor.u64()?;
        let epoch = cursor.u64()?;
        let sequence = cursor.u64()?;
        let chain = cursor.u32()?;
        let kind = match cursor.u8()? {
            1 => RecordKind::Commit,
            2 => RecordKind::Part,
            3 => RecordKind::Data,
            _ => return Err(FormatError::Malformed { structure: NAME, detail: "unknown kind" }),
        };
        cursor.u8()?;
        let parts = cursor.u16()?;
        let data_len = cursor.u32()?;
        let mutation_len = cursor.u32()?;
        let durable = cursor.u64()?;
        let header = RecordHeader {
            kind,
            parts,
            volume,
            number,
            epoch,
            sequence,
            chain,
            durable,
            data_len,
            mutation_len,
        };
        Ok((header, checksum))
    }

    /// Compares the stored checksum with a whole record's bytes (header, data, mutations).
    pub fn verify(record: &[u8], stored: u32) -> Result<(), FormatError> {
        super::verify(NAME, stored, crc32c::crc32c(&record[CHECKSUMMED_FROM..]))
    }
}
