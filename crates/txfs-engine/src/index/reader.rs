//! A read transaction on the base B-tree.

use std::sync::Arc;

use redb::{AccessGuard, Range, ReadOnlyTable, ReadableTable};

use super::IndexError;
use super::store::StoreFile;

type Bytes = &'static [u8];

/// One immutable version of the base; a clone costs two reference counts. Holding it keeps the B-tree pages of
/// that version from being reused, so an old one costs space in the index file.
#[derive(Clone)]
pub struct BaseReader {
    table: Arc<ReadOnlyTable<Bytes, Bytes>>,
    file: Arc<StoreFile>,
    /// The last key, `None` without any: what lies behind it is looked for often (a new node has no extended attributes)
    /// and needs no walk through the tree.
    last: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for BaseReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BaseReader").field("file", &self.file).finish_non_exhaustive()
    }
}

impl BaseReader {
    /// Fails when the tree cannot be read.
    pub(super) fn new(
        table: ReadOnlyTable<Bytes, Bytes>,
        file: Arc<StoreFile>,
    ) -> Result<BaseReader, redb::Error> {
        let last = table.last()?.map(|(key, _)| key.value().into());
        Ok(BaseReader { table: Arc::new(table), file, last })
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        self.last.as_ref().is_none_or(|last| **last < *key)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        if self.ends_before(key) {
            return Ok(None);
        }
        self.file.call("read", || Ok(self.table.get(key)?.map(|value| value.value().to_vec())))
    }

    /// A cursor over `from <= key < to`, ascending.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> Result<BaseRange<'_>, IndexError> {
        if self.ends_before(from) {
            return Ok(BaseRange { range: None, back: false, file: &self.file });
        }
        let range = Some(self.file.call("read", || Ok(self.table.range::<&[u8]>(from..to)?))?);
        Ok(BaseRange { range, back: false, file: &self.file })
    }

    /// A cursor over `from <= key < to`, descending.
    pub(super) fn range_back(&self, from: &[u8], to: &[u8]) -> Result<BaseRange<'_>, IndexError> {
        Ok(BaseRange { back: true, ..self.range(from, to)? })
    }
}

/// A key and value that stay readable as long as they are held.
pub(super) type BaseEntry = (AccessGuard<'static, Bytes>, AccessGuard<'static, Bytes>);

/// See [`BaseReader::range`].
pub(super) struct BaseRange<'a> {
    /// Nothing for a range without entries.
    range: Option<Range<'static, Bytes, Bytes>>,
    back: bool,
    file: &'a StoreFile,
}

impl BaseRange<'_> {
    /// The next entry in the cursor's direction.
    pub(super) fn step(&mut self) -> Result<Option<BaseEntry>, IndexError> {
        let Some(range) = &mut self.range else { return Ok(None) };
        self.file.call("read", || {
            let entry = if self.back { range.next_back() } else { range.next() };
            let entry = entry.transpose()?;
            if let Some((key, value)) = &entry {
                // Where a page contradicts itself, this is what panics.
                std::hint::black_box((key.value(), value.value()));
            }
            Ok(entry)
        })
    }
}
