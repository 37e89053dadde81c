//! Reads the log from a checkpoint on, for recovery: every record in order, up to the first that is not whole.
//!
//! A record is accepted only if its volume, number, epoch, chain and checksum all fit. Where the present segment has
//! no valid next record, the log goes on in the segment whose first record is the next one, if there is such a one.
//! Where it ends, later records are searched for one that says that the missing record was durable: then the medium
//! has lost acknowledged data, and that is an error, not an end.

use std::sync::Arc;

use super::pool::Segment;
use crate::error::{EngineError, Result};
use crate::format::record::{RECORD_ALIGN, RECORD_HEADER_BYTES};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::format::{CheckpointRecord, Manifest, RecordHeader, SegmentHeader};

const WINDOW_BYTES: usize = 256 * 1024;
/// How much is asked for ahead of the window: the disk is busy while records are verified.
const AHEAD_BYTES: u64 = 4 << 20;
/// In pieces of this size, one or two for each window: asking takes the host about as long as reading, so that a reader who
/// asks for everything first begins late.
const ASK_BYTES: u64 = 512 << 10;
const PROBE_BYTES: usize = 4096;
/// How far behind the end of the log damage is searched for, in bytes.
const DAMAGE_SEARCH_BYTES: u64 = 4 << 20;
/// Sector sizes with which the volume may have been written before.
const SECTOR_SIZES: [u64; 4] = [512, 1024, 2048, 4096];

/// A whole record.
pub(crate) struct Found<'a> {
    pub(crate) header: RecordHeader,
    pub(crate) mutations: &'a [u8],
}

/// A whole record that continues the log.
struct Next {
    place: u64,
    header: RecordHeader,
    checksum: u32,
}

/// Where the log ends.
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub(crate) segment: Arc<Segment>,
    pub(crate) offset: u64,
    pub(crate) next_record: u64,
    pub(crate) chain: u32,
    /// Segments that hold records after the checkpoint, in log order; the first one holds the checkpoint's position.
    pub(crate) visited: Vec<Arc<Segment>>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The state of a scan.
pub(crate) struct LogReader<'a> {
    manifest: &'a Manifest,
    segments: &'a [Arc<Segment>],
    /// What the first records of `segments` say, once somebody wanted to know.
    heads: Option<Vec<Option<RecordHeader>>>,
    next_record: u64,
    chain: u32,
    epoch: u64,
    window: Window,
}

impl<'a> LogReader<'a> {
    /// Starts at the position of `checkpoint`; `segments` are all segments in which later records may lie.
    pub(crate) fn new(
        manifest: &'a Manifest,
        segments: &'a [Arc<Segment>],
        checkpoint: &CheckpointRecord,
    ) -> Self {
        LogReader {
            manifest,
            segments,
            heads: None,
            next_record: checkpoint.next_record,
            chain: checkpoint.chain,
            epoch: checkpoint.epoch,
            window: Window::default(),
        }
    }

    /// Starts at the beginning of `segment`'s present life, as its header says.
    pub(crate) fn of_segment(manifest: &'a Manifest, header: &SegmentHeader) -> Self {
        LogReader {
            manifest,
            segments: &[],
            heads: None,
            next_record: header.first_record,
            chain: header.chain,
            epoch: 0,
            window: Window::default(),
        }
    }

    /// Hands every whole record in `segment` to `visit`, in order.
    pub(crate) fn scan_segment(
        mut self,
        segment: &Arc<Segment>,
        visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut offset = SEGMENT_HEADER_BYTES as u64;
        while let Some(next) = self.next_in(segment, offset)? {
            let place = next.place;
            let header = self.accept(segment, next, visit)?;
            offset = place + header.record_len() as u64;
        }
        Ok(())
    }

    /// Hands every whole record to `visit`, in order.
    pub(crate) fn scan(
        mut self,
        start: Arc<Segment>,
        offset: u64,
        visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<LogEnd> {
        let mut visited = vec![start.clone()];
        let (mut segment, mut offset) = (start, offset);
        let (mut records, mut bytes) = (0, 0);
        loop {
            match self.next_in(&segment, offset)? {
                Some(next) => {
                    let place = next.place;
                    let header = self.accept(&segment, next, visit)?;
                    records += 1;
                    bytes += header.record_len() as u64;
                    offset = place + header.record_len() as u64;
                }
                None => match self.next_segment(&visited)? {
                    Some(next) => {
                        visited.push(next.clone());
                        (segment, offset) = (next, SEGMENT_HEADER_BYTES as u64);
                    }
                    None => break,
                },
            }
        }
        self.search_damage(&segment, offset)?;
        let (next_record, chain) = (self.next_record, self.chain);
        Ok(LogEnd { segment, offset, next_record, chain, visited, records, bytes })
    }

    /// The next record, given the end of the last one: it starts right there, or at the next sector.
    fn next_in(&mut self, segment: &Arc<Segment>, end: u64) -> Result<Option<Next>> {
        let mut last = None;
        for place in std::iter::once(end).chain(SECTOR_SIZES.map(|sector| end.next_multiple_of(sector))) {
            if last.replace(place) == Some(place) {
                continue;
            }
            if let Some(next) = self.next_at(segment, place)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// The record at `place`, if it is the next one.
    fn next_at(&mut self, segment: &Arc<Segment>, place: u64) -> Result<Option<Next>> {
        let Some((header, checksum)) = self.whole_record(segment, place)? else { return Ok(None) };
        // What an earlier epoch left behind the point where its recovery stopped can become whole again: the cleaner moves
        // the same bytes to the same place as before, and a torn write of them fills the gap in the old record.
        let epoch_min = match header.number >= self.manifest.epoch_first_record {
            true => self.manifest.epoch,
            false => self.epoch,
        };
        let fits = header.number == self.next_record
            && header.chain == self.chain
            && (epoch_min..=self.manifest.epoch).contains(&header.epoch);
        Ok(fits.then_some(Next { place, header, checksum }))
    }

    /// Header and checksum of the record at `place`, if there is one of this volume and it is whole.
    fn whole_record(&mut self, segment: &Arc<Segment>, place: u64) -> Result<Option<(RecordHeader, u32)>> {
        if place + RECORD_HEADER_BYTES as u64 > segment.bytes {
            return Ok(None);
        }
        let decoded = RecordHeader::decode(self.window.bytes(segment, place, RECORD_HEADER_BYTES)?);
        let Ok((header, checksum)) = decoded else { return Ok(None) };
        if header.volume != self.manifest.volume() || place + header.body_end() as u64 > segment.bytes {
            return Ok(None);
        }
        let record = self.window.bytes(segment, place, header.body_end())?;
        Ok(RecordHeader::verify(record, checksum).is_ok().then_some((header, checksum)))
    }

    fn accept(
        &mut self,
        segment: &Arc<Segment>,
        next: Next,
        visit: &mut dyn FnMut(Found<'_>) -> Result<()>,
    ) -> Result<RecordHeader> {
        let Next { place, header, checksum } = next;
        let record = self.window.bytes(segment, place, header.body_end())?;
        let mutations = &record[RECORD_HEADER_BYTES + header.data_len as usize..];
        visit(Found { header: header.clone(), mutations })?;
        self.next_record += 1;
        self.chain = checksum;
        self.epoch = header.epoch;
        Ok(header)
    }

    /// The first header of each segment, read once: nothing is written while the log is read.
    fn heads(&mut self) -> Result<Vec<Option<RecordHeader>>> {
        if self.heads.is_none() {
            for segment in self.segments {
                segment.file.expect_read(SEGMENT_HEADER_BYTES as u64, RECORD_HEADER_BYTES as u64);
            }
            let heads: Result<Vec<_>> = self.segments.iter().map(|segment| first_header(segment)).collect();
            self.heads = Some(heads?);
        }
        Ok(self.heads.clone().unwrap_or_default())
    }

    /// The segment that begins with the next record.
    fn next_segment(&mut self, visited: &[Arc<Segment>]) -> Result<Option<Arc<Segment>>> {
        let heads = self.heads()?;
        for (segment, head) in self.segments.iter().zip(heads) {
            if visited.iter().any(|seen| seen.id == segment.id) {
                continue;
            }
            let begins = head.is_some_and(|header| header.number == self.next_record);
            if begins && self.next_at(segment, SEGMENT_HEADER_BYTES as u64)?.is_some() {
                return Ok(Some(segment.clone()));
            }
        }
        Ok(None)
    }

    /// Fails if a record behind the end of the log shows that the missing one had been on stable storage.
    fn search_damage(&mut self, segment: &Arc<Segment>, end: u64) -> Result<()> {
        let limit = segment.bytes.min(end + DAMAGE_SEARCH_BYTES);
        self.window.limit = Some(limit);
        let mut place = end.next_multiple_of(RECORD_ALIGN as u64);
        while place + RECORD_HEADER_BYTES as u64 <= limit {
            let len = WINDOW_BYTES.min((limit - place) as usize);
            let found = find_magic(self.window.bytes(segment, place, len)?);
            match found {
                Some(at) => {
                    self.reject_later(segment, place + at as u64)?;
                    place += at as u64 + RECORD_ALIGN as u64;
                }
                None => place += (len - len % RECORD_ALIGN).max(RECORD_ALIGN) as u64,
            }
        }
        let heads = self.heads()?;
        for (other, head) in self.segments.iter().zip(heads) {
            let missing = self.next_record;
            let suspicious = |header: RecordHeader| header.number > missing && header.durable >= missing;
            if other.id != segment.id && head.is_some_and(suspicious) {
                self.reject_later(other, SEGMENT_HEADER_BYTES as u64)?;
            }
        }
        Ok(())
    }

    fn reject_later(&mut self, segment: &Arc<Segment>, place: u64) -> Result<()> {
        let missing = self.next_record;
        match self.whole_record(segment, place)? {
            Some((later, _)) if later.number > missing && later.durable >= missing => {
                Err(EngineError::Corrupt {
                    place: segment.name(),
                    detail: format!(
                        "log record {missing} is missing or broken, but record {} at offset {place} says that it had \
                     been stored: restore the volume from a backup",
                        later.number
                    ),
                })
            }
            _ => Ok(()),
        }
    }
}

/// The header of a segment's first record, not verified: a cheap look that says whether a closer one is worth it.
fn first_header(segment: &Segment) -> Result<Option<RecordHeader>> {
    let mut bytes = [0; RECORD_HEADER_BYTES];
    segment
        .file
        .read_at(SEGMENT_HEADER_BYTES as u64, &mut bytes)
        .map_err(|error| EngineError::io(format!("reading the log in {}", segment.name()), error))?;
    Ok(RecordHeader::decode(&bytes).ok().map(|(header, _)| header))
}

/// Offset of the first aligned record magic.
fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes
        .chunks_exact(RECORD_ALIGN)
        .position(|word| word.starts_with(b"TXR1"))
        .map(|word| word * RECORD_ALIGN)
}

/// A piece of one segment in memory.
#[derive(Default)]
struct Window {
    segment: Option<u64>,
    start: u64,
    /// Only the first `len` bytes count.
    bytes: Vec<u8>,
    len: usize,
    /// End of what has been asked for in this segment.
    asked: u64,
    /// Nothing behind this offset will be wanted.
    limit: Option<u64>,
}

impl Window {
    /// `len` bytes at `offset`, which must lie inside the segment.
    fn bytes(&mut self, segment: &Arc<Segment>, offset: u64, len: usize) -> Result<&[u8]> {
        let end = offset + len as u64;
        let held =
            self.segment == Some(segment.id) && offset >= self.start && end <= self.start + self.len as u64;
        if !held {
            // Of most segments only the first record is looked at: reading ahead pays from the second time on.
            let ahead = match self.segment == Some(segment.id) {
                true => {
                    self.ask(segment, offset);
                    WINDOW_BYTES
                }
                false => {
                    self.asked = 0;
                    PROBE_BYTES
                }
            };
            let wanted = len.max(ahead).min((segment.bytes - offset) as usize);
            self.segment = None;
            if self.bytes.len() < wanted {
                self.bytes.resize(wanted, 0);
            }
            segment
                .file
                .read_at(offset, &mut self.bytes[..wanted])
                .map_err(|error| EngineError::io(format!("reading the log in {}", segment.name()), error))?;
            self.segment = Some(segment.id);
            self.start = offset;
            self.len = wanted;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..from + len])
    }

    /// Asks for the next pieces of what comes after `offset`.
    fn ask(&mut self, segment: &Segment, offset: u64) {
        let limit = self.limit.unwrap_or(segment.bytes).min(offset + AHEAD_BYTES);
        for _ in 0..2 {
            let from = self.asked.max(offset);
            let to = limit.min(from + ASK_BYTES);
            if from >= to {
                return;
            }
            segment.file.expect_read(from, to - from);
            self.asked = to;
        }
    }
}
