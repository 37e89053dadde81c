//! Data that goes ahead of its commit, laid out as data records outside of the critical section: straight from the
//! caller's memory into the buffer that is written, each page checksummed and copied while it is in the cache.
//!
//! In the critical section the appender gives the records their numbers and their place, which only touches the
//! headers ([`super::Appender::append_bulk`]). The records' checksums follow from those of their pages.

use std::sync::Arc;

use super::buffers::{LogBuffer, SpareBuffers};
use crate::format::checksum::{self, Shift};
use crate::format::record::{BodyChecksum, RECORD_ALIGN, RECORD_HEADER_BYTES};
use crate::format::{Mutation, PAGE_BYTES};
use crate::txn::Piece;

/// Data in one bulk at most, unless a single piece is more: as much as one device write should have.
const DATA_BYTES_MAX: usize = 1 << 20;
/// Of a small segment a bulk takes this part at most, so that not much is left over at its end.
const SEGMENT_SHARE: usize = 16;

/// Bulks of at least so much start and end at multiples of a page: drives and hosts work in units of 4 KiB, whatever
/// sectors they offer, and a write of a MiB that starts or ends within one takes them half as long again.
const ALIGNED_FROM_BYTES: usize = 64 << 10;

/// Buffers that go round: those that may wait, one that is written, and two that are being filled.
const SPARE_BUFFERS_MAX: usize = 8;

/// Records that lack only what the critical section decides.
#[derive(Debug)]
pub(crate) struct Bulk {
    pub(super) buffer: LogBuffer,
    pub(super) records: Vec<BulkRecord>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct BulkRecord {
    /// Where its header begins in the buffer.
    pub(super) start: usize,
    pub(super) data_len: usize,
    pub(super) mutation_len: usize,
    pub(super) checksum: BodyChecksum,
    pub(super) page_checksums: Vec<u32>,
}

/// Makes them.
#[derive(Debug)]
pub(crate) struct BulkLayout {
    sector_bytes: usize,
    data_bytes_max: usize,
    spares: Arc<SpareBuffers>,
}

impl BulkLayout {
    pub(crate) fn new(sector_bytes: usize, segment_bytes: u64) -> BulkLayout {
        BulkLayout {
            sector_bytes,
            data_bytes_max: DATA_BYTES_MAX.min(segment_bytes as usize / SEGMENT_SHARE),
            spares: SpareBuffers::new(SPARE_BUFFERS_MAX, 2 * DATA_BYTES_MAX),
        }
    }

    /// Lays out pieces from the first one on, and says how many: at least one, and more only as long as all of it
    /// takes no more than `room` bytes.
    pub(crate) fn lay_out(&self, pieces: &[Piece<'_>], room: usize) -> (Bulk, usize) {
        let mut bulk = Bulk { buffer: self.spares.take(), records: Vec::new() };
        let mut data_bytes = 0;
        let mut owner = Vec::new();
        for piece in pieces {
            // Whose data it is, for the cleaner: the commit that will say so may lie in another segment.
            owner.clear();
            if let Some(key) = piece.1 {
                Mutation::Put { key: key.to_vec(), value: Vec::new() }.encode_into(&mut owner);
            }
            let record_bytes = RECORD_HEADER_BYTES + piece.0.len() + owner.len();
            let end = (bulk.buffer.len() + record_bytes).next_multiple_of(PAGE_BYTES);
            if !bulk.records.is_empty() && (end > room || data_bytes + piece.0.len() > self.data_bytes_max) {
                break;
            }
            data_bytes += piece.0.len();
            bulk.add(piece.0, &owner);
        }
        let aligned = bulk.buffer.len() >= ALIGNED_FROM_BYTES;
        bulk.buffer.pad_to(if aligned { PAGE_BYTES } else { self.sector_bytes });
        let count = bulk.records.len();
        (bulk, count)
    }
}

impl Bulk {
    /// Bytes in the log, whole sectors.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of file data.
    pub(crate) fn data_bytes(&self) -> usize {
        self.records.iter().map(|record| record.data_len).sum()
    }

    fn add(&mut self, data: &[u8], mutations: &[u8]) {
        let start = self.buffer.len();
        self.buffer.extend_zeros(RECORD_HEADER_BYTES);
        let mut page_checksums = Vec::with_capacity(data.len().div_ceil(PAGE_BYTES));
        for page in data.chunks(PAGE_BYTES) {
            page_checksums.push(crc32c::crc32c(page));
            self.buffer.extend_from_slice(page);
        }
        self.buffer.extend_from_slice(mutations);
        self.buffer.pad_to(RECORD_ALIGN);
        let of_data = checksum::of_pages(&page_checksums, data.len());
        let checksum = BodyChecksum {
            value: crc32c::crc32c_append(of_data, mutations),
            shift: Shift::by(data.len() + mutations.len()),
        };
        let (data_len, mutation_len) = (data.len(), mutations.len());
        self.records.push(BulkRecord { start, data_len, mutation_len, checksum, page_checksums });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{RecordHeader, RecordKind};

    fn layout() -> BulkLayout {
        BulkLayout::new(512, 32 << 20)
    }

    #[test]
    fn records_are_as_if_they_had_been_put_together_at_once() {
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..100 {
            let data: Vec<Vec<u8>> = (0..random.usize(1..4))
                .map(|_| {
                    let mut data = vec![0; [1, 5000, 8192][random.usize(0..3)]];
                    random.fill(&mut data);
                    data
                })
                .collect();
            let key = [b'e'; 17];
            let pieces: Vec<Piece<'_>> =
                data.iter().map(|data| Piece(data, random.bool().then_some(key))).collect();
            let (bulk, count) = layout().lay_out(&pieces, 1 << 20);
            assert_eq!(count, pieces.len());
            assert_eq!(bulk.data_bytes(), data.iter().map(Vec::len).sum::<usize>());
            let mut end = 0;
            for (record, piece) in bulk.records.iter().zip(&pieces) {
                assert_eq!(record.start, end);
                let mut owner = Vec::new();
                if piece.1.is_some() {
                    Mutation::Put { key: key.to_vec(), value: Vec::new() }.encode_into(&mut owner);
                }
                let header = RecordHeader {
                    kind: RecordKind::Data,
                    parts: 0,
                    volume: random.u64(..),
                    number: random.u64(..),
                    epoch: 3,
                    sequence: 0,
                    chain: random.u32(..),
                    durable: random.u64(..),
                    data_len: record.data_len as u32,
                    mutation_len: record.mutation_len as u32,
                };
                assert_eq!(header.seal_known(record.checksum), header.seal(&[piece.0], &owner));
                let body = &bulk.buffer[record.start + RECORD_HEADER_BYTES..][..piece.0.len() + owner.len()];
                assert!(body == [piece.0, &owner].concat());
                let pages: Vec<u32> = piece.0.chunks(PAGE_BYTES).map(crc32c::crc32c).collect();
                assert_eq!(record.page_checksums, pages);
                end += header.record_len();
            }
            assert_eq!(bulk.len(), end.next_multiple_of(512));
        }
    }

    #[test]
    fn a_bulk_ends_where_the_room_or_a_mib_does() {
        let data = vec![7; 256 << 10];
        let pieces = [Piece(&data, None); 9];
        let fits = |room| layout().lay_out(&pieces, room).1;
        assert_eq!(fits(usize::MAX), 4);
        assert_eq!(fits(4 * ((256 << 10) + 4096)), 4);
        assert_eq!(fits(3 * ((256 << 10) + 4096)), 3);
        assert_eq!(fits(1000), 1, "the first one needs another segment");
        assert!(layout().lay_out(&pieces, usize::MAX).0.len().is_multiple_of(4096));
        assert_eq!(BulkLayout::new(512, 1 << 20).lay_out(&pieces, usize::MAX).1, 1, "a small segment");
    }
}
