//! Which segments to clean.
//!
//! *Cost-benefit* (Rosenblum and Ousterhout's log-structured file system; also the background choice of F2FS): cleaning
//! a segment of which the part u is live costs reading and writing u, and gains 1 - u for as long as what is moved stays
//! where it is then; old data is likely to. So segments are ranked by (1 - u) * age / (1 + u): a segment with cold data
//! is cleaned at a higher u than one of which more would be dead soon anyway.
//!
//! Where somebody waits for space the *emptiest* comes first: it gains most at once.

use std::sync::Arc;

use super::Cleaner;
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
    /// need a checkpoint and no cleaning.
    pub(super) fn victims(
        &self,
        cleaner: &Cleaner,
        choice: Choice,
        live_bytes_max: u64,
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
