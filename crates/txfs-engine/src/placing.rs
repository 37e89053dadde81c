//! Data that goes to the log ahead of its commit, in bulk: it is copied and checksummed once, in the caller's time, and
//! written by the log's own thread meanwhile ([`crate::log::bulk`]).
//!
//! Who places more than the disk takes writes a piece beside the log's thread, so that the disk has two writes to work
//! on; while others do so already, he sleeps until half of what waits is written. Where there is no such thread, or it
//! makes no progress, he writes as much himself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::{Engine, Shared};
use crate::error::{EngineError, Result};
use crate::format::CHUNK_BYTES_MAX;
use crate::log::bulk::Bulk;
use crate::log::pool::Purpose;
use crate::txn::commit::{Pin, Placed};
use crate::txn::{Chunk, Piece, Snapshot};

/// While data is placed ahead of a commit, this much of the log may wait to be written: enough to keep a disk busy, and
/// little enough that a small durable commit, which has to wait for all before it, does not wait long.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// From here on the writing thread does not wait for more.
const HURRY_BYTES: usize = 1 << 20;
/// How long the writing thread may take for half of what waits, before others help.
const PATIENCE: Duration = Duration::from_millis(100);

impl Engine {
    /// Writes data to the log ahead of its commit, so that a transaction may be larger than memory ("stealing",
    /// exF2FS §4). Without a commit that refers to it, it is garbage.
    ///
    /// `own` is the snapshot of the transaction that it is for: where there is no space, others' snapshots that keep
    /// some are waited for, but not that one.
    pub fn place(&self, own: Option<&Snapshot>, chunks: Vec<Chunk>) -> Result<Placed> {
        let pieces: Vec<Piece<'_>> = chunks.iter().map(Piece::from).collect();
        self.place_pieces(own, &pieces)
    }

    /// As [`Engine::place`], straight from the caller's memory.
    pub fn place_pieces(&self, own: Option<&Snapshot>, pieces: &[Piece<'_>]) -> Result<Placed> {
        let data_len: usize = pieces.iter().map(|piece| piece.0.len()).sum();
        let before = own.map_or(0, |snapshot| snapshot.registration.add_placed(data_len as u64));
        let placed = self.place_ahead(own, false, pieces).inspect_err(|error| {
            if matches!(error, EngineError::NoSpace { .. } | EngineError::SpaceHeld { .. }) {
                // It may have wanted far more; when it is tried again it should find that.
                self.shared.note_placed(2 * (before + data_len as u64));
            }
        })?;
        self.shared.note_placed(before + data_len as u64);
        self.shared.counters.data_bytes.fetch_add(data_len as u64, Ordering::Relaxed);
        Ok(placed)
    }

    /// `committing` when it is the commit itself that places it.
    pub(crate) fn place_ahead(
        &self,
        own: Option<&Snapshot>,
        committing: bool,
        pieces: &[Piece<'_>],
    ) -> Result<Placed> {
        let shared = &*self.shared;
        shared.check_open()?;
        pieces.iter().try_for_each(|piece| check_len(piece.0))?;
        let mut placed = Placed::default();
        let mut rest = pieces;
        while !rest.is_empty() {
            // Only a hint: others may take the room meanwhile, and then there is a gap at the segment's end.
            let room = shared.sequencer.lock().appender.bulk_room(0);
            let (bulk, count) = shared.bulk.lay_out(rest, room);
            let mut bulk = Some(bulk);
            shared.with_space(own, committing, || shared.append_bulk(&mut bulk, &mut placed))?;
            rest = &rest[count..];
            shared.throttle()?;
        }
        shared.wake.notify();
        Ok(placed)
    }
}

impl Shared {
    fn queue_bytes_max(&self) -> usize {
        QUEUE_BYTES_MAX.min(self.options.queue_bytes_max)
    }

    /// Gives the bulk its place; it stays where it is when there is none. Its pin keeps the segment until the commit has
    /// counted it as live.
    fn append_bulk(&self, bulk: &mut Option<Bulk>, placed: &mut Placed) -> Result<()> {
        let mut guard = self.sequencer.lock();
        let sequencer = &mut *guard;
        let len = bulk.as_ref().map_or(0, Bulk::len);
        let reserved = sequencer.group.reserved_bytes();
        if sequencer.appender.bulk_room(reserved) < len {
            self.seal(sequencer)?;
        }
        if sequencer.appender.bulk_room(0) < len {
            self.switch_segment(sequencer, Purpose::Data)?;
        } else {
            self.check_reserve(sequencer, Purpose::Data)?;
        }
        if let Some(bulk) = bulk.take() {
            placed.pins.push(Pin::new(&sequencer.appender.segment().pins));
            self.count_log(bulk.data_bytes() as u64, 0);
            let appended = sequencer.appender.append_bulk(bulk);
            self.recent.insert_bulk(&appended);
            self.note_room(sequencer);
            placed.extents.extend(appended.extents);
        }
        Ok(())
    }

    /// Writes as long as something waits, beside one other write.
    pub(crate) fn help_write(&self) -> Result<()> {
        let last = self.sequencer.lock().appender.last_record();
        while self.writer.help(last, self) {}
        self.writer.check()
    }

    /// Sees to it that what waits is written, and does not become too much.
    fn throttle(&self) -> Result<()> {
        let most = self.queue_bytes_max();
        loop {
            let (bytes, middle) = {
                let appender = &self.sequencer.lock().appender;
                (appender.queued_bytes(), appender.record_before_last(most / 2))
            };
            if bytes >= HURRY_BYTES.min(most) {
                self.wake.hurry();
            }
            let Some(middle) = middle.filter(|_| bytes > most) else { return Ok(()) };
            if !self.options.background {
                return self.flush(middle, false);
            }
            if self.writer.help(middle, self) {
                continue;
            }
            return match self.writer.watch(middle, PATIENCE)? {
                true => Ok(()),
                false => self.flush(middle, false),
            };
        }
    }
}

/// Fails for data that no extent can describe.
pub(crate) fn check_len(data: &[u8]) -> Result<()> {
    if data.is_empty() || data.len() > CHUNK_BYTES_MAX {
        let text = format!("a chunk of {} bytes; the limit is {CHUNK_BYTES_MAX}", data.len());
        return Err(EngineError::TooLarge(text));
    }
    Ok(())
}
