//! What `txfs stat` shows of a volume, mounted or not, as JSON. Names end in their units.

use crate::session::Shared;
use serde_json::{Map, Value, json};
use txfs::VolumeStat;

/// Statistics of volume and mount.
pub(super) fn of(shared: &Shared) -> Result<Value, txfs::Error> {
    let filesystem = &shared.filesystem;
    let mut stat = volume_stat(&filesystem.views.volume().stat()?);
    let messages: Map<String, Value> = filesystem
        .counts
        .nonzero()
        .into_iter()
        .map(|(name, count)| (name.to_string(), json!(count)))
        .collect();
    let (groups, members) = filesystem.groups.count();
    stat["mount"] = json!({
        "mountpoint": shared.mountpoint.to_string_lossy(),
        "threads": shared.options.threads,
        "nodes_known": filesystem.views.base().nodes.len(),
        "views_open": filesystem.views.transactions().len(),
        "views_known": filesystem.views.known(),
        "file_groups": groups,
        "file_group_members": members,
        "messages_total": filesystem.counts.total(),
        "messages": messages,
    });
    Ok(stat)
}

/// Statistics of a volume by itself; counts are since it was opened.
pub fn volume_stat(stat: &VolumeStat) -> Value {
    let id: String = stat.volume_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (space, engine) = (&stat.statistics, &stat.engine);
    json!({
        "volume": {
            "id": id,
            "sequence": stat.sequence,
            "opened_times": engine.epoch,
            "transactions_open": stat.transactions_open,
            "transactions_buffered_bytes": stat.buffered_bytes,
            "nodes_in_use": stat.nodes_in_use,
            "snapshots": engine.snapshots,
            "named_snapshots": stat.snapshots,
            "named_snapshots_data_bytes": stat.snapshot_data_bytes,
            "named_snapshots_metadata_bytes": stat.snapshot_metadata_bytes,
            "block_bytes": space.block_bytes,
            "blocks_total": space.blocks_total,
            "blocks_free": space.blocks_free,
            "blocks_available": space.blocks_available,
            "files_total": space.files_total,
            "failure": engine.poisoned,
        },
        "space": {
            "total_bytes": u64::from(space.block_bytes) * space.blocks_total,
            "free_bytes": u64::from(space.block_bytes) * space.blocks_available,
            "live_bytes": engine.live_bytes,
            "dead_bytes": engine.dead_bytes,
            "host_free_bytes": engine.free_bytes,
            "size_limit_bytes": engine.size_bytes_max,
            "segment_bytes": engine.segment_bytes,
            "segments": engine.segments,
            "segments_spare": engine.segments_spare,
            "segments_retired": engine.segments_retired,
            "segments_pinned": engine.segments_pinned,
            "segments_reserved": engine.segments_reserved,
        },
        "history": {
            "commits": stat.history_commits,
            "undoable": stat.history_undoable,
            "kept_bytes": stat.history_bytes,
            "limit_bytes": stat.history_bytes_max,
        },
        "cleaning": {
            "segments_cleaned": engine.segments_cleaned,
            "moved_bytes": engine.bytes_moved,
        },
        "io": {
            "host_file_system": engine.capabilities.description,
            "direct": engine.capabilities.direct,
            "data_sync_writes": engine.capabilities.data_sync_writes,
            "sector_bytes": engine.capabilities.sector_bytes,
        },
        "recovery": {
            "clean": engine.recovery.clean(),
            "records_replayed": engine.recovery.records_replayed,
            "open_us": engine.recovery.open_us,
            "replay_us": engine.recovery.replay_us,
            "commits_replayed": engine.recovery.commits_replayed,
            "replayed_bytes": engine.recovery.bytes_replayed,
        },
        "commits": {
            "commits": engine.commits,
            "durable_commits": engine.durable_commits,
            "conflicts": engine.conflicts,
            "data_bytes": engine.data_bytes,
            "commits_per_log_write": engine.commits_per_log_write().map(rounded),
            "write_amplification": engine.write_amplification().map(rounded),
        },
        "durable_commit_latency": {
            "count": engine.durable_commit_latency.count,
            "median_us": rounded(engine.durable_commit_latency.p50_us),
            "p90_us": rounded(engine.durable_commit_latency.p90_us),
            "p99_us": rounded(engine.durable_commit_latency.p99_us),
            "p999_us": rounded(engine.durable_commit_latency.p999_us),
            "longest_us": rounded(engine.durable_commit_latency.max_us),
        },
        "log": {
            "writes": engine.log_writes,
            "written_bytes": engine.log_bytes,
            "flushes": engine.flushes,
            "since_checkpoint_bytes": engine.log_bytes_since_checkpoint,
        },
        "index": {
            "checkpoints": engine.checkpoints,
            "index_bytes": engine.index_bytes,
            "written_bytes": engine.index_bytes_written,
            "memory_entries": engine.memtable_entries,
        },
    })
}

/// Two digits behind the point: more mean nothing.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
