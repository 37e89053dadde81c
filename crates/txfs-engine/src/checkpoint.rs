//! Checkpoints: what the log holds goes into the index, so that recovery starts later and segments come free.
//!
//! 1. *Freeze*, in the critical section: the active memtable becomes the frozen one, commits go on into an empty
//!    one, and the end of the log is noted.
//! 2. *Flush* the log up to there: the index must never refer to data that is not on stable storage.
//! 3. *Write* the frozen entries and the checkpoint record into the index, atomically and durably.
//! 4. *Publish* the new base, and retire the segments in which nothing was live at the freeze, and nothing waited for
//!    its commit: from then on nothing can begin to refer to them.
//!
//! If step 2 or 3 fails, the frozen memtable stays in the view and the next checkpoint goes on with it. After an
//! index error other than lack of space it is unknown what the index file holds, so the volume is poisoned.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::broken::{self, Fault};
use crate::engine::Shared;
use crate::error::Result;
use crate::format::CheckpointRecord;
use crate::index::{IndexError, Memtable};
use crate::log::Segment;
use crate::txn::snapshot::State;

/// A checkpoint that has begun.
#[derive(Debug)]
struct Frozen {
    record: CheckpointRecord,
    last_record: u64,
    /// Segments that were complete at the freeze and held nothing that was live or waited for its commit, so nothing
    /// can refer to them any more; with the commits that made them so.
    dead: Vec<(Arc<Segment>, u64)>,
}

/// How long the log's own thread may take to write what a checkpoint waits for.
const WRITING_PATIENCE: Duration = Duration::from_millis(100);

/// What the checkpoint lock protects.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    frozen: Option<Frozen>,
}

impl Shared {
    /// Makes a checkpoint of everything committed so far.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut checkpoints = self.checkpointing.lock();
        if checkpoints.frozen.is_some() {
            self.finish(&mut checkpoints)?;
        }
        checkpoints.frozen = Some(self.freeze()?);
        self.finish(&mut checkpoints)
    }

    /// As [`Shared::checkpoint`], unless the index already holds everything.
    pub(crate) fn checkpoint_if_changed(&self) -> Result<()> {
        let view = self.view();
        if view.active.is_empty() && view.frozen.is_none() && self.log_bytes_since_checkpoint() == 0 {
            return Ok(());
        }
        self.checkpoint()
    }

    /// Wakes the thread that makes checkpoints when one is due; where it does not keep up, or does not exist, the
    /// committer makes the checkpoint itself, so that memory and recovery time stay bounded.
    pub(crate) fn checkpoint_if_due(&self) {
        let distance = self.options.checkpoint_distance_bytes;
        let since = self.replay_distance();
        if since < distance {
            return;
        }
        if self.options.background && since < distance.saturating_mul(4) {
            self.wake.maintenance();
        } else if let Err(error) = self.checkpoint() {
            log::warn!("checkpoint: {error}");
        }
    }

    pub(crate) fn log_bytes_since_checkpoint(&self) -> u64 {
        self.log_bytes_since_checkpoint.load(Ordering::Relaxed)
    }

    /// What recovery would have to replay now, in the unit of [`crate::EngineOptions::checkpoint_distance_bytes`].
    pub(crate) fn replay_distance(&self) -> u64 {
        let changes = self.changes_since_checkpoint.load(Ordering::Relaxed);
        self.log_bytes_since_checkpoint() + changes.saturating_mul(self.options.checkpoint_change_bytes)
    }

    /// Counts what was appended to the log: bytes, and changes of keys in them; called in the critical section.
    pub(crate) fn count_log(&self, bytes: u64, changes: u64) {
        self.log_bytes_since_checkpoint.fetch_add(bytes, Ordering::Relaxed);
        self.changes_since_checkpoint.fetch_add(changes, Ordering::Relaxed);
    }

    fn freeze(&self) -> Result<Frozen> {
        let mut sequencer = self.sequencer.lock();
        self.seal(&mut sequencer)?;
        let current = self.state.load();
        let mut view = current.view.clone();
        view.frozen = Some(std::mem::replace(&mut view.active, Memtable::new()));
        self.state.store(State { sequence: current.sequence, view, marks: current.marks.clone() });
        self.log_bytes_since_checkpoint.store(0, Ordering::Relaxed);
        self.changes_since_checkpoint.store(0, Ordering::Relaxed);
        let record = sequencer.checkpoint_record();
        let last_record = sequencer.appender.last_record();
        let mut dead = Vec::new();
        for segment in self.pool.in_use() {
            if segment.id != record.segment && sequencer.live.of(segment.id) == 0 && !segment.is_pinned() {
                let since = sequencer.live.take_death(segment.id);
                if broken::has(Fault::RecycleBeforeCheckpoint) {
                    self.pool.retire(&segment, since);
                } else {
                    dead.push((segment, since));
                }
            }
        }
        Ok(Frozen { record, last_record, dead })
    }

    fn finish(&self, checkpoints: &mut Checkpoints) -> Result<()> {
        let Some(frozen) = &checkpoints.frozen else { return Ok(()) };
        if self.options.background {
            // In no hurry: left to the thread that writes anyway, as long as it does.
            self.wake.hurry();
            self.writer.watch(frozen.last_record, WRITING_PATIENCE)?;
        }
        self.flush(frozen.last_record, true)?;
        let Some(entries) = self.view().frozen else { return Ok(()) };
        let base = self.index.checkpoint(&entries, &frozen.record.encode()).inspect_err(|error| {
            if !matches!(error, IndexError::NoSpace { .. }) {
                self.writer.poison(format!("a failed checkpoint ({error})"));
            }
        })?;
        let sequencer = self.sequencer.lock();
        let current = self.state.load();
        let mut view = current.view.clone();
        view.base = base;
        view.frozen = None;
        self.state.store(State { sequence: current.sequence, view, marks: current.marks.clone() });
        drop(sequencer);
        for (segment, since) in &frozen.dead {
            self.pool.retire(segment, *since);
        }
        self.registry.wake();
        if let Err(error) = self.look_at_space(&mut self.sequencer.lock()) {
            log::warn!("looking for space: {error}");
        }
        checkpoints.frozen = None;
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
