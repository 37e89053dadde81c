//! An extent: where a run of a file's pages lies in the log, and the checksum of each page.
//!
//! ```text
//! offset size  field
//!      0    8  segment id
//!      8    4  offset in the segment, bytes
//!     12    4  length, bytes (1 to CHUNK_BYTES_MAX)
//!     16  4*n  CRC-32C of each page; n = ceil(length / 4096), the last page may be short
//! ```
//! An extent may be cut at page boundaries ([`Extent::slice_pages`]): checksums go with their pages, so a piece can
//! be read and verified without the rest.

use super::FormatError;
use super::cursor::Cursor;

/// The unit of file data: checksums, conflicts and extent boundaries are per page of this many bytes.
pub const PAGE_BYTES: usize = 4096;

/// The longest extent, in bytes.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;

const NAME: &str = "an extent";

/// Where a run of pages lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The segment that holds the data.
    pub segment: u64,
    /// Where the data starts in the segment, in bytes.
    pub offset: u32,
    /// Length of the data in bytes; only the last page may be short.
    pub len: u32,
    /// CRC-32C of each page.
    pub page_checksums: Vec<u32>,
}

impl Extent {
    /// Describes `data` as placed at `offset` of `segment`.
    pub fn describe(segment: u64, offset: u32, data: &[u8]) -> Extent {
        debug_assert!(!data.is_empty() && data.len() <= CHUNK_BYTES_MAX);
        let page_checksums = data.chunks(PAGE_BYTES).map(crc32c::crc32c).collect();
        Extent { segment, offset, len: data.len() as u32, page_checksums }
    }

    /// Number of pages, the short last one included.
    pub fn pages(&self) -> u32 {
        self.len.div_ceil(PAGE_BYTES as u32)
    }

    /// Bytes of page `page` that are stored; a full page unless it is the last.
    pub fn page_len(&self, page: u32) -> u32 {
        (self.len - page * PAGE_BYTES as u32).min(PAGE_BYTES as u32)
    }

    /// The part that covers `page_count` pages from `first_page` on.
    ///
    /// # Panics
    /// If the range is empty or not inside the extent: callers cut by [`Extent::pages`].
    pub fn slice_pages(&self, first_page: u32, page_count: u32) -> Extent {
        assert!(page_count > 0 && first_page + page_count <= self.pages(), "slice outside of the extent");
        let start = first_page * PAGE_BYTES as u32;
        let end = ((first_page + page_count) * PAGE_BYTES as u32).min(self.len);
        Extent {
            segment: self.segment,
            offset: self.offset + start,
            len: end - start,
            page_checksums: self.page_checksums[first_page as usize..(first_page + page_count) as usize]
                .to_vec(),
        }
    }

    /// The bytes of the module's table.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + 4 * self.page_checksums.len());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.len.to_le_bytes());
        for checksum in &self.page_checksums {
            bytes.extend_from_slice(&checksum.to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Extent::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Extent, FormatError> {
        let mut cursor = Cursor::new(NAME, bytes);
        let segment = cursor.u64()?;
        let offset = cursor.u32()?;
        let len = cursor.u32()?;
        if len == 0 || len as usize > CHUNK_BYTES_MAX || offset.checked_add(len).is_none() {
            return Err(FormatError::Malformed { structure: NAME, detail: "impossible length" });
        }
        let pages = len.div_ceil(PAGE_BYTES as u32);
        let page_checksums = (0..pages).map(|_| cursor.u32()).collect::<Result<Vec<_>, _>>()?;
        cursor.finish()?;
        Ok(Extent { segment, offset, len, page_checksums })
    }

    /// Length of the encoding of an extent of `len` bytes.
    pub(crate) fn encoded_len(len: u32) -> usize {
        16 + 4 * len.div_ceil(PAGE_BYTES as u32) as usize
    }

    /// Only segment, offset and length, for counting live bytes without decoding the checksums.
    pub(crate) fn decode_location(bytes: &[u8]) -> Result<(u64, u32, u32), FormatError> {
        let mut cursor = Cursor::new(NAME, bytes);
        let segment = cursor.u64()?;
        Ok((segment, cursor.u32()?, cursor.u32()?))
    }
}
