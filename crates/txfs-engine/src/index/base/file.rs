//! The index file as pieces with checksums, and the errors that name it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::Guard;
use parking_lot::Mutex;
use txfs_disk::DiskFile;

use super::cache::{Cache, Held, Table};
use super::node::Node;
use super::pointer::{Pointer, SECTOR_BYTES};
use crate::index::IndexError;

/// See the module's documentation.
pub(super) struct IndexFile {
    raw: Arc<dyn DiskFile>,
    name: String,
    /// CRC-32C of the volume id, which every checksum continues from: pieces of another volume do not pass.
    pub(super) seed: u32,
    pub(super) cache: Cache,
    /// Bytes written since the file was opened.
    written: AtomicU64,
    /// The first failure of a write, after which nothing more is written.
    failed: Mutex<Option<String>>,
}

impl fmt::Debug for IndexFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl IndexFile {
    pub(super) fn new(
        raw: Arc<dyn DiskFile>,
        name: &str,
        volume_id: &[u8; 16],
        cache_bytes: usize,
    ) -> IndexFile {
        IndexFile {
            raw,
            name: name.to_owned(),
            seed: crc32c::crc32c(volume_id),
            cache: Cache::new(cache_bytes),
            written: AtomicU64::new(0),
            failed: Mutex::new(None),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn corrupt(&self, what: impl Into<String>) -> IndexError {
        IndexError::Corrupt { file: self.name.clone(), what: what.into() }
    }

    pub(super) fn corrupt_at(&self, pointer: &Pointer, what: &str) -> IndexError {
        self.corrupt(format!("what lies at byte {}, {} bytes, {what}", pointer.offset(), pointer.len))
    }

    fn io(&self, doing: &'static str, source: io::Error) -> IndexError {
        IndexError::Io { file: self.name.clone(), doing, source }
    }

    /// A write or flush failed: what the file holds is unknown from here on.
    fn write_failed(&self, source: io::Error) -> IndexError {
        let error = self.io("write", source);
        self.failed.lock().get_or_insert_with(|| error.to_string());
        error
    }

    /// Makes all further checkpoints fail, saying this.
    pub(super) fn give_up(&self, why: &str) {
        self.failed.lock().get_or_insert_with(|| why.to_owned());
    }

    /// An error if an earlier write failed or the file was closed.
    pub(super) fn usable(&self) -> Result<(), IndexError> {
        match &*self.failed.lock() {
            Some(what) => Err(IndexError::Unusable { file: self.name.clone(), what: what.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn len(&self) -> Result<u64, IndexError> {
        self.raw.len().map_err(|error| self.io("read", error))
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), IndexError> {
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.raw.write_at(offset, bytes).map_err(|error| self.write_failed(error))
    }

    pub(super) fn sync(&self) -> Result<(), IndexError> {
        self.raw.sync().map_err(|error| self.write_failed(error))
    }

    pub(super) fn set_len(&self, len: u64) -> Result<(), IndexError> {
        self.raw.set_len(len).map_err(|error| self.io("cut", error))
    }

    /// The checksum that a pointer to these bytes has.
    pub(super) fn crc(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.seed, bytes)
    }

    pub(super) fn read_header(&self) -> Result<[u8; SECTOR_BYTES], IndexError> {
        let mut sector = [0; SECTOR_BYTES];
        self.read_at(0, &mut sector)?;
        Ok(sector)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), IndexError> {
        self.raw.read_at(offset, bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self
                .corrupt(format!("it is truncated: byte {offset} is to be read, which lies behind its end")),
            _ => self.io("read", error),
        })
    }

    /// Reads a piece from the file and verifies it.
    pub(super) fn read(&self, pointer: &Pointer, len_max: u64) -> Result<Vec<u8>, IndexError> {
        if u64::from(pointer.len) > len_max {
            return Err(self.corrupt_at(pointer, "is longer than anything that is written"));
        }
        let mut bytes = vec![0; pointer.len as usize];
        self.read_at(pointer.offset(), &mut bytes)?;
        if self.crc(&bytes) != pointer.crc {
            let what = if bytes.iter().all(|byte| *byte == 0) {
                "is all zeros: it was never written, or its contents were lost"
            } else {
                "is not what was written there"
            };
            return Err(self.corrupt_at(pointer, what));
        }
        Ok(bytes)
    }

    /// Reads a node of this level from the file.
    pub(super) fn read_node(&self, pointer: &Pointer, level: u8) -> Result<Node, IndexError> {
        let bytes = self.read(pointer, super::NODE_BYTES_MAX as u64)?;
        let node = Node::parse(bytes, pointer.crc).map_err(|what| self.corrupt_at(pointer, what))?;
        self.check_level(&node, pointer, level)?;
        Ok(node)
    }

    fn check_level(&self, node: &Node, pointer: &Pointer, level: u8) -> Result<(), IndexError> {
        if node.level() == level {
            return Ok(());
        }
        Err(self.corrupt_at(pointer, &format!("is a node of level {}, not {level}", node.level())))
    }

    /// A node of this level, from memory if it is there.
    pub(super) fn node(&self, table: &Table, pointer: &Pointer, level: u8) -> Result<Held, IndexError> {
        if let Some(held) = self.cache.get(table, pointer) {
            if let Some(node) = held.as_ref() {
                self.check_level(node, pointer, level)?;
            }
            return Ok(held);
        }
        let node = Arc::new(self.read_node(pointer, level)?);
        self.cache.put(table, pointer, node.clone());
        Ok(Guard::from_inner(Some(node)))
    }
}
