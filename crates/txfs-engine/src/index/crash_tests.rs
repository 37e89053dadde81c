//! Power cuts at every step of creating an index and of several checkpoints.

use std::sync::Arc;

use parking_lot::Mutex;
use txfs_disk::sim::SimulatedDisk;

use super::tests::{CACHE_BYTES, Model, VOLUME, all, base_view, changes, new_disk};
use super::{IndexStore, Memtable};

/// What a crash may leave: states in commit order, and which of them is certain.
#[derive(Default)]
struct Expected {
    /// Record and contents.
    states: Vec<(Vec<u8>, Model)>,
    /// Index of the last state that was acknowledged.
    acknowledged: usize,
}

/// Opens a crashed disk's index and compares it with the states; then it must work as any other.
fn check(crashed: &SimulatedDisk, expected: &Expected, context: &str) {
    let disk = crashed.as_disk();
    let store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES)
        .unwrap_or_else(|error| panic!("{context}: cannot open: {error}"));
    let record = store.record();
    let (index, (_, model)) = expected
        .states
        .iter()
        .enumerate()
        .find(|(_, (state, _))| *state == record)
        .unwrap_or_else(|| panic!("{context}: unknown record {record:?}"));
    assert!(index >= expected.acknowledged, "{context}: an acknowledged checkpoint is lost");
    assert_eq!(all(&base_view(&store)), *model, "{context}: contents and record do not belong together");
    assert_eq!(store.verify().unwrap_or_else(|error| panic!("{context}: {error}")), model.len() as u64);
    let mut memtable = Memtable::new();
    memtable.put(b"after the crash", Some(b"it works"));
    let reader = store.checkpoint(&memtable, b"after").unwrap();
    assert_eq!(reader.get(b"after the crash").unwrap().unwrap(), b"it works");
    assert_eq!(store.verify().unwrap(), model.len() as u64 + 1);
}

/// Runs checkpoints of random contents and crashes the disk `crashes_per_step` times at every `every`th step.
fn run(seed: u64, checkpoints: u64, changes_max: usize, every: u64, crashes_per_step: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (simulated, disk) = new_disk();
    let mut model = Model::new();
    let mut store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    disk.sync_directory().unwrap();
    let states = vec![(Vec::new(), model.clone())];
    let expected = Arc::new(Mutex::new(Expected { states, acknowledged: 0 }));
    let observed = expected.clone();
    simulated.observe(move |simulated, step| {
        if step.number % every == seed % every {
            for crash in 0..crashes_per_step {
                let context = format!("seed {seed}, step {}, crash {crash}", step.number);
                let crash_seed = seed << 32 ^ step.number << 8 ^ crash;
                check(&simulated.crash(crash_seed), &observed.lock(), &context);
            }
        }
    });
    for number in 0..checkpoints {
        let count = random.usize(..changes_max) + 1;
        let memtable = changes(&mut random, count, 300, &mut model);
        let record = number.to_be_bytes().to_vec();
        expected.lock().states.push((record.clone(), model.clone()));
        store.checkpoint(&memtable, &record).unwrap();
        expected.lock().acknowledged += 1;
        match random.u8(..4) {
            0 => {
                // In good order.
                store.close().unwrap();
                store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
            }
            1 => {
                // As after kill -9: the old store's descriptor is gone without a word, so it must not close.
                std::mem::forget(store);
                store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
            }
            _ => {}
        }
    }
    simulated.stop_observing();
}

#[test]
fn every_step_of_small_checkpoints_leaves_the_old_or_the_new_state() {
    for seed in 0..4 {
        run(seed, 6, 40, 1, 3);
    }
}

#[test]
fn sampled_steps_of_large_checkpoints_leave_the_old_or_the_new_state() {
    for seed in 10..16 {
        run(seed, 8, 4000, 17, 2);
    }
}

/// The process is killed at every step of some checkpoints; the next one opens what it left, and then the power fails.
#[test]
fn what_an_opening_found_after_a_kill_survives_a_power_cut() {
    let mut random = fastrand::Rng::with_seed(20);
    let (simulated, disk) = new_disk();
    let mut model = Model::new();
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    disk.sync_directory().unwrap();
    simulated.observe(|simulated, step| {
        let left = simulated.fork();
        let found = IndexStore::open(&left.as_disk(), "index", &VOLUME, CACHE_BYTES).unwrap().record();
        for seed in 0..4 {
            let crashed = left.crash(step.number << 8 | seed).as_disk();
            let reopened = IndexStore::open(&crashed, "index", &VOLUME, CACHE_BYTES).unwrap();
            assert_eq!(reopened.record(), found, "step {}", step.number);
        }
    });
    for number in 0..10u64 {
        store.checkpoint(&changes(&mut random, 30, 300, &mut model), &number.to_be_bytes()).unwrap();
    }
    simulated.stop_observing();
}

#[test]
fn a_store_whose_disk_fails_says_so_and_the_last_checkpoint_stays() {
    for step in 1..60 {
        let (simulated, disk) = new_disk();
        let (mut random, mut model) = (fastrand::Rng::with_seed(step), Model::new());
        let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
        disk.sync_directory().unwrap();
        let mut expected = Expected { states: vec![(Vec::new(), model.clone())], acknowledged: 0 };
        simulated.power_off_after(simulated.steps() + step);
        for number in 0..20_u8 {
            let memtable = changes(&mut random, 50, 100, &mut model);
            expected.states.push((vec![number], model.clone()));
            if store.checkpoint(&memtable, &[number]).is_err() {
                break;
            }
            expected.acknowledged += 1;
        }
        assert!(store.checkpoint(&Memtable::new(), b"no").is_err());
        drop(store);
        check(&simulated.crash(step), &expected, &format!("power lost after {step} steps"));
    }
}
