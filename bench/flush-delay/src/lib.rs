//! Dear flushes for any program: `LD_PRELOAD=libtxfs_flush_delay.so TXFS_BENCH_FLUSH_DELAY_US=1000 program`.
//!
//! The library stands in front of the C library's calls that wait for a device (fsync, fdatasync, sync, syncfs, msync
//! with MS_SYNC, sync_file_range that waits, pwritev2 with RWF_DSYNC or RWF_SYNC, and writes to descriptors opened with
//! O_DSYNC or O_SYNC). Each is counted, and when it has succeeded the calling thread sleeps for the delay before it
//! returns. So all programs meet the same drive, whose flushes take that much longer.
//!
//! Two environment variables steer it:
//! * `TXFS_BENCH_FLUSH_DELAY_US`: the delay at the start, in microseconds.
//! * `TXFS_BENCH_FLUSH_CONTROL`: a file, shared by all programs that are given it, that holds the delay and the counts
//!   (`layout.rs`). Whoever measures reads the counts and changes the delay there, while the programs run.
//!
//! What it cannot see: system calls that a program makes without the C library, io_uring, writes that the C library
//! makes for itself (stdio on a descriptor with O_SYNC), statically linked programs. Hence the counts: none seen means
//! that nothing was delayed. A flush on a FUSE mount is neither counted nor delayed, since it is a message: the server
//! that answers it makes the flush, and pays for it there. A sync_file_range that only starts writing is no flush
//! either.

mod calls;
mod control;
mod fuse;
#[allow(dead_code)] // the offsets are for those who measure
mod layout;
mod pause;
