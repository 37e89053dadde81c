//! Listings of directories: what the snapshot has and what the transaction changed, merged in the order of cookies.

use std::ops::ControlFlow;

use txfs_engine::Read;

use super::overlay::InodeState;
use super::session::Session;
use crate::error::{Error, Result};
use crate::records::dirent::HASH_MAX;
use crate::records::{Bucket, key};
use crate::types::{DirectoryEntry, Ino, NodeKind};

/// Entries of a listing that are collected under the transaction's lock at a time.
const LISTING_BATCH: usize = 256;

const DOT_COOKIE: u64 = 1;
const DOT_DOT_COOKIE: u64 = 2;

impl Session {
    /// One step of a listing: up to [`LISTING_BATCH`] entries behind `cookie`. Empty at the end.
    pub(crate) fn list_batch(&mut self, ino: Ino, cookie: u64) -> Result<Vec<DirectoryEntry>> {
        let directory = self.directory(ino)?;
        self.note_exists(ino);
        let mut batch = Vec::new();
        if cookie < DOT_COOKIE {
            batch.push(entry(b".", ino, NodeKind::Directory, DOT_COOKIE));
        }
        if cookie < DOT_DOT_COOKIE {
            batch.push(entry(b"..", directory.parent, NodeKind::Directory, DOT_DOT_COOKIE));
        }
        self.collect_entries(ino, cookie.max(DOT_DOT_COOKIE), LISTING_BATCH, &mut batch)?;
        let first = cookie & !3;
        let last = match batch.last() {
            Some(last) if batch.len() >= LISTING_BATCH => last.cookie,
            _ => u64::MAX,
        };
        self.note_names(ino, first, last);
        Ok(batch)
    }

    /// Appends entries behind `cookie` in cookie order until `batch` holds `count` (or a few more).
    pub(super) fn collect_entries(
        &mut self,
        directory: Ino,
        cookie: u64,
        count: usize,
        batch: &mut Vec<DirectoryEntry>,
    ) -> Result<()> {
        let first_hash = cookie & !3;
        let mut changed = self
            .overlay
            .names
            .range((directory, first_hash)..=(directory, u64::MAX))
            .map(|(&(_, hash), state)| (hash, &state.current))
            .peekable();
        let mut problem = None;
        let push = |hash: u64, bucket: &Bucket, batch: &mut Vec<DirectoryEntry>| {
            for dirent in &bucket.0 {
                let at = hash + u64::from(dirent.slot);
                if at > cookie {
                    batch.push(entry(&dirent.name, dirent.ino, dirent.kind, at));
                }
            }
            batch.len() >= count
        };
        let created = self.overlay.inodes.get(&directory).is_some_and(InodeState::is_created);
        let mut full = false;
        if !created {
            let from = key::dirent(directory, first_hash);
            let to = key::dirents_end(directory);
            self.snapshot.scan(&from, &to, &mut |key, value| {
                let stored = key::second_of(key).filter(|&hash| hash <= HASH_MAX);
                let Some(stored) = stored else {
                    problem = Some("a directory entry's key has an impossible hash");
                    return ControlFlow::Break(());
                };
                while let Some(&(hash, bucket)) = changed.peek().filter(|(hash, _)| *hash < stored) {
                    changed.next();
                    full = push(hash, bucket, batch);
                    if full {
                        return ControlFlow::Break(());
                    }
                }
                full = match changed.next_if(|(hash, _)| *hash == stored) {
                    Some((hash, bucket)) => push(hash, bucket, batch),
                    None => match Bucket::decode(value) {
                        Ok(bucket) => push(stored, &bucket, batch),
                        Err(detail) => {
                            problem = Some(detail);
                            true
                        }
                    },
                };
                if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        if let Some(detail) = problem {
            return Err(Error::Corrupt { what: format!("directory inode {directory}: {detail}") });
        }
        while !full {
            let Some((hash, bucket)) = changed.next() else { break };
            full = push(hash, bucket, batch);
        }
        Ok(())
    }
}

fn entry(name: &[u8], ino: Ino, kind: NodeKind, cookie: u64) -> DirectoryEntry {
    DirectoryEntry { name: name.to_vec(), ino, kind, cookie }
}
