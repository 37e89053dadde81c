//! Which segments to clean.
//!
//! *Cost-benefit* (Rosenblum and Ousterhout's log-structured file system; also the background choice of F2FS): cleaning
//! a segment of which the part u is live costs reading and writing u, and gains 1 - u for as long as what is moved stays
//! where it is then; old data is likely to. So segments are ranked by (1 - u) * age / (1 + u): a segment with cold data
//! is cleaned at a higher u than one of which more would be dead soon anyway.
//!
//! Where somebody waits for space the *emptiest* comes first: it gains most at once.
//!
//! What a snapshot sees is not gained before its end. So where several segments wait for a snapshot already, only those
//! are chosen that were begun after it: an open transaction costs a volume what it can see, and not what is written and
//! overwritten while it is open.

use std::sync::Arc;

use super::{Cleaner, RETIRED_MAX};
use crate::engine::Shared;
use crate::log::Segment;

/// The order of victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    CostBenefit,
    Emptiest,
}

impl Shared {
    /// Segments with at most `live_bytes_max` live bytes, the best victims first. Dead ones are not among them: those
    /// need a checkpoint and no cleaning. Nor are those that a snapshot of commit `held_at` sees.
    pub(super) fn victims(
        &self,
        cleaner: &Cleaner,
        choice: Choice,
        live_bytes_max: u64,
        held_at: Option<u64>,
    ) -> Vec<Arc<Segment>> {
        let in_use = self.pool.in_use();
        let mut ranked: Vec<(u64, Arc<Segment>)> = {
            let sequencer = self.sequencer.lock();
            let current = sequencer.appender.segment().id;
            let newest = sequencer.appender.last_record();
            in_use
                .into_iter()
                .filter(|segment| segment.id != current && !segment.is_pinned())
                .filter(|segment| !cleaner.damaged.contains(&segment.id))
                .filter(|segment| held_at.is_none_or(|held_at| segment.born() > held_at))
                .filter_map(|segment| {
                    let live = sequencer.live.of(segment.id);
                    let eligible = live > 0 && live <= live_bytes_max;
                    eligible.then(|| (rank(choice, &segment, live, newest), segment))
                })
                .collect()
        };
        // Ties go by age, so that a seed repeats a run.
        ranked.sort_by_key(|(rank, segment)| (std::cmp::Reverse(*rank), segment.id));
        ranked.into_iter().map(|(_, segment)| segment).collect()
    }
}

impl Shared {
    /// The newest snapshot that retired segments wait for, once those are many.
    pub(super) fn held_at(&self) -> Option<u64> {
        let lives = self.pool.retired_lives();
        if lives.len() < RETIRED_MAX {
            return None;
        }
        lives.iter().filter_map(|life| self.registry.newest_reader(life)).max()
    }
}

fn rank(choice: Choice, segment: &Segment, live: u64, newest: u64) -> u64 {
    let dead = segment.bytes.saturating_sub(live);
    match choice {
        Choice::Emptiest => dead,
        Choice::CostBenefit => {
            let age = newest.saturating_sub(segment.first_record()) + 1;
            (u128::from(dead) * u128::from(age) / u128::from(segment.bytes + live) * 16)
                .try_into()
                .unwrap_or(u64::MAX)
        }
    }
}
