//! Lays records out in memory, one after the other, exactly as they will lie in the segments.
//!
//! The appender is part of the sequencer and only used under its lock. [`Appender::cut`] hands what has gathered to
//! the log writer; from there on the next record starts at a sector boundary, so that a sector which may already be
//! acknowledged is never written again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use txfs_disk::AlignedBuffer;

use super::pool::Segment;
use crate::format::record::{RECORD_ALIGN, RECORD_HEADER_BYTES};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::format::{Manifest, RecordHeader, RecordKind, SegmentHeader};

/// Bytes that go to one place of one segment in one write.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) buffer: AlignedBuffer,
    pub(crate) last_record: u64,
    spares: Arc<SpareBuffers>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.spares.give(std::mem::take(&mut self.buffer));
    }
}

/// Buffers for batches to come. Fresh memory costs more than what is copied into it: a page fault for every 4 KiB, and
/// zeros that are written over at once.
#[derive(Debug, Default)]
struct SpareBuffers(Mutex<Vec<AlignedBuffer>>);

/// Buffers kept at most, and the capacity of each of them.
const SPARE_BUFFERS_MAX: usize = 4;
const SPARE_BUFFER_BYTES_MAX: usize = 6 << 20;

impl SpareBuffers {
    fn take(&self) -> AlignedBuffer {
        self.0.lock().pop().unwrap_or_default()
    }

    fn give(&self, mut buffer: AlignedBuffer) {
        let mut spares = self.0.lock();
        if spares.len() < SPARE_BUFFERS_MAX && buffer.capacity() <= SPARE_BUFFER_BYTES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    }
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
    open: AlignedBuffer,
    sealed: Vec<Batch>,
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
        Appender {
            manifest,
            sector_bytes,
            next_record: tail.next_record,
            chain: tail.chain,
            segment,
            offset: tail.offset.next_multiple_of(sector_bytes as u64),
            open: AlignedBuffer::new(),
            sealed: Vec::new(),
            sealed_bytes: 0,
            spares: Arc::default(),
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

    /// Takes everything that waits, in log order.
    pub(crate) fn cut(&mut self) -> Vec<Batch> {
        self.seal();
        self.sealed_bytes = 0;
        std::mem::take(&mut self.sealed)
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
        let len = buffer.len() as u64;
        self.sealed_bytes += buffer.len();
        let (segment, offset) = (self.segment.clone(), self.offset);
        let (last_record, spares) = (self.next_record - 1, self.spares.clone());
        self.sealed.push(Batch { segment, offset, buffer, last_record, spares });
        self.offset += len;
    }
}
