//! The on-disk format: bytes to structs and back, checksums, versions. No I/O happens here.
//!
//! `docs/FORMAT.md` describes the same bytes for people; the two must agree. All integers are little-endian except
//! inside index keys, which are big-endian so that they sort. Decoding never panics: whatever the bytes are, the
//! answer is a value or a [`FormatError`].

pub mod checkpoint;
pub(crate) mod checksum;
pub mod cursor;
pub mod extent;
pub mod manifest;
pub mod mutation;
pub mod named;
pub mod record;
pub mod saved;
pub mod segment;

#[cfg(test)]
mod tests;

pub use checkpoint::CheckpointRecord;
pub use extent::{CHUNK_BYTES_MAX, Extent, PAGE_BYTES};
pub use manifest::Manifest;
pub use mutation::{Mutation, MutationList};
pub use record::{RecordHeader, RecordKind};
pub use saved::SAVED_KEY_TAGS;
pub use segment::SegmentHeader;

/// Version of everything in this module. A volume of a newer version is refused with a clear error.
pub const FORMAT_VERSION: u32 = 1;

/// Index keys that start with this byte hold an encoded [`Extent`]; the engine counts live bytes from them, and from
/// saved values of such keys ([`saved`]). Every other key is opaque to the engine.
pub const EXTENT_KEY_TAG: u8 = b'e';

/// Bytes that are not what the format says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end before the structure does.
    #[error("{structure} is cut short: it needs {needed} bytes and has {available}")]
    Truncated {
        /// What was being decoded.
        structure: &'static str,
        /// Bytes that the structure needs.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// The structure does not begin as it must.
    #[error("{structure} does not start with its magic number")]
    Magic {
        /// What was being decoded.
        structure: &'static str,
    },
    /// The checksum does not match.
    #[error("{structure} fails its checksum (stored {stored:#010x}, computed {computed:#010x})")]
    Checksum {
        /// What was being decoded.
        structure: &'static str,
        /// The checksum on disk.
        stored: u32,
        /// The checksum of the bytes found.
        computed: u32,
    },
    /// A field has a value that no writer of this version produces.
    #[error("{structure} is malformed: {detail}")]
    Malformed {
        /// What was being decoded.
        structure: &'static str,
        /// What is wrong with it.
        detail: &'static str,
    },
    /// Written by a newer version of TxFS.
    #[error("{structure} has format version {found}, and this program reads up to {FORMAT_VERSION}")]
    Newer {
        /// What was being decoded.
        structure: &'static str,
        /// The version on disk.
        found: u32,
    },
}

/// Compares a stored checksum with the computed one.
pub(crate) fn verify(structure: &'static str, stored: u32, computed: u32) -> Result<(), FormatError> {
    if stored == computed || crate::broken::has(crate::broken::Fault::IgnoreChecksum) {
        return Ok(());
    }
    Err(FormatError::Checksum { structure, stored, computed })
}
