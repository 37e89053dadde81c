//! The few I/O verbs that the TxFS engine needs, and the two disks that provide them.
//!
//! A [`Disk`] is one directory of files: the volume. [`host::HostDisk`] is a directory on an ordinary host file
//! system; [`sim::SimulatedDisk`] is memory that loses power, tears writes and flips bits from a seed.
//!
//! # What a caller may rely on, and what not
//! * After [`DiskFile::write_at`] or [`DiskFile::write_log`] without `durable`, the data is readable at once and
//!   survives the death of the process, but a power cut may keep any subset of its sectors, in any order.
//! * [`DiskFile::sync`] makes everything written to *this file* so far durable, its length included.
//! * [`DiskFile::write_log`] with `durable` makes *this write only* durable (the drive may have used a
//!   forced-unit-access write): earlier writes that were not synced stay in doubt.
//! * Creating, renaming and removing names is durable only after [`Disk::sync_directory`].
//! * Sectors are atomic: after a power cut a sector holds its old or its new bytes, never a mixture.
//! * After any failed flush nothing more may be assumed of the file: the caller must stop acknowledging.

mod arguments;
pub mod buffer;
mod error;
pub mod host;
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

pub use buffer::AlignedBuffer;
pub use error::{HostError, errno};

/// The atomic unit of a write, in bytes. Log writes start and end on multiples of the disk's
/// [`Capabilities::sector_bytes`], which is this or a larger power of two up to 4096.
pub const SECTOR_BYTES_MIN: usize = 512;

/// How a disk carries out log writes; found by probing when the disk is opened, shown by `txfs stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Unit and alignment of log writes, in bytes (512 to 4096, a power of two).
    pub sector_bytes: usize,
    /// Log writes bypass the page cache (`O_DIRECT`).
    pub direct: bool,
    /// A durable log write is one call (`RWF_DSYNC`) rather than a write and an `fdatasync`.
    pub data_sync_writes: bool,
    /// The host file system, for people: `ext4`, `tmpfs`, `simulated` ...
    pub description: String,
}

/// What [`Disk::try_lock`] found.
#[derive(Debug)]
pub enum LockOutcome {
    /// The volume is ours until the guard is dropped.
    Acquired(Box<dyn LockGuard>),
    /// Another process owns it; `owner` is the note that it left (its pid), possibly empty.
    Held {
        /// The note of the process that holds the lock.
        owner: String,
    },
}

/// Holds a volume's exclusive lock; dropping it releases the lock.
pub trait LockGuard: Debug + Send + Sync {}

/// A directory of files. Names are plain file names without separators.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens an existing file for reading and writing; `NotFound` when there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file; `AlreadyExists` when the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// As [`Disk::open`], for a file of which there may be thousands: it need not stay open while nobody uses it. Its
    /// name must not be renamed or given to another file as long as this is held.
    fn open_one_of_many(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open(name)
    }
    /// As [`Disk::create`]; otherwise as [`Disk::open_one_of_many`].
    fn create_one_of_many(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.create(name)
    }
    /// Renames `from` to `to`, replacing what `to` named, atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// All names, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes creations, renames and removals so far durable.
    fn sync_directory(&self) -> io::Result<()>;
    /// Free space for new data, in bytes.
    fn free_bytes(&self) -> io::Result<u64>;
    /// How log writes are carried out here.
    fn capabilities(&self) -> Capabilities;
    /// Takes the exclusive lock on `name` (created where missing) without waiting, and leaves `note` in it.
    fn try_lock(&self, name: &str, note: &str) -> io::Result<LockOutcome>;
}

/// One open file. All offsets and lengths are in bytes.
pub trait DiskFile: Debug + Send + Sync + 'static {
    /// Length of the file.
    fn len(&self) -> io::Result<u64>;
    /// True when the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Grows (with zeros) or cuts the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Fills `buffer` exactly; `UnexpectedEof` past the end. Sees all earlier writes, log writes included.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Says that this range will be read soon; where the host can, it fetches it meanwhile. Nothing depends on it.
    fn expect_read(&self, _offset: u64, _len: u64) {}
    /// Writes `data`, growing the file where needed; any alignment.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Writes whole sectors of the log; `offset` and the buffer's length are multiples of the sector size, and the
    /// range lies within the file. See the crate's documentation for what `durable` promises.
    fn write_log(&self, offset: u64, data: &AlignedBuffer, durable: bool) -> io::Result<()> {
        self.write_log_vectored(offset, &[data], durable)
    }
    /// As [`DiskFile::write_log`], for bytes that lie in several buffers and follow each other in the file: one write,
    /// with at most one flush. Each buffer's length is a multiple of the sector size.
    fn write_log_vectored(&self, offset: u64, data: &[&AlignedBuffer], durable: bool) -> io::Result<()>;
    /// Flushes everything written to this file to stable storage.
    fn sync(&self) -> io::Result<()>;
}
