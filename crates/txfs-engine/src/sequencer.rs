//! The sequencer: everything that the one short critical section of a commit touches.
//!
//! Invariants, whenever the lock is free: the published state is the result of all commits up to `sequence`, the
//! appender's records and the open group of deferred commits contain exactly those commits, and `live_bytes` counts
//! the extents in the published state.

use std::collections::{BTreeMap, HashMap};

use crate::error::{EngineError, Result};
use crate::format::mutation::{Change, Changes};
use crate::format::saved::{extent_location, may_hold_extent};
use crate::format::{CheckpointRecord, Mutation};
use crate::index::{IndexView, Read};
use crate::log::Appender;
use crate::log::appender::Tail;
use crate::txn::claims::ClaimTable;
use crate::txn::deferred::{DEFERRED_SEGMENT, Group};

/// The state under the sequencing lock.
#[derive(Debug)]
pub(crate) struct Sequencer {
    pub(crate) sequence: u64,
    pub(crate) appender: Appender,
    /// What open transactions have claimed.
    pub(crate) claims: ClaimTable,
    pub(crate) live: LiveBytes,
    pub(crate) epoch: u64,
    /// Deferred commits that are not in the log yet.
    pub(crate) group: Group,
    /// Segments that could be taken when somebody looked last: while those are fewer than are kept for others, the room
    /// that is left in the present segment belongs to the reserve as well.
    pub(crate) segments_left: u64,
    /// What users had written when a little was forgotten of how much transactions write ahead of their commits.
    pub(crate) forgot_placed_at: u64,
    /// With less room than this in the present segment, everybody helps to clean before a transaction begins.
    pub(crate) room_least: u64,
    /// With less room than this, the cleaner is called.
    pub(crate) room_wanted: u64,
}

impl Sequencer {
    /// The checkpoint record for the present end of the log.
    pub(crate) fn checkpoint_record(&self) -> CheckpointRecord {
        let Tail { segment, offset, next_record, chain } = self.appender.tail();
        CheckpointRecord {
            chain,
            sequence: self.sequence,
            next_record,
            epoch: self.epoch,
            segment,
            offset: offset as u32,
            live_bytes: self.live.to_list(),
        }
    }
}

/// Live bytes of each segment: the lengths of all extents in the index that point into it, saved ones among them. What
/// several of them cover counts for each, so this may be more than the segment has.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveBytes {
    bytes: HashMap<u64, u64>,
    total: u64,
    /// The commits that took the last live data out of segments, since the volume was opened.
    died: HashMap<u64, u64>,
}

impl LiveBytes {
    pub(crate) fn from_list(list: &[(u64, u64)]) -> LiveBytes {
        let total = list.iter().map(|(_, live)| live).sum();
        LiveBytes { bytes: list.iter().copied().collect(), total, died: HashMap::new() }
    }

    pub(crate) fn to_list(&self) -> Vec<(u64, u64)> {
        let sorted: BTreeMap<u64, u64> = self.bytes.iter().map(|(id, live)| (*id, *live)).collect();
        sorted.into_iter().collect()
    }

    pub(crate) fn of(&self, segment: u64) -> u64 {
        self.bytes.get(&segment).copied().unwrap_or(0)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Fails if `change` frees more than there is: then the accounting is wrong and nothing may be built on it.
    pub(crate) fn check(&self, change: &LiveChange) -> Result<()> {
        for (segment, delta) in &change.deltas {
            if self.of(*segment).checked_add_signed(*delta).is_none() {
                return Err(EngineError::Corrupt {
                    place: format!("the space accounting of segment {segment}"),
                    detail: "more bytes were freed than were live; run `txfs check`".into(),
                });
            }
        }
        Ok(())
    }

    /// Carries out a change that [`LiveBytes::check`] accepted, of commit `sequence`.
    pub(crate) fn apply(&mut self, change: &LiveChange, sequence: u64) {
        for (segment, delta) in &change.deltas {
            match self.of(*segment).saturating_add_signed(*delta) {
                0 => {
                    self.bytes.remove(segment);
                    self.died.insert(*segment, sequence);
                }
                left => {
                    self.bytes.insert(*segment, left);
                }
            };
        }
        self.total = self.total.saturating_add_signed(change.net());
    }

    /// The commit since which nothing in `segment` is live, for a segment in which nothing is; it is forgotten.
    pub(crate) fn take_death(&mut self, segment: u64) -> u64 {
        self.died.remove(&segment).unwrap_or(0)
    }
}

/// How a commit changes the live bytes of segments.
#[derive(Debug, Default)]
pub(crate) struct LiveChange {
    deltas: BTreeMap<u64, i64>,
    /// Changes in the deferred segment, by offset.
    deferred: Vec<(u32, i64)>,
    /// Keys that were changed, extents or not.
    changes: u64,
}

impl LiveChange {
    /// Counts what `other` counts as well.
    pub(crate) fn join(&mut self, other: &LiveChange) {
        for (segment, len) in &other.deltas {
            *self.deltas.entry(*segment).or_default() += len;
        }
        self.deferred.extend_from_slice(&other.deferred);
        self.changes += other.changes;
    }

    /// Notes that so many more keys were changed.
    pub(crate) fn count_changes(&mut self, changes: u64) {
        self.changes += changes;
    }

    /// How many keys were changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// By how much live bytes change altogether.
    pub(crate) fn net(&self) -> i64 {
        self.deltas.values().sum()
    }

    /// By how many bytes parts of the deferred segment come to life or die, with their offsets.
    pub(crate) fn deferred(&self) -> &[(u32, i64)] {
        &self.deferred
    }

    pub(crate) fn add(&mut self, segment: u64, offset: u32, len: i64) {
        if segment >= DEFERRED_SEGMENT {
            self.deferred.push((offset, len));
        }
        *self.deltas.entry(segment).or_default() += len;
    }
}

/// Applies mutations to the view's active memtable and counts how live bytes change along the way: the one place where both
/// happen, for commits and for recovery alike.
pub(crate) fn apply_mutations(
    view: &mut IndexView,
    live: &mut LiveChange,
    mutations: &[Mutation],
) -> Result<()> {
    mutations.iter().try_for_each(|mutation| {
        let is_new = matches!(mutation, Mutation::PutNew { .. });
        let change = Change { key: mutation.key(), value: mutation.value(), is_new };
        apply_change(view, live, &change)
    })
}

/// As [`apply_mutations`], for a list as it stands in a record; `place` names it in errors.
pub(crate) fn apply_encoded(
    view: &mut IndexView,
    live: &mut LiveChange,
    encoded: &[u8],
    place: &dyn Fn() -> String,
) -> Result<()> {
    for change in Changes::of(encoded) {
        apply_change(view, live, &change.map_err(|error| EngineError::corrupt(place(), &error))?)?;
    }
    Ok(())
}

fn apply_change(view: &mut IndexView, live: &mut LiveChange, change: &Change<'_>) -> Result<()> {
    let key = change.key;
    if may_hold_extent(key) {
        if !change.is_new
            && let Some(old) = view.get(key)?
            && let Some((segment, offset, len)) = locate(key, &old)?
        {
            live.add(segment, offset, -i64::from(len));
        }
        if let Some(new) = change.value
            && let Some((segment, offset, len)) = locate(key, new)?
        {
            live.add(segment, offset, i64::from(len));
        }
    }
    view.active.put(key, change.value);
    live.count_changes(1);
    Ok(())
}

/// Segment, offset and length of the extent under `key`, if it holds one.
pub(crate) fn locate(key: &[u8], value: &[u8]) -> Result<Option<(u64, u32, u32)>> {
    extent_location(key, value)
        .map_err(|error| EngineError::corrupt(format!("the extent under key {key:02x?}"), &error))
}
