//! Data that goes ahead of its commit: it shares a write and a flush with the commit where it is little, one flush with it
//! where it is much, and can be read, and survives, at every point in between.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use txfs_disk::sim::{Fault, SimulatedDisk};
use txfs_engine::{
    Applied, CHUNK_BYTES_MAX, Commit, ConflictSet, Durability, Engine, EngineError, EngineOptions,
    EngineStat, FormatOptions, Mutation, MutationList, Piece, Placed,
};

const SEGMENT_BYTES: u64 = 8 << 20;

fn open(disk: &SimulatedDisk, options: EngineOptions) -> Engine {
    let format = FormatOptions { segment_bytes: SEGMENT_BYTES, ..format_options() };
    Engine::create(&disk.as_disk(), &format, &[]).expect("create");
    Engine::open(disk.as_disk(), options).expect("open")
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn place(engine: &Engine, data: &[u8]) -> Placed {
    let pieces: Vec<Piece<'_>> = data.chunks(CHUNK_BYTES_MAX).map(|chunk| Piece(chunk, None)).collect();
    engine.place_pieces(None, &pieces).expect("place")
}

fn commit_placed(engine: &Engine, name: &str, placed: &Placed, durability: Durability) {
    let empty = ConflictSet::new();
    let mutations: Vec<Mutation> = placed
        .extents()
        .iter()
        .enumerate()
        .map(|(index, extent)| Mutation::Put { key: blob_key(name, index), value: extent.encode() })
        .collect();
    engine
        .commit(Commit {
            snapshot: &engine.snapshot(),
            reads: &empty,
            writes: &empty,
            data: Vec::new(),
            prepared: &MutationList::new(),
            durability,
            apply: &|_, _| Ok(Applied { mutations: mutations.clone(), ..Applied::default() }),
        })
        .expect("commit");
}

fn stat(engine: &Engine) -> EngineStat {
    engine.stat().expect("stat")
}

#[test]
fn data_and_its_commit_are_one_write_and_one_flush() {
    let disk = sim(1);
    let engine = open(&disk, options());
    for (round, len) in [5000, 300_000, 1 << 20].into_iter().enumerate() {
        let before = stat(&engine);
        let data = bytes(round as u64, len);
        let placed = place(&engine, &data);
        commit_placed(&engine, &format!("b{round}"), &placed, Durability::Durable);
        let after = stat(&engine);
        assert_eq!(after.log_writes - before.log_writes, 1, "{len} bytes");
        assert_eq!(after.flushes - before.flushes, 1, "{len} bytes");
        let recovered = Engine::open(disk.crash(3).as_disk(), options()).expect("recover");
        assert!(get_blob(&recovered, &format!("b{round}")).expect("read") == data);
    }
}

#[test]
fn much_data_takes_several_writes_and_one_flush() {
    let disk = sim(2);
    let engine = open(&disk, options());
    let data = bytes(5, 6 << 20);
    let before = stat(&engine);
    let placed = place(&engine, &data);
    commit_placed(&engine, "b", &placed, Durability::Durable);
    let after = stat(&engine);
    assert!((6..=8).contains(&(after.log_writes - before.log_writes)), "{after:?}");
    assert_eq!(after.flushes - before.flushes, 1);
    let recovered = Engine::open(disk.crash(3).as_disk(), options()).expect("recover");
    assert!(get_blob(&recovered, "b").expect("read") == data);
    sound(&recovered);
}

#[test]
fn what_is_placed_can_be_read_before_and_after_it_is_written() {
    let disk = sim(3);
    let engine = open(&disk, options());
    let data = bytes(6, 700_000);
    let placed = place(&engine, &data);
    let check = || {
        let mut at = 0;
        for extent in placed.extents() {
            let mut found = vec![0; extent.len as usize];
            engine.read(extent, 0, &mut found).expect("read");
            assert!(found == data[at..at + found.len()]);
            engine.read(extent, 5000, &mut found[..100]).expect("read");
            assert!(found[..100] == data[at + 5000..at + 5100]);
            at += extent.len as usize;
        }
    };
    check();
    engine.write_pending().expect("write");
    check();
}

/// With threads of its own, and queues so short that everybody waits, helps and watches.
#[test]
fn what_several_threads_place_survives() {
    for seed in 0..12 {
        let disk = sim(seed);
        let background = EngineOptions {
            background: true,
            queue_bytes_max: 1 << 20,
            checkpoint_distance_bytes: 3 << 20,
            overlap_flush_us: seed % 2 * 60,
            ..options()
        };
        let engine = open(&disk, background);
        let acknowledged: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (thread, acknowledged) in acknowledged.iter().enumerate() {
                let engine = &engine;
                scope.spawn(move || {
                    for round in 1..=6u64 {
                        let len = if thread == 2 { 3000 } else { (2 << 20) + 777 };
                        let data = bytes(round * 10 + thread as u64, len);
                        let placed = place(engine, &data);
                        let name = format!("t{thread}r{round}");
                        let durability =
                            if round % 2 == 0 { Durability::Durable } else { Durability::Ordered };
                        commit_placed(engine, &name, &placed, durability);
                        if durability == Durability::Durable {
                            acknowledged.store(round, Ordering::Release);
                        }
                    }
                });
            }
            for image in 0..5 {
                std::thread::sleep(std::time::Duration::from_millis(3));
                let promised: Vec<u64> =
                    acknowledged.iter().map(|round| round.load(Ordering::Acquire)).collect();
                let recovered = Engine::open(disk.crash(image).as_disk(), options()).expect("recover");
                for (thread, promised) in promised.iter().enumerate() {
                    for round in 1..=6 {
                        let found = get_blob(&recovered, &format!("t{thread}r{round}")).expect("read");
                        assert!(!found.is_empty() || round > *promised, "seed {seed}: {thread}, {round}");
                        let len = if thread == 2 { 3000 } else { (2 << 20) + 777 };
                        assert!(found.is_empty() || found == bytes(round * 10 + thread as u64, len));
                    }
                }
            }
        });
        engine.close().expect("close");
    }
}

/// Bulk data leaves memory when it is written. When the flush behind it fails, it may be nowhere: that is no damage.
#[test]
fn what_a_failed_flush_took_away_is_said_to_be_lost() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = sim(seed);
        let engine = open(&disk, options());
        let data = bytes(seed, 2 << 20);
        let placed = place(&engine, &data);
        commit_placed(&engine, "b", &placed, Durability::Ordered);
        engine.write_pending().expect("pending");
        disk.fail_next(Fault::Sync, 1);
        engine.sync().expect_err("the flush fails");
        match get_blob(&engine, "b") {
            Ok(found) => assert!(found == data, "seed {seed}"),
            Err(EngineError::Lost { .. }) => lost += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(lost > 0, "no flush took anything away");
}
