//! Look-ups in one version of the base.

use std::sync::Arc;

use super::cache::{Held, Table};
use super::cursor::{BaseRange, Direction};
use super::file::IndexFile;
use super::node::Node;
use super::pointer::Pointer;
use crate::index::IndexError;

/// A tree that a checkpoint made. As long as somebody holds it, the regions that it refers to are not written again.
pub(super) struct Version {
    pub(super) generation: u64,
    pub(super) root_pointer: Pointer,
    pub(super) root: Arc<Node>,
    /// Keys in it.
    pub(super) keys: u64,
    pub(super) table: Table,
    /// The last key, `None` without any: what lies behind it is looked for often (a new node has no extended attributes)
    /// and needs no walk through the tree.
    last: Option<Vec<u8>>,
}

/// One immutable version of the base; a clone costs two reference counts. Holding it keeps the nodes of that version,
/// so an old one costs space in the index file.
#[derive(Clone)]
pub struct BaseReader {
    pub(super) file: Arc<IndexFile>,
    pub(super) version: Arc<Version>,
}

impl std::fmt::Debug for BaseReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let generation = self.version.generation;
        formatter.debug_struct("BaseReader").field("generation", &generation).finish_non_exhaustive()
    }
}

impl BaseReader {
    /// Fails when the way to the last key cannot be read.
    pub(super) fn new(
        file: Arc<IndexFile>,
        generation: u64,
        root_pointer: Pointer,
        level: u8,
        keys: u64,
        regions: usize,
    ) -> Result<BaseReader, IndexError> {
        let table = file.cache.table(regions);
        let root = match Held::into_inner(file.node(&table, &root_pointer, level)?) {
            Some(root) => root,
            None => return Err(file.corrupt("it has no root")),
        };
        let mut version = Version { generation, root_pointer, root, keys, table, last: None };
        let mut held: Held;
        let mut node = &*version.root;
        let last = loop {
            let Some(index) = node.len().checked_sub(1) else { break None };
            if node.level() == 0 {
                break Some(node.key(index));
            }
            held = file.node(&version.table, &node.child(index), node.level() - 1)?;
            match held.as_ref() {
                Some(child) => node = child,
                None => break None,
            }
        };
        version.last = last;
        Ok(BaseReader { file, version: Arc::new(version) })
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        self.version.last.as_ref().is_none_or(|last| **last < *key)
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        if self.ends_before(key) {
            return Ok(None);
        }
        let mut held: Held;
        let mut node = &*self.version.root;
        while node.level() > 0 {
            let child = node.child(node.child_of(key));
            held = self.file.node(&self.version.table, &child, node.level() - 1)?;
            match held.as_ref() {
                Some(child) => node = child,
                None => return Ok(None),
            }
        }
        Ok(node.find(key).ok().map(|index| node.value(index).to_vec()))
    }

    /// A cursor over `from <= key < to`, ascending.
    pub(in crate::index) fn range<'a>(
        &'a self,
        from: &[u8],
        to: &'a [u8],
    ) -> Result<BaseRange<'a>, IndexError> {
        if self.ends_before(from) || from >= to {
            return Ok(BaseRange::empty(self));
        }
        BaseRange::new(self, Direction::Up, from, to)
    }

    /// A cursor over `from <= key < to`, descending.
    pub(in crate::index) fn range_back<'a>(
        &'a self,
        from: &'a [u8],
        to: &[u8],
    ) -> Result<BaseRange<'a>, IndexError> {
        if self.ends_before(from) || from >= to {
            return Ok(BaseRange::empty(self));
        }
        BaseRange::new(self, Direction::Down, to, from)
    }
}
