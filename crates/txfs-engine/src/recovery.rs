//! Making a volume, and opening one: from whatever a crash left behind to a running engine.
//!
//! Opening reads the manifest, takes the lock, opens the index at its last checkpoint and replays the log from there
//! to the first record that is not whole. Before anything new is written, the manifest gets a new epoch, so that
//! records which this recovery did not accept can never be taken for continuations of what is written from now on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use txfs_disk::{Disk, LockOutcome};

use crate::checkpoint::Checkpoints;
use crate::engine::{Counters, Engine, Shared};
use crate::error::{EngineError, Result};
use crate::format::segment::SEGMENT_HEADER_BYTES;
use crate::format::{CheckpointRecord, Manifest, Mutation, SegmentHeader};
use crate::index::{IndexStore, IndexView, Memtable};
use crate::log::appender::{Appender, Tail};
use crate::log::bulk::BulkLayout;
use crate::log::pool::Purpose;
use crate::log::reader::{LogEnd, LogReader};
use crate::log::{LogWriter, Overlap, RecentData, Segment, SegmentPool};
use crate::manifest_file;
use crate::named::Marks;
use crate::options::{EngineOptions, FormatOptions, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::replay::Replay;
use crate::sequencer::{LiveBytes, Sequencer};
use crate::txn::claims::ClaimTable;
use crate::txn::deferred::{DeferredData, Group};
use crate::txn::history::ConflictHistory;
use crate::txn::registry::SnapshotRegistry;
use crate::txn::snapshot::{Published, State};

/// Name of the index file.
pub(crate) const INDEX_NAME: &str = "index";
/// Name of the lock file.
const LOCK_NAME: &str = "LOCK";
/// Names that only a volume has.
const OWN_NAMES: [&str; 2] = [INDEX_NAME, manifest_file::NAME];

/// What opening a volume found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Log records after the checkpoint; none after a clean close.
    pub records_replayed: u64,
    /// Commits among them.
    pub commits_replayed: u64,
    /// Changes of keys in those.
    pub changes_replayed: u64,
    /// Bytes of those records.
    pub bytes_replayed: u64,
    /// How long opening took altogether, in microseconds.
    pub open_us: u64,
    /// How much of that went into reading and replaying the log, in microseconds.
    pub replay_us: u64,
}

impl RecoveryReport {
    /// True when there was nothing to replay.
    pub fn clean(&self) -> bool {
        self.records_replayed == 0
    }
}

impl Engine {
    /// Makes a volume that holds `initial`. The manifest comes last: a volume is either complete or none.
    pub fn create(disk: &Arc<dyn Disk>, options: &FormatOptions, initial: &[Mutation]) -> Result<()> {
        options.validate()?;
        let names = disk.list().map_err(|error| EngineError::io("listing the directory", error))?;
        if let Some(name) = names.iter().find(|name| OWN_NAMES.contains(&name.as_str())) {
            let detail = format!("there is a volume already (it has a file {name}); remove it first");
            return Err(EngineError::AlreadyExists { detail });
        }
        let (volume_id, name_key) = match options.identity {
            Some(identity) => identity,
            None => (random()?, random()?),
        };
        let manifest = Manifest {
            volume_id,
            name_key,
            segment_bytes: options.segment_bytes,
            epoch: 0,
            epoch_first_record: 1,
            size_bytes_max: options.size_bytes_max.unwrap_or(0),
            preallocated_bytes: options.preallocate_bytes,
        };
        let pool = SegmentPool::new(disk.clone(), options.segment_bytes, options.segments_max());
        let segment = pool.take(&|_, _| true, 0, Purpose::Metadata)?;
        let header = SegmentHeader { volume_id, segment: segment.id, first_record: 1, epoch: 0, chain: 0 };
        segment
            .file
            .write_at(0, &header.encode())
            .and_then(|()| segment.file.sync())
            .map_err(|error| EngineError::io(format!("writing {}", segment.name()), error))?;

        let mut entries = Memtable::new();
        for mutation in initial {
            entries.put(mutation.key(), mutation.value());
        }
        let record = CheckpointRecord {
            chain: 0,
            sequence: 0,
            next_record: 1,
            epoch: 0,
            segment: segment.id,
            offset: SEGMENT_HEADER_BYTES as u32,
            live_bytes: Vec::new(),
        };
        let index = IndexStore::create(disk, INDEX_NAME, &volume_id, 1 << 20)?;
        index.checkpoint(&entries, &record.encode())?;
        index.close()?;
        pool.preallocate(options.preallocate_bytes / options.segment_bytes)?;
        disk.sync_directory().map_err(|error| EngineError::io("syncing the directory", error))?;
        manifest_file::replace(&**disk, &manifest)
    }

    /// Opens a volume and recovers it.
    pub fn open(disk: Arc<dyn Disk>, options: EngineOptions) -> Result<Engine> {
        let begun = Instant::now();
        let mut manifest = manifest_file::read(&*disk)?;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&manifest.segment_bytes) {
            let detail = format!("it says that segments have {} bytes", manifest.segment_bytes);
            return Err(EngineError::Corrupt { place: manifest_file::NAME.into(), detail });
        }
        let taken = disk.try_lock(LOCK_NAME, &options.owner_note);
        let lock = match taken.map_err(|error| EngineError::io("taking the volume's lock", error))? {
            LockOutcome::Acquired(guard) => guard,
            LockOutcome::Held { owner } => return Err(EngineError::AlreadyOpen { owner }),
        };
        // Read again under the lock: the last owner may just have been closing.
        manifest = manifest_file::read(&*disk).unwrap_or(manifest);

        let index = open_index(&disk, &manifest, &options)?;
        let checkpoint = CheckpointRecord::decode(&index.record())
            .map_err(|error| EngineError::corrupt(INDEX_NAME, &error))?;
        let pool = SegmentPool::new(disk.clone(), manifest.segment_bytes, manifest.segments_max());
        let referred: BTreeSet<u64> = referred(&checkpoint).collect();
        pool.open_all(&|id| referred.contains(&id))?;
        if let Some(id) = referred.iter().find(|id| pool.get(**id).is_none()) {
            return Err(EngineError::MissingFile { name: Segment::file_name(*id) });
        }

        let view = IndexView { active: Memtable::new(), frozen: None, base: index.reader() };
        let replay_begun = Instant::now();
        let mut replayed = replay(&pool, &manifest, &checkpoint, view, options.background)?;
        replayed.report.replay_us = replay_begun.elapsed().as_micros() as u64;
        release_unused(&pool, &checkpoint, &replayed);

        manifest.epoch += 1;
        manifest.epoch_first_record = replayed.end.next_record;
        manifest_file::replace(&*disk, &manifest)?;
        let end = &replayed.end;
        let tail = Tail {
            segment: end.segment.id,
            offset: end.offset,
            next_record: end.next_record,
            chain: end.chain,
        };
        let sector_bytes = disk.capabilities().sector_bytes;
        let overlap =
            Overlap { writes_max: options.writes_in_flight_max.max(1), flush_us: options.overlap_flush_us };
        let writer = LogWriter::new(end.next_record - 1, overlap);
        let durable = writer.durable().clone();
        let appender = Appender::new(manifest.clone(), sector_bytes, end.segment.clone(), tail, durable);
        let bulk = BulkLayout::new(sector_bytes, manifest.segment_bytes);
        let log_bytes = replayed.report.bytes_replayed;
        let sequencer = Sequencer {
            sequence: replayed.sequence,
            appender,
            claims: ClaimTable::default(),
            live: replayed.live,
            epoch: manifest.epoch,
            group: Group::new(),
            segments_left: 0,
            forgot_placed_at: 0,
            room_least: 0,
            room_wanted: 0,
        };
        replayed.report.open_us = begun.elapsed().as_micros() as u64;
        let marks = Marks::load(&replayed.view)?;
        let state = State { sequence: replayed.sequence, view: replayed.view, marks };
        let shared = Shared {
            recent: RecentData::new(options.recent_bytes),
            deferred: DeferredData::default(),
            log_bytes_since_checkpoint: AtomicU64::new(log_bytes),
            changes_since_checkpoint: AtomicU64::new(replayed.report.changes_replayed),
            bulk,
            writer,
            disk,
            options,
            manifest,
            recovery: replayed.report,
            published: AtomicU64::new(state.sequence),
            state: Published::new(state),
            claims_ended: Condvar::new(),
            history: Mutex::new(ConflictHistory::default()),
            sequencer: Mutex::new(sequencer),
            registry: Arc::new(SnapshotRegistry::default()),
            pool,
            index,
            checkpointing: Mutex::new(Checkpoints::default()),
            cleaning: Mutex::default(),
            live_bytes_max: AtomicU64::new(u64::MAX),
            placed_ahead: AtomicU64::new(0),
            space_is_short: AtomicBool::new(false),
            counters: Counters::default(),
            wake: Default::default(),
            closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        };
        Engine::start(Arc::new(shared))
    }
}

/// Segments without which the checkpoint is incomplete: its position, and all with live bytes.
fn referred(checkpoint: &CheckpointRecord) -> impl Iterator<Item = u64> + '_ {
    std::iter::once(checkpoint.segment).chain(checkpoint.live_bytes.iter().map(|(id, _)| *id))
}

fn open_index(disk: &Arc<dyn Disk>, manifest: &Manifest, options: &EngineOptions) -> Result<IndexStore> {
    let names = disk.list().map_err(|error| EngineError::io("listing the volume", error))?;
    if !names.iter().any(|name| name == INDEX_NAME) {
        return Err(EngineError::MissingFile { name: INDEX_NAME.into() });
    }
    Ok(IndexStore::open(disk, INDEX_NAME, &manifest.volume_id, options.index_cache_bytes)?)
}

struct Replayed {
    view: IndexView,
    live: LiveBytes,
    sequence: u64,
    end: LogEnd,
    report: RecoveryReport,
}

/// Applies every commit after the checkpoint, and flushes what it found: it may so far be only in the host's cache,
/// and what is committed next must not become durable before it.
fn replay(
    pool: &SegmentPool,
    manifest: &Manifest,
    checkpoint: &CheckpointRecord,
    view: IndexView,
    threads: bool,
) -> Result<Replayed> {
    // A segment with live data at the checkpoint is not used again before the next one, so nothing newer is in it: in a
    // large volume that is nearly all of them, and none of their files is opened.
    let live_then: BTreeSet<u64> = checkpoint.live_bytes.iter().map(|(id, _)| *id).collect();
    let mut segments = pool.all();
    segments.retain(|segment| segment.id == checkpoint.segment || !live_then.contains(&segment.id));
    let start = pool
        .get(checkpoint.segment)
        .ok_or_else(|| EngineError::MissingFile { name: Segment::file_name(checkpoint.segment) })?;
    let mut replay = Replay::new(checkpoint, view);
    let reader = LogReader::new(manifest, &segments, checkpoint);
    let end = replay.run(reader, start, u64::from(checkpoint.offset), threads)?;
    let mut report = RecoveryReport {
        commits_replayed: replay.commits,
        changes_replayed: replay.changes,
        ..RecoveryReport::default()
    };
    report.records_replayed = end.records;
    report.bytes_replayed = end.bytes;
    if end.records > 0 {
        for segment in &end.visited {
            let doing = || format!("flushing {}", segment.name());
            segment.file.sync().map_err(|error| EngineError::io(doing(), error))?;
        }
    }
    let Replay { view, live, sequence, .. } = replay;
    Ok(Replayed { view, live, sequence, end, report })
}

/// Puts every segment among the spare ones to which neither the checkpoint nor the replayed log refers.
fn release_unused(pool: &SegmentPool, checkpoint: &CheckpointRecord, replayed: &Replayed) {
    let durable = LiveBytes::from_list(&checkpoint.live_bytes);
    for segment in pool.all() {
        let live = durable.of(segment.id) > 0 || replayed.live.of(segment.id) > 0;
        let visited = replayed.end.visited.iter().any(|visited| visited.id == segment.id);
        if !live && !visited {
            pool.release(&segment);
        }
    }
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        EngineError::io(
            "asking the operating system for random bytes",
            std::io::Error::other(error.to_string()),
        )
    })?;
    Ok(bytes)
}
