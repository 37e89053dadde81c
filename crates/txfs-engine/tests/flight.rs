//! Several log writes in flight together, ending in every order: a commit is acknowledged when its write and all before
//! it are over, and never when an earlier one failed. Whatever a power cut leaves is a prefix that holds every
//! acknowledged commit.
//!
//! Each committer is a thread, but the scenario decides everything: the next one starts when the write of the one before
//! is in flight, and the simulated disk lets writes go in the order that the seed says.

mod common;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use common::*;
use txfs_disk::sim::{Completion, SimulatedDisk};
use txfs_engine::{Durability, Engine, EngineError, EngineOptions};

const PATIENCE: Duration = Duration::from_secs(20);

const WAITING: u8 = 0;
const ACKNOWLEDGED: u8 = 1;
const REFUSED: u8 = 2;

/// So that a failed assertion ends the test, and does not wait for writes that nobody lets go any more.
struct LetAllGo<'a>(&'a SimulatedDisk);

impl Drop for LetAllGo<'_> {
    fn drop(&mut self) {
        self.0.hold_log_writes(false);
    }
}

/// What a committer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Commits durably.
    Durable,
    /// Commits, and gets it into the host file without a flush.
    Plain,
}

struct Scenario {
    seed: u64,
    random: fastrand::Rng,
    parts: Vec<Part>,
    bytes: Vec<usize>,
}

/// An engine that overlaps every write, on a volume with spare segments: making one would be held, too.
fn overlapping(disk: &SimulatedDisk) -> Engine {
    let options = EngineOptions { overlap_flush_us: 0, ..options() };
    Engine::create(&disk.as_disk(), &format_options(), &[]).expect("create");
    let engine = Engine::open(disk.as_disk(), options).expect("open");
    for round in 0..12u8 {
        put_blob(&engine, "filler", &vec![round; 200_000], Durability::Ordered).expect("commit");
    }
    for _ in 0..2 {
        engine.checkpoint().expect("checkpoint");
        put_blob(&engine, "filler", &[1], Durability::Durable).expect("commit");
    }
    let stat = engine.stat().expect("stat");
    assert!(stat.segments_spare + stat.segments_retired >= 3, "{stat:?}");
    engine
}

fn name(index: usize) -> String {
    format!("b{index}")
}

fn content(index: usize, len: usize) -> Vec<u8> {
    vec![index as u8 + 1; len]
}

fn work(engine: &Engine, index: usize, part: Part, len: usize) -> Result<(), EngineError> {
    let bytes = content(index, len);
    match part {
        Part::Durable => put_blob(engine, &name(index), &bytes, Durability::Durable).map(drop),
        Part::Plain => {
            put_blob(engine, &name(index), &bytes, Durability::Ordered)?;
            engine.write_pending()
        }
    }
}

impl Scenario {
    fn new(seed: u64) -> Scenario {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(2..7);
        let parts =
            (0..count).map(|_| if random.u8(0..4) == 0 { Part::Plain } else { Part::Durable }).collect();
        let bytes = (0..count).map(|_| [10, 4096, 30_000, 150_000][random.usize(0..4)]).collect();
        Scenario { seed, random, parts, bytes }
    }

    /// Every state that a power cut may leave now is a prefix of the commits, and holds what was acknowledged.
    fn check_crash(&mut self, disk: &SimulatedDisk, acknowledged: &[usize]) {
        for _ in 0..4 {
            let seed = self.random.u64(..);
            let engine = Engine::open(disk.crash(seed).as_disk(), options()).expect("recover");
            let present: Vec<bool> = (0..self.parts.len())
                .map(|index| {
                    let found = get_blob(&engine, &name(index)).expect("read");
                    assert!(found.is_empty() || found == content(index, self.bytes[index]));
                    !found.is_empty()
                })
                .collect();
            assert!(present.is_sorted_by(|a, b| a >= b), "seed {}: not a prefix: {present:?}", self.seed);
            for index in acknowledged {
                let durable = self.parts[*index] == Part::Durable;
                assert!(present[*index] || !durable, "seed {}: commit {index} is gone", self.seed);
            }
            sound(&engine);
        }
    }

    fn run(mut self, failing: bool) {
        let disk = sim(self.seed);
        let engine = overlapping(&disk);
        let count = self.parts.len();
        let states: Vec<AtomicU8> = (0..count).map(|_| AtomicU8::new(WAITING)).collect();
        let acknowledged = || -> Vec<usize> {
            (0..count).filter(|index| states[*index].load(Ordering::Acquire) == ACKNOWLEDGED).collect()
        };
        disk.hold_log_writes(true);
        std::thread::scope(|scope| {
            let _guard = LetAllGo(&disk);
            let mut writes: Vec<Vec<u64>> = Vec::new();
            for (index, state) in states.iter().enumerate() {
                let before = disk.held().len();
                let (part, bytes, engine) = (self.parts[index], self.bytes[index], &engine);
                scope.spawn(move || {
                    let outcome = work(engine, index, part, bytes);
                    state.store(if outcome.is_ok() { ACKNOWLEDGED } else { REFUSED }, Ordering::Release);
                });
                assert!(disk.wait_for_held(before + 1, PATIENCE), "seed {}: no overlap", self.seed);
                let known: Vec<u64> = writes.iter().flatten().copied().collect();
                writes.push(
                    disk.held().iter().map(|write| write.number).filter(|n| !known.contains(n)).collect(),
                );
            }
            self.check_crash(&disk, &[]);
            let failed = failing.then(|| self.random.usize(0..count));
            let mut left: Vec<usize> = (0..count).collect();
            self.random.shuffle(&mut left);
            let mut over = vec![false; count];
            for (step, index) in left.iter().copied().enumerate() {
                self.let_go(&disk, &mut writes, index, failed == Some(index));
                over[index] = true;
                let complete = over.iter().take_while(|over| **over).count();
                let complete = failed.map_or(complete, |failed| complete.min(failed));
                // Whose turn has come is acknowledged, unless the failure came before it could look.
                let end = std::time::Instant::now() + PATIENCE;
                let waiting = |index: &usize| states[*index].load(Ordering::Acquire) == WAITING;
                while failed.is_none() && (0..complete).any(|index| waiting(&index)) {
                    assert!(std::time::Instant::now() < end, "seed {}: not acknowledged", self.seed);
                    std::thread::sleep(Duration::from_micros(50));
                }
                for index in acknowledged() {
                    assert!(index < complete, "seed {}, step {step}: {index} before its turn", self.seed);
                }
                self.check_crash(&disk, &acknowledged());
            }
            disk.hold_log_writes(false);
        });
        match failing {
            true => assert!(matches!(engine.sync(), Err(EngineError::Poisoned { .. }))),
            false => {
                assert_eq!(acknowledged().len(), count);
                assert!(engine.stat().expect("stat").log_writes_in_flight_max >= count as u64);
                engine.sync().expect("sync");
            }
        }
        self.check_crash(&disk, &acknowledged());
        disk.power_off();
    }

    /// Ends the writes of one committer: the first may be the end of the segment before, then the rest follows.
    fn let_go(&self, disk: &SimulatedDisk, writes: &mut [Vec<u64>], index: usize, fail: bool) {
        let completion = if fail { Completion::Fails } else { Completion::Succeeds };
        let others: Vec<u64> = writes.iter().flatten().copied().collect();
        let mut numbers = std::mem::take(&mut writes[index]);
        while let Some(number) = numbers.pop() {
            assert!(disk.release(number, completion));
            assert!(disk.wait_for_landed(number, PATIENCE));
            if fail {
                return;
            }
        }
        // A committer that has more than one write begins the next when the one before is over.
        let end = std::time::Instant::now() + Duration::from_millis(2);
        while std::time::Instant::now() < end {
            for write in disk.held().iter().filter(|write| !others.contains(&write.number)) {
                disk.release(write.number, Completion::Succeeds);
                disk.wait_for_landed(write.number, PATIENCE);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn acknowledgements_follow_the_log_whatever_order_writes_end_in() {
    for seed in 0..60 {
        Scenario::new(seed).run(false);
    }
}

#[test]
fn nothing_behind_a_failed_write_is_acknowledged() {
    for seed in 100..150 {
        Scenario::new(seed).run(true);
    }
}
