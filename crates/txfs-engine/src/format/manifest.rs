//! The manifest: what must be known before anything else of a volume can be read.
//!
//! ```text
//! offset size  field
//!      0    8  magic "TXFSVOL1"
//!      8    4  CRC-32C of bytes 12 to 512
//!     12    4  format version
//!     16   16  volume id, random
//!     32   16  key of the name hash, random, never shown
//!     48    8  segment size, bytes
//!     56    8  epoch: how often the volume has been opened
//!     64    8  features that a reader must know (none yet); an unknown bit means that the volume is refused
//!     72    8  bytes that all segments together may take; 0: as much as the host has
//!     80    8  bytes of segments that are kept although they are not needed
//!     88    8  first record of the epoch: from this number on a record counts only if this epoch made it
//!     96       zeros to 512
//! ```
//! It is replaced by writing `MANIFEST.new`, syncing it, renaming it over `MANIFEST` and syncing the directory.

use super::cursor::Cursor;
use super::{FORMAT_VERSION, FormatError};

/// Bytes of the file.
pub const MANIFEST_BYTES: usize = 512;

const NAME: &str = "the manifest";
const MAGIC: [u8; 8] = *b"TXFSVOL1";

/// The fields of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Random identity of the volume.
    pub volume_id: [u8; 16],
    /// Key for hashing names.
    pub name_key: [u8; 16],
    /// Size of each segment file, in bytes.
    pub segment_bytes: u64,
    /// How often the volume has been opened.
    pub epoch: u64,
    /// Number of the first record of this epoch.
    pub epoch_first_record: u64,
    /// What all segments together may take, in bytes; 0 when only the host limits it.
    pub size_bytes_max: u64,
    /// Segments of so many bytes stay even when they are not needed.
    pub preallocated_bytes: u64,
}

impl Manifest {
    /// First half of the volume id, as it stands in each record.
    pub fn volume(&self) -> u64 {
        let mut half = [0; 8];
        half.copy_from_slice(&self.volume_id[..8]);
        u64::from_le_bytes(half)
    }

    /// How many segments there may be.
    pub fn segments_max(&self) -> u64 {
        match self.size_bytes_max {
            0 => u64::MAX,
            size => size / self.segment_bytes.max(1),
        }
    }

    /// The whole file.
    pub fn encode(&self) -> [u8; MANIFEST_BYTES] {
        let mut bytes = [0; MANIFEST_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.volume_id);
        bytes[32..48].copy_from_slice(&self.name_key);
        bytes[48..56].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.size_bytes_max.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.preallocated_bytes.to_le_bytes());
        bytes[88..96].copy_from_slice(&self.epoch_first_record.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads and verifies the file. The version is looked at before anything else that a newer one may have changed.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, FormatError> {
        let mut cursor = Cursor::new(NAME, bytes);
        if cursor.array()? != MAGIC {
            return Err(FormatError::Magic { structure: NAME });
        }
        let stored = cursor.u32()?;
        let version = cursor.u32()?;
        if version > FORMAT_VERSION {
            return Err(FormatError::Newer { structure: NAME, found: version });
        }
        if bytes.len() != MANIFEST_BYTES {
            let (needed, available) = (MANIFEST_BYTES, bytes.len());
            return Err(FormatError::Truncated { structure: NAME, needed, available });
        }
        super::verify(NAME, stored, crc32c::crc32c(&bytes[12..]))?;
        let mut manifest = Manifest {
            volume_id: cursor.array()?,
            name_key: cursor.array()?,
            segment_bytes: cursor.u64()?,
            epoch: cursor.u64()?,
            epoch_first_record: 0,
            size_bytes_max: 0,
            preallocated_bytes: 0,
        };
        if cursor.u64()? != 0 {
            return Err(FormatError::Malformed {
                structure: NAME,
                detail: "it asks for features unknown here",
            });
        }
        manifest.size_bytes_max = cursor.u64()?;
        manifest.preallocated_bytes = cursor.u64()?;
        manifest.epoch_first_record = cursor.u64()?;
        Ok(manifest)
    }
}
