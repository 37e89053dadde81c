//! Takes down, while a recorded commit is applied, what undoing it takes: what its changes replace, and how it leaves things.
//!
//! What is known before it is applied (names, nodes made without data in the commit's record) is in the plan already. This
//! runs inside the engine's critical section, as the application does, and starts afresh with each run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use txfs_engine::{Extent, Mutation, Read, saved_key, saved_value};

use super::plan::{InodePlan, Source, xattrs_digest};
use crate::error::{Error, Result};
use crate::records::undo::{ChunkWriter, Digest, Made, UNDO_TAG, UndoItem};
use crate::records::{InodeRecord, key, small};
use crate::types::{Ino, PAGE_BYTES};

/// Chunks that are made while a commit is applied get numbers from here on.
const FIRST_CHUNK: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct UndoNotes {
    writer: ChunkWriter,
    /// Old content that stays.
    saved: Vec<Mutation>,
    /// Bytes of it, and of nodes that stay without a name.
    data_bytes: u64,
}

impl UndoNotes {
    pub(crate) fn new(number: u64) -> UndoNotes {
        UndoNotes { writer: ChunkWriter::new(number, FIRST_CHUNK), saved: Vec::new(), data_bytes: 0 }
    }

    pub(crate) fn number(&self) -> u64 {
        self.writer.number()
    }

    /// A node that was there before, and how the commit leaves it; `removed` when it may have lost its last name.
    pub(crate) fn node(&mut self, ino: Ino, before: &InodeRecord, after: &InodeRecord, removed: bool) {
        if removed && after.nlink == 0 {
            self.removed(ino, after);
        }
        self.writer.add(&UndoItem::Node { ino, before: before.clone(), after: after.clone() });
    }

    /// A node that stays without a name, as this record has it.
    pub(crate) fn removed(&mut self, ino: Ino, record: &InodeRecord) {
        // The last page of a file is stored as far as the file goes.
        self.data_bytes += record.pages.saturating_mul(PAGE_BYTES).min(record.size);
        let checksum = crc32c::crc32c(&record.encode());
        self.writer.add(&UndoItem::Removed { ino, record: checksum, pages: record.pages });
    }

    /// A node that the commit makes.
    pub(crate) fn created(
        &mut self,
        inode: &InodePlan,
        record: &InodeRecord,
        extent: impl Fn(&Source) -> Result<Extent>,
    ) -> Result<()> {
        let mut content = Digest::default();
        for (first, source) in &inode.fresh {
            content.add_pages(*first, &extent(source)?);
        }
        let made = Made::new(record, content, xattrs_digest(&inode.state.xattrs));
        self.writer.add(&UndoItem::Created { ino: inode.ino, made });
        Ok(())
    }

    /// A directory that gets its name back: its times move with the names in it, so they do not say whether it is still the
    /// same.
    pub(crate) fn revived(&mut self, read: &dyn Read, inode: &InodePlan, record: &InodeRecord) -> Result<()> {
        let mut xattrs = BTreeMap::new();
        let (from, to) = key::xattrs(inode.ino);
        read.scan(&from, &to, &mut |key, value| {
            let value = small::decode_bytes(value).unwrap_or(value);
            xattrs.insert(key::xattr_name(key).to_vec(), Some(value.to_vec()));
            ControlFlow::Continue(())
        })?;
        xattrs.extend(inode.state.xattrs.iter().map(|(name, value)| (name.clone(), value.clone())));
        let made = Made::new(record, Digest::default(), xattrs_digest(&xattrs));
        self.writer.add(&UndoItem::Created { ino: inode.ino, made });
        Ok(())
    }

    /// An extended attribute of a node that was there before.
    pub(crate) fn xattr(
        &mut self,
        read: &dyn Read,
        ino: Ino,
        name: &[u8],
        after: Option<&[u8]>,
    ) -> Result<()> {
        let corrupt = |detail| Error::Corrupt { what: format!("an attribute of inode {ino}: {detail}") };
        let before = match read.get(&key::xattr(ino, name))? {
            Some(value) => Some(small::decode_bytes(&value).map_err(corrupt)?.to_vec()),
            None => None,
        };
        let after = after.map(crc32c::crc32c);
        self.writer.add(&UndoItem::Xattr { ino, name: name.to_vec(), before, after });
        Ok(())
    }

    /// Pages whose content goes.
    pub(crate) fn cleared(&mut self, ino: Ino, first: u64, last: u64) {
        self.writer.add(&UndoItem::Cleared { ino, first, last });
    }

    /// Pages that come.
    pub(crate) fn put(&mut self, ino: Ino, first: u64, extent: &Extent) {
        self.writer.add(&UndoItem::Put { ino, first, checksums: extent.page_checksums.clone() });
    }

    /// Content that goes, from page `first` on.
    pub(crate) fn old_content(&mut self, ino: Ino, first: u64, extent: &Extent) {
        self.data_bytes += u64::from(extent.len);
        let key = saved_key(UNDO_TAG, self.number(), &key::extent(ino, first));
        self.saved.push(Mutation::PutNew { key, value: saved_value(Some(&extent.encode())) });
    }

    /// All of it as changes of the map, and how many bytes are kept.
    pub(crate) fn finish(mut self) -> (Vec<Mutation>, u64) {
        self.writer.close();
        let bytes = self.data_bytes + self.writer.bytes;
        let chunks = self.writer.chunks.into_iter().map(|(key, value)| Mutation::PutNew { key, value });
        self.saved.extend(chunks);
        (self.saved, bytes)
    }
}
