//! Deferred commits, merged: several of them become one *compound* record of the log, in which a key that was changed
//! several times appears once, and data that was overwritten or deleted in the meantime not at all (TxFS, ATC'18,
//! consolidates its transactions in memory for the same reason).
//!
//! A deferred commit is validated, applied and published like any other, but gets no place in the log. Its data stays
//! in memory, under extents that point into a *deferred segment*: a number that no segment file has, one for each
//! group. When the group is sealed, what is left of it goes into one commit record; the extents that still stand in the
//! index get their places then, and the state with these is published under the same commit number. So
//! * on disk there is never a deferred segment: every checkpoint and every commit of another kind seals first, and
//!   the commits keep their order;
//! * after a crash all of a group is there or nothing of it;
//! * a snapshot that was taken while the group was open goes on reading from memory: a group's data is kept until no
//!   reader is left that may have seen it.
//!
//! Bounds. A group never holds more than fits into the present segment, nor more than a budget; what exceeds it seals
//! the group, and a commit too large by itself is written like an ordered one. While sealed groups that old snapshots
//! still see fill the budget, nothing is merged. In time a group is bounded by the writer thread, which seals it within
//! a second.
//!
//! Locking: [`Group`] belongs to the sequencer. [`DeferredData`] has a lock of its own, an innermost one, since readers
//! take it; it is changed with the sequencer's lock held only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::Chunk;
use super::commit::{Candidate, Receipt};
use super::prepared::Prepared;
use super::sequencing::{encode, locate};
use super::snapshot::State;
use crate::engine::Shared;
use crate::error::{EngineError, Result};
use crate::format::mutation::{Change, Changes};
use crate::format::record::RECORD_HEADER_BYTES;
use crate::format::saved::{extent_location, extent_of, split_saved_key, with_extent};
use crate::format::{Extent, Mutation};
use crate::log::appender::Kind;
use crate::log::pool::Purpose;
use crate::sequencer::{LiveChange, Sequencer, apply_mutations};

/// Deferred segments have numbers from this one on, segment files below it.
pub(crate) const DEFERRED_SEGMENT: u64 = 1 << 63;

/// The most that a group holds; the critical section copies so much when it is sealed.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Commits with more data than this are not deferred: they gain little, and fill the group.
const COMMIT_BYTES_MAX: usize = 64 << 10;
/// Framing of a mutation in the record.
const MUTATION_OVERHEAD_BYTES: usize = 7;

/// The open group: what its commits have changed so far.
#[derive(Debug)]
pub(crate) struct Group {
    /// Its deferred segment.
    segment: u64,
    commits: u64,
    /// The first commit in it.
    first: u64,
    /// What each key is to be.
    mutations: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    mutation_bytes: usize,
    /// Live bytes of each chunk, by its place.
    live: BTreeMap<u32, u64>,
    /// Chunks without live bytes, and the commits that made them so, oldest first.
    dead: VecDeque<(u64, u32)>,
    /// Bytes of all chunks that are still in memory.
    data_bytes: usize,
    /// Bytes of saved extents: what they share with others goes into the record once more for each.
    saved_bytes: usize,
    next_offset: u32,
}

impl Group {
    pub(crate) fn new() -> Group {
        Group::at(DEFERRED_SEGMENT)
    }

    fn at(segment: u64) -> Group {
        Group {
            segment,
            commits: 0,
            first: 0,
            mutations: BTreeMap::new(),
            mutation_bytes: 0,
            live: BTreeMap::new(),
            dead: VecDeque::new(),
            data_bytes: 0,
            saved_bytes: 0,
            next_offset: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commits == 0
    }

    /// No more than this goes into the record.
    fn record_bytes_max(&self) -> usize {
        self.data_bytes + self.saved_bytes + self.mutation_bytes
    }

    /// Room that must stay in the present segment for the group's record.
    pub(crate) fn reserved_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.record_bytes_max() + 2 * RECORD_HEADER_BYTES }
    }

    /// Takes a commit's chunks, which are placed already, and its mutations; they change the live bytes of chunks as
    /// `changes` says.
    fn add(&mut self, sequence: u64, fresh: Vec<u32>, mutations: &[u8], changes: &[(u32, i64)]) {
        if self.commits == 0 {
            self.first = sequence;
        }
        self.commits += 1;
        // They were made a moment ago: there are none that cannot be read.
        for change in Changes::of(mutations).flatten() {
            let (key, value) = (change.key.to_vec(), change.value.map(<[u8]>::to_vec));
            let value_len = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
            let (key_len, len) = (key.len(), value_len(&value));
            match self.mutations.insert(key, value) {
                Some(old) => self.mutation_bytes = self.mutation_bytes + len - value_len(&old),
                None => self.mutation_bytes += MUTATION_OVERHEAD_BYTES + key_len + len,
            }
        }
        // An extent that is cut goes before its pieces come: only what has no live bytes at the end is dead.
        let mut touched = fresh;
        for &(offset, delta) in changes {
            if let Some((&chunk, live)) = self.live.range_mut(..=offset).next_back() {
                *live = live.saturating_add_signed(delta);
                touched.push(chunk);
            }
        }
        for chunk in touched {
            if self.live.get(&chunk) == Some(&0) {
                self.live.remove(&chunk);
                self.dead.push_back((sequence, chunk));
            }
        }
    }
}

/// The data of deferred commits, for readers.
#[derive(Debug, Default)]
pub(crate) struct DeferredData {
    /// By deferred segment.
    groups: Mutex<BTreeMap<u64, GroupData>>,
}

#[derive(Debug, Default)]
struct GroupData {
    /// The first and the last commit whose snapshots may refer to it; the last is not known before it is sealed.
    commits: Option<(u64, u64)>,
    chunks: BTreeMap<u32, Arc<[u8]>>,
}

impl DeferredData {
    /// Copies the bytes from `skip` on of `extent`; false when they are not here, which must not be.
    pub(crate) fn read(&self, extent: &Extent, skip: usize, out: &mut [u8]) -> bool {
        let Some((start, chunk)) = self.chunk(extent) else { return false };
        let from = (extent.offset - start) as usize + skip;
        match chunk.get(from..from + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    fn chunk(&self, extent: &Extent) -> Option<(u32, Arc<[u8]>)> {
        let groups = self.groups.lock();
        let chunks = &groups.get(&extent.segment)?.chunks;
        chunks.range(..=extent.offset).next_back().map(|(start, chunk)| (*start, chunk.clone()))
    }

    fn insert(&self, segment: u64, offset: u32, chunk: Arc<[u8]>) {
        self.groups.lock().entry(segment).or_default().chunks.insert(offset, chunk);
    }

    /// Drops a chunk; returns its length.
    fn remove(&self, segment: u64, offset: u32) -> usize {
        let chunk = self.groups.lock().get_mut(&segment).and_then(|group| group.chunks.remove(&offset));
        chunk.map_or(0, |chunk| chunk.len())
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        let groups = self.groups.lock();
        groups.values().flat_map(|group| group.chunks.values()).map(|chunk| chunk.len() as u64).sum()
    }

    fn seal(&self, segment: u64, first: u64, last: u64) {
        if let Some(group) = self.groups.lock().get_mut(&segment) {
            group.commits = Some((first, last));
        }
    }

    /// Drops the sealed groups that nobody can see any more; returns the bytes of those that stay.
    fn prune(&self, seen: impl Fn(u64, u64) -> bool) -> usize {
        let mut sealed_bytes = 0;
        self.groups.lock().retain(|_, group| {
            let Some((first, last)) = group.commits else { return true };
            let stays = seen(first, last);
            if stays {
                sealed_bytes += group.chunks.values().map(|chunk| chunk.len()).sum::<usize>();
            }
            stays
        });
        sealed_bytes
    }
}

impl Shared {
    /// The critical section of a deferred commit. `None` when it cannot be merged, and has to be written by itself.
    pub(crate) fn defer(
        &self,
        candidate: &Candidate<'_>,
        prepared: &Prepared<'_>,
        data: &[Chunk],
        described: &[Extent],
    ) -> Result<Option<Receipt>> {
        let data_len: usize = data.iter().map(|chunk| chunk.0.len()).sum();
        let budget =
            GROUP_BYTES_MAX.min(self.options.queue_bytes_max).min(self.manifest.segment_bytes as usize / 4);
        if data_len > COMMIT_BYTES_MAX.min(budget) {
            return Ok(None);
        }
        let mut guard = self.sequencer.lock();
        let sequencer = &mut *guard;
        let commit = candidate.commit;
        self.validate(sequencer, candidate)?;
        if data_len > 0 {
            self.check_reserve(sequencer, Purpose::Data)?;
        }
        let seen = |first, last| self.registry.reads_between(first, last);
        if self.deferred.prune(seen) > budget {
            return Ok(None);
        }
        self.sweep(sequencer);
        let mut mutation_bytes = Vec::new();
        let mut saved;
        let (current, applied, met) = loop {
            let current = self.state.load();
            let group = &sequencer.group;
            let extents = locate(described, group.segment, group.next_offset);
            let mut applied = (commit.apply)(&current.view, &extents)?;
            let met = self.meet_kept(sequencer, candidate, &current.view, prepared, &mut applied)?;
            applied.number(sequencer.sequence + 1);
            self.save_for_snapshots(candidate, &current, prepared, &mut applied)?;
            mutation_bytes.clear();
            mutation_bytes.extend_from_slice(prepared.encoded);
            encode(&applied, &mut mutation_bytes)?;
            saved = saved_bytes(&mutation_bytes);
            let more = data_len + saved + mutation_bytes.len();
            let room = sequencer.appender.room().saturating_sub(2 * RECORD_HEADER_BYTES).min(budget);
            let fits = group.record_bytes_max() + more <= room
                && group.next_offset.checked_add(data_len as u32).is_some();
            match fits {
                true => break (current, applied, met),
                false if group.is_empty() => return Ok(None),
                false => self.seal(sequencer)?,
            }
        };
        let (state, live) = self.next_state(sequencer, candidate, &current, prepared, &applied.mutations)?;

        // Nothing fails from here on. What readers may look for is there before they can know of it.
        let sequence = sequencer.sequence + 1;
        let group = &mut sequencer.group;
        let mut fresh = Vec::with_capacity(data.len());
        for chunk in data {
            self.deferred.insert(group.segment, group.next_offset, chunk.0.clone());
            fresh.push(group.next_offset);
            group.live.insert(group.next_offset, 0);
            group.next_offset += chunk.0.len() as u32;
        }
        group.data_bytes += data_len;
        group.saved_bytes += saved;
        group.add(sequence, fresh, &mutation_bytes, live.deferred());
        self.publish(sequencer, candidate, applied.also_writes, met, &live, state);
        Ok(Some(Receipt { sequence }))
    }

    /// Drops the open group's dead chunks, as far as no reader can see them.
    fn sweep(&self, sequencer: &mut Sequencer) {
        let group = &mut sequencer.group;
        while let Some(&(died, offset)) = group.dead.front() {
            if self.registry.reads_between(group.first, died - 1) {
                return;
            }
            group.dead.pop_front();
            let len = self.deferred.remove(group.segment, offset);
            group.data_bytes -= len;
            self.counters.deferred_bytes_dropped.fetch_add(len as u64, Ordering::Relaxed);
        }
    }

    /// Writes the open group into the log as one record; afterwards no deferred segment is referred to by the present
    /// state. There is room for it: whoever takes some leaves as much as the group needs.
    pub(crate) fn seal(&self, sequencer: &mut Sequencer) -> Result<()> {
        if sequencer.group.is_empty() {
            return Ok(());
        }
        if sequencer.appender.room() < sequencer.group.reserved_bytes() {
            self.switch_segment(sequencer, Purpose::Metadata)?;
        }
        let current = self.state.load();
        let group = &sequencer.group;
        let segment = sequencer.appender.segment().id;
        let mut offset = sequencer.appender.data_start();
        let mut mutation_bytes = Vec::with_capacity(group.mutation_bytes);
        let mut moved = Vec::new();
        let mut data: Vec<(u32, Arc<[u8]>)> = Vec::new();
        for (key, value) in &group.mutations {
            let mutation = match value {
                None => Mutation::Delete { key: key.clone() },
                Some(value) => match self.deferred_extent(group.segment, key, value)? {
                    None => Mutation::Put { key: key.clone(), value: value.clone() },
                    Some((extent, bytes)) => {
                        let placed = Extent { segment, offset, ..extent };
                        data.push((offset, bytes));
                        offset += placed.len;
                        let corrupt = |error| EngineError::corrupt("a deferred extent", &error);
                        let value = with_extent(key, value, &placed).map_err(corrupt)?;
                        let mutation = Mutation::Put { key: key.clone(), value };
                        moved.push(mutation.clone());
                        mutation
                    }
                },
            };
            mutation.encode_into(&mut mutation_bytes);
        }
        let mut view = current.view.clone();
        let mut live = LiveChange::default();
        apply_mutations(&mut view, &mut live, &moved)?;
        sequencer.live.check(&live)?;

        let sequence = sequencer.sequence;
        let slices: Vec<&[u8]> = data.iter().map(|(_, bytes)| &**bytes).collect();
        let before = sequencer.appender.queued_bytes();
        let record = sequencer.appender.append(Kind::Commit { parts: 0 }, sequence, &slices, &mutation_bytes);
        let bytes = (sequencer.appender.queued_bytes() - before) as u64;
        self.count_log(bytes, sequencer.group.mutations.len() as u64);
        for (offset, bytes) in data {
            self.recent.insert(segment, offset, record, bytes);
        }
        let next = Group::at(sequencer.group.segment + 1);
        let group = std::mem::replace(&mut sequencer.group, next);
        sequencer.live.apply(&live, sequence);
        sequencer.live.take_death(group.segment);
        let left: u64 = group.live.values().sum();
        let dropped = (group.data_bytes as u64).saturating_sub(left);
        self.counters.deferred_bytes_dropped.fetch_add(dropped, Ordering::Relaxed);
        self.counters.commits_merged.fetch_add(group.commits - 1, Ordering::Relaxed);
        self.state.store(State { sequence, view, marks: current.marks.clone() });
        self.deferred.seal(group.segment, group.first, sequence);
        self.deferred.prune(|first, last| self.registry.reads_between(first, last));
        Ok(())
    }

    /// The extent under `key`, and its data, if it lies in the deferred segment.
    fn deferred_extent(&self, segment: u64, key: &[u8], value: &[u8]) -> Result<Option<(Extent, Arc<[u8]>)>> {
        let corrupt = |error| EngineError::corrupt(format!("the extent under key {key:02x?}"), &error);
        let Some(extent) = extent_of(key, value).map_err(corrupt)? else { return Ok(None) };
        if extent.segment != segment {
            return Ok(None);
        }
        let missing = || EngineError::Corrupt {
            place: format!("the extent under key {key:02x?}"),
            detail: "it was deferred, and its data is not in memory".into(),
        };
        let (start, chunk) = self.deferred.chunk(&extent).ok_or_else(missing)?;
        let (from, len) = ((extent.offset - start) as usize, extent.len as usize);
        if from == 0 && len == chunk.len() {
            return Ok(Some((extent, chunk)));
        }
        let bytes = chunk.get(from..from + len).ok_or_else(missing)?;
        Ok(Some((extent, bytes.into())))
    }
}

/// Bytes of the saved extents among `mutations` whose data is only in memory.
fn saved_bytes(mutations: &[u8]) -> usize {
    let deferred = |change: Change<'_>| {
        split_saved_key(change.key)?;
        let (segment, _, len) = extent_location(change.key, change.value?).ok()??;
        (segment >= DEFERRED_SEGMENT).then_some(len as usize)
    };
    Changes::of(mutations).flatten().filter_map(deferred).sum()
}
