//! The open index file: creating, opening, checkpoints.
//!
//! # Invariants
//! * A checkpoint writes its nodes to places where nothing lies that is in force, flushes them, then writes the header and
//!   flushes that. So the header never refers to what is not on stable storage, and a crash leaves the old or the new
//!   tree, whole.
//! * What an opening found stays: it is flushed before it is read.
//! * After a failed write or flush it is unknown what the file holds: nothing more is written until it is opened again.
//!   Readers of what was there before go on.
//!
//! # Locking
//! One mutex is held for the whole of a checkpoint. Readers ([`BaseReader`]) never take it, and neither does who asks what a
//! checkpoint may need ([`IndexStore::written_bytes_max`]): commits do that, and would wait for a checkpoint's flushes. What
//! that takes stands behind a lock of its own, a leaf.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use txfs_disk::Disk;

use super::file::IndexFile;
use super::header::{Header, Sizes};
use super::node::{Change, Node};
use super::output::Output;
use super::pointer::{Pointer, SECTOR_BYTES};
use super::reader::{BaseReader, Version};
use super::rebuild::{LEVELS_MAX, Rebuild};
use super::regions::{Regions, Victims};
use super::{BRANCH_BYTES_MAX, LEAF_BYTES_MAX};
use crate::index::{IndexError, Memtable};

/// The longest table or record that is read.
const PIECE_BYTES_MAX: u64 = 1 << 30;

/// The open index file.
pub struct IndexStore {
    disk: Arc<dyn Disk>,
    file: Arc<IndexFile>,
    inner: Mutex<Inner>,
    need: Mutex<Need>,
}

/// What the need of space for a checkpoint follows from: what the last one left.
#[derive(Clone, Copy)]
struct Need {
    sizes: Sizes,
    level: u8,
    table_bytes: u64,
    record_bytes: u64,
    /// Bytes that had been written to the file when the checkpoint in progress began.
    written_before: Option<u64>,
    /// What it writes more, because it moves what is live in sparse regions.
    moving_bytes: u64,
}

struct Inner {
    header: Header,
    regions: Regions,
    reader: BaseReader,
    record: Vec<u8>,
    /// Versions that may still be read, oldest first.
    versions: Vec<Weak<Version>>,
}

impl fmt::Debug for IndexStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IndexStore").field("file", &self.file).finish_non_exhaustive()
    }
}

impl IndexStore {
    /// Creates the index file with no entries and an empty record, durably but for its name: the caller syncs the
    /// directory. `cache_bytes` bounds the nodes that are kept in memory.
    pub fn create(
        disk: &Arc<dyn Disk>,
        name: &str,
        volume_id: &[u8; 16],
        cache_bytes: usize,
    ) -> Result<IndexStore, IndexError> {
        let raw = disk.create(name).map_err(refused("create", name))?;
        let file = Arc::new(IndexFile::new(raw, name, volume_id, cache_bytes));
        let mut output = Output::new(&file, Regions::new(), Sizes::default());
        let root = output.node(Node::build(0, std::iter::empty()), 0)?;
        let (header, regions) = write_end(&file, output, Header::default(), (root, 0), 0, &[])?;
        IndexStore::assemble(disk, file, header, 0, regions, Vec::new())
    }

    /// Opens the index file as the last checkpoint left it, whether it was closed or not.
    pub fn open(
        disk: &Arc<dyn Disk>,
        name: &str,
        volume_id: &[u8; 16],
        cache_bytes: usize,
    ) -> Result<IndexStore, IndexError> {
        let raw = disk.open(name).map_err(refused("open", name))?;
        let file = Arc::new(IndexFile::new(raw, name, volume_id, cache_bytes));
        // A killed process may have left a header that is not on stable storage yet. Who opens goes by it, so it must not
        // be lost to a power cut afterwards.
        file.sync()?;
        let header = Header::decode(&file.read_header()?, file.seed).map_err(|what| file.corrupt(what))?;
        let table = file.read(&header.regions, PIECE_BYTES_MAX)?;
        let regions = Regions::decode(&table, header.position).map_err(|what| file.corrupt(what))?;
        let record = match header.record.len {
            0 => Vec::new(),
            _ => file.read(&header.record, PIECE_BYTES_MAX)?,
        };
        // The root says itself how high the tree is; its bytes are covered by the header's checksum.
        let root = file.read(&header.root, super::NODE_BYTES_MAX as u64)?;
        let level = root.first().copied().unwrap_or(0);
        if level > LEVELS_MAX {
            return Err(file.corrupt_at(&header.root, "is the root of a tree that is too high"));
        }
        IndexStore::assemble(disk, file, header, level, regions, record)
    }

    fn assemble(
        disk: &Arc<dyn Disk>,
        file: Arc<IndexFile>,
        header: Header,
        level: u8,
        regions: Regions,
        record: Vec<u8>,
    ) -> Result<IndexStore, IndexError> {
        let reader = new_reader(&file, &header, level, &regions)?;
        let versions = vec![Arc::downgrade(&reader.version)];
        let inner = Inner { header, regions, reader, record, versions };
        let need = Mutex::new(Need::of(&inner));
        Ok(IndexStore { disk: disk.clone(), file, inner: Mutex::new(inner), need })
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
        self.file.bytes_written()
    }

    /// Bytes of the index file.
    pub fn file_bytes(&self) -> Result<u64, IndexError> {
        self.file.len()
    }

    /// Writes all entries and the record, atomically and durably, and returns a reader of the result.
    ///
    /// [`IndexError::NoSpace`] means that nothing was touched and it can be tried again; after any other error it is
    /// unknown whether the checkpoint is in the file, and the store must be opened again.
    pub fn checkpoint(&self, entries: &Memtable, record: &[u8]) -> Result<BaseReader, IndexError> {
        let mut inner = self.inner.lock();
        self.file.usable()?;
        let to_spare = self.check_space(&inner, entries)?;
        // Damage that is found half-way is final too: the next attempt would find it again.
        let written = self.write(&mut inner, entries, record, to_spare);
        *self.need.lock() = Need::of(&inner);
        written.inspect_err(|error| self.file.give_up(&error.to_string()))
    }

    /// Moves no more than `to_spare` bytes beside what has to be written.
    fn write(
        &self,
        inner: &mut Inner,
        entries: &Memtable,
        record: &[u8],
        to_spare: u64,
    ) -> Result<BaseReader, IndexError> {
        inner.versions.retain(|version| version.strong_count() > 0);
        let read: Vec<u64> =
            inner.versions.iter().filter_map(|version| Some(version.upgrade()?.generation)).collect();
        let mut regions = inner.regions.clone();
        regions.begin(inner.header.generation + 1, &read);
        let cut = regions.cut();
        regions.turn_back();

        let old = inner.reader.version.clone();
        let victims = regions.victims();
        // Moving needs room before it gives any; a moved node rewrites the branches above it.
        let victims = if 3 * victims.live_bytes() <= to_spare { victims } else { Victims::default() };
        {
            let mut need = self.need.lock();
            need.written_before = Some(self.file.bytes_written());
            need.moving_bytes = 3 * victims.live_bytes();
        }
        let mut output = Output::new(&self.file, regions, inner.header.sizes);
        let changes: Vec<Change<'_>> = entries.iter().collect();
        let mut rebuild = Rebuild {
            file: &self.file,
            table: &old.table,
            victims,
            output: &mut output,
            keys: inner.header.keys,
        };
        let root = rebuild.run(old.root_pointer, old.root.level(), &changes)?;
        let keys = rebuild.keys;
        let released = std::mem::take(&mut output.released);
        let (header, regions) = write_end(&self.file, output, inner.header, root, keys, record)?;
        let reader = new_reader(&self.file, &header, root.1, &regions)?;
        for pointer in &released {
            self.file.cache.remove(&old.table, pointer);
        }
        inner.versions.push(Arc::downgrade(&reader.version));
        *inner = Inner {
            header,
            regions,
            reader: reader.clone(),
            record: record.to_vec(),
            versions: std::mem::take(&mut inner.versions),
        };
        if let Some(len) = cut
            && len >= inner.regions.count() as u64 * super::regions::REGION_BYTES
            && let Err(error) = self.file.set_len(len)
        {
            // The checkpoint is made; the file only stays longer than it has to be.
            log::warn!("{error}");
        }
        Ok(reader)
    }

    /// Refuses a checkpoint that could run out of space half-way: a flush that fails for lack of space is final.
    /// Returns what is free beyond the need.
    fn check_space(&self, inner: &Inner, entries: &Memtable) -> Result<u64, IndexError> {
        let needed_bytes = Need::of(inner).bytes_max(entries);
        let name = self.file.name();
        let free_bytes = self.disk.free_bytes().map_err(refused("write", name))?;
        if free_bytes < needed_bytes {
            return Err(IndexError::NoSpace { file: name.to_owned(), needed_bytes, free_bytes });
        }
        Ok(free_bytes - needed_bytes)
    }

    /// What a checkpoint has to write at most; part of it to places that the file has already. Does not wait for one that
    /// is being made.
    pub(crate) fn written_bytes_max(&self, entries: &Memtable) -> u64 {
        let need = *self.need.lock();
        need.bytes_max(entries)
    }

    /// The same for the entries that a checkpoint is writing perhaps: less what it has written already.
    pub(crate) fn left_to_write_max(&self, entries: &Memtable) -> u64 {
        let need = *self.need.lock();
        let written = need.written_before.map_or(0, |before| self.file.bytes_written() - before);
        (need.bytes_max(entries) + need.moving_bytes).saturating_sub(written)
    }

    /// Reads all that the last checkpoint refers to and verifies it. Returns the number of entries. Neither checkpoints
    /// nor readers wait meanwhile.
    pub fn verify(&self) -> Result<u64, IndexError> {
        let (reader, header, regions) = {
            let inner = self.inner.lock();
            (inner.reader.clone(), inner.header, inner.regions.clone())
        };
        let stored = Header::decode(&self.file.read_header()?, self.file.seed);
        let stored = stored.map_err(|what| self.file.corrupt(what))?;
        if stored.generation < header.generation {
            return Err(self.file.corrupt("its header is that of an earlier checkpoint"));
        }
        self.file.read(&header.regions, PIECE_BYTES_MAX)?;
        if header.record.len > 0 {
            self.file.read(&header.record, PIECE_BYTES_MAX)?;
        }
        super::verify::verify(&reader, regions.table(), &[header.regions, header.record])
    }

    /// Closes the file: no more checkpoints. Everything is on the disk already. Readers that are still held go on.
    pub fn close(&self) -> Result<(), IndexError> {
        // Waits for a checkpoint that is being made.
        let _inner = self.inner.lock();
        self.file.give_up("it was closed");
        Ok(())
    }
}

impl Need {
    fn of(inner: &Inner) -> Need {
        Need {
            sizes: inner.header.sizes,
            level: inner.reader.version.root.level(),
            table_bytes: inner.regions.table_bytes(),
            record_bytes: u64::from(inner.header.record.len),
            written_before: None,
            moving_bytes: 0,
        }
    }

    fn bytes_max(&self, entries: &Memtable) -> u64 {
        let sizes = self.sizes;
        let keys = entries.len() as u64;
        let new = entries.bytes() + 16 * keys;
        // Each key rewrites the leaf that it belongs to, perhaps with a neighbour. What comes of these and of the new entries
        // are nodes that are half full at least, each with a part of a sector left over.
        let leaf = LEAF_BYTES_MAX as u64;
        let touched = sizes.leaves.min(2 * keys);
        let sectors = 3 * touched + 2 * new / leaf + 2;
        let old = (touched * (leaf + SECTOR_BYTES as u64) + sizes.oversize_bytes).min(sizes.leaf_bytes);
        let leaves = old + 2 * new + sectors * SECTOR_BYTES as u64;
        let levels = u64::from(self.level) + 2;
        let branches = 2 * levels * keys * (BRANCH_BYTES_MAX + SECTOR_BYTES) as u64;
        let branches =
            branches.min(2 * sizes.branch_bytes + leaves / 12) + levels * 2 * BRANCH_BYTES_MAX as u64;
        let others = self.table_bytes + self.record_bytes * 2 + 16 * SECTOR_BYTES as u64;
        leaves + branches + others
    }
}

fn refused(doing: &'static str, name: &str) -> impl FnOnce(io::Error) -> IndexError {
    let file = name.to_owned();
    move |source| IndexError::Io { file, doing, source }
}

fn new_reader(
    file: &Arc<IndexFile>,
    header: &Header,
    level: u8,
    regions: &Regions,
) -> Result<BaseReader, IndexError> {
    BaseReader::new(file.clone(), header.generation, header.root, level, header.keys, regions.count())
}

/// Writes what a version has beside its nodes, then the header; from then on it is in force.
fn write_end(
    file: &IndexFile,
    mut output: Output<'_>,
    before: Header,
    (root, _): (Pointer, u8),
    keys: u64,
    record: &[u8],
) -> Result<(Header, Regions), IndexError> {
    output.regions.release(&before.regions);
    output.regions.release(&before.record);
    let record = if record.is_empty() { Pointer::default() } else { output.piece(record)? };
    // The table counts itself, so its place comes before its bytes.
    let table = output.table_piece()?;
    output.write()?;
    file.sync()?;
    let generation = before.generation + 1;
    let header = Header {
        generation,
        keys,
        position: output.regions.position(),
        root,
        regions: table,
        record,
        sizes: output.sizes,
    };
    file.write(0, &header.encode(file.seed))?;
    file.sync()?;
    let mut regions = output.regions;
    regions.retire(generation);
    Ok((header, regions))
}
