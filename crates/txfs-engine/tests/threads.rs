//! Several threads commit at once: flushes are shared, acknowledged commits survive a power cut, and validated
//! increments lose no update. The schedule is the operating system's, so what is asserted holds under every one.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use txfs_disk::Disk;
use txfs_disk::host::HostDisk;
use txfs_engine::{ConflictSet, Durability, Engine, EngineError, EngineOptions};

const THREADS: u64 = 6;

#[test]
fn acknowledged_commits_of_all_threads_survive() {
    for seed in 0..20 {
        let disk = sim(seed);
        Engine::create(&disk.as_disk(), &format_options(), &[]).expect("create");
        let background = EngineOptions { background: true, checkpoint_distance_bytes: 200_000, ..options() };
        let engine = Engine::open(disk.as_disk(), background).expect("open");
        let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        disk.power_off_after(disk.steps() + 40 + seed * 17);
        std::thread::scope(|scope| {
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let engine = &engine;
                scope.spawn(move || {
                    for round in 1..400u64 {
                        let durability =
                            if round % 3 == 0 { Durability::Durable } else { Durability::Ordered };
                        if commit(engine, &[put(&format!("t{thread}"), &round.to_string())], durability)
                            .is_err()
                        {
                            return;
                        }
                        if durability == Durability::Durable {
                            acknowledged.store(round, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        drop(engine);
        let engine = Engine::open(disk.crash(seed).as_disk(), options()).expect("recover");
        for (thread, acknowledged) in acknowledged.iter().enumerate() {
            let found: u64 =
                get(&engine, &format!("t{thread}")).map_or(0, |text| text.parse().expect("number"));
            assert!(
                found >= acknowledged.load(Ordering::Relaxed),
                "seed {seed} thread {thread}: found {found}"
            );
        }
        sound(&engine);
    }
}

#[test]
fn concurrent_increments_are_serialized() {
    let directory = tempfile::tempdir().expect("directory");
    let disk: Arc<dyn Disk> = Arc::new(HostDisk::open(directory.path()).expect("host disk"));
    Engine::create(&disk, &format_options(), &[put("n", "0")]).expect("create");
    let engine = Engine::open(disk, EngineOptions::default()).expect("open");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..50 {
                    while !increment(&engine) {}
                }
            });
        }
    });
    assert_eq!(get(&engine, "n"), Some((THREADS * 50).to_string()));
    let stat = engine.stat().expect("stat");
    assert!(stat.flushes <= stat.durable_commits + 4, "{stat:?}");
}

/// One transaction; false when it has to be run again.
fn increment(engine: &Engine) -> bool {
    let snapshot = engine.snapshot();
    let value = txfs_engine::Read::get(&snapshot, b"n").expect("get").expect("there");
    let number: u64 = String::from_utf8(value).expect("text").parse().expect("number");
    let next = [put("n", &(number + 1).to_string())];
    match commit_at(engine, &snapshot, &point(1), &point(1), &next, Durability::Durable) {
        Ok(_) => true,
        Err(EngineError::Conflict(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn readers_see_whole_commits() {
    let disk = sim(5);
    let engine = create(&disk.as_disk());
    let none = ConflictSet::new();
    commit(&engine, &[put("a", "0"), put("b", "0")], Durability::Ordered).expect("commit");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..2000u64 {
                let text = round.to_string();
                let snapshot = engine.snapshot();
                let both = [put("a", &text), put("b", &text)];
                commit_at(&engine, &snapshot, &none, &none, &both, Durability::Deferred).expect("commit");
                if round % 300 == 0 {
                    engine.checkpoint().expect("checkpoint");
                }
            }
        });
        while !writer.is_finished() {
            let snapshot = engine.snapshot();
            let read = |key: &[u8]| txfs_engine::Read::get(&snapshot, key).expect("get");
            assert_eq!(read(b"a"), read(b"b"));
        }
    });
}
