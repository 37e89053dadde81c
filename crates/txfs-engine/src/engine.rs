//! The engine: hands out snapshots, commits, places and reads data, flushes and closes. The steps of a commit are in
//! `txn/sequencing.rs`, opening in `recovery.rs`.
//!
//! # Locks, outermost first
//! 1. `cleaning`: one cleaner at a time, be it the thread or a committer that finds no space.
//! 2. `checkpointing`: one checkpoint at a time.
//! 3. `sequencer`: the critical section of a commit; no I/O in it except making a segment when no spare one is ready.
//! 4. the small ones inside the log writer, the registry, the pool and the recent data.
//!
//! Readers take none of them: a snapshot is one atomic load and a registration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use txfs_disk::{Disk, LockGuard};

use crate::background::Background;
use crate::error::{ConflictReport, EngineError, Result};
use crate::format::{Extent, Manifest};
use crate::index::{IndexStore, IndexView};
use crate::latency::LatencyHistogram;
use crate::log::appender::Batch;
use crate::log::bulk::BulkLayout;
use crate::log::pool::Purpose;
use crate::log::writer::Source;
use crate::log::{LogWriter, RecentData, SegmentPool};
use crate::options::EngineOptions;
use crate::recovery::RecoveryReport;
use crate::sequencer::Sequencer;
use crate::txn::commit::{Candidate, Commit, Durability, Receipt};
use crate::txn::deferred::DeferredData;
use crate::txn::history::ConflictHistory;
use crate::txn::prepared::Prepared;
use crate::txn::registry::SnapshotRegistry;
use crate::txn::sequencing::describe;
use crate::txn::snapshot::Published;
use crate::txn::{CommitNote, Committer, ConflictRange, KeptStep, Piece, Snapshot};

/// Data up to this many bytes goes into the commit's own record; more goes ahead of it.
const INLINE_DATA_BYTES_MAX: usize = 1 << 20;

/// An open volume.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    background: Mutex<Option<Background>>,
}

/// What the engine and its background threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: EngineOptions,
    pub(crate) manifest: Manifest,
    pub(crate) recovery: RecoveryReport,
    pub(crate) state: Published,
    /// The last commit that is in the state and in the history. Changed in the critical section only, and looked at by
    /// every operation of a transaction.
    pub(crate) published: AtomicU64,
    /// A claim has ended; goes with the sequencer's lock.
    pub(crate) claims_ended: Condvar,
    /// Its lock is a leaf.
    pub(crate) history: Mutex<ConflictHistory>,
    pub(crate) sequencer: Mutex<Sequencer>,
    pub(crate) registry: Arc<SnapshotRegistry>,
    pub(crate) bulk: BulkLayout,
    pub(crate) writer: LogWriter,
    pub(crate) pool: SegmentPool,
    pub(crate) recent: RecentData,
    pub(crate) deferred: DeferredData,
    /// Log bytes since the last checkpoint began. Changed in the critical section only, and looked at by every commit.
    pub(crate) log_bytes_since_checkpoint: AtomicU64,
    /// Changes of keys in them.
    pub(crate) changes_since_checkpoint: AtomicU64,
    pub(crate) index: IndexStore,
    pub(crate) checkpointing: Mutex<crate::checkpoint::Checkpoints>,
    pub(crate) cleaning: Mutex<crate::cleaning::Cleaner>,
    /// Live data that users may have at most, as of the last time that it was computed.
    pub(crate) live_bytes_max: AtomicU64,
    /// The most that a transaction wrote to the log ahead of its commit recently.
    pub(crate) placed_ahead: AtomicU64,
    /// Segments are about to run out: those who begin to write help to clean.
    pub(crate) space_is_short: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) wake: crate::background::Wake,
    pub(crate) closed: AtomicBool,
    /// Held until the engine is gone.
    pub(crate) lock: Mutex<Option<Box<dyn LockGuard>>>,
}

/// What happened since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) durable_commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) commit_latency: LatencyHistogram,
    pub(crate) data_bytes: AtomicU64,
    pub(crate) commits_merged: AtomicU64,
    pub(crate) deferred_bytes_dropped: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) segments_cleaned: AtomicU64,
    pub(crate) bytes_moved: AtomicU64,
}

impl Engine {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Engine> {
        let background = if shared.options.background { Some(Background::start(&shared)?) } else { None };
        Ok(Engine { shared, background: Mutex::new(background) })
    }

    /// What opening the volume found.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.shared.recovery
    }

    /// The volume's random identity.
    pub fn volume_id(&self) -> [u8; 16] {
        self.shared.manifest.volume_id
    }

    /// The secret key for hashing names in this volume.
    pub fn name_key(&self) -> [u8; 16] {
        self.shared.manifest.name_key
    }

    /// An immutable view of everything committed so far.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// To be called before a transaction that is going to write takes its snapshot. Does nothing as a rule. When space is
    /// short it cleans: afterwards the transaction would itself keep the space that cleaning gains, since it sees
    /// everything where it was.
    pub fn make_way(&self) {
        self.shared.make_way();
    }

    /// True when whoever begins to write now would clean first, or find little space.
    pub fn is_short_of_space(&self) -> bool {
        self.shared.space_is_short.load(Ordering::Acquire)
    }

    /// Reads `out.len()` bytes from byte `skip` of `extent` on, and verifies the checksum of every page touched.
    pub fn read(&self, extent: &Extent, skip: u64, out: &mut [u8]) -> Result<()> {
        self.shared.read(extent, skip, out)
    }

    /// Validates, applies and publishes a transaction; with [`Durability::Durable`] it returns after the flush.
    ///
    /// On a conflict, on lack of space and on an error of the apply function nothing has changed. After an error of
    /// the flush itself the volume is poisoned.
    pub fn commit(&self, commit: Commit<'_>) -> Result<Receipt> {
        self.commit_by(commit, Committer::default())
    }

    /// As [`Engine::commit`], and says who commits, for those who conflict with it.
    pub fn commit_by(&self, commit: Commit<'_>, by: Committer) -> Result<Receipt> {
        self.commit_step(commit, by, None)
    }

    /// As [`Engine::commit_by`], for a commit that keeps a transaction or ends a kept one.
    pub fn commit_step(
        &self,
        mut commit: Commit<'_>,
        by: Committer,
        step: Option<&KeptStep>,
    ) -> Result<Receipt> {
        let shared = &*self.shared;
        let begun = Instant::now();
        shared.check_open()?;
        let data_len: usize = commit.data.iter().map(|chunk| chunk.0.len()).sum();
        let inline_max = INLINE_DATA_BYTES_MAX.min(shared.manifest.segment_bytes as usize / 4);
        let prepared = Prepared::new(commit.prepared, || shared.state.load().marks.clone())?;
        let own = Some(commit.snapshot);
        let data = std::mem::take(&mut commit.data);
        let age = by.age;
        let candidate = Candidate::new(&commit, by, step);
        let (receipt, record, queued) = if data_len > inline_max || prepared.is_large() {
            let pieces: Vec<Piece<'_>> = data.iter().map(Piece::from).collect();
            let placed = self.place_ahead(own, true, &pieces)?;
            shared.giving_way(age, || {
                shared.with_space(own, true, || {
                    shared.sequence(&candidate, &prepared, Purpose::Metadata, &[], &[], placed.extents())
                })
            })?
        } else {
            let described = describe(&data)?;
            if commit.durability == Durability::Deferred
                && let Some(receipt) = shared.giving_way(age, || {
                    shared.with_space(own, true, || shared.defer(&candidate, &prepared, &data, &described))
                })?
            {
                shared.counters.commits.fetch_add(1, Ordering::Relaxed);
                shared.counters.data_bytes.fetch_add(data_len as u64, Ordering::Relaxed);
                shared.checkpoint_if_due();
                return Ok(receipt);
            }
            let purpose = if data.is_empty() { Purpose::Metadata } else { Purpose::Data };
            shared.giving_way(age, || {
                shared.with_space(own, true, || {
                    shared.sequence(&candidate, &prepared, purpose, &data, &described, &[])
                })
            })?
        };
        shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        shared.counters.data_bytes.fetch_add(data_len as u64, Ordering::Relaxed);
        match commit.durability {
            Durability::Durable => {
                shared.counters.durable_commits.fetch_add(1, Ordering::Relaxed);
                shared.flush(record, true)?;
                shared.counters.commit_latency.count(begun.elapsed());
            }
            Durability::Ordered | Durability::Deferred => {
                if queued > shared.options.queue_bytes_max {
                    shared.flush(record, false)?;
                } else if commit.durability == Durability::Ordered {
                    shared.wake.notify();
                }
            }
        }
        shared.checkpoint_if_due();
        Ok(receipt)
    }

    /// How large a segment of the log is, in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.manifest.segment_bytes
    }

    /// The last commit that everybody can see. One atomic load.
    pub fn published(&self) -> u64 {
        self.shared.published.load(Ordering::Acquire)
    }

    /// Adds what the commits after `sequence` wrote, oldest first. As long as a snapshot of `sequence`, or of before, is
    /// in use, none of them is missing.
    pub fn written_since(&self, sequence: u64, notes: &mut Vec<(u64, Arc<CommitNote>)>) {
        self.shared.history.lock().since(sequence, notes);
    }

    /// Adds those of the ranges to the report that commits after `snapshot` wrote; as there, a snapshot must be in use.
    pub fn overtaken(
        &self,
        ranges: impl Iterator<Item = ConflictRange>,
        written: bool,
        snapshot: u64,
        report: &mut ConflictReport,
    ) {
        self.shared.history.lock().overtaken(ranges, written, snapshot, report);
    }

    /// Counts a conflict that was found before a commit.
    pub fn count_conflict(&self) {
        self.shared.counters.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns once everything committed so far is on stable storage.
    pub fn sync(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.sync()
    }

    /// Gets ordered commits into the host file, without a flush: they survive the process from then on.
    pub fn write_pending(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.write_pending()
    }

    /// Moves what the log holds into the index, so that recovery starts here.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.check_open()?;
        self.shared.checkpoint()
    }

    /// Flushes everything, makes a checkpoint and gives the volume free. Calling it again does nothing.
    pub fn close(&self) -> Result<()> {
        if let Some(background) = self.background.lock().take() {
            background.stop(&self.shared);
        }
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let flushed = self.shared.sync().and_then(|()| self.shared.checkpoint_if_changed());
        let closed = self.shared.index.close().map_err(EngineError::from);
        *self.shared.lock.lock() = None;
        flushed.and(closed)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("closing the volume: {error}; the next opening recovers from the log");
        }
    }
}

impl Shared {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(EngineError::Closed);
        }
        self.writer.check()
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let target = self.last_record()?;
        self.flush(target, true)
    }

    pub(crate) fn write_pending(&self) -> Result<()> {
        let target = self.last_record()?;
        self.flush(target, false)
    }

    /// The record behind which nothing is left to be written, deferred commits included.
    fn last_record(&self) -> Result<u64> {
        let mut sequencer = self.sequencer.lock();
        self.seal(&mut sequencer)?;
        Ok(sequencer.appender.last_record())
    }

    /// Gets the log up to `record` to the host file, or to stable storage.
    pub(crate) fn flush(&self, record: u64, durable: bool) -> Result<()> {
        self.writer.flush(record, durable, self)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let (state, registration) = self.registry.register(|| self.state.load(), |state| state.sequence);
        Snapshot { state, registration: Arc::new(registration), past: None }
    }

    pub(crate) fn view(&self) -> IndexView {
        self.state.load().view.clone()
    }
}

impl Source for Shared {
    fn cut(&self, begun: &mut dyn FnMut(&[Batch])) -> Vec<Batch> {
        let mut sequencer = self.sequencer.lock();
        let batches = sequencer.appender.cut();
        begun(&batches);
        batches
    }

    fn written(&self, record: u64) {
        self.recent.written_up_to(record);
    }

    fn left_behind(&self) {
        if self.options.background {
            self.wake.maintenance();
        }
    }
}
