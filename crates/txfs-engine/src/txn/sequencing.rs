//! The critical section of a commit: validate, apply, append, publish.
//!
//! It runs under the sequencer's lock. Nothing is published before everything that may fail has succeeded; what was
//! appended for a commit that then fails is garbage that no commit record claims.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Shared;
use crate::error::{ConflictReport, EngineError, Result};
use crate::format::record::RECORD_HEADER_BYTES;
use crate::format::{Extent, Mutation};
use crate::log::appender::Kind;
use crate::log::pool::Purpose;
use crate::named::Marks;
use crate::named::saving::save;
use crate::placing::check_len;
use crate::sequencer::{LiveChange, Sequencer, apply_mutations};
use crate::space::MANY_CHANGES;
use crate::txn::commit::{Applied, Candidate, Pin, Receipt};
use crate::txn::history::CommitNote;
use crate::txn::kept::{KeptStep, Met};
use crate::txn::prepared::Prepared;
use crate::txn::snapshot::State;
use crate::txn::{Chunk, ConflictSet};

/// The longest piece of mutations in one record, in bytes.
const PART_BYTES_MAX: usize = 1 << 20;
/// What the mutations of a small commit take at most.
const USUAL_MUTATION_BYTES: usize = 512;

impl Shared {
    /// The critical section. `described` are the chunks' checksums, still without a place. With large prepared mutations
    /// there is no `data`.
    pub(crate) fn sequence(
        &self,
        candidate: &Candidate<'_>,
        prepared: &Prepared<'_>,
        purpose: Purpose,
        data: &[Chunk],
        described: &[Extent],
        placed: &[Extent],
    ) -> Result<(Receipt, u64, usize)> {
        let mut guard = self.sequencer.lock();
        let sequencer = &mut *guard;
        let commit = candidate.commit;
        self.validate(sequencer, candidate)?;
        self.seal(sequencer)?;
        let current = self.state.load();
        let data_len: usize = data.iter().map(|chunk| chunk.0.len()).sum();
        let mut mutation_bytes = Vec::with_capacity(USUAL_MUTATION_BYTES);
        let mut pins = Vec::new();

        // Where the data goes decides the mutations, and their size decides whether it all fits there.
        if sequencer.appender.room() < data_len + RECORD_HEADER_BYTES {
            self.switch_segment(sequencer, purpose)?;
        } else {
            self.check_reserve(sequencer, purpose)?;
        }
        let mut inline = true;
        let (applied, met) = loop {
            let extents = match (data.is_empty(), inline) {
                (true, _) => placed.to_vec(),
                (false, true) => {
                    locate(described, sequencer.appender.segment().id, sequencer.appender.data_start())
                }
                (false, false) => {
                    let mut extents = Vec::new();
                    for (chunk, extent) in data.iter().zip(described) {
                        pins.push(self.append_data(sequencer, purpose, chunk, extent, &mut extents)?);
                    }
                    extents
                }
            };
            let mut applied = (commit.apply)(&current.view, &extents)?;
            let met = self.meet_kept(sequencer, candidate, &current.view, prepared, &mut applied)?;
            applied.number(sequencer.sequence + 1);
            self.save_for_snapshots(candidate, &current, prepared, &mut applied)?;
            mutation_bytes.clear();
            if !prepared.is_large() {
                mutation_bytes.extend_from_slice(prepared.encoded);
            }
            encode(&applied, &mut mutation_bytes)?;
            let inline_len = if inline { data_len } else { 0 };
            if !inline || sequencer.appender.room() >= inline_len + mutation_bytes.len() {
                break (applied, met);
            }
            if mutation_bytes.len() + data_len < PART_BYTES_MAX.min(self.manifest.segment_bytes as usize / 2)
                && !sequencer.appender.is_fresh()
            {
                self.switch_segment(sequencer, purpose)?;
            } else {
                inline = false;
            }
        };

        // From here on only the append of what fits may fail, before anything is published.
        let (state, live) = self.next_state(sequencer, candidate, &current, prepared, &applied.mutations)?;
        let sequence = sequencer.sequence + 1;
        let slices: Vec<&[u8]> =
            if inline { data.iter().map(|chunk| &*chunk.0).collect() } else { Vec::new() };
        let before = sequencer.appender.queued_bytes();
        let inline_len = data_len * usize::from(inline);
        let mut parts = 0;
        if prepared.is_large() {
            let mut rest = prepared.encoded;
            while !rest.is_empty() {
                rest = self.append_part(sequencer, purpose, sequence, rest, &mut parts)?;
            }
        }
        let mut last = mutation_bytes.as_slice();
        while last.len() + inline_len > sequencer.appender.room() {
            last = self.append_part(sequencer, purpose, sequence, last, &mut parts)?;
        }
        let (segment, offset) = (sequencer.appender.segment().id, sequencer.appender.data_start());
        let record = sequencer.appender.append(Kind::Commit { parts }, sequence, &slices, last);
        if inline {
            for (chunk, extent) in data.iter().zip(locate(described, segment, offset)) {
                self.recent.insert(extent.segment, extent.offset, record, chunk.0.clone());
            }
        }
        self.note_room(sequencer);
        let queued = sequencer.appender.queued_bytes();
        self.count_log((queued - before) as u64, live.changes());
        self.publish(sequencer, candidate, applied.also_writes, met, &live, state);
        // What is left is only given back, the state before this one among it; nobody has to wait for that.
        drop(guard);
        Ok((Receipt { sequence }, record, queued))
    }

    /// Adds what a named snapshot needs of the values that the commit replaces.
    pub(super) fn save_for_snapshots(
        &self,
        candidate: &Candidate<'_>,
        current: &State,
        prepared: &Prepared<'_>,
        applied: &mut Applied,
    ) -> Result<()> {
        match &current.marks {
            Some(marks) if !candidate.moves => save(&current.view, marks, prepared, &mut applied.mutations),
            _ => Ok(()),
        }
    }

    /// What a commit makes of the current state, and how that changes live bytes; an error when there is no room for them.
    pub(super) fn next_state(
        &self,
        sequencer: &Sequencer,
        candidate: &Candidate<'_>,
        current: &State,
        prepared: &Prepared<'_>,
        mutations: &[Mutation],
    ) -> Result<(State, LiveChange)> {
        let mut view = current.view.clone();
        let mut live = LiveChange::default();
        prepared.apply(&mut view, &mut live)?;
        apply_mutations(&mut view, &mut live, mutations)?;
        sequencer.live.check(&live)?;
        if !candidate.step.is_some_and(KeptStep::is_assured) {
            self.check_live_bytes(sequencer, live.net())?;
        }
        let marks = Marks::after(&current.marks, &view, mutations)?;
        Ok((State { sequence: sequencer.sequence + 1, view, marks }, live))
    }

    /// Shows the new state to everybody, and notes what the commit that led to it has changed.
    pub(super) fn publish(
        &self,
        sequencer: &mut Sequencer,
        candidate: &Candidate<'_>,
        also_writes: ConflictSet,
        met: Met,
        live: &LiveChange,
        state: State,
    ) {
        let sequence = state.sequence;
        let oldest = self.registry.oldest(|| sequencer.sequence);
        sequencer.sequence = sequence;
        sequencer.live.apply(live, sequence);
        sequencer.claims.kept.settle(candidate.step, met);
        self.state.store(state);
        let mut history = self.history.lock();
        history.forget_up_to(oldest);
        if let Some(note) = candidate.note.as_ref().filter(|_| also_writes.is_empty()) {
            history.record(note.clone(), sequence);
        } else if !also_writes.is_empty() {
            let mut ranges: Vec<_> = also_writes.iter().collect();
            let origin = candidate.note.as_ref().map(|note| note.origin.clone()).unwrap_or_default();
            ranges.extend(candidate.note.iter().flat_map(|note| &note.ranges));
            ranges.sort_unstable_by_key(|range| (range.space, range.object, range.first));
            history.record(Arc::new(CommitNote { ranges, origin }), sequence);
        }
        drop(history);
        // Last: whoever sees the number finds in the history what the commit wrote.
        self.published.store(sequence, Ordering::Release);
    }

    pub(super) fn validate(&self, sequencer: &Sequencer, candidate: &Candidate<'_>) -> Result<()> {
        let commit = candidate.commit;
        let snapshot = commit.snapshot.sequence();
        self.validate_kept(sequencer, candidate)?;
        if sequencer.sequence == snapshot && sequencer.claims.is_free() {
            return Ok(());
        }
        let mut report = ConflictReport::default();
        {
            let history = self.history.lock();
            history.overtaken(commit.writes.iter(), true, snapshot, &mut report);
            history.overtaken(commit.reads.iter(), false, snapshot, &mut report);
        }
        if let Some(age) = candidate.age {
            sequencer.claims.violated(commit.writes, age, &mut report);
        }
        if report.is_empty() {
            return Ok(());
        }
        self.counters.conflicts.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::Conflict(Box::new(report)))
    }

    /// Appends a piece of the mutations as a part record and returns the rest of them; where there is hardly any room,
    /// it only goes on to another segment.
    fn append_part<'m>(
        &self,
        sequencer: &mut Sequencer,
        purpose: Purpose,
        sequence: u64,
        mutations: &'m [u8],
        parts: &mut u16,
    ) -> Result<&'m [u8]> {
        let piece = sequencer.appender.room().min(PART_BYTES_MAX).min(mutations.len());
        if piece < mutations.len().min(4096) {
            self.switch_segment(sequencer, purpose).map_err(|error| match error {
                EngineError::NoSpace { .. } => EngineError::NoSpace { doing: MANY_CHANGES.into() },
                error => error,
            })?;
            return Ok(mutations);
        }
        *parts = parts.checked_add(1).ok_or_else(|| {
            EngineError::TooLarge(
                "the transaction changes more names and attributes than one commit can hold".into(),
            )
        })?;
        let (piece, rest) = mutations.split_at(piece);
        sequencer.appender.append(Kind::Part, sequence, &[], piece);
        Ok(rest)
    }

    /// Appends one chunk as a data record; the pin keeps its segment until the commit has counted it as live.
    fn append_data(
        &self,
        sequencer: &mut Sequencer,
        purpose: Purpose,
        chunk: &Chunk,
        described: &Extent,
        extents: &mut Vec<Extent>,
    ) -> Result<Pin> {
        // Whose data it is, for the cleaner: the commit that will say so may lie in another segment.
        let mut owner = Vec::new();
        if let Some(key) = chunk.1 {
            Mutation::Put { key: key.to_vec(), value: Vec::new() }.encode_into(&mut owner);
        }
        if sequencer.appender.room() < chunk.0.len() + owner.len() + sequencer.group.reserved_bytes() {
            self.seal(sequencer)?;
        }
        if sequencer.appender.room() < chunk.0.len() + owner.len() {
            self.switch_segment(sequencer, purpose)?;
        } else {
            self.check_reserve(sequencer, purpose)?;
        }
        let pin = Pin::new(&sequencer.appender.segment().pins);
        let extent = locate(
            std::slice::from_ref(described),
            sequencer.appender.segment().id,
            sequencer.appender.data_start(),
        )
        .remove(0);
        let record = sequencer.appender.append(Kind::Data, 0, &[&chunk.0], &owner);
        self.recent.insert(extent.segment, extent.offset, record, chunk.0.clone());
        self.count_log(chunk.0.len() as u64, 0);
        self.note_room(sequencer);
        extents.push(extent);
        Ok(pin)
    }
}

/// Computes the checksums of the chunks, outside of any lock.
pub(crate) fn describe(chunks: &[Chunk]) -> Result<Vec<Extent>> {
    chunks
        .iter()
        .map(|chunk| {
            check_len(&chunk.0)?;
            Ok(Extent::describe(0, 0, &chunk.0))
        })
        .collect()
}

/// Gives described chunks their places, one after the other.
pub(super) fn locate(described: &[Extent], segment: u64, mut offset: u32) -> Vec<Extent> {
    described
        .iter()
        .map(|extent| {
            let placed = Extent { segment, offset, ..extent.clone() };
            offset += extent.len;
            placed
        })
        .collect()
}

/// Appends the mutations to `bytes`.
pub(super) fn encode(applied: &Applied, bytes: &mut Vec<u8>) -> Result<()> {
    use crate::format::mutation::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
    for mutation in &applied.mutations {
        let value_len = mutation.value().map_or(0, <[u8]>::len);
        if mutation.key().is_empty() || mutation.key().len() > KEY_BYTES_MAX || value_len > VALUE_BYTES_MAX {
            let text = format!("a key of {} or a value of {value_len} bytes", mutation.key().len());
            return Err(EngineError::TooLarge(text));
        }
        Mutation::encode_into(mutation, bytes);
    }
    Ok(())
}
