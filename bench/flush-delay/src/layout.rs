//! What stands where in the control file, for the preloaded library and for those who measure with it.
//!
//! The file is one page of little-endian 64-bit words. All preloaded programs map it; whoever measures reads the counts
//! and writes the delay through ordinary file I/O, which Linux keeps coherent with mappings of the same file.

/// Size of the file; whoever makes it fills it with zeros.
pub const CONTROL_BYTES: usize = 4096;
/// Environment variable with the path of the control file.
pub const CONTROL_VARIABLE: &str = "TXFS_BENCH_FLUSH_CONTROL";
/// Environment variable with the delay at the start, in microseconds.
pub const DELAY_VARIABLE: &str = "TXFS_BENCH_FLUSH_DELAY_US";
/// Where the delay stands in the file, in bytes from its start: nanoseconds that each flush is prolonged by.
pub const DELAY_OFFSET: usize = 0;
/// Where the count of programs stands that have mapped the file.
pub const PROGRAMS_OFFSET: usize = 8;
/// Where the counts begin, one word for each [`Call`].
pub const COUNTS_OFFSET: usize = 64;

/// What a flush was asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// fsync
    Fsync,
    /// fdatasync
    Fdatasync,
    /// sync_file_range that waits
    SyncFileRange,
    /// sync and syncfs
    Sync,
    /// msync with MS_SYNC
    Msync,
    /// a write with RWF_DSYNC or RWF_SYNC, or to a descriptor with O_DSYNC or O_SYNC
    SynchronousWrite,
}

impl Call {
    /// All of them, in the order of their counts.
    pub const ALL: [Call; 6] =
        [Call::Fsync, Call::Fdatasync, Call::SyncFileRange, Call::Sync, Call::Msync, Call::SynchronousWrite];
}
