//! Power cuts at every step of engine runs: what recovers is a prefix of the commits that holds every acknowledged
//! durable one, and the recovered engine goes on working, through further power cuts.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use txfs_disk::Disk;
use txfs_disk::sim::SimulatedDisk;
use txfs_engine::{Durability, Engine};

/// The model: after commit number n, blob `b{i}` holds `history[n][i]`.
type Contents = BTreeMap<String, Vec<u8>>;

struct Run {
    disk: SimulatedDisk,
    /// Contents after each commit; index 0 is the state at opening.
    history: Vec<Contents>,
    /// Index of the last commit that was acknowledged as durable.
    durable: usize,
}

/// Random blobs and keys until the power goes out or `commits` are through.
fn work(engine: &Engine, run: &mut Run, random: &mut fastrand::Rng, commits: usize) {
    for _ in 0..commits {
        let mut next = run.history.last().cloned().unwrap_or_default();
        let name = format!("b{}", random.u8(0..4));
        let len = [1, 100, 4096, 5000, 70_000, 200_000][random.usize(0..6)];
        let bytes = vec![random.u8(..); len];
        let durability = [Durability::Durable, Durability::Ordered, Durability::Deferred][random.usize(0..3)];
        next.insert(name.clone(), bytes.clone());
        // In doubt from here on: it may be there after a crash even if it was not acknowledged.
        run.history.push(next);
        if put_blob(engine, &name, &bytes, durability).is_err() {
            return;
        }
        if durability == Durability::Durable {
            run.durable = run.history.len() - 1;
        }
        let step = match random.u8(0..12) {
            0 => engine.sync().map(|()| run.durable = run.history.len() - 1),
            1 => engine.checkpoint().map(|()| run.durable = run.history.len() - 1),
            2 => engine.write_pending(),
            _ => Ok(()),
        };
        if step.is_err() {
            return;
        }
    }
}

fn contents(engine: &Engine) -> Contents {
    let blobs = (0..4).map(|index| format!("b{index}"));
    let read = blobs.map(|name| (name.clone(), get_blob(engine, &name).expect("read after recovery")));
    read.filter(|(_, bytes)| !bytes.is_empty()).collect()
}

/// Recovers and compares; returns the engine and the contents found.
fn recover(disk: &SimulatedDisk, run: &Run, context: &str) -> (Engine, Contents) {
    let engine = Engine::open(disk.as_disk(), options()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = contents(&engine);
    let allowed = &run.history[run.durable..];
    if !allowed.contains(&found) {
        let place = run.history.iter().position(|state| *state == found);
        panic!("{context}: found state {place:?}, durable was {}, of {}", run.durable, run.history.len() - 1);
    }
    sound(&engine);
    (engine, found)
}

fn start(seed: u64) -> (Run, Engine) {
    let disk = sim(seed);
    let engine = create(&disk.as_disk());
    (Run { disk, history: vec![Contents::new()], durable: 0 }, engine)
}

#[test]
fn power_cut_after_every_step() {
    for seed in 0..4 {
        let total = {
            let (mut run, engine) = start(seed);
            work(&engine, &mut run, &mut fastrand::Rng::with_seed(seed), 30);
            run.disk.steps()
        };
        let first = { start(seed).0.disk.steps() };
        for step in first..total {
            let (mut run, engine) = start(seed);
            run.disk.power_off_after(step);
            work(&engine, &mut run, &mut fastrand::Rng::with_seed(seed), 30);
            std::mem::forget(engine);
            for image in 0..3 {
                let disk = run.disk.crash(seed * 1000 + image);
                recover(&disk, &run, &format!("seed {seed} step {step} image {image}"));
            }
        }
    }
}

#[test]
fn crash_after_crash_after_crash() {
    for seed in 100..140 {
        let (mut run, mut engine) = start(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        for generation in 0..6 {
            run.disk.power_off_after(run.disk.steps() + random.u64(1..60));
            work(&engine, &mut run, &mut random, 20);
            drop(engine);
            let mut disk = run.disk.crash(random.u64(..));
            // Sometimes the power goes out again while recovering.
            while random.u8(0..3) == 0 {
                disk.power_off_after(random.u64(1..8));
                drop(Engine::open(disk.as_disk(), options()));
                disk = disk.crash(random.u64(..));
            }
            let (recovered, found) = recover(&disk, &run, &format!("seed {seed} generation {generation}"));
            recovered.sync().expect("sync");
            run = Run { disk, history: vec![found], durable: 0 };
            engine = recovered;
        }
    }
}

#[test]
fn a_failed_flush_poisons_the_volume() {
    let (mut run, engine) = start(7);
    work(&engine, &mut run, &mut fastrand::Rng::with_seed(7), 5);
    engine.sync().expect("sync");
    put_blob(&engine, "b0", b"before", Durability::Ordered).expect("ordered");
    engine.write_pending().expect("pending");
    run.disk.fail_next(txfs_disk::sim::Fault::Sync, 1);
    let failed = engine.sync();
    assert!(matches!(failed, Err(txfs_engine::EngineError::Poisoned { .. })), "{failed:?}");
    assert!(put_blob(&engine, "b0", b"after", Durability::Ordered).is_err());
    assert_eq!(get_blob(&engine, "b0").expect("reads go on"), b"before");
    drop(engine);
    let disk: Arc<dyn Disk> = run.disk.crash(1).as_disk();
    Engine::open(disk, options()).expect("reopening recovers");
}

#[test]
fn lost_durable_data_is_reported_and_not_rolled_back() {
    let (run, engine) = start(8);
    for round in 0..10u8 {
        put_blob(&engine, "b0", &[round; 3000], Durability::Durable).expect("commit");
    }
    std::mem::forget(engine);
    let disk = run.disk.crash(1);
    let segment = disk.as_disk().open("segment-0000000001").expect("segment");
    // The fifth record's body.
    segment.write_at(4096 + 4 * 3584 + 500, b"rot").expect("damage");
    match Engine::open(disk.as_disk(), options()) {
        Err(txfs_engine::EngineError::Corrupt { place, .. }) => assert_eq!(place, "segment-0000000001"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_recovery_gave_up_no_later_one_brings_back() {
    let (run, engine) = start(9);
    put_blob(&engine, "b0", &[1; 9000], Durability::Ordered).expect("ordered");
    put_blob(&engine, "b1", &[2; 3000], Durability::Ordered).expect("ordered");
    engine.sync().expect("sync");
    // A power cut before any of it was promised: one sector of the first record did not arrive, the second record did.
    let disk = run.disk.fork();
    std::mem::forget(engine);
    let torn = 4096 + 64 + 4096;
    let sector = [1; 512];
    disk.overwrite("segment-0000000001", torn, &[0; 512]).expect("tear");
    let engine = Engine::open(disk.as_disk(), options()).expect("open");
    assert!(contents(&engine).is_empty());
    std::mem::forget(engine);
    // The next session moved the same data to the same place, and of its record only that sector arrived.
    let disk = disk.fork();
    disk.overwrite("segment-0000000001", torn, &sector).expect("arrive");
    let engine = Engine::open(disk.as_disk(), options()).expect("open again");
    assert!(contents(&engine).is_empty());
}
