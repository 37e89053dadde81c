//! The base of the index: a redb database in the volume's index file, and the checkpoints that write it.
//!
//! # Invariants
//! * Everything that redb commits here is one checkpoint: all its entries and its record, or neither.
//! * Every commit is made with quick repair, which makes it two-phase: pages and allocator state are flushed before
//!   the header refers to them. So after a crash the header's current slot is whole, opening loads the allocator
//!   state instead of walking the tree, and no page is read that was not flushed (which `frames.rs` relies on).
//! * redb refuses all I/O after the first failed one, until the database is opened again. A failed checkpoint is thus
//!   final for this [`IndexStore`]; the same holds for a damaged page, whose error is repeated from then on.
//! * What the checksums of `frames.rs` cannot see is a page whose last write the disk acknowledged and lost: redb may
//!   panic over it, which becomes an error here, or serve what is old. [`IndexStore::verify`] finds such pages.
//!
//! # Locking
//! One mutex holds the database and is held for the whole of a checkpoint, a check and the close. Readers
//! ([`BaseReader`]) hold a read transaction of their own and never take it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, TableDefinition};
use txfs_disk::{Disk, DiskFile};

use super::apply::apply;
use super::frames::{FRAME_BYTES, FramedFile};
use super::overlay::Overlay;
use super::{BaseReader, IndexError, Memtable};

const ENTRIES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("entries");
const CHECKPOINT: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("checkpoint");
const RECORD_KEY: &[u8] = b"record";
const VERIFY_CACHE_BYTES: usize = 16 << 20;

/// Names the index file in errors, and remembers the first one.
pub(super) struct StoreFile {
    name: String,
    first_failure: Mutex<Option<String>>,
    /// Bytes written to it.
    written: Arc<AtomicU64>,
}

impl fmt::Debug for StoreFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl StoreFile {
    /// Calls redb. A page whose last write never reached the disk passes its checksum, being whole but old; redb trusts
    /// it and can panic over what it says. Such a panic is damage like any other to the caller.
    pub(super) fn call<T>(
        &self,
        doing: &'static str,
        operation: impl FnOnce() -> Result<T, redb::Error>,
    ) -> Result<T, IndexError> {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(operation)) {
            Ok(result) => result.map_err(|error| self.failed(doing, error)),
            Err(_) => {
                let what = "its pages contradict each other, as after a write that the disk lost";
                Err(self.failed(doing, redb::Error::Corrupted(what.to_owned())))
            }
        }
    }

    /// Turns an error of redb into ours.
    pub(super) fn failed(&self, doing: &'static str, error: impl Into<redb::Error>) -> IndexError {
        let file = self.name.clone();
        let error = match error.into() {
            redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
                IndexError::Corrupt { file, what: source.to_string() }
            }
            redb::Error::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                IndexError::Corrupt { file, what: "it is truncated: a page lies behind its end".to_owned() }
            }
            redb::Error::Io(source) => IndexError::Io { file, doing, source },
            redb::Error::DatabaseClosed => IndexError::Unusable { file, what: "it was closed".to_owned() },
            redb::Error::PreviousIo => {
                let first = self.first_failure.lock().clone();
                let what = first.unwrap_or_else(|| "an earlier operation on it failed".to_owned());
                return IndexError::Unusable { file, what };
            }
            other => IndexError::Corrupt { file, what: other.to_string() },
        };
        self.first_failure.lock().get_or_insert_with(|| error.to_string());
        error
    }

    fn io(&self, doing: &'static str, source: io::Error) -> IndexError {
        IndexError::Io { file: self.name.clone(), doing, source }
    }

    fn corrupt(&self, what: &str) -> IndexError {
        IndexError::Corrupt { file: self.name.clone(), what: what.to_owned() }
    }
}

/// The open index file.
pub struct IndexStore {
    disk: Arc<dyn Disk>,
    raw: Arc<dyn DiskFile>,
    file: Arc<StoreFile>,
    volume_id: [u8; 16],
    inner: Mutex<Inner>,
}

struct Inner {
    /// `None` after the close.
    database: Option<Database>,
    reader: BaseReader,
    record: Vec<u8>,
}

impl fmt::Debug for IndexStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IndexStore").field("file", &self.file).finish_non_exhaustive()
    }
}

impl IndexStore {
    /// Creates the index file with no entries and an empty record, durably but for its name: the caller syncs the
    /// directory. `cache_bytes` bounds redb's page cache; up to half of it holds what a checkpoint has yet to write.
    pub fn create(
        disk: &Arc<dyn Disk>,
        name: &str,
        volume_id: &[u8; 16],
        cache_bytes: usize,
    ) -> Result<IndexStore, IndexError> {
        let file = Arc::new(StoreFile {
            name: name.to_owned(),
            first_failure: Mutex::default(),
            written: Arc::default(),
        });
        let raw = disk.create(name).map_err(|error| file.io("create", error))?;
        let backend = FramedFile::create(raw.clone(), name, volume_id).counting(&file.written);
        let database = file.call("create", || {
            let database = redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(backend)?;
            write(&database, &Memtable::new(), &[])?;
            Ok(database)
        })?;
        IndexStore::assemble(disk, raw, file, volume_id, database)
    }

    /// Opens the index file as the last checkpoint left it, whether it was closed or not.
    pub fn open(
        disk: &Arc<dyn Disk>,
        name: &str,
        volume_id: &[u8; 16],
        cache_bytes: usize,
    ) -> Result<IndexStore, IndexError> {
        let file = Arc::new(StoreFile {
            name: name.to_owned(),
            first_failure: Mutex::default(),
            written: Arc::default(),
        });
        let raw = disk.open(name).map_err(|error| file.io("open", error))?;
        let backend = FramedFile::open(raw.clone(), name, volume_id)
            .map_err(|error| file.failed("open", redb::Error::Io(error)))?
            .counting(&file.written);
        let database = file.call("open", || {
            Ok(redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(backend)?)
        })?;
        IndexStore::assemble(disk, raw, file, volume_id, database)
    }

    fn assemble(
        disk: &Arc<dyn Disk>,
        raw: Arc<dyn DiskFile>,
        file: Arc<StoreFile>,
        volume_id: &[u8; 16],
        database: Database,
    ) -> Result<IndexStore, IndexError> {
        let (reader, record) = match file.call("read", || read(&database, &file)) {
            Ok((reader, Some(record))) => (reader, record),
            other => {
                // Whatever made that fail may do so again.
                let _ = file.call("close", || Ok(database.close()?));
                other?;
                return Err(file.corrupt("it has no checkpoint record"));
            }
        };
        let inner = Mutex::new(Inner { database: Some(database), reader, record });
        Ok(IndexStore { disk: disk.clone(), raw, file, volume_id: *volume_id, inner })
    }

    /// A reader of the last checkpoint.
    pub fn reader(&self) -> BaseReader {
        self.inner.lock().reader.clone()
    }

    /// The record that the last checkpoint stored; empty before the first one.
    pub fn record(&self) -> Vec<u8> {
        self.inner.lock().record.clone()
    }

    /// Bytes written to the index file since it was opened.
    pub fn bytes_written(&self) -> u64 {
        self.file.written.load(Ordering::Relaxed)
    }

    /// Bytes of the index file.
    pub fn file_bytes(&self) -> Result<u64, IndexError> {
        self.raw.len().map_err(|error| self.file.io("read", error))
    }

    /// Writes all entries and the record, atomically and durably, and returns a reader of the result.
    ///
    /// [`IndexError::NoSpace`] means that nothing was touched and it can be tried again; after any other error it is
    /// unknown whether the checkpoint is in the file, and the store must be opened again.
    pub fn checkpoint(&self, entries: &Memtable, record: &[u8]) -> Result<BaseReader, IndexError> {
        let mut inner = self.inner.lock();
        let Inner { database: Some(database), .. } = &*inner else {
            return Err(self.file.failed("write", redb::Error::DatabaseClosed));
        };
        self.check_space(entries)?;
        self.file.call("write", || write(database, entries, record))?;
        let (reader, _) = self.file.call("read", || read(database, &self.file))?;
        inner.reader = reader.clone();
        inner.record = record.to_vec();
        Ok(reader)
    }

    /// Refuses a checkpoint that could run out of space half-way, because redb could not go on after that.
    fn check_space(&self, entries: &Memtable) -> Result<(), IndexError> {
        let needed_bytes = self.written_bytes_max(entries)?;
        let free_bytes = self.disk.free_bytes().map_err(|error| self.file.io("write", error))?;
        if free_bytes < needed_bytes {
            return Err(IndexError::NoSpace { file: self.file.name.clone(), needed_bytes, free_bytes });
        }
        Ok(())
    }

    /// What a checkpoint writes at most, nearly all of it to places that are free in the file but may be holes.
    pub(crate) fn written_bytes_max(&self, entries: &Memtable) -> Result<u64, IndexError> {
        let frame = FRAME_BYTES as u64;
        // Each entry rewrites at most the leaf it belongs to; branches and redb's own tables are a few per cent.
        let leaves = (self.file_bytes()? / frame).min(entries.len() as u64) * frame;
        Ok(leaves + leaves / 8 + entries.bytes() * 3 + 64 * frame)
    }

    /// Reads all that the last checkpoint refers to and verifies redb's checksums too, which tell pages whose last
    /// write never reached the disk. Returns the number of entries. Checkpoints wait meanwhile; readers do not.
    pub fn verify(&self) -> Result<u64, IndexError> {
        let inner = self.inner.lock();
        if inner.database.is_none() {
            return Err(self.file.failed("read", redb::Error::DatabaseClosed));
        }
        // Errors are those of the copy: they do not make the store itself unusable.
        let copy = StoreFile {
            name: self.file.name.clone(),
            first_failure: Mutex::default(),
            written: Arc::default(),
        };
        let overlay = FramedFile::open(self.raw.clone(), &copy.name, &self.volume_id)
            .and_then(Overlay::new)
            .map_err(|error| copy.failed("read", redb::Error::Io(error)))?;
        copy.call("read", || {
            let database = redb::Builder::new()
                .set_cache_size(VERIFY_CACHE_BYTES)
                .set_check_integrity_on_open(true)
                .create_with_backend(overlay)?;
            let transaction = database.begin_read()?;
            transaction.open_table(CHECKPOINT)?;
            let entries = transaction.open_table(ENTRIES)?;
            let mut count = 0;
            for entry in entries.range::<&[u8]>(..)? {
                entry?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// Closes the file in good order; further calls do nothing. Readers that are still held work only as far as
    /// their pages are in memory.
    pub fn close(&self) -> Result<(), IndexError> {
        let database = self.inner.lock().database.take();
        match database {
            Some(database) => self.file.call("close", || Ok(database.close()?)),
            None => Ok(()),
        }
    }
}

impl Drop for IndexStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("{error}");
        }
    }
}

/// One checkpoint.
fn write(database: &Database, entries: &Memtable, record: &[u8]) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        apply(&mut transaction.open_table(ENTRIES)?, entries)?;
        transaction.open_table(CHECKPOINT)?.insert(RECORD_KEY, record)?;
    }
    transaction.commit()?;
    Ok(())
}

/// The state of the last commit.
fn read(database: &Database, file: &Arc<StoreFile>) -> Result<(BaseReader, Option<Vec<u8>>), redb::Error> {
    let transaction = database.begin_read()?;
    let reader = BaseReader::new(transaction.open_table(ENTRIES)?, file.clone())?;
    let record = transaction.open_table(CHECKPOINT)?.get(RECORD_KEY)?.map(|value| value.value().to_vec());
    Ok((reader, record))
}
