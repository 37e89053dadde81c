//! The cleaner: moves what is still live out of segments that are mostly dead, so that they can be used again.
//!
//! The log never overwrites, so a segment becomes free only when the last of its data is dead. The cleaner chooses
//! *victims* (`choose.rs`), finds what the index still refers to in them (`find.rs`), appends copies to the log and
//! commits their new places (`relocate.rs`). A checkpoint then retires the victims, and each can be written over when the
//! last snapshot that sees it is gone.
//!
//! # Nobody is aborted or blocked
//! (The aim of exF2FS's shadow garbage collection, reached here without shadows, since old places stay readable.)
//! * A move is a commit that changes places only. It reads and writes no conflict range, so it conflicts with nobody,
//!   and inside the critical section it moves an extent only if the key still has exactly the value that was copied.
//! * Transactions read through their snapshots, which keep the victim's file until they are gone; their commits are
//!   applied to the current state and so meet the new places.
//! * A segment that holds data placed ahead of its commit ("stolen") is no victim until that transaction has ended.
//! * The critical section holds the lock for one batch of at most 256 KiB.
//!
//! # Crashes
//! The copies and the commit that refers to them are one log record. The victim is not written over before a checkpoint
//! that contains the move is on stable storage, so recovery meets the old place or the new one, both whole.
//!
//! # Damage
//! Every page is verified before it moves and keeps the checksum that it had when it was written. An extent that
//! cannot be read stays where it is, and its segment is left alone from then on.
//!
//! Locking: one cleaner at a time (`Shared::cleaning`, the outermost lock).

mod choose;
mod find;
mod relocate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::choose::Choice;
use self::find::SavedPlaces;
use crate::engine::{Engine, Shared};
use crate::error::{EngineError, Result};
use crate::log::Segment;
use crate::log::pool::Purpose;
use crate::space::ReadyWanted;

/// With so many retired segments, those that the same snapshots see are left alone.
pub(crate) const RETIRED_MAX: usize = 4;

/// What a pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    /// Space to write to. One segment at a time: data that has not been moved yet may still die where it is. And few copies
    /// at a time, since until a checkpoint frees the victims, and those are gone who see them, they take space from others.
    Space,
    /// A volume without a limit that has become larger than it should be: it must not go on growing.
    Waste,
}

impl Gain {
    /// Segments that a pass tries to gain before it makes a checkpoint.
    fn segments(self) -> u64 {
        match self {
            Gain::Space => 1,
            Gain::Waste => 4,
        }
    }

    /// Segments that it fills with copies at most, beside what is left of the present one.
    fn copied_max(self) -> u64 {
        match self {
            Gain::Space => 2,
            Gain::Waste => u64::MAX,
        }
    }
}

/// What to clean, and what to do with the space.
#[derive(Clone, Debug)]
pub struct CleanOptions {
    /// Segments of which at most so many percent are live are cleaned.
    pub live_percent_max: u8,
    /// Segments to clean at most, the emptiest first.
    pub segments_max: u64,
    /// Removes the files of spare segments that are not needed, so that the host has their space.
    pub give_back: bool,
    /// Rests after each step, so that others feel little of it, and leaves the checkpoint that frees the segments to the
    /// next one that is due, as far as space permits.
    pub gentle: bool,
}

impl Default for CleanOptions {
    fn default() -> CleanOptions {
        CleanOptions { live_percent_max: 90, segments_max: u64::MAX, give_back: true, gentle: false }
    }
}

/// What cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Segments out of which everything was moved.
    pub segments: u64,
    /// Extents that were moved.
    pub extents: u64,
    /// Bytes of file data that were moved.
    pub bytes_moved: u64,
    /// Dead bytes in the segments that were cleaned: what was gained.
    pub bytes_gained: u64,
    /// Segments left alone because data in them cannot be read.
    pub segments_damaged: u64,
    /// Segment files removed from the host.
    pub segments_removed: u64,
}

/// What the cleaner remembers from one pass to the next.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// Segments with data that cannot be read.
    damaged: BTreeSet<u64>,
    /// What users had written, and what was live, when a pass gained next to nothing: what is left is full, or old
    /// snapshots see it.
    futile: Option<(u64, u64)>,
    /// In the background: it stops while it would take space from a transaction that writes ahead of its commit.
    yields: bool,
}

/// How fast a pass goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Space is needed at once.
    Full,
    /// After each batch it rests for twice as long as the batch took.
    Gentle,
}

/// How the cleaning of one segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleaned {
    /// Everything was moved.
    Whole,
    /// Some of it cannot be read, and stays.
    Damaged,
    /// It was given up on the way: a transaction needs the space that it takes.
    Stopped,
}

/// What the background thread has to do.
#[derive(Clone, Copy, Debug)]
struct Due {
    live_percent_max: u64,
    pace: Pace,
    gain: Gain,
}

impl Engine {
    /// Moves live data together and frees the space between; `progress` is told the bytes of the victims that are
    /// through, and of all of them. Other threads go on working meanwhile.
    ///
    /// Space that snapshots or open transactions still see becomes free when they are gone.
    pub fn clean(&self, options: &CleanOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<CleanReport> {
        let shared = &*self.shared;
        shared.check_open()?;
        let mut cleaner = shared.cleaning.lock();
        let mut report = CleanReport::default();
        let pace = if options.gentle { Pace::Gentle } else { Pace::Full };
        if !options.gentle && shared.dead_segments() {
            shared.checkpoint()?;
        }
        let live_max = shared.manifest.segment_bytes * u64::from(options.live_percent_max.min(100)) / 100;
        let mut victims = shared.victims(&cleaner, Choice::Emptiest, live_max, None);
        victims.truncate(usize::try_from(options.segments_max).unwrap_or(usize::MAX));
        let total = victims.len() as u64 * shared.manifest.segment_bytes;
        let mut saved = SavedPlaces::of(&victims);
        let mut done = 0;
        progress(0, total);
        while !victims.is_empty() {
            let count = shared.affordable(&victims, u64::MAX)?;
            if count == 0 {
                break;
            }
            for victim in victims.drain(..count).collect::<Vec<_>>() {
                match shared.clean_segment(&mut cleaner, &mut saved, &victim, pace, &mut report) {
                    Ok(()) => {}
                    // Others took the space meanwhile.
                    Err(EngineError::NoSpace { .. }) => victims.clear(),
                    Err(error) => return Err(error),
                }
                done += shared.manifest.segment_bytes;
                progress(done, total);
            }
            if !options.gentle || !victims.is_empty() {
                shared.checkpoint()?;
            }
        }
        if options.give_back {
            let spare_kept = shared.options.spare_segments as u64;
            report.segments_removed = shared.give_back(spare_kept)?;
        }
        Ok(report)
    }
}

impl Shared {
    /// A pass for a committer that found no space: the emptiest victims first, without rest.
    pub(crate) fn clean_in_need(&self, cleaner: &mut Cleaner) -> Result<CleanReport> {
        self.clean_pass(cleaner, Choice::Emptiest, 98, Pace::Full, Gain::Space)
    }

    /// False after a pass in vain, until enough has changed for another to be of use.
    pub(crate) fn is_worth_cleaning(&self, cleaner: &Cleaner) -> bool {
        let Some((written, live)) = cleaner.futile else { return true };
        let enough = self.manifest.segment_bytes / 4;
        let (written_now, live_now) = self.written_and_live();
        written_now.saturating_sub(written) >= enough || live.saturating_sub(live_now) >= enough
    }

    fn written_and_live(&self) -> (u64, u64) {
        let live = self.sequencer.lock().live.total();
        (self.counters.data_bytes.load(Ordering::Relaxed), live)
    }

    /// Space that can be written to at once without making segments.
    fn free_bytes(&self) -> u64 {
        let spare = self.pool.spare(&self.seen());
        spare * self.manifest.segment_bytes + self.sequencer.lock().appender.room() as u64
    }

    /// Cleans victims until a few segments are gained, then makes a checkpoint.
    pub(crate) fn clean_pass(
        &self,
        cleaner: &mut Cleaner,
        choice: Choice,
        live_percent_max: u64,
        pace: Pace,
        gain: Gain,
    ) -> Result<CleanReport> {
        let mut report = CleanReport::default();
        let mark = self.written_and_live();
        let free_before = self.free_bytes();
        let live_max = self.manifest.segment_bytes * live_percent_max / 100;
        let mut victims = self.victims(cleaner, choice, live_max, self.held_at());
        let tries = !victims.is_empty();
        victims.truncate(self.affordable(&victims, gain.copied_max())?);
        let mut saved = SavedPlaces::of(&victims);
        for victim in victims {
            match self.clean_segment(cleaner, &mut saved, &victim, pace, &mut report) {
                Ok(()) => {}
                // Others took the space meanwhile; what has been gained so far helps all the same.
                Err(EngineError::NoSpace { .. }) if report.segments > 0 => break,
                Err(error) => return Err(error),
            }
            let stops = cleaner.yields && self.registry.anybody_places();
            if stops || report.bytes_gained >= gain.segments() * self.manifest.segment_bytes {
                break;
            }
        }
        if report.segments > 0 {
            self.checkpoint()?;
        }
        let gained = self.free_bytes().saturating_sub(free_before);
        cleaner.futile = (tries && gained < self.manifest.segment_bytes / 8).then_some(mark);
        Ok(report)
    }

    /// How many of the victims can be copied into the space that there is, one segment left for deleting. What is left of
    /// the present segment counts, since others get none of it while the reserve is touched.
    fn affordable(&self, victims: &[Arc<Segment>], copied_max: u64) -> Result<usize> {
        let available = self.available()?;
        let sequencer = self.sequencer.lock();
        let room = match available.checked_sub(Purpose::Cleaning.kept()) {
            Some(segments) => {
                segments.min(copied_max) * self.manifest.segment_bytes + sequencer.appender.room() as u64
            }
            None => 0,
        };
        // One part of 16 may stay unused at a segment's end; headers and mutations of the copies are a few per cent.
        let mut room = room / 64 * 58;
        let affordable = victims.iter().take_while(|victim| {
            let live = sequencer.live.of(victim.id);
            let fits = live <= room;
            room = room.saturating_sub(live);
            fits
        });
        Ok(affordable.count())
    }

    /// Moves everything live out of one segment.
    fn clean_segment(
        &self,
        cleaner: &mut Cleaner,
        saved: &mut SavedPlaces,
        victim: &Arc<Segment>,
        pace: Pace,
        report: &mut CleanReport,
    ) -> Result<()> {
        // Found and copied under one snapshot, which keeps the victim from being written over meanwhile. It must be
        // gone before the checkpoint, or it would itself keep the victim from becoming spare.
        let (snapshot, live) = {
            let sequencer = self.sequencer.lock();
            (self.snapshot(), sequencer.live.of(victim.id))
        };
        let moved_before = report.bytes_moved;
        let extents = self.find_live(&snapshot, victim, live, saved)?;
        let yields = cleaner.yields;
        let outcome = self.relocate(&snapshot, victim, &extents, pace, yields, report)?;
        drop(snapshot);
        match outcome {
            Cleaned::Whole => {}
            Cleaned::Damaged => {
                cleaner.damaged.insert(victim.id);
                report.segments_damaged += 1;
                return Ok(());
            }
            Cleaned::Stopped => return Ok(()),
        }
        report.segments += 1;
        report.bytes_gained += self.manifest.segment_bytes.saturating_sub(live);
        self.counters.segments_cleaned.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes_moved.fetch_add(report.bytes_moved - moved_before, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the host the space of spare segments beyond `spare_kept`, but for what was preallocated.
    pub(crate) fn give_back(&self, spare_kept: u64) -> Result<u64> {
        let all_kept = self.manifest.preallocated_bytes / self.manifest.segment_bytes;
        self.pool.give_back(&self.seen(), spare_kept, all_kept)
    }

    /// What the background thread does: cleans where it is due; true when it gained something.
    pub(crate) fn clean_if_due(&self) -> Result<bool> {
        if self.due()?.is_none() {
            return Ok(false);
        }
        let mut cleaner = self.cleaning.lock();
        // Others may have cleaned while it waited for them: a pass for nothing takes space from whoever began meanwhile.
        let Some(Due { live_percent_max, pace, gain }) = self.due()? else { return Ok(false) };
        if !self.is_worth_cleaning(&cleaner) {
            return Ok(false);
        }
        cleaner.yields = gain == Gain::Space;
        let outcome = self.clean_pass(&mut cleaner, Choice::CostBenefit, live_percent_max, pace, gain);
        cleaner.yields = false;
        match outcome {
            Ok(report) => Ok(report.segments > 0),
            Err(EngineError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn due(&self) -> Result<Option<Due>> {
        let ready = self.ready_bytes()?;
        let ReadyWanted { least, wanted } = self.ready_wanted();
        let (live_percent_max, pace, gain) = if ready < least {
            (95, Pace::Full, Gain::Space)
        } else if ready < wanted {
            (90, Pace::Gentle, Gain::Space)
        } else if self.manifest.size_bytes_max == 0 && self.wasted_segments() > 0 {
            (50, Pace::Gentle, Gain::Waste)
        } else {
            return Ok(None);
        };
        if gain == Gain::Space && self.registry.anybody_places() {
            return Ok(None);
        }
        log::debug!("cleaning: {ready} bytes are ready, {wanted} are wanted");
        Ok(Some(Due { live_percent_max, pace, gain }))
    }

    /// By how many segments a volume without a size limit is larger than it should be: at most as much again as its live
    /// data, and a few segments.
    fn wasted_segments(&self) -> u64 {
        const SLACK_SEGMENTS: u64 = 8;
        let in_use = self.pool.in_use().len() as u64;
        let live = self.sequencer.lock().live.total() / self.manifest.segment_bytes;
        in_use.saturating_sub(2 * live + SLACK_SEGMENTS)
    }

    /// Rests after a batch that took so long, if the pace says so.
    fn rest(&self, pace: Pace, batch: Duration) {
        let in_need = self.space_is_short.load(Ordering::Relaxed);
        if pace == Pace::Gentle && self.options.background && !in_need {
            std::thread::sleep((batch * 2).clamp(Duration::from_millis(1), Duration::from_millis(20)));
        }
    }
}
