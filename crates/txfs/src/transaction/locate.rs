//! Finds paths of inodes, for people: change lists, conflict reports, check reports.
//!
//! A directory knows its parent; any other node remembers the directory of one of its names, as a hint. The name
//! itself is found by looking through that directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::rename::DEPTH_MAX;
use super::session::Session;
use crate::error::Result;
use crate::paths::name_to_path;
use crate::types::{Ino, ROOT_INO};

/// Entries of a directory that are looked through where the path is only a help.
pub(crate) const SCAN_ENTRIES_CHEAP: usize = 10_000;

/// Finds paths in one state, and remembers the names it has come across.
pub(crate) struct Locator {
    entries_max: usize,
    /// Names by directory and inode, of the directories looked through so far.
    names: BTreeMap<(Ino, Ino), Vec<u8>>,
    listed: BTreeSet<Ino>,
}

impl Locator {
    pub(crate) fn new(entries_max: usize) -> Locator {
        Locator { entries_max, names: BTreeMap::new(), listed: BTreeSet::new() }
    }

    /// A path of the inode from the root, without a leading slash; `None` when it has none or the search was given up.
    pub(crate) fn path(&mut self, session: &mut Session, ino: Ino) -> Result<Option<PathBuf>> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != ROOT_INO {
            if names.len() > DEPTH_MAX {
                return Ok(None);
            }
            let parent = match session.inode(at) {
                Ok(record) => record.parent,
                Err(_) => return Ok(None),
            };
            match self.name(session, parent, at)? {
                Some(name) => names.push(name),
                None => return Ok(None),
            }
            at = parent;
        }
        Ok(Some(names.iter().rev().map(|name| name_to_path(name)).collect()))
    }

    fn name(&mut self, session: &mut Session, parent: Ino, ino: Ino) -> Result<Option<Vec<u8>>> {
        if self.listed.insert(parent) {
            let mut cookie = 2;
            let mut seen = 0;
            loop {
                let batch = match session.list_batch(parent, cookie) {
                    Ok(batch) if !batch.is_empty() && seen < self.entries_max => batch,
                    _ => break,
                };
                seen += batch.len();
                for entry in batch {
                    cookie = entry.cookie;
                    self.names.insert((parent, entry.ino), entry.name);
                }
            }
        }
        Ok(self.names.get(&(parent, ino)).cloned())
    }
}
