//! How a volume is made and opened.

use std::time::Duration;

use crate::error::{EngineError, Result};
use crate::format::CHUNK_BYTES_MAX;

/// Smallest segment: two of the longest chunks, so that any chunk fits into an empty segment.
pub const SEGMENT_BYTES_MIN: u64 = 2 * CHUNK_BYTES_MAX as u64;
/// Largest segment: offsets in a segment are 32 bits wide.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// What is fixed when a volume is created.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Size of each segment file in bytes; a multiple of 4096.
    pub segment_bytes: u64,
    /// Volume id and name-hash key; `None` takes them from the operating system's random generator. Tests fix them.
    pub identity: Option<([u8; 16], [u8; 16])>,
    /// What all segments together may take on the host, in bytes; `None` leaves the host file system to decide. The
    /// index is not counted.
    pub size_bytes_max: Option<u64>,
    /// Segments of this many bytes in all are written with zeros when the volume is made, and kept: until so much is
    /// in use, nothing has to be allocated or filled.
    pub preallocate_bytes: u64,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions { segment_bytes: 32 << 20, identity: None, size_bytes_max: None, preallocate_bytes: 0 }
    }
}

/// The least number of segments that a volume's size limit must have room for: the reserve, the segment that is being
/// filled, and some to clean.
pub const SEGMENTS_MIN: u64 = 8;

impl FormatOptions {
    pub(crate) fn validate(&self) -> Result<()> {
        if !self.segment_bytes.is_multiple_of(4096)
            || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
        {
            return Err(EngineError::InvalidOption(format!(
                "segment size {} is not a multiple of 4096 between {SEGMENT_BYTES_MIN} and {SEGMENT_BYTES_MAX}",
                self.segment_bytes
            )));
        }
        if let Some(size) = self.size_bytes_max
            && (size / self.segment_bytes < SEGMENTS_MIN || self.preallocate_bytes > size)
        {
            return Err(EngineError::InvalidOption(format!(
                "a size of {size} bytes is less than {SEGMENTS_MIN} segments of {}, or than what is to be preallocated",
                self.segment_bytes
            )));
        }
        Ok(())
    }

    pub(crate) fn segments_max(&self) -> u64 {
        self.size_bytes_max.map_or(u64::MAX, |size| size / self.segment_bytes)
    }
}

/// How an opened volume behaves.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Log between checkpoints, in bytes, where each change of a key counts as [`EngineOptions::checkpoint_change_bytes`]
    /// more: so it bounds the time that recovery takes, whether the log holds much data or many small changes.
    pub checkpoint_distance_bytes: u64,
    /// What a change of a key counts for in that distance: it takes as long to replay as reading so many bytes.
    pub checkpoint_change_bytes: u64,
    /// Threads of the engine's own write out ordered commits, flush now and then, make checkpoints and prepare
    /// segments. Off in the simulator, where the caller does each of these, so that a seed replays a run exactly.
    pub background: bool,
    /// Nodes of the index file that are kept in memory at most, in bytes. An index of less takes less.
    pub index_cache_bytes: usize,
    /// Recently written data kept in memory for readers, in bytes.
    pub recent_bytes: usize,
    /// How long an ordered commit may stay in memory.
    pub write_interval: Duration,
    /// How long written data may stay without a flush.
    pub flush_interval: Duration,
    /// Segments kept ready in advance.
    pub spare_segments: usize,
    /// Log bytes waiting in memory above which a commit helps to write them.
    pub queue_bytes_max: usize,
    /// Durable log writes that may be in flight together.
    pub writes_in_flight_max: usize,
    /// How dear a flush must be for that, in microseconds: as many writes may be in flight as this fits into a flush.
    /// Below twice this it is one, and commits that come during a write gather for the next one. 0 means that every
    /// commit begins a write of its own as long as there are fewer than the most.
    pub overlap_flush_us: u64,
    /// How long a commit that finds no space waits for snapshots and open transactions that still see what was deleted
    /// or overwritten: it gives up when none of them has ended for so long. The simulator sets it to nothing where one
    /// thread does everything.
    pub reader_patience: Duration,
    /// Left in the lock file for whoever finds the volume open: the process id as a rule.
    pub owner_note: String,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            checkpoint_distance_bytes: 9 << 20,
            checkpoint_change_bytes: 256,
            background: true,
            index_cache_bytes: 512 << 20,
            recent_bytes: 32 << 20,
            write_interval: Duration::from_millis(5),
            flush_interval: Duration::from_secs(5),
            spare_segments: 2,
            queue_bytes_max: 16 << 20,
            writes_in_flight_max: 32,
            overlap_flush_us: 60,
            reader_patience: Duration::from_secs(5),
            owner_note: format!("process {}", std::process::id()),
        }
    }
}
