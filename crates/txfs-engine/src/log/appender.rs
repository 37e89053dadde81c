//! Lays records out in memory, one after the other, exactly as they will lie in the segments.
//!
//! The appender is part of the sequencer and only used under its lock. [`Appender::cut`] hands what has gathered to
//! the log writer; from there on the next record starts at a sector boundary, so that a sector which may already be
//! acknowledged is never written again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use txfs_disk::AlignedBuffer;

use super::buffers::{LogBuffer, SpareBuffers};
use super::bulk::Bulk;
use super::pool::Segment;
use crate::format::record::{RECORD_ALIGN, RECORD_HEADER_BYTES};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::format::{Extent, Manifest, PAGE_BYTES, RecordHeader, RecordKind, SegmentHeader};

/// A cut takes no more than about so much, so that those who wait for its end go on meanwhile, and the next one is ready
/// when it is over. Somewhat more than a bulk has: what little lies before or behind one goes with it.
const CUT_BYTES_MAX: usize = (1 << 20) + (256 << 10);

/// Buffers for batches to come: so many are kept at most, and the capacity of each of them.
const SPARE_BUFFERS_MAX: usize = 4;
const SPARE_BUFFER_BYTES_MAX: usize = 6 << 20;

/// Bytes that go to one place of one segment in one write; they may lie in several buffers.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) buffers: Vec<Arc<LogBuffer>>,
    pub(crate) last_record: u64,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }

    /// What is to be written, one behind the other.
    pub(crate) fn contents(&self) -> Vec<&AlignedBuffer> {
        self.buffers.iter().map(|buffer| &***buffer).collect()
    }
}

/// What is laid out and waits to be written: whole sectors.
#[derive(Debug)]
struct Sealed {
    segment: Arc<Segment>,
    offset: u64,
    buffer: Arc<LogBuffer>,
    last_record: u64,
}

/// Where the records of a bulk went.
#[derive(Debug)]
pub(crate) struct AppendedBulk {
    pub(crate) extents: Vec<Extent>,
    pub(crate) last_record: u64,
    /// The bytes that lie, or will lie, at `buffer_offset` of the segment.
    pub(crate) buffer: Arc<LogBuffer>,
    pub(crate) buffer_offset: u64,
}

/// What to append.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// The end of a commit whose mutations began in this many part records right before.
    Commit {
        parts: u16,
    },
    Part,
    Data,
}

/// Where the next record goes, and what waits to be written.
#[derive(Debug)]
pub(crate) struct Appender {
    manifest: Manifest,
    sector_bytes: usize,
    next_record: u64,
    chain: u32,
    segment: Arc<Segment>,
    /// Start of the open batch, or of the next one.
    offset: u64,
    open: LogBuffer,
    sealed: VecDeque<Sealed>,
    sealed_bytes: usize,
    spares: Arc<SpareBuffers>,
    /// Highest record number known to be durable; records made from now on say so.
    durable: Arc<AtomicU64>,
}

/// The place of the log's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) next_record: u64,
    pub(crate) chain: u32,
}

impl Appender {
    /// Continues at `tail` of `segment`; the offset is rounded up to a sector.
    pub(crate) fn new(
        manifest: Manifest,
        sector_bytes: usize,
        segment: Arc<Segment>,
        tail: Tail,
        durable: Arc<AtomicU64>,
    ) -> Appender {
        let spares = SpareBuffers::new(SPARE_BUFFERS_MAX, SPARE_BUFFER_BYTES_MAX);
        Appender {
            manifest,
            sector_bytes,
            next_record: tail.next_record,
            chain: tail.chain,
            segment,
            offset: tail.offset.next_multiple_of(sector_bytes as u64),
            open: spares.take(),
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            spares,
            durable,
        }
    }

    /// The segment that is being filled.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Number of the last record appended.
    pub(crate) fn last_record(&self) -> u64 {
        self.next_record - 1
    }

    /// Where the next record would start, for the checkpoint.
    pub(crate) fn tail(&self) -> Tail {
        Tail {
            segment: self.segment.id,
            offset: self.record_start(),
            next_record: self.next_record,
            chain: self.chain,
        }
    }

    /// Bytes of data and mutations that a record in the present segment can still take.
    pub(crate) fn room(&self) -> usize {
        let used = self.record_start() + RECORD_HEADER_BYTES as u64;
        let slack = RECORD_ALIGN.max(self.sector_bytes) as u64;
        self.segment.bytes.saturating_sub(used + slack) as usize
    }

    /// True when the present segment holds no record yet: what does not fit now never will.
    pub(crate) fn is_fresh(&self) -> bool {
        self.record_start() == SEGMENT_HEADER_BYTES as u64
    }

    /// Where the first data byte of the next record will lie.
    pub(crate) fn data_start(&self) -> u32 {
        (self.record_start() + RECORD_HEADER_BYTES as u64) as u32
    }

    /// Bytes that wait to be written.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.sealed_bytes + self.open.len()
    }

    /// Goes on in `segment`: its header is the first thing written there.
    pub(crate) fn switch_segment(&mut self, segment: Arc<Segment>) {
        self.seal();
        let header = SegmentHeader {
            volume_id: self.manifest.volume_id,
            segment: segment.id,
            first_record: self.next_record,
            epoch: self.manifest.epoch,
            chain: self.chain,
        };
        self.segment = segment;
        self.offset = 0;
        self.open.extend_from_slice(&header.encode());
        self.open.pad_to(SEGMENT_HEADER_BYTES);
    }

    /// Appends a record and returns its number; the caller has made sure that it fits.
    pub(crate) fn append(&mut self, kind: Kind, sequence: u64, data: &[&[u8]], mutations: &[u8]) -> u64 {
        let data_len: usize = data.iter().map(|piece| piece.len()).sum();
        debug_assert!(data_len + mutations.len() <= self.room());
        let (kind, parts) = match kind {
            Kind::Commit { parts } => (RecordKind::Commit, parts),
            Kind::Part => (RecordKind::Part, 0),
            Kind::Data => (RecordKind::Data, 0),
        };
        let header = RecordHeader {
            kind,
            parts,
            volume: self.manifest.volume(),
            number: self.next_record,
            epoch: self.manifest.epoch,
            sequence,
            chain: self.chain,
            durable: self.durable.load(Ordering::Acquire),
            data_len: data_len as u32,
            mutation_len: mutations.len() as u32,
        };
        let (bytes, checksum) = header.seal(data, mutations);
        self.open.extend_from_slice(&bytes);
        for piece in data {
            self.open.extend_from_slice(piece);
        }
        self.open.extend_from_slice(mutations);
        self.open.pad_to(RECORD_ALIGN);
        self.chain = checksum;
        self.next_record += 1;
        header.number
    }

    /// Bytes that a bulk in the present segment can take, with `reserved` bytes of another record behind it.
    pub(crate) fn bulk_room(&self, reserved: usize) -> usize {
        let start = self.record_start().next_multiple_of(PAGE_BYTES as u64);
        let slack = (RECORD_HEADER_BYTES + RECORD_ALIGN.max(self.sector_bytes) + reserved) as u64;
        self.segment.bytes.saturating_sub(start + slack) as usize
    }

    /// Appends what was laid out before; the caller has made sure that it fits.
    pub(crate) fn append_bulk(&mut self, bulk: Bulk) -> AppendedBulk {
        debug_assert!(bulk.len() <= self.bulk_room(0));
        if bulk.len().is_multiple_of(PAGE_BYTES) {
            let start = self.record_start();
            self.open.extend_zeros((start.next_multiple_of(PAGE_BYTES as u64) - start) as usize);
        }
        self.seal();
        let Bulk { mut buffer, records } = bulk;
        let mut extents = Vec::with_capacity(records.len());
        for record in records {
            let header = RecordHeader {
                kind: RecordKind::Data,
                parts: 0,
                volume: self.manifest.volume(),
                number: self.next_record,
                epoch: self.manifest.epoch,
                sequence: 0,
                chain: self.chain,
                durable: self.durable.load(Ordering::Acquire),
                data_len: record.data_len as u32,
                mutation_len: record.mutation_len as u32,
            };
            let (bytes, checksum) = header.seal_known(record.checksum);
            let data_start = record.start + RECORD_HEADER_BYTES;
            buffer[record.start..data_start].copy_from_slice(&bytes);
            self.chain = checksum;
            self.next_record += 1;
            extents.push(Extent {
                segment: self.segment.id,
                offset: (self.offset + data_start as u64) as u32,
                len: record.data_len as u32,
                page_checksums: record.page_checksums,
            });
        }
        let buffer = Arc::new(buffer);
        let buffer_offset = self.offset;
        self.push_sealed(buffer.clone());
        AppendedBulk { extents, last_record: self.last_record(), buffer, buffer_offset }
    }

    /// The record behind which no more than `bytes` bytes wait to be written; none when nothing more waits anyway.
    pub(crate) fn record_before_last(&self, bytes: usize) -> Option<u64> {
        let mut behind = self.open.len();
        for sealed in self.sealed.iter().rev() {
            if behind + sealed.buffer.len() > bytes {
                return Some(sealed.last_record);
            }
            behind += sealed.buffer.len();
        }
        None
    }

    /// Takes what waits from the front, in log order, up to about a MiB; what follows each other in one segment becomes
    /// one batch.
    pub(crate) fn cut(&mut self) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        let mut bytes = 0;
        loop {
            let next = self.sealed.front().map_or(self.open.len(), |sealed| sealed.buffer.len());
            if next == 0 || bytes > 0 && bytes + next > CUT_BYTES_MAX {
                return batches;
            }
            if self.sealed.is_empty() {
                self.seal();
            }
            let Some(Sealed { segment, offset, buffer, last_record }) = self.sealed.pop_front() else {
                return batches;
            };
            bytes += buffer.len();
            self.sealed_bytes -= buffer.len();
            match batches.last_mut() {
                Some(batch)
                    if batch.segment.id == segment.id && batch.offset + batch.len() as u64 == offset =>
                {
                    batch.buffers.push(buffer);
                    batch.last_record = last_record;
                }
                _ => batches.push(Batch { segment, offset, buffers: vec![buffer], last_record }),
            }
        }
    }

    fn record_start(&self) -> u64 {
        self.offset + self.open.len() as u64
    }

    fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut buffer = std::mem::replace(&mut self.open, self.spares.take());
        buffer.pad_to(self.sector_bytes);
        self.push_sealed(Arc::new(buffer));
    }

    /// `buffer` is what follows in the present segment, up to the record before the next one.
    fn push_sealed(&mut self, buffer: Arc<LogBuffer>) {
        let len = buffer.len();
        let (segment, offset, last_record) = (self.segment.clone(), self.offset, self.last_record());
        self.sealed.push_back(Sealed { segment, offset, buffer, last_record });
        self.sealed_bytes += len;
        self.offset += len as u64;
    }
}
