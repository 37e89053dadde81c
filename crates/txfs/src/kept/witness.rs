//! What commits note of a kept transaction: conflicts, and the old values of what it has read or written.
//!
//! Old values make its *base*: the volume as the transaction saw it, in all that concerns it. Each key of a file that it has
//! read or written, and each name, is saved when it is changed for the first time after the transaction was kept; for what was
//! changed before that, and conflicts, when it is kept. So what a program wants to merge can be read later: the base, what the
//! transaction made of it, and what others did.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use txfs_engine::{
    Clash, ConflictRange, EngineError, Extent, KeptClaim, Meeting, Mutation, Read, saved_key, saved_value,
};

use crate::conflict::{NAME_SPACE, PAGE_SPACE};
use crate::records::{kept, key};
use crate::transaction::apply::put;
use crate::transaction::session::load_inode;
use crate::types::Ino;

/// Values that are saved stand under this tag and the transaction's number.
pub(crate) const BASE_TAG: u8 = b'b';
/// So many are saved of one transaction; with more its base is lost.
const SAVED_MAX: u64 = 50_000;

/// Turns what a kept transaction meets into entries.
pub(crate) struct Witness {
    id: u64,
    /// Values that are saved, about: commits that failed count as well.
    saved: AtomicU64,
}

impl Witness {
    pub(crate) fn new(id: u64, saved: u64) -> Witness {
        Witness { id, saved: AtomicU64::new(saved) }
    }

    fn save(
        &self,
        key: &[u8],
        before: &dyn Read,
        old: Option<&[u8]>,
        notes: &mut Vec<Mutation>,
    ) -> Result<(), EngineError> {
        let place = saved_key(BASE_TAG, self.id, key);
        if before.get(&place)?.is_some() {
            return Ok(());
        }
        match self.saved.fetch_add(1, Ordering::Relaxed) {
            count if count < SAVED_MAX => {
                notes.push(Mutation::PutNew { key: place, value: saved_value(old) })
            }
            SAVED_MAX => self.lose(before, notes)?,
            _ => {}
        }
        Ok(())
    }

    /// What it began with is not whole any more.
    fn lose(&self, before: &dyn Read, notes: &mut Vec<Mutation>) -> Result<(), EngineError> {
        let lost = key::kept(self.id, key::kept::LOST, &[]);
        if before.get(&lost)?.is_none() && !notes.iter().any(|note| note.key() == lost) {
            notes.push(put(lost, vec![1]));
        }
        Ok(())
    }

    /// Saves what others changed before it was kept, of the nodes and names that conflict.
    fn save_earlier(
        &self,
        meeting: &Meeting<'_>,
        snapshot: &dyn Read,
        notes: &mut Vec<Mutation>,
    ) -> Result<(), EngineError> {
        let mut ranges: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for Clash { range, .. } in meeting.clashes {
            let ino = range.object;
            ranges.push((key::inode(ino).to_vec(), [&key::inode(ino)[..], &[0]].concat()));
            match range.space {
                NAME_SPACE => {
                    let behind = match range.last.checked_add(1) {
                        Some(next) => key::dirent(ino, next).to_vec(),
                        None => key::dirents_end(ino),
                    };
                    ranges.push((key::dirent(ino, range.first).to_vec(), behind));
                }
                _ => {
                    ranges.push((key::extent(ino, 0).to_vec(), key::extents_end(ino)));
                    ranges.push(key::xattrs(ino));
                    ranges.push((key::symlink(ino).to_vec(), [&key::symlink(ino)[..], &[0]].concat()));
                }
            }
        }
        ranges.sort();
        ranges.dedup();
        let mut done = BTreeMap::new();
        for (from, to) in ranges {
            let (old, new) = (collect(snapshot, &from, &to)?, collect(meeting.before, &from, &to)?);
            for key in old.keys().chain(new.keys()) {
                if old.get(key) != new.get(key) && done.insert(key.clone(), ()).is_none() {
                    match place_of(key, old.get(key)) {
                        // A cleaner has moved it, or a deferred commit has got its place.
                        Some(extent) if has_moved(&extent, new.get(key)) => continue,
                        // Its place is about to be used again.
                        Some(extent) if !(meeting.is_live)(extent.segment) => {
                            self.lose(meeting.before, notes)?;
                            continue;
                        }
                        _ => {}
                    }
                    self.save(key, meeting.before, old.get(key).map(Vec::as_slice), notes)?;
                }
            }
        }
        Ok(())
    }
}

/// The extent that a value is.
fn place_of(key: &[u8], value: Option<&Vec<u8>>) -> Option<Extent> {
    let value = value.filter(|_| key.first() == Some(&key::EXTENT_TAG))?;
    Extent::decode(value).ok()
}

/// True when an extent has the same content elsewhere now.
fn has_moved(old: &Extent, new: Option<&Vec<u8>>) -> bool {
    let new = new.and_then(|value| Extent::decode(value).ok());
    new.is_some_and(|new| new.len == old.len && new.page_checksums == old.page_checksums)
}

fn collect(read: &dyn Read, from: &[u8], to: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, EngineError> {
    let mut found = BTreeMap::new();
    read.scan(from, to, &mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

impl txfs_engine::Witness for Witness {
    fn note(&self, meeting: &Meeting<'_>) -> Result<Vec<Mutation>, EngineError> {
        let entry = |(count, clash): (u32, &Clash)| {
            let sequence = clash.sequence().unwrap_or(0);
            let rest = [&sequence.to_be_bytes()[..], &count.to_be_bytes()];
            put(key::kept(self.id, key::kept::CONFLICT, &rest), kept::encode_conflict(clash))
        };
        let mut notes: Vec<Mutation> = (0u32..).zip(meeting.clashes).map(entry).collect();
        let more = key::kept(self.id, key::kept::MORE, &[]);
        if meeting.more && meeting.before.get(&more)?.is_none() {
            notes.push(put(more, vec![1]));
        }
        if let Some(snapshot) = meeting.kept_from {
            self.save_earlier(meeting, snapshot, &mut notes)?;
        }
        let removed = |(key, goes): &(&[u8], bool)| {
            key::ino_of(key).filter(|_| *goes && key.first() == Some(&key::INODE_TAG))
        };
        let removed: BTreeSet<Ino> = meeting.changed.iter().filter_map(removed).collect();
        for (key, _) in meeting.changed {
            if !concerns(meeting, key, &removed) {
                continue;
            }
            let old = meeting.before.get(key)?;
            self.save(key, meeting.before, old.as_deref(), &mut notes)?;
        }
        Ok(notes)
    }
}

/// True when what stands under a key belongs to what the transaction has read or written. Of a file of which it knows
/// only the attributes, the content does when the file goes.
fn concerns(meeting: &Meeting<'_>, key: &[u8], removed: &BTreeSet<Ino>) -> bool {
    let claim = meeting.claim;
    let Some(ino) = key::ino_of(key) else { return false };
    let meets = |space: u8, first: u64, last: u64| {
        let range = ConflictRange { space, object: ino, first, last };
        claim.writes.overlapping(&range).next().is_some() || claim.reads.overlapping(&range).next().is_some()
    };
    match key.first() {
        Some(&key::DIRENT_TAG) => key::second_of(key).is_some_and(|hash| meets(NAME_SPACE, hash, hash)),
        Some(&key::EXTENT_TAG) => {
            let nameless =
                || matches!(load_inode(meeting.before, ino), Ok(Some(record)) if record.nlink == 0);
            meets(PAGE_SPACE, 0, u64::MAX) || (is_known(claim, ino) && (removed.contains(&ino) || nameless()))
        }
        Some(&(key::INODE_TAG | key::SYMLINK_TAG | key::XATTR_TAG)) => is_known(claim, ino),
        _ => false,
    }
}

fn is_known(claim: &KeptClaim, ino: Ino) -> bool {
    (PAGE_SPACE..=crate::conflict::XATTR_SPACE).any(|space| {
        let range = ConflictRange { space, object: ino, first: 0, last: u64::MAX };
        claim.writes.overlapping(&range).next().is_some() || claim.reads.overlapping(&range).next().is_some()
    })
}
