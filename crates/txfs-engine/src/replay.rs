//! Replaying the log: the commits after a checkpoint, applied to the state that the checkpoint holds.
//!
//! One thread reads and verifies records while another applies the ones before, so that neither waits for the disk or
//! for the checksums. Applying may read the index too, so the order of what is read is not the same each time; where
//! that matters (the simulator, which has no threads), one thread does both in turn.
//!
//! Invariant: a record is applied only if it and all before it were accepted by the reader.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::error::{EngineError, Result};
use crate::format::{CheckpointRecord, RecordHeader, RecordKind};
use crate::index::IndexView;
use crate::log::Segment;
use crate::log::reader::{Found, LogEnd, LogReader};
use crate::sequencer::{LiveBytes, LiveChange, apply_encoded};

/// Mutations that travel from the reading thread to the applying one at a time, in bytes, and records.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_RECORDS: usize = 256;
/// Batches that may wait: the reader gets ahead by this much.
const BATCHES_MAX: usize = 16;

/// The state while commits are applied to it.
pub(crate) struct Replay {
    pub(crate) view: IndexView,
    pub(crate) live: LiveBytes,
    pub(crate) sequence: u64,
    pub(crate) commits: u64,
    pub(crate) changes: u64,
    /// Mutations of part records whose commit has not come yet.
    parts: Vec<Vec<u8>>,
}

impl Replay {
    /// Begins with what `checkpoint` holds.
    pub(crate) fn new(checkpoint: &CheckpointRecord, view: IndexView) -> Replay {
        let live = LiveBytes::from_list(&checkpoint.live_bytes);
        Replay { view, live, sequence: checkpoint.sequence, commits: 0, changes: 0, parts: Vec::new() }
    }

    /// Applies everything that `reader` accepts from `offset` of `start` on; in two threads where `threads` says so.
    pub(crate) fn run(
        &mut self,
        reader: LogReader<'_>,
        start: Arc<Segment>,
        offset: u64,
        threads: bool,
    ) -> Result<LogEnd> {
        if !threads {
            return reader.scan(start, offset, &mut |found| self.record(&found.header, found.mutations));
        }
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        std::thread::scope(|scope| {
            let reading = std::thread::Builder::new()
                .name("txfs-replay".into())
                .spawn_scoped(scope, move || read(reader, start, offset, &sender))
                .map_err(|error| EngineError::io("starting a thread that reads the log", error))?;
            // An error here is about an earlier record than any error of the reader, which ends when nobody listens.
            let applied = self.apply(receiver);
            let end = reading.join().unwrap_or_else(|_| {
                let error = std::io::Error::other("the thread that reads it panicked");
                Err(EngineError::io("reading the log", error))
            });
            applied.and(end)
        })
    }

    fn apply(&mut self, batches: Receiver<Batch>) -> Result<()> {
        for batch in batches {
            for (header, mutations) in &batch.records {
                self.record(header, &batch.bytes[mutations.clone()])?;
            }
        }
        Ok(())
    }

    fn record(&mut self, header: &RecordHeader, mutations: &[u8]) -> Result<()> {
        match header.kind {
            RecordKind::Data => self.parts.clear(),
            RecordKind::Part => self.parts.push(mutations.to_vec()),
            RecordKind::Commit => self.commit(header, mutations)?,
        }
        Ok(())
    }

    fn commit(&mut self, header: &RecordHeader, mutations: &[u8]) -> Result<()> {
        let place = || format!("log record {}", header.number);
        let malformed = |detail: &str| EngineError::Corrupt { place: place(), detail: detail.into() };
        // A compound record has the number of the last commit in it.
        if header.sequence <= self.sequence {
            return Err(malformed("its commit number does not follow the one before"));
        }
        let Some(first) = self.parts.len().checked_sub(usize::from(header.parts)) else {
            return Err(malformed("a part of its commit is missing"));
        };
        let mut change = LiveChange::default();
        let mut apply = |encoded: &[u8]| apply_encoded(&mut self.view, &mut change, encoded, &place);
        match self.parts.len() > first {
            false => apply(mutations)?,
            true => {
                let mut whole = self.parts.split_off(first).concat();
                whole.extend_from_slice(mutations);
                apply(&whole)?;
            }
        }
        self.parts.clear();
        self.live.check(&change)?;
        self.sequence = header.sequence;
        self.live.apply(&change, header.sequence);
        self.commits += 1;
        self.changes += change.changes();
        Ok(())
    }
}

/// Records on their way from one thread to the other; file data stays behind.
#[derive(Default)]
struct Batch {
    records: Vec<(RecordHeader, Range<usize>)>,
    bytes: Vec<u8>,
}

/// The reading thread.
fn read(
    reader: LogReader<'_>,
    start: Arc<Segment>,
    offset: u64,
    batches: &SyncSender<Batch>,
) -> Result<LogEnd> {
    let send = |batch: &mut Batch| {
        let unheard =
            |_| EngineError::io("reading the log", std::io::Error::other("it could not be applied"));
        batches.send(std::mem::take(batch)).map_err(unheard)
    };
    let mut batch = Batch::default();
    let end = reader.scan(start, offset, &mut |found: Found<'_>| {
        let from = batch.bytes.len();
        // With data goes only a hint for the cleaner.
        if found.header.kind != RecordKind::Data {
            batch.bytes.extend_from_slice(found.mutations);
        }
        batch.records.push((found.header, from..batch.bytes.len()));
        if batch.bytes.len() >= BATCH_BYTES || batch.records.len() >= BATCH_RECORDS {
            send(&mut batch)?;
        }
        Ok(())
    })?;
    send(&mut batch)?;
    Ok(end)
}
