//! The pool under several threads: no segment is ever in two hands.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use txfs_disk::sim::{SimOptions, SimulatedDisk};

use super::*;

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS_MAX: u64 = 24;

/// No snapshot sees anything.
fn nobody(_born: u64, _died: u64) -> bool {
    false
}

fn pool() -> SegmentPool {
    let disk = SimulatedDisk::new(SimOptions::default());
    SegmentPool::new(disk.as_disk(), SEGMENT_BYTES, SEGMENTS_MAX)
}

/// What the engine does with a pool, each part in a thread of its own: segments are made ahead, taken, found dead by a
/// checkpoint, retired, and given back to the host. `live` stands for the sequencer: what it holds is in use.
#[test]
fn a_segment_is_never_in_two_hands() {
    let pool = pool();
    let live = Mutex::new(BTreeSet::new());
    let stop = AtomicBool::new(false);
    let running = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while running() {
                pool.prepare(4, &nobody, 0).expect("prepare");
            }
        });
        scope.spawn(|| {
            while running() {
                pool.give_back(&nobody, 1, 0).expect("give back");
            }
        });
        // Two checkpointers cannot run at once, as in the engine; this is one.
        scope.spawn(|| {
            while running() {
                let dead: Vec<_> = {
                    let live = live.lock();
                    pool.in_use().into_iter().filter(|segment| !live.contains(&segment.id)).collect()
                };
                dead.into_iter().for_each(|segment| pool.retire(&segment, 0));
            }
        });
        let taker = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..4000 {
                let mut live = live.lock();
                match pool.take(&nobody, 0, Purpose::Metadata) {
                    Ok(segment) => assert!(live.insert(segment.id), "segment {} was in use", segment.id),
                    Err(error) => assert!(matches!(error, EngineError::NoSpace { .. }), "{error}"),
                }
                while live.len() > random.usize(0..12) {
                    live.pop_first();
                }
            }
        });
        let taken = taker.join();
        stop.store(true, Ordering::Relaxed);
        taken.expect("the taker");
    });
    let (all, _, _) = pool.counts();
    assert!(all as u64 <= SEGMENTS_MAX, "{all} segments");
}

#[test]
fn the_size_limit_counts_segments_that_are_being_made() {
    let pool = pool();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while pool.take(&nobody, 0, Purpose::Metadata).is_ok() {});
        }
    });
    assert_eq!(pool.counts().0 as u64, SEGMENTS_MAX);
}

/// Otherwise a write would be refused that could have gone into the room that others left there.
#[test]
fn that_a_segment_came_free_is_known_when_it_has_been_taken_again() {
    let pool = pool();
    let take = || pool.take(&nobody, 0, Purpose::Metadata).expect("take");
    let before = pool.outlook(None);
    pool.retire(&take(), 7);
    assert_eq!(pool.outlook(None).lives, [Range { start: 0, end: 7 }]);
    assert!(pool.outlook(Some(6)).lives.is_empty(), "younger than the own snapshot");
    assert_eq!(pool.freed(), before.freed, "a reader may still see it");
    take();
    let after = pool.outlook(None);
    assert!(after.lives.is_empty() && after.freed > before.freed && pool.freed() == after.freed);
    pool.prepare(1, &nobody, 0).expect("prepare");
    assert!(pool.freed() > after.freed, "one was made");
}

/// Otherwise a write would be refused now and then that there is room for.
#[test]
fn what_is_possible_does_not_dip_while_a_segment_is_made_or_given_back() {
    let pool = pool();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            for _ in 0..500 {
                pool.prepare(4, &nobody, 0).expect("prepare");
                pool.give_back(&nobody, 0, 0).expect("give back");
            }
        });
        while !maker.is_finished() {
            assert_eq!(pool.possible(0).expect("possible"), SEGMENTS_MAX);
        }
    });
}
