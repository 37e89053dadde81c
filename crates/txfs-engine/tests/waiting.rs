//! Commits wait for nothing that they need not wait for: not for the flushes of a checkpoint, even when they go on to another
//! segment and look how much space the checkpoint may still take; and when they are to be durable, not for flushes that
//! could have been made before.

mod common;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::watched::{Gate, Opens, PATIENCE, WatchedDisk};
use common::*;
use txfs_disk::Disk;
use txfs_engine::{Durability, Engine, EngineOptions};

#[test]
fn commits_go_on_to_other_segments_while_a_checkpoint_flushes_the_index() {
    let gate = Arc::new(Gate::default());
    let disk: Arc<dyn Disk> = Arc::new(WatchedDisk(sim(1).as_disk(), gate.clone()));
    let engine = Arc::new(create(&disk));
    let put = |number: u8, durability| put_blob(&engine, "blob", &[number; 200_000], durability);
    put(0, Durability::Durable).expect("commit");

    let _opens = Opens(gate.clone());
    gate.set_closed(true);
    let other = engine.clone();
    let checkpoint = std::thread::spawn(move || other.checkpoint());
    gate.wait_for_somebody();
    let (sender, receiver) = channel();
    let other = engine.clone();
    let committer = std::thread::spawn(move || {
        for number in 1..=10 {
            let outcome = put_blob(&other, "blob", &[number; 200_000], Durability::Durable);
            sender.send(outcome.map(drop)).expect("somebody listens");
        }
    });
    for number in 1..=10 {
        let outcome = receiver.recv_timeout(PATIENCE);
        outcome.unwrap_or_else(|_| panic!("commit {number} waits for the checkpoint")).expect("commit");
    }
    assert!(engine.stat().expect("stat").segments >= 4, "they took more than one segment");
    assert!(!checkpoint.is_finished());
    gate.set_closed(false);
    committer.join().expect("committer");
    checkpoint.join().expect("thread").expect("checkpoint");
    assert_eq!(get_blob(&engine, "blob").expect("read"), [10; 200_000]);
    sound(&engine);
}

#[test]
fn segments_that_the_log_has_left_behind_are_flushed_before_anybody_asks() {
    let disk = sim(2).as_disk();
    Engine::create(&disk, &format_options(), &[]).expect("create");
    let options = EngineOptions { background: true, flush_interval: PATIENCE * 10, ..options() };
    let engine = Engine::open(disk, options).expect("open");
    let flushes = || engine.stat().expect("stat").flushes;
    let before = flushes();
    put_blob(&engine, "blob", &[1; 900_000], Durability::Ordered).expect("commit");
    let begun = Instant::now();
    while flushes() == before {
        assert!(begun.elapsed() < PATIENCE, "nobody flushes them");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(engine.stat().expect("stat").checkpoints, 0, "a checkpoint would have done it as well");
    assert_eq!(get_blob(&engine, "blob").expect("read"), [1; 900_000]);
    engine.sync().expect("sync");
}
