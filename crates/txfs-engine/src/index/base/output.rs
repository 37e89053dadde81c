//! Where a checkpoint puts what it writes: one piece behind another, in large writes.

use std::sync::Arc;

use super::LEAF_BYTES_MAX;
use super::cache::Table;
use super::file::IndexFile;
use super::header::Sizes;
use super::node::Node;
use super::pointer::Pointer;
use super::regions::Regions;
use crate::index::IndexError;

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// See the module's documentation. Nothing that is in force is touched: dropping it leaves the file as it was.
pub(super) struct Output<'a> {
    file: &'a IndexFile,
    pub(super) regions: Regions,
    pub(super) sizes: Sizes,
    table: Table,
    buffer: Vec<u8>,
    /// Where the buffer goes.
    buffer_at: u64,
    /// Nodes that the next version does not have any more.
    pub(super) released: Vec<Pointer>,
}

impl<'a> Output<'a> {
    pub(super) fn new(file: &'a IndexFile, regions: Regions, sizes: Sizes) -> Output<'a> {
        let table = file.cache.table(regions.count());
        Output { file, regions, sizes, table, buffer: Vec::new(), buffer_at: 0, released: Vec::new() }
    }

    /// Places bytes and writes them sooner or later.
    pub(super) fn piece(&mut self, bytes: &[u8]) -> Result<Pointer, IndexError> {
        let sector = self.take(bytes.len())?;
        self.put(sector, bytes)
    }

    /// Places the table of regions, which counts its own bytes too.
    pub(super) fn table_piece(&mut self) -> Result<Pointer, IndexError> {
        loop {
            let before = self.regions.clone();
            let len = self.regions.table_bytes();
            let sector = self.take(len as usize)?;
            if self.regions.table_bytes() == len {
                let bytes = self.regions.encode();
                return self.put(sector, &bytes);
            }
            // It took a new region, which makes it longer: once more, with an entry for that.
            self.regions = before;
            self.regions.grow();
        }
    }

    fn take(&mut self, len: usize) -> Result<u32, IndexError> {
        let too_large = || self.file.corrupt("it would be larger than an index file can be, 2 TiB");
        let len = u32::try_from(len).map_err(|_| too_large())?;
        self.regions.take(len).ok_or_else(too_large)
    }

    fn put(&mut self, sector: u32, bytes: &[u8]) -> Result<Pointer, IndexError> {
        let pointer = Pointer { sector, len: bytes.len() as u32, crc: self.file.crc(bytes) };
        if pointer.offset() != self.buffer_at + self.buffer.len() as u64 || self.buffer.len() >= WRITE_BYTES {
            self.write()?;
            self.buffer_at = pointer.offset();
        }
        self.buffer.extend_from_slice(bytes);
        self.buffer.resize((pointer.offset() + pointer.space() - self.buffer_at) as usize, 0);
        Ok(pointer)
    }

    /// Places a node, which is in the cache from then on.
    pub(super) fn node(&mut self, bytes: Vec<u8>, level: u8) -> Result<Pointer, IndexError> {
        let pointer = self.piece(&bytes)?;
        self.count(&pointer, level, true);
        if self.table.len() < self.regions.count() {
            self.table = self.file.cache.table(self.regions.count());
        }
        self.file.cache.put(&self.table, &pointer, Arc::new(Node::built(bytes, pointer.crc)));
        Ok(pointer)
    }

    /// A node of this level is not part of the next version.
    pub(super) fn release(&mut self, pointer: Pointer, level: u8) {
        self.regions.release(&pointer);
        self.count(&pointer, level, false);
        self.released.push(pointer);
    }

    fn count(&mut self, pointer: &Pointer, level: u8, added: bool) {
        let change = |number: &mut u64, by: u64| {
            *number = if added { number.saturating_add(by) } else { number.saturating_sub(by) };
        };
        if level > 0 {
            change(&mut self.sizes.branch_bytes, pointer.space());
            return;
        }
        change(&mut self.sizes.leaves, 1);
        change(&mut self.sizes.leaf_bytes, pointer.space());
        if pointer.len as usize > LEAF_BYTES_MAX {
            change(&mut self.sizes.oversize_bytes, pointer.space());
        }
    }

    /// Writes what was gathered.
    pub(super) fn write(&mut self) -> Result<(), IndexError> {
        if !self.buffer.is_empty() {
            self.file.write(self.buffer_at, &self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// A node that is less full is joined with a neighbour when it is written anew.
pub(super) fn few_bytes(level: u8) -> usize {
    super::bytes_max(level) / 3
}
