//! Space: how much there is, what of it users never get, and what is tried before a commit is refused for lack of it.
//!
//! Two limits hold users back. *Room in the log* is only given to them while [`RESERVED_SEGMENTS`] could be taken beside
//! it: the cleaner needs space before it gains some, and deleting needs some for its commits. That counts in bytes:
//! what is left of a segment that somebody took from the reserve belongs to the reserve. And *live data* may fill at most
//! 15 of 16 parts of the segments that are not reserved: the fuller the log, the more a cleaner moves to gain a segment,
//! and with no dead bytes at all it gains nothing. Overwriting and deleting is never refused by the second limit, so a
//! volume that is full to it goes on working for ever.
//!
//! What was deleted or overwritten may still be seen by snapshots. Who finds no space for that reason waits for them,
//! with no lock held, as long as now and then one of them ends.
//!
//! Space comes free, and is taken again, while somebody finds out that there is none. So nobody is refused for what was so
//! a moment ago: only if from before his own attempt to gain some until the end no segment came free, none was being made,
//! none waited for readers or for a checkpoint. How many can be taken at two moments tells nothing about that, since
//! whoever cleans takes what came free at once, to gain more with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cleaning::RETIRED_MAX;
use crate::engine::{Engine, Shared};
use crate::error::{EngineError, Result};
use crate::format::CHUNK_BYTES_MAX;
use crate::log::Segment;
use crate::log::pool::{Purpose, RESERVED_SEGMENTS, no_space};
use crate::sequencer::Sequencer;
use crate::txn::Snapshot;
use crate::txn::registry::Waited;

/// What a commit that would exceed the limit of live data is told that it lacks space for.
const MORE_DATA: &str = "more file data";
/// What one that needs several segments at once lacks space for. What it has written before it fails is garbage, so it is
/// not tried again for ever.
pub(crate) const MANY_CHANGES: &str = "all changes of a large transaction";
/// How often one commit cleans before it gives up.
const ROUNDS_MAX: u32 = 64;
/// How long somebody waits for readers who could clean more instead: moving data needs space and costs more than a
/// moment.
const MOMENT: Duration = Duration::from_millis(20);

/// How much should be ready to be written to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyWanted {
    /// Below this, everybody helps.
    pub(crate) least: u64,
    /// Below this, the cleaner works in the background.
    pub(crate) wanted: u64,
}

/// What came of making room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It is worth trying again, thanks to the caller's own work.
    Made,
    /// It is worth trying again, since space came free for all, or is about to.
    Changed,
    /// Nothing can be gained.
    None,
    /// Readers hold it, and do not end.
    Held,
}

/// Space for file data, as `statfs` tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStat {
    /// All that users can have, bytes.
    pub total_bytes: u64,
    /// What of it is left, bytes; dead data counts as free, since cleaning sets it free.
    pub free_bytes: u64,
}

impl Engine {
    /// Space for file data, the reserve left out.
    pub fn space(&self) -> Result<SpaceStat> {
        let total_bytes = self.shared.measure_live_bytes_max()?;
        let live = self.shared.sequencer.lock().live.total();
        Ok(SpaceStat { total_bytes: total_bytes.max(live), free_bytes: total_bytes.saturating_sub(live) })
    }
}

impl Shared {
    /// Runs `step`; when it finds no space, room is made and it runs again, as long as that gains anything.
    ///
    /// `own` is the snapshot of the transaction that needs the space: nobody waits for that. With `committing` it gives
    /// up its data.
    pub(crate) fn with_space<T>(
        &self,
        own: Option<&Snapshot>,
        committing: bool,
        mut step: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut rounds = 0;
        loop {
            let freed = self.pool.freed();
            let doing = match step() {
                Err(EngineError::NoSpace { doing }) if doing != MORE_DATA && rounds < ROUNDS_MAX => doing,
                other => return other,
            };
            own.filter(|_| committing).inspect(|snapshot| snapshot.release_data());
            match self.make_room(own.and_then(Snapshot::reads_at), freed)? {
                // That others are faster is no reason to give up: it only happens while they get something done.
                Room::Changed if doing != MANY_CHANGES => {}
                Room::Made | Room::Changed => rounds += 1,
                Room::None => return Err(EngineError::NoSpace { doing }),
                Room::Held => {
                    let (segments, waited) = (self.pool.counts().2 as u64, self.options.reader_patience);
                    return Err(EngineError::SpaceHeld { segments, waited });
                }
            }
        }
    }

    /// Gains segments by a checkpoint where it frees some, and by cleaning otherwise; then waits for readers that still
    /// see what was freed. `own` is the commit of the caller's own snapshot, if it is one of the readers; `freed` is what
    /// [`crate::log::SegmentPool::freed`] said before the caller found no space.
    fn make_room(&self, own: Option<u64>, freed: u64) -> Result<Room> {
        self.pool.wait_for_made();
        let (before, dead, helped) = {
            let mut cleaner = self.cleaning.lock();
            let before = self.available()?;
            // Whoever cleaned while the caller waited for the lock did it for both: even if no more segments are left than
            // before, there may be room in the present one.
            if self.pool.freed() != freed {
                return Ok(Room::Changed);
            }
            if before > RESERVED_SEGMENTS {
                return Ok(Room::Made);
            }
            let dead = self.dead_segments();
            let outcome = if dead {
                self.checkpoint().map(|()| true)
            } else if self.pool.counts().2 >= RETIRED_MAX && !self.is_worth_cleaning(&cleaner) {
                Ok(false)
            } else {
                self.clean_in_need(&mut cleaner).map(|report| report.segments > 0)
            };
            match outcome {
                Ok(helped) => (before, dead, helped),
                Err(EngineError::NoSpace { .. }) => (before, dead, false),
                Err(error) => return Err(error),
            }
        };
        // The lock is given up: others may have cleaned since, with what came free. Then nothing is retired any more, and no
        // more segments are left than before.
        let now = self.available()?;
        let outlook = self.pool.outlook(own);
        if !helped && (outlook.freed != freed || outlook.making || !dead && self.dead_segments()) {
            return Ok(Room::Changed);
        }
        if now > before {
            return Ok(Room::Made);
        }
        // Nobody is kept from anything meanwhile: those who are waited for may want to write as well.
        let patience = match (helped, self.options.background) {
            (false, _) => self.options.reader_patience,
            (true, true) => MOMENT.min(self.options.reader_patience),
            (true, false) => Duration::ZERO,
        };
        let waits = !outlook.lives.is_empty();
        let waited = waits.then(|| self.registry.wait_for_readers(&outlook.lives, patience, !helped));
        Ok(match waited {
            _ if helped => Room::Made,
            Some(Waited::Freed) => Room::Changed,
            Some(Waited::InVain) if self.pool.freed() != freed => Room::Changed,
            Some(Waited::InVain) if !self.options.reader_patience.is_zero() => Room::Held,
            _ => Room::None,
        })
    }

    /// How much should be ready beyond the reserve, in bytes. Cleaning in the background keeps to `wanted`; below `least`
    /// everybody helps before a transaction begins. It is what a transaction finds that writes ahead of its commit: what
    /// is cleaned while it is open is no use to it. But all that is kept ready is not there for dead data to gather in,
    /// and that costs the more the smaller the volume is. So it is little, and as much as the largest of the transactions
    /// needed that wrote ahead of their commits recently.
    pub(crate) fn ready_wanted(&self) -> ReadyWanted {
        let volume = match self.manifest.size_bytes_max {
            0 => self.pool.counts().0 as u64 * self.manifest.segment_bytes,
            limit => limit,
        };
        let placed = self.placed_ahead.load(Ordering::Relaxed).min(volume / 4);
        let least = (volume / 64).min(16 << 20).max((volume / 12).min(4 << 20)).max(placed);
        ReadyWanted { least, wanted: least + (volume / 128).min(self.manifest.segment_bytes / 8) }
    }

    /// Notes that a transaction has written so much ahead of its commit, or would have if there had been space.
    pub(crate) fn note_placed(&self, bytes: u64) {
        // Headers, and what stays unused at the ends of segments.
        let needed = bytes + bytes / 8 + 2 * CHUNK_BYTES_MAX as u64;
        if self.placed_ahead.fetch_max(needed, Ordering::Relaxed) < needed
            && let Err(error) = self.look_at_space(&mut self.sequencer.lock())
        {
            log::warn!("looking for space: {error}");
        }
    }

    /// Forgets a little of that now and then: most of it by the time that users have written as much as the volume holds.
    fn forget_placed(&self, sequencer: &mut Sequencer) {
        let written = self.counters.data_bytes.load(Ordering::Relaxed);
        let volume = self.pool.counts().0 as u64 * self.manifest.segment_bytes;
        if written.saturating_sub(sequencer.forgot_placed_at) >= volume / 16 {
            sequencer.forgot_placed_at = written;
            let placed = self.placed_ahead.load(Ordering::Relaxed);
            self.placed_ahead.fetch_sub(placed.div_ceil(16), Ordering::Relaxed);
        }
    }

    /// Looks how many segments are left, and so how full the present one may get before somebody has to clean.
    pub(crate) fn look_at_space(&self, sequencer: &mut Sequencer) -> Result<()> {
        sequencer.segments_left = self.available()?;
        let ReadyWanted { least, wanted } = self.ready_wanted();
        let room = |bytes: u64| match sequencer.segments_left.checked_sub(RESERVED_SEGMENTS) {
            Some(segments) => bytes.saturating_sub(segments.saturating_mul(self.manifest.segment_bytes)),
            None => u64::MAX,
        };
        (sequencer.room_least, sequencer.room_wanted) = (room(least), room(wanted));
        self.note_room(sequencer);
        Ok(())
    }

    /// After something was appended: calls those who make room, where little is left.
    pub(crate) fn note_room(&self, sequencer: &mut Sequencer) {
        let room = sequencer.appender.room() as u64;
        let short = room < sequencer.room_least;
        if short != self.space_is_short.load(Ordering::Relaxed) {
            self.space_is_short.store(short, Ordering::Release);
        }
        if room < sequencer.room_wanted {
            // Once is enough, until somebody looks again.
            sequencer.room_wanted = 0;
            self.wake.clean();
        }
    }

    /// Space beyond the reserve that can be written to now, in bytes.
    pub(crate) fn ready_bytes(&self) -> Result<u64> {
        let Some(segments) = self.available()?.checked_sub(RESERVED_SEGMENTS) else { return Ok(0) };
        let room = self.sequencer.lock().appender.room() as u64;
        Ok(segments.saturating_mul(self.manifest.segment_bytes).saturating_add(room))
    }

    /// See [`Engine::make_way`].
    pub(crate) fn make_way(&self) {
        if !self.space_is_short.load(Ordering::Acquire) {
            return;
        }
        let mut cleaner = self.cleaning.lock();
        for _ in 0..ROUNDS_MAX {
            if !self.space_is_short.load(Ordering::Acquire) {
                return;
            }
            let looked = self.look_at_space(&mut self.sequencer.lock());
            let helped = match looked {
                Ok(()) if !self.space_is_short.load(Ordering::Acquire) => return,
                Ok(()) if self.registry.anybody_places() || !self.is_worth_cleaning(&cleaner) => Ok(false),
                Ok(()) if self.dead_segments() => self.checkpoint().map(|()| true),
                Ok(()) => self.clean_in_need(&mut cleaner).map(|report| report.segments > 0),
                Err(error) => Err(error),
            };
            match helped {
                Ok(true) => continue,
                // Whoever really needs the space will hear of it.
                Ok(false) | Err(EngineError::NoSpace { .. }) => {}
                Err(error) => log::warn!("cleaning: {error}"),
            }
            // Of no use now: until something changes, nobody needs to try it again.
            self.sequencer.lock().room_least = 0;
            return self.space_is_short.store(false, Ordering::Release);
        }
    }

    /// True when a checkpoint could free segments.
    pub(crate) fn dead_segments(&self) -> bool {
        let in_use = self.pool.in_use();
        let sequencer = self.sequencer.lock();
        let current = sequencer.appender.segment().id;
        in_use.iter().any(|segment| {
            segment.id != current && sequencer.live.of(segment.id) == 0 && !segment.is_pinned()
        })
    }

    /// Segments that can be taken now.
    pub(crate) fn available(&self) -> Result<u64> {
        self.pool.available(&self.seen(), self.reserve_bytes()?)
    }

    /// Whether file data may still be read through a snapshot that sees a segment with this life.
    pub(crate) fn seen(&self) -> impl Fn(u64, u64) -> bool + '_ {
        |born, died| died > born && self.registry.reads_between(born, died - 1)
    }

    /// Host space that the log leaves free: what the next checkpoint may need, and what it may need more by the time
    /// that another segment is full.
    pub(crate) fn reserve_bytes(&self) -> Result<u64> {
        const GROWTH_BYTES_MAX: u64 = 16 << 20;
        let view = self.view();
        let mut needed = self.index.written_bytes_max(&view.active);
        if let Some(frozen) = &view.frozen {
            needed += self.index.left_to_write_max(frozen);
        }
        Ok(needed + self.manifest.segment_bytes.min(GROWTH_BYTES_MAX))
    }

    pub(crate) fn switch_segment(&self, sequencer: &mut Sequencer, purpose: Purpose) -> Result<()> {
        let segment: Arc<Segment> = self.pool.take(&self.seen(), self.reserve_bytes()?, purpose)?;
        self.recent.forget_segment(segment.id);
        segment.set_first_record(sequencer.appender.last_record() + 1);
        segment.set_born(sequencer.sequence);
        sequencer.appender.switch_segment(segment);
        self.measure_live_bytes_max()?;
        self.forget_placed(sequencer);
        self.look_at_space(sequencer)?;
        self.wake.maintenance();
        self.wake.clean();
        Ok(())
    }

    /// Refuses what goes into the present segment for this purpose while fewer segments are left than are kept for others:
    /// then its room is part of what is kept.
    pub(crate) fn check_reserve(&self, sequencer: &mut Sequencer, purpose: Purpose) -> Result<()> {
        if sequencer.segments_left >= purpose.kept() {
            return Ok(());
        }
        sequencer.segments_left = self.available()?;
        if sequencer.segments_left >= purpose.kept() { Ok(()) } else { Err(no_space()) }
    }

    /// How much live data there may be with the space that there is now.
    fn measure_live_bytes_max(&self) -> Result<u64> {
        let segments = self.pool.possible(self.reserve_bytes()?)?;
        let usable = segments.saturating_sub(RESERVED_SEGMENTS);
        let most = (self.manifest.segment_bytes / 16 * 15).saturating_mul(usable);
        self.live_bytes_max.store(most, Ordering::Relaxed);
        Ok(most)
    }

    /// Refuses a commit that adds `net` live bytes where there is no room for them.
    pub(crate) fn check_live_bytes(&self, sequencer: &Sequencer, net: i64) -> Result<()> {
        let after = sequencer.live.total().saturating_add_signed(net);
        // The figure may be old by a segment: it is looked at again before anybody is refused.
        if net <= 0
            || after <= self.live_bytes_max.load(Ordering::Relaxed)
            || after <= self.measure_live_bytes_max()?
        {
            return Ok(());
        }
        Err(EngineError::NoSpace { doing: MORE_DATA.into() })
    }
}
