//! Finds the live extents of a segment.
//!
//! The index says where each extent lies, not which extents lie in a segment. But the segment's own records say who its
//! data was written for: commits carry the keys of their extents, and data written ahead of a commit carries the key as
//! a hint. Whatever still points into the segment stands under one of those keys, or, where later commits cut the
//! extent, at one of the pages that it covered. So each of these ranges is looked up in the index.
//!
//! That may miss some: saved values point to data that was written for other keys, a commit can lie partly in another
//! segment, a record can be damaged, data may have been placed without a hint. The number of live bytes tells. Then the
//! saved values are searched, once for all victims of a pass, and if bytes are missing still, the index from end to end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::engine::Shared;
use crate::error::{EngineError, Result};
use crate::format::saved::{extent_location, extent_of};
use crate::format::{EXTENT_KEY_TAG, Extent, Mutation, PAGE_BYTES, RecordKind, SAVED_KEY_TAGS};
use crate::index::Read;
use crate::log::Segment;
use crate::log::reader::{Found, LogReader};
use crate::txn::{ExtentKey, Snapshot};

/// A live extent and its key.
pub(super) type Live = (Vec<u8>, Extent);

/// The keys of the saved extents in some segments, as they were when somebody looked.
#[derive(Debug, Default)]
pub(super) struct SavedPlaces {
    keys: HashMap<u64, Vec<Vec<u8>>>,
    looked: bool,
}

impl SavedPlaces {
    /// For a pass with these victims; it looks when it has to.
    pub(super) fn of(victims: &[Arc<Segment>]) -> SavedPlaces {
        SavedPlaces { keys: victims.iter().map(|victim| (victim.id, Vec::new())).collect(), looked: false }
    }

    fn look(&mut self, snapshot: &Snapshot) -> Result<()> {
        if std::mem::replace(&mut self.looked, true) {
            return Ok(());
        }
        for tag in SAVED_KEY_TAGS {
            snapshot.scan(&[tag], &[tag + 1], &mut |key, value| {
                // What does not decode is for the check; it does not add up here.
                if let Ok(Some((segment, _, _))) = extent_location(key, value)
                    && let Some(keys) = self.keys.get_mut(&segment)
                {
                    keys.push(key.to_vec());
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}

/// Who a segment's data was written for.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Ranges of pages by object: first page to the page behind the last.
    ranges: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Keys of another form.
    keys: BTreeSet<Vec<u8>>,
}

impl Shared {
    /// Everything in `victim` that `snapshot` refers to, which is `live` bytes, in order of the keys.
    pub(super) fn find_live(
        &self,
        snapshot: &Snapshot,
        victim: &Arc<Segment>,
        live: u64,
        saved: &mut SavedPlaces,
    ) -> Result<Vec<Live>> {
        // What is still in memory would not be found in the file.
        self.write_pending()?;
        let mut owners = Owners::read(self, victim)?;
        let mut found = owners.look_up(snapshot, victim.id)?;
        if bytes(&found) != live {
            saved.look(snapshot)?;
            owners.keys.extend(saved.keys.get(&victim.id).into_iter().flatten().cloned());
            found = owners.look_up(snapshot, victim.id)?;
        }
        if bytes(&found) == live {
            return Ok(found);
        }
        log::debug!("{}: {} of {live} live bytes are found by its records", victim.name(), bytes(&found));
        let mut found = Vec::new();
        for tag in SAVED_KEY_TAGS.iter().chain([&EXTENT_KEY_TAG]) {
            collect(snapshot, &[*tag], &[*tag + 1], victim.id, &mut found)?;
        }
        found.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(found)
    }
}

impl Owners {
    /// Reads the records of the segment's present life.
    fn read(shared: &Shared, victim: &Arc<Segment>) -> Result<Owners> {
        let mut owners = Owners::default();
        let Some(header) = victim.header() else { return Ok(owners) };
        let mut parts = Vec::new();
        LogReader::of_segment(&shared.manifest, &header).scan_segment(victim, &mut |found: Found<'_>| {
            match found.header.kind {
                RecordKind::Data => {
                    for mutation in Mutation::decode_all(found.mutations).unwrap_or_default() {
                        owners.add(mutation.key(), u64::from(found.header.data_len));
                    }
                }
                RecordKind::Part => parts.extend_from_slice(found.mutations),
                RecordKind::Commit => {
                    if found.header.parts == 0 {
                        parts.clear();
                    }
                    parts.extend_from_slice(found.mutations);
                    // Not to be decoded where its first part lies in the segment before.
                    for mutation in Mutation::decode_all(&parts).unwrap_or_default() {
                        let place = mutation.value().map(|value| extent_location(mutation.key(), value));
                        if let Some(Ok(Some((segment, _, len)))) = place
                            && segment == victim.id
                        {
                            owners.add(mutation.key(), u64::from(len));
                        }
                    }
                    parts.clear();
                }
            }
            Ok(())
        })?;
        Ok(owners)
    }

    /// Notes that `len` bytes were written for `key`.
    fn add(&mut self, key: &[u8], len: u64) {
        let Some((object, page)) = split(key) else {
            self.keys.insert(key.to_vec());
            return;
        };
        let behind = page.saturating_add(len.div_ceil(PAGE_BYTES as u64));
        let last = self.ranges.entry(object).or_default().entry(page).or_default();
        *last = behind.max(*last);
    }

    fn look_up(&self, snapshot: &Snapshot, segment: u64) -> Result<Vec<Live>> {
        let mut found = Vec::new();
        for (object, ranges) in &self.ranges {
            // Ranges that touch are one scan.
            let mut joined: Option<(u64, u64)> = None;
            for (&first, &behind) in ranges {
                match &mut joined {
                    Some(range) if first <= range.1 => range.1 = range.1.max(behind),
                    _ => {
                        scan(snapshot, *object, joined, segment, &mut found)?;
                        joined = Some((first, behind));
                    }
                }
            }
            scan(snapshot, *object, joined, segment, &mut found)?;
        }
        for key in &self.keys {
            if let Some(value) = snapshot.get(key)? {
                add_if_in(segment, key, &value, &mut found)?;
            }
        }
        found.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(found)
    }
}

fn scan(
    snapshot: &Snapshot,
    object: u64,
    pages: Option<(u64, u64)>,
    segment: u64,
    found: &mut Vec<Live>,
) -> Result<()> {
    let Some((first, behind)) = pages else { return Ok(()) };
    collect(snapshot, &join(object, first), &join(object, behind), segment, found)
}

/// Adds the extents between two keys that lie in `segment`.
fn collect(snapshot: &Snapshot, from: &[u8], to: &[u8], segment: u64, found: &mut Vec<Live>) -> Result<()> {
    let mut failed = None;
    snapshot.scan(from, to, &mut |key, value| match add_if_in(segment, key, value, found) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn add_if_in(segment: u64, key: &[u8], value: &[u8], found: &mut Vec<Live>) -> Result<()> {
    let corrupt = |error| EngineError::corrupt(format!("the extent under key {key:02x?}"), &error);
    if extent_location(key, value).map_err(corrupt)?.is_some_and(|place| place.0 == segment)
        && let Some(extent) = extent_of(key, value).map_err(corrupt)?
    {
        found.push((key.to_vec(), extent));
    }
    Ok(())
}

fn bytes(found: &[Live]) -> u64 {
    found.iter().map(|(_, extent)| u64::from(extent.len)).sum()
}

/// Object and page of a key, if it has that form.
pub(super) fn split(key: &[u8]) -> Option<(u64, u64)> {
    let key: &ExtentKey = key.try_into().ok()?;
    let (mut object, mut page) = ([0; 8], [0; 8]);
    object.copy_from_slice(&key[1..9]);
    page.copy_from_slice(&key[9..]);
    (key[0] == EXTENT_KEY_TAG).then_some((u64::from_be_bytes(object), u64::from_be_bytes(page)))
}

fn join(object: u64, page: u64) -> ExtentKey {
    let mut key = [EXTENT_KEY_TAG; 17];
    key[1..9].copy_from_slice(&object.to_be_bytes());
    key[9..].copy_from_slice(&page.to_be_bytes());
    key
}
