//! Gets the log to disk. Group commit: who needs a record written takes everything that waits in the appender and writes
//! it for everybody; who comes meanwhile either begins another write beside it or waits for the next one.
//!
//! * A lone committer waits for nobody and makes one write that carries its own flush.
//! * Up to some number of writes are in flight together, to disjoint places. How many depends on what a flush costs:
//!   where it is cheap, gathering commits into fewer writes saves more than it delays; where it is dear, nobody should
//!   have to wait for the end of somebody else's before his own begins.
//! * Acknowledgements follow the log: a write counts when it and all before it are over ([`super::flights`]).
//! * One write takes about a MiB. Whether it carries its flush is decided when it is known what it holds: one that ends
//!   before the record that somebody waits for goes plainly.
//! * Plain writes (of ordered commits, and of data ahead of its commit) leave their segments *dirty*. A durable write
//!   behind them does not make them durable; that takes a flush of these segments, by whoever waits for it, one at a
//!   time. Who has only plain writes before him then writes plainly too, and the one flush covers all. Segments that the
//!   log has left behind are flushed early, by a thread that nobody waits for.
//!
//! A failed write or flush poisons the writer for good: what the drive has kept is unknown then, and asking it again
//! would report success for data that is gone. What lies in the log behind a failed write is never acknowledged.
//!
//! Order of locks: the sequencer (inside [`Source::cut`]) before `progress`, which is never held across I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use txfs_disk::AlignedBuffer;

use super::appender::Batch;
use super::flights::Flights;
use super::pool::Segment;
use super::waiters::{Cause, Waiters, Wakeups, Wanted};
use crate::broken::{self, Fault};
use crate::error::{EngineError, Result};

/// How many writes may be in flight together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    /// Never more than this.
    pub(crate) writes_max: usize,
    /// As many writes may be in flight as this many microseconds fit into a flush, one at least; 0 means always more.
    pub(crate) flush_us: u64,
}

/// Where the writes come from.
pub(crate) trait Source {
    /// Takes what waits in the appender, in log order. `begun` is to be called with the writes before anybody else can
    /// cut: it gives them their serial numbers.
    fn cut(&self, begun: &mut dyn FnMut(&[Batch])) -> Vec<Batch>;
    /// Records up to this one are in the host file now.
    fn written(&self, record: u64);
    /// It is time for [`LogWriter::flush_left_behind`].
    fn left_behind(&self);
}

#[derive(Debug)]
struct Progress {
    flights: Flights,
    /// Threads that are about to cut, or that write.
    writing: usize,
    /// Those of them that are known to write without a flush.
    writing_plainly: usize,
    /// Segments with bytes that were written and not flushed.
    dirty: Vec<Arc<Segment>>,
    /// The one in which the last write that was begun ends.
    last_segment: u64,
    /// Those to which writes are in flight, once for each write.
    written_to: Vec<u64>,
    /// Somebody flushes the segments that were dirty.
    flushing: bool,
    poisoned: Option<String>,
    waiters: Waiters,
    shortest_us: ShortestFlush,
    statistics: WriteStatistics,
}

/// What the writer did since the volume was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteStatistics {
    /// Log writes.
    pub writes: u64,
    /// Bytes in them, padding included.
    pub bytes: u64,
    /// Durable writes and flushes.
    pub flushes: u64,
    /// The most writes that were in flight together.
    pub in_flight_max: u64,
}

/// What a flush costs at its best, of late. Not the mean: that contains waiting for a processor, and would take a busy
/// machine for a slow drive.
#[derive(Debug)]
struct ShortestFlush {
    before_us: u64,
    now_us: u64,
    count: u32,
}

/// The log's writer.
#[derive(Debug)]
pub(crate) struct LogWriter {
    overlap: Overlap,
    progress: Mutex<Progress>,
    /// Every operation asks for this, most of them often.
    is_poisoned: AtomicBool,
    /// Highest record on stable storage, for the headers of new records.
    durable: Arc<AtomicU64>,
}

/// While bulk data waits, so many writes are in flight together.
const HELPED_WRITES: usize = 2;

/// What of the dirty segments to flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// All: what was written before is durable then.
    All,
    /// Those that the log has left behind: less is to be done later.
    Ahead,
}

/// Writes that were cut and are to be carried out.
struct Cut {
    batches: Vec<Batch>,
    first_serial: u64,
    /// Each write carries its own flush.
    flush: bool,
}

impl LogWriter {
    /// Starts with everything up to `record` durable.
    pub(crate) fn new(record: u64, overlap: Overlap) -> LogWriter {
        let progress = Progress {
            flights: Flights::new(record),
            writing: 0,
            writing_plainly: 0,
            dirty: Vec::new(),
            last_segment: u64::MAX,
            written_to: Vec::new(),
            flushing: false,
            poisoned: None,
            waiters: Waiters::default(),
            shortest_us: ShortestFlush { before_us: u64::MAX, now_us: u64::MAX, count: 0 },
            statistics: WriteStatistics::default(),
        };
        LogWriter {
            overlap,
            progress: Mutex::new(progress),
            is_poisoned: AtomicBool::new(false),
            durable: Arc::new(AtomicU64::new(record)),
        }
    }

    /// Highest record known to be on stable storage together with all before it.
    pub(crate) fn durable(&self) -> &Arc<AtomicU64> {
        &self.durable
    }

    /// Fails once the writer is poisoned.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.progress.lock().poisoned {
            Some(cause) => Err(EngineError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Stops all further acknowledgements.
    pub(crate) fn poison(&self, cause: String) {
        log::error!("the volume takes no more changes: {cause}");
        let mut progress = self.progress.lock();
        progress.poisoned.get_or_insert(cause);
        self.is_poisoned.store(true, Ordering::Release);
        settle(&self.overlap, progress);
    }

    /// Statistics so far.
    pub(crate) fn statistics(&self) -> WriteStatistics {
        self.progress.lock().statistics
    }

    /// Returns once record `record` is in the host file and, if `durable`, on stable storage.
    pub(crate) fn flush(&self, record: u64, durable: bool, source: &dyn Source) -> Result<()> {
        let wanted = Wanted { record, durable };
        let mut progress = self.progress.lock();
        loop {
            if progress.reached(wanted) {
                return Ok(());
            }
            if let Some(cause) = &progress.poisoned {
                return Err(EngineError::Poisoned { cause: cause.clone() });
            }
            if progress.may_write(&self.overlap, wanted) {
                self.write(progress, wanted, source);
            } else if progress.may_flush(wanted) {
                self.flush_dirty(progress, Flush::All);
            } else if progress.may_flush_ahead(wanted) {
                self.flush_dirty(progress, Flush::Ahead);
            } else {
                let waiter = progress.waiters.add(wanted);
                drop(progress);
                if waiter.wait() == Cause::Done {
                    return Ok(());
                }
            }
            progress = self.progress.lock();
        }
    }

    /// Waits until record `record` is in the host file, and leaves it to others to get it there; false when it is not
    /// there after `patience`.
    pub(crate) fn watch(&self, record: u64, patience: Duration) -> Result<bool> {
        let wanted = Wanted { record, durable: false };
        let mut progress = self.progress.lock();
        if !progress.reached(wanted) && progress.poisoned.is_none() {
            let waiter = progress.waiters.add_watching(wanted);
            drop(progress);
            if waiter.wait_for(patience) == Some(Cause::Done) {
                return Ok(true);
            }
            progress = self.progress.lock();
            progress.waiters.remove(&waiter);
        }
        match &progress.poisoned {
            Some(cause) => Err(EngineError::Poisoned { cause: cause.clone() }),
            None => Ok(progress.reached(wanted)),
        }
    }

    /// Writes a part of what waits beside the one write that may be in flight; false when there are more of them, or
    /// nothing up to `record` waits.
    pub(crate) fn help(&self, record: u64, source: &dyn Source) -> bool {
        let wanted = Wanted { record, durable: false };
        let progress = self.progress.lock();
        if record <= progress.flights.begun()
            || progress.writing >= HELPED_WRITES
            || progress.poisoned.is_some()
        {
            return false;
        }
        self.write(progress, wanted, source);
        true
    }

    /// Cuts what waits, or a part of it, and writes it.
    fn write(&self, mut progress: MutexGuard<'_, Progress>, wanted: Wanted, source: &dyn Source) {
        progress.writing += 1;
        let in_flight = progress.writing as u64;
        progress.statistics.in_flight_max = progress.statistics.in_flight_max.max(in_flight);
        drop(progress);

        let mut first_serial = 0;
        let mut flush = false;
        let batches = source.cut(&mut |batches| {
            let mut progress = self.progress.lock();
            for (index, batch) in batches.iter().enumerate() {
                let serial = progress.flights.begin(batch.last_record);
                if index == 0 {
                    first_serial = serial;
                }
            }
            if let Some(last) = batches.last() {
                progress.last_segment = last.segment.id;
            }
            progress.written_to.extend(batches.iter().map(|batch| batch.segment.id));
            flush = batches.last().is_some_and(|last| progress.carries_flush(wanted, last.last_record));
            progress.writing_plainly += usize::from(!flush);
        });
        let cut = Cut { batches, first_serial, flush };
        let begun = Instant::now();
        let (written, outcome) = write_out(&cut);
        let taken_us = begun.elapsed().as_micros() as u64;

        let mut progress = self.progress.lock();
        progress.writing -= 1;
        progress.writing_plainly -= usize::from(!flush);
        if flush && written == 1 {
            progress.shortest_us.note(taken_us);
        }
        progress.end(&cut, written);
        if let Err(error) = outcome {
            progress.fail(&error);
            self.is_poisoned.store(true, Ordering::Release);
        }
        let written = self.advanced(&progress);
        let left_behind = progress.has_left_behind();
        settle(&self.overlap, progress);
        source.written(written);
        if left_behind {
            source.left_behind();
        }
    }

    /// Flushes segments that the log has left behind, if there are any and all writes to them are over: sooner or later
    /// somebody has to, and until then a durable commit would.
    pub(crate) fn flush_left_behind(&self) {
        let progress = self.progress.lock();
        if progress.has_left_behind() && progress.poisoned.is_none() {
            self.flush_dirty(progress, Flush::Ahead);
        }
    }

    /// Flushes dirty segments.
    fn flush_dirty(&self, mut progress: MutexGuard<'_, Progress>, which: Flush) {
        progress.flushing = true;
        let mut dirty = std::mem::take(&mut progress.dirty);
        let covered = match which {
            Flush::All => progress.flights.covered(),
            Flush::Ahead => {
                let last = progress.last_segment;
                progress.dirty = dirty.extract_if(.., |segment| segment.id == last).collect();
                0
            }
        };
        drop(progress);
        let mut outcome = Ok(());
        let mut flushes = 0;
        for segment in &dirty {
            let doing = || format!("flushing the log in {}", segment.name());
            outcome = segment.file.sync().map_err(|error| EngineError::io(doing(), error));
            if outcome.is_err() {
                break;
            }
            flushes += 1;
        }
        let mut progress = self.progress.lock();
        progress.flushing = false;
        progress.statistics.flushes += flushes;
        match outcome {
            Ok(()) => progress.flights.flushed(covered),
            Err(error) => {
                progress.fail(&error);
                self.is_poisoned.store(true, Ordering::Release);
            }
        }
        self.advanced(&progress);
        settle(&self.overlap, progress);
    }

    fn advanced(&self, progress: &Progress) -> u64 {
        self.durable.store(progress.flights.durable(), Ordering::Release);
        progress.flights.written()
    }
}

impl Progress {
    fn reached(&self, wanted: Wanted) -> bool {
        wanted.record <= if wanted.durable { self.flights.durable() } else { self.flights.written() }
    }

    /// The record waits in the appender, and another write may begin.
    fn may_write(&self, overlap: &Overlap, wanted: Wanted) -> bool {
        wanted.record > self.flights.begun() && self.writing < self.writes_max(overlap)
    }

    /// The record is in the host file, and nobody is flushing it.
    fn may_flush(&self, wanted: Wanted) -> bool {
        wanted.durable && wanted.record <= self.flights.written() && !self.flushing
    }

    /// Nothing can be done for the record now, and there are segments to flush behind which the log has gone on: they need
    /// not wait until the last write is over.
    fn may_flush_ahead(&self, wanted: Wanted) -> bool {
        wanted.durable && !self.flushing && self.dirty.iter().any(|segment| segment.id != self.last_segment)
    }

    /// See [`LogWriter::flush_left_behind`].
    fn has_left_behind(&self) -> bool {
        let left = |id: u64| id != self.last_segment;
        !self.flushing
            && self.dirty.iter().any(|segment| left(segment.id))
            && !self.written_to.iter().any(|id| left(*id))
    }

    /// Whether a write up to record `last`, which is counted in `writing` already, makes itself durable.
    fn carries_flush(&self, wanted: Wanted, last: u64) -> bool {
        let awaited = wanted.durable && wanted.record <= last || self.waiters.any_durable(last);
        // Behind plain writes only, one flush at the end covers them and this one.
        let flush_follows = !self.dirty.is_empty() || self.writing_plainly > 0;
        let alone = self.writing == self.writing_plainly + 1;
        awaited && !(flush_follows && alone)
    }

    fn writes_max(&self, overlap: &Overlap) -> usize {
        let flush_us = self.shortest_us.get().unwrap_or(0);
        match flush_us.checked_div(overlap.flush_us) {
            Some(times) => overlap.writes_max.min((times as usize).max(1)),
            None => overlap.writes_max,
        }
    }

    /// Notes that a cut is over, and that its first `written` batches went well.
    fn end(&mut self, cut: &Cut, written: usize) {
        for batch in &cut.batches {
            if let Some(at) = self.written_to.iter().position(|id| *id == batch.segment.id) {
                self.written_to.swap_remove(at);
            }
        }
        for (serial, batch) in (cut.first_serial..).zip(&cut.batches).take(written) {
            let durable = cut.flush || broken::has(Fault::SkipFlush);
            self.flights.end(serial, durable);
            self.statistics.writes += 1;
            self.statistics.bytes += batch.len() as u64;
            self.statistics.flushes += u64::from(cut.flush);
            if !durable && !self.dirty.iter().any(|segment| segment.id == batch.segment.id) {
                self.dirty.push(batch.segment.clone());
            }
        }
    }

    fn fail(&mut self, error: &EngineError) {
        let cause = error.to_string();
        log::error!("the volume takes no more changes: {cause}");
        self.poisoned.get_or_insert(cause);
    }
}

/// Wakes whom the present state concerns, and gives up the lock before.
fn settle(overlap: &Overlap, mut guard: MutexGuard<'_, Progress>) {
    let mut wakeups = Wakeups::default();
    let mut waiters = std::mem::take(&mut guard.waiters);
    let progress = &*guard;
    waiters.take_done(|wanted| progress.reached(wanted), &mut wakeups);
    if progress.poisoned.is_some() {
        waiters.take_all(&mut wakeups);
    } else {
        waiters.take_one(|wanted| progress.may_flush(wanted), &mut wakeups);
        waiters.take_one(|wanted| progress.may_write(overlap, wanted), &mut wakeups);
        waiters.take_one(|wanted| progress.may_flush_ahead(wanted), &mut wakeups);
    }
    guard.waiters = waiters;
    drop(guard);
    wakeups.wake();
}

impl ShortestFlush {
    const WINDOW: u32 = 32;

    fn note(&mut self, us: u64) {
        self.now_us = self.now_us.min(us);
        self.count += 1;
        if self.count == Self::WINDOW {
            (self.before_us, self.now_us, self.count) = (self.now_us, u64::MAX, 0);
        }
    }

    fn get(&self) -> Option<u64> {
        Some(self.before_us.min(self.now_us)).filter(|us| *us != u64::MAX)
    }
}

/// Writes the batches in order; says how many went well.
fn write_out(cut: &Cut) -> (usize, Result<()>) {
    for (index, batch) in cut.batches.iter().enumerate() {
        let flush = cut.flush && !broken::has(Fault::SkipFlush);
        let outcome = if broken::has(Fault::PublishTorn) && flush {
            broken_torn_write(batch)
        } else {
            let buffers = batch.contents();
            batch.segment.file.write_log_vectored(batch.offset, &buffers, flush)
        };
        if let Err(error) = outcome {
            let doing = format!("writing the log in {}", batch.segment.name());
            return (index, Err(EngineError::io(doing, error)));
        }
    }
    (cut.batches.len(), Ok(()))
}

/// The fault [`Fault::PublishTorn`]: only the first sector of the write is made durable.
fn broken_torn_write(batch: &Batch) -> std::io::Result<()> {
    let file = &batch.segment.file;
    let buffers = batch.contents();
    file.write_log_vectored(batch.offset, &buffers, false)?;
    let sector = |bytes: usize| {
        let mut first = AlignedBuffer::new();
        first.extend_from_slice(&buffers[0].as_slice()[..bytes.min(buffers[0].len())]);
        file.write_log(batch.offset, &first, true)
    };
    sector(txfs_disk::SECTOR_BYTES_MIN).or_else(|_| sector(4096))
}
