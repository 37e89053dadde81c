//! Moves extents: copies them to the end of the log, and commits their new places.
//!
//! Extents of neighbouring pages of one object are joined on the way, up to the longest extent: a file that was written
//! page by page gets one entry in the index instead of 64. Not while there are named snapshots, though: of the extents that
//! are joined, a snapshot may have saved one and see another as it is now. Saved extents (`format/saved.rs`) move by themselves: each belongs
//! to what it is saved for. Data that several keys share is copied for each of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::find::{Live, split};
use super::{CleanReport, Cleaned, Pace};
use crate::broken::{self, Fault};
use crate::engine::Shared;
use crate::error::{EngineError, Result};
use crate::format::saved::{extent_of, with_extent};
use crate::format::{CHUNK_BYTES_MAX, Extent, Mutation, PAGE_BYTES};
use crate::index::Read;
use crate::log::Segment;
use crate::log::pool::Purpose;
use crate::named::Marks;
use crate::txn::commit::{Apply, Candidate};
use crate::txn::prepared::Prepared;
use crate::txn::{Applied, Chunk, Commit, Durability, Snapshot};

/// File data of one move at most: the critical section checks and copies so much while committers wait.
const BATCH_BYTES_MAX: u64 = CHUNK_BYTES_MAX as u64;

/// Neighbouring extents that become one.
#[derive(Debug)]
struct Group {
    /// Which of the list of live extents.
    members: Range<usize>,
    /// All of them as one extent, still without a place.
    joined: Extent,
    bytes: Vec<u8>,
}

impl Shared {
    /// Moves all of `extents`, which lie in `victim` as `snapshot` sees it. If it `yields`, it stops where a transaction
    /// needs the space that the copies take.
    pub(super) fn relocate(
        &self,
        snapshot: &Snapshot,
        victim: &Arc<Segment>,
        extents: &[Live],
        pace: Pace,
        yields: bool,
        report: &mut CleanReport,
    ) -> Result<Cleaned> {
        // Small ones in small segments, so that little is left unused at their ends.
        let batch_bytes_max = BATCH_BYTES_MAX.min(self.manifest.segment_bytes / 16) as usize;
        let mut whole = true;
        let mut started = Instant::now();
        let mut batch: Vec<Group> = Vec::new();
        let mut batch_bytes = 0;
        for (index, (key, extent)) in extents.iter().enumerate() {
            let mut bytes = vec![0; extent.len as usize];
            match self.read(extent, 0, &mut bytes) {
                Ok(()) => {}
                Err(error @ (EngineError::Corrupt { .. } | EngineError::Io { .. })) => {
                    if whole {
                        log::error!("cleaning leaves {} as it is: {error}", victim.name());
                    }
                    whole = false;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if batch_bytes > 0 && batch_bytes + bytes.len() > batch_bytes_max {
                self.commit_move(snapshot, extents, std::mem::take(&mut batch), report)?;
                if yields && self.registry.anybody_places() {
                    return Ok(Cleaned::Stopped);
                }
                self.rest(pace, started.elapsed());
                started = Instant::now();
                batch_bytes = 0;
            }
            batch_bytes += bytes.len();
            match batch.last_mut() {
                Some(group)
                    if group.members.end == index
                        && group.takes(&extents[group.members.start].0, key, extent.len) =>
                {
                    group.members.end += 1;
                    group.joined.len += extent.len;
                    group.joined.page_checksums.extend_from_slice(&extent.page_checksums);
                    group.bytes.extend_from_slice(&bytes);
                }
                _ => batch.push(Group {
                    members: index..index + 1,
                    joined: Extent { segment: 0, offset: 0, ..extent.clone() },
                    bytes,
                }),
            }
        }
        if !batch.is_empty() {
            self.commit_move(snapshot, extents, batch, report)?;
        }
        Ok(if whole { Cleaned::Whole } else { Cleaned::Damaged })
    }

    /// Appends the copies, and gives every extent that is still as it was found its new place.
    fn commit_move(
        &self,
        snapshot: &Snapshot,
        extents: &[Live],
        mut batch: Vec<Group>,
        report: &mut CleanReport,
    ) -> Result<()> {
        let described: Vec<Extent> = batch.iter().map(|group| group.joined.clone()).collect();
        let data: Vec<Chunk> = batch
            .iter_mut()
            .map(|group| {
                let key = extents[group.members.start].0.as_slice().try_into().ok();
                Chunk(std::mem::take(&mut group.bytes).into(), key)
            })
            .collect();
        let apply: Apply<'_> = &|read, places| {
            let mut mutations = Vec::new();
            // A named snapshot may have saved one of two neighbours and not the other.
            let joins = Marks::load(read)?.is_none();
            for (group, place) in batch.iter().zip(places) {
                group.apply(read, extents, place, joins, &mut mutations)?;
            }
            Ok(Applied { mutations, ..Applied::default() })
        };
        let commit = Commit::quiet(snapshot, Durability::Ordered, apply);
        let (_, record, _) = self.sequence(
            &Candidate::of_move(&commit),
            &Prepared::none(),
            Purpose::Cleaning,
            &data,
            &described,
            &[],
        )?;
        report.extents += batch.iter().map(|group| group.members.len() as u64).sum::<u64>();
        report.bytes_moved += described.iter().map(|extent| u64::from(extent.len)).sum::<u64>();
        // Not left to those who commit next: the copies are many bytes, and none of theirs.
        self.flush(record, false)
    }
}

impl Group {
    /// True when the extent of `len` bytes under `key` goes on where the group ends; `first` is the group's own key.
    fn takes(&self, first: &[u8], key: &[u8], len: u32) -> bool {
        let (Some((object, page)), Some(next)) = (split(first), split(key)) else { return false };
        page.checked_add(u64::from(self.joined.pages())).is_some_and(|behind| next == (object, behind))
            && self.joined.len.is_multiple_of(PAGE_BYTES as u32)
            && (self.joined.len + len) as usize <= CHUNK_BYTES_MAX
    }

    /// The mutations that give the members their new place, as far as they are still as they were copied.
    fn apply(
        &self,
        read: &dyn Read,
        extents: &[Live],
        place: &Extent,
        joins: bool,
        mutations: &mut Vec<Mutation>,
    ) -> Result<()> {
        let members = &extents[self.members.clone()];
        // The values that hold the extents as they were copied.
        let mut unchanged = Vec::with_capacity(members.len());
        for (key, extent) in members {
            let value = read.get(key)?;
            let same = value
                .as_ref()
                .is_some_and(|value| extent_of(key, value).is_ok_and(|is| is.as_ref() == Some(extent)));
            let blindly = broken::has(Fault::CleanBlindly).then(|| extent.encode());
            unchanged.push(value.filter(|_| same).or(blindly));
        }
        let joined = joins && members.len() > 1 && unchanged.iter().all(Option::is_some);
        let mut page = 0;
        for (index, (key, extent)) in members.iter().enumerate() {
            let key = key.clone();
            if joined && index == 0 {
                mutations.push(Mutation::Put { key, value: place.encode() });
            } else if joined {
                mutations.push(Mutation::Delete { key });
            } else if let Some(value) = &unchanged[index] {
                let moved = place.slice_pages(page, extent.pages());
                let corrupt =
                    |error| EngineError::corrupt(format!("the extent under key {key:02x?}"), &error);
                let value = with_extent(&key, value, &moved).map_err(corrupt)?;
                mutations.push(Mutation::Put { key, value });
            }
            page += extent.pages();
        }
        Ok(())
    }
}
