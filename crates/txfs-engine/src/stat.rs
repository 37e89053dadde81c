//! Figures about an open volume, for `txfs stat` and for tests.

use std::sync::atomic::Ordering;

use txfs_disk::Capabilities;

use crate::engine::Engine;
use crate::error::Result;
use crate::latency::LatencyStat;
use crate::recovery::RecoveryReport;

/// Figures about an open volume; counts are since it was opened.
#[derive(Clone, Debug)]
pub struct EngineStat {
    /// How log writes are carried out.
    pub capabilities: Capabilities,
    /// What opening found.
    pub recovery: RecoveryReport,
    /// Number of the last commit.
    pub sequence: u64,
    /// How often the volume has been opened.
    pub epoch: u64,
    /// Commits.
    pub commits: u64,
    /// Commits that waited for a flush.
    pub durable_commits: u64,
    /// Deferred commits that share their log record with a later one.
    pub commits_merged: u64,
    /// File data of deferred commits that was dead before it was written, bytes.
    pub deferred_bytes_dropped: u64,
    /// File data of deferred commits that is in memory only, or kept there for snapshots, bytes.
    pub deferred_bytes: u64,
    /// Commits refused because of a conflict.
    pub conflicts: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// How long durable commits took, from the call to the acknowledgement.
    pub durable_commit_latency: LatencyStat,
    /// File data in commits, and data placed ahead of them, bytes.
    pub data_bytes: u64,
    /// Log writes.
    pub log_writes: u64,
    /// Bytes of log writes, headers and padding included.
    pub log_bytes: u64,
    /// Flushes of the log.
    pub flushes: u64,
    /// The most log writes that were in flight together.
    pub log_writes_in_flight_max: u64,
    /// Bytes written to the index file.
    pub index_bytes_written: u64,
    /// Log bytes since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    /// What recovery would have to replay, in the unit of [`crate::EngineOptions::checkpoint_distance_bytes`].
    pub replay_distance_bytes: u64,
    /// Entries of the index that are only in memory and in the log.
    pub memtable_entries: u64,
    /// Size of each segment, bytes.
    pub segment_bytes: u64,
    /// Segment files.
    pub segments: u64,
    /// Segments ready for use.
    pub segments_spare: u64,
    /// Segments that become spare when older snapshots are gone.
    pub segments_retired: u64,
    /// Segments that hold placed data of transactions that have not committed.
    pub segments_pinned: u64,
    /// Segments that file data never gets.
    pub segments_reserved: u64,
    /// What all segments together may take, bytes; none when only the host limits it.
    pub size_bytes_max: Option<u64>,
    /// Bytes of file data in use.
    pub live_bytes: u64,
    /// Bytes in segments in use that hold nothing of use: cleaning sets them free.
    pub dead_bytes: u64,
    /// Segments that were cleaned.
    pub segments_cleaned: u64,
    /// File data that cleaning moved, bytes.
    pub bytes_moved: u64,
    /// Size of the index file, bytes.
    pub index_bytes: u64,
    /// Free space on the host file system, bytes.
    pub free_bytes: u64,
    /// Snapshots in use.
    pub snapshots: u64,
    /// Ranges remembered for finding conflicts.
    pub conflict_ranges: u64,
    /// Why the volume takes no more changes, if it does not.
    pub poisoned: Option<String>,
}

impl EngineStat {
    /// Bytes that the engine wrote, log and index, for each byte of file data; none before there was any data. Spare
    /// segments that were filled with zeros ahead are not in it: they are written once and used many times.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = (self.log_bytes + self.index_bytes_written) as f64;
        (self.data_bytes > 0).then(|| written / self.data_bytes as f64)
    }

    /// Commits for each log write: how large the groups were that shared one.
    pub fn commits_per_log_write(&self) -> Option<f64> {
        (self.log_writes > 0).then(|| self.commits as f64 / self.log_writes as f64)
    }
}

impl Engine {
    /// Figures as of now.
    pub fn stat(&self) -> Result<EngineStat> {
        let shared = &*self.shared;
        let io = |error| crate::EngineError::io("measuring free space", error);
        let view = shared.view();
        let (segments, spare, retired) = shared.pool.counts();
        let in_use = shared.pool.in_use();
        let used_bytes = in_use.len() as u64 * shared.manifest.segment_bytes;
        let pinned = in_use.iter().filter(|segment| segment.is_pinned()).count();
        let written = shared.writer.statistics();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (sequence, since, live_bytes, ranges) = {
            let sequencer = shared.sequencer.lock();
            let since = shared.log_bytes_since_checkpoint();
            (sequencer.sequence, since, sequencer.live.total(), shared.history.lock().len())
        };
        Ok(EngineStat {
            capabilities: shared.disk.capabilities(),
            recovery: shared.recovery.clone(),
            sequence,
            epoch: shared.manifest.epoch,
            commits: count(&shared.counters.commits),
            durable_commits: count(&shared.counters.durable_commits),
            commits_merged: count(&shared.counters.commits_merged),
            deferred_bytes_dropped: count(&shared.counters.deferred_bytes_dropped),
            deferred_bytes: shared.deferred.bytes(),
            conflicts: count(&shared.counters.conflicts),
            checkpoints: count(&shared.counters.checkpoints),
            durable_commit_latency: shared.counters.commit_latency.stat(),
            data_bytes: count(&shared.counters.data_bytes),
            log_writes: written.writes,
            log_bytes: written.bytes,
            flushes: written.flushes,
            log_writes_in_flight_max: written.in_flight_max,
            index_bytes_written: shared.index.bytes_written(),
            log_bytes_since_checkpoint: since,
            replay_distance_bytes: shared.replay_distance(),
            memtable_entries: (view.active.len() + view.frozen.map_or(0, |frozen| frozen.len())) as u64,
            segment_bytes: shared.manifest.segment_bytes,
            segments: segments as u64,
            segments_spare: spare as u64,
            segments_retired: retired as u64,
            segments_pinned: pinned as u64,
            segments_reserved: crate::log::pool::RESERVED_SEGMENTS,
            size_bytes_max: Some(shared.manifest.size_bytes_max).filter(|size| *size > 0),
            live_bytes,
            dead_bytes: used_bytes.saturating_sub(live_bytes),
            segments_cleaned: count(&shared.counters.segments_cleaned),
            bytes_moved: count(&shared.counters.bytes_moved),
            index_bytes: shared.index.file_bytes()?,
            free_bytes: shared.disk.free_bytes().map_err(io)?,
            snapshots: shared.registry.len() as u64,
            conflict_ranges: ranges as u64,
            poisoned: shared.writer.check().err().map(|error| error.to_string()),
        })
    }
}
