//! Replaying the log in two threads finds what replaying it in one finds, and the distance between checkpoints counts
//! changes as well as bytes.

mod common;

use std::ops::ControlFlow;

use common::*;
use txfs_engine::{Durability, Engine, EngineOptions, Extent, Read};

/// Entries with the data that extents stand for, and figures.
type Found = (Vec<(Vec<u8>, Vec<u8>)>, [u64; 5]);

/// Everything that a recovered engine holds, and what it says of its recovery. Where data lies does not count: an engine
/// with threads has a cleaner, which moves it.
fn found(engine: &Engine) -> Found {
    let mut entries = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    let snapshot = engine.snapshot();
    snapshot.scan(&[], &[0xff; 8], visit).expect("scan");
    for (_, value) in entries.iter_mut().filter(|(key, _)| key[0] == b'e') {
        let extent = Extent::decode(value).expect("extent");
        value.resize(extent.len as usize, 0);
        engine.read(&extent, 0, value).expect("read");
    }
    let stat = engine.stat().expect("stat");
    let report = &stat.recovery;
    let replayed = [report.records_replayed, report.commits_replayed, report.changes_replayed];
    let [records, commits, changes] = replayed;
    (entries, [records, commits, changes, report.bytes_replayed, stat.live_bytes])
}

#[test]
fn two_threads_replay_what_one_does() {
    let mut replayed_most = 0;
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = sim(seed);
        let engine = create(&disk.as_disk());
        for number in 0..random.u64(0..700) {
            let durability = [Durability::Durable, Durability::Ordered][random.usize(0..2)];
            match random.u8(0..12) {
                0 => {
                    let bytes = vec![random.u8(..); [1, 5000, 200_000, 600_000][random.usize(0..4)]];
                    put_blob(&engine, &format!("b{}-{}", random.u8(0..6), bytes.len()), &bytes, durability)
                        .expect("blob");
                }
                // more mutations than a record holds: parts
                1 if number % 40 == 0 => {
                    let many: Vec<_> =
                        (0..8000).map(|key| put(&format!("k{key}"), &"v".repeat(200))).collect();
                    commit(&engine, &many, durability).expect("many");
                }
                _ => {
                    let key = format!("k{}", random.u16(0..500));
                    commit(&engine, &[put(&key, &number.to_string())], durability).expect("key");
                }
            }
        }
        let crashed = disk.crash(seed);
        let alone = Engine::open(crashed.fork().as_disk(), options()).expect("one thread");
        let threads = EngineOptions { background: true, ..options() };
        let together = Engine::open(crashed.fork().as_disk(), threads).expect("two threads");
        let found = found(&alone);
        assert!(found == self::found(&together), "seed {seed}");
        sound(&together);
        replayed_most = replayed_most.max(found.1[0]);
    }
    assert!(replayed_most > 300, "there is something to replay");
}

#[test]
fn many_small_changes_bring_the_checkpoint_nearer() {
    let checkpoints = |checkpoint_change_bytes| {
        let disk = sim(1);
        Engine::create(&disk.as_disk(), &format_options(), &[]).expect("create");
        let options =
            EngineOptions { checkpoint_distance_bytes: 1 << 20, checkpoint_change_bytes, ..options() };
        let engine = Engine::open(disk.as_disk(), options).expect("open");
        for number in 0..100 {
            let changes: Vec<_> = (0..50).map(|key| put(&format!("k{number}-{key}"), "v")).collect();
            commit(&engine, &changes, Durability::Ordered).expect("commit");
        }
        engine.stat().expect("stat").checkpoints
    };
    assert_eq!(checkpoints(0), 0, "100 KB of log");
    assert_eq!(checkpoints(1024), 4, "5000 changes");
}
