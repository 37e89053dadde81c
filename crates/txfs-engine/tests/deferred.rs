//! Deferred commits are merged: what was overwritten in the meantime never reaches the disk, readers notice nothing of
//! it, and after a crash a group is there as a whole or not at all.

mod common;

use common::*;
use txfs_engine::{Durability, Engine, EngineOptions, Extent, Mutation, Read};

fn content(round: usize, len: usize) -> Vec<u8> {
    [round as u8, (round >> 8) as u8].repeat(len / 2)
}

#[test]
fn what_was_overwritten_is_not_written() {
    let disk = sim(1);
    let engine = create(&disk.as_disk());
    let before = engine.stat().expect("stat");
    for round in 0..500 {
        put_blob(&engine, "hot", &content(round, 4096), Durability::Deferred).expect("commit");
        put_blob(&engine, "gone", &content(round, 8192), Durability::Deferred).expect("commit");
        let deletion = Mutation::Delete { key: blob_key("gone", 0) };
        commit(&engine, &[deletion, put("key", &round.to_string())], Durability::Deferred).expect("commit");
        assert_eq!(get_blob(&engine, "hot").expect("read"), content(round, 4096));
        assert!(get_blob(&engine, "gone").expect("read").is_empty());
    }
    engine.sync().expect("sync");
    let stat = engine.stat().expect("stat");
    assert!(stat.log_bytes - before.log_bytes < 10_000, "{stat:?}");
    assert_eq!(stat.log_writes - before.log_writes, 1, "{stat:?}");
    assert_eq!(stat.commits_merged, 1499);
    assert_eq!(stat.deferred_bytes_dropped, 499 * 4096 + 500 * 8192);
    sound(&engine);
    drop(engine);
    let engine = Engine::open(disk.crash(3).as_disk(), options()).expect("recover");
    assert_eq!(get_blob(&engine, "hot").expect("read"), content(499, 4096));
    assert_eq!(get(&engine, "key").as_deref(), Some("499"));
    assert_eq!(engine.snapshot().sequence(), 1500);
    sound(&engine);
}

#[test]
fn a_durable_commit_takes_deferred_ones_along() {
    let disk = sim(2);
    let engine = create(&disk.as_disk());
    put_blob(&engine, "first", &content(1, 4096), Durability::Deferred).expect("commit");
    commit(&engine, &[put("a", "1")], Durability::Deferred).expect("commit");
    commit(&engine, &[put("b", "1")], Durability::Durable).expect("commit");
    for seed in 0..20 {
        let engine = Engine::open(disk.crash(seed).as_disk(), options()).expect("recover");
        assert_eq!(get_blob(&engine, "first").expect("read"), content(1, 4096));
        assert_eq!(get(&engine, "a").as_deref(), Some("1"));
        assert_eq!(get(&engine, "b").as_deref(), Some("1"));
    }
}

#[test]
fn snapshots_keep_what_they_see() {
    let disk = sim(3);
    let engine = create(&disk.as_disk());
    let mut held = Vec::new();
    for round in 0..60 {
        put_blob(&engine, "blob", &content(round, 6000), Durability::Deferred).expect("commit");
        held.push((round, engine.snapshot()));
        match round % 20 {
            7 => engine.write_pending().expect("write"),
            13 => engine.checkpoint().expect("checkpoint"),
            17 => put_blob(&engine, "other", b"x", Durability::Durable).map(drop).expect("commit"),
            _ => {}
        }
        for (round, snapshot) in &held {
            let value = snapshot.get(&blob_key("blob", 0)).expect("get").expect("there");
            let extent = Extent::decode(&value).expect("extent");
            let mut bytes = vec![0; extent.len as usize];
            engine.read(&extent, 0, &mut bytes).expect("read");
            assert_eq!(bytes, content(*round, 6000));
            engine.read(&extent, 5000, &mut bytes[..500]).expect("read a part");
            assert_eq!(bytes[..500], content(*round, 6000)[5000..5500]);
        }
        if round % 11 == 0 {
            held.drain(..held.len() / 2);
        }
    }
    sound(&engine);
}

/// Pieces of an extent that is still in memory are extents of their own.
#[test]
fn pieces_of_deferred_extents_get_places() {
    let disk = sim(4);
    let engine = create(&disk.as_disk());
    put_blob(&engine, "blob", &content(1, 5 * 4096), Durability::Deferred).expect("commit");
    let value = engine.snapshot().get(&blob_key("blob", 0)).expect("get").expect("there");
    let extent = Extent::decode(&value).expect("extent");
    let piece = |name: &str, first, count| Mutation::Put {
        key: blob_key(name, 0),
        value: extent.slice_pages(first, count).encode(),
    };
    commit(&engine, &[piece("blob", 0, 1), piece("tail", 3, 2)], Durability::Deferred).expect("commit");
    engine.sync().expect("sync");
    let stat = engine.stat().expect("stat");
    assert_eq!(stat.deferred_bytes_dropped, 2 * 4096);
    for engine in [engine, Engine::open(disk.crash(1).as_disk(), options()).expect("recover")] {
        assert_eq!(get_blob(&engine, "blob").expect("read"), content(1, 4096));
        assert_eq!(get_blob(&engine, "tail").expect("read"), content(1, 2 * 4096));
        sound(&engine);
    }
}

#[test]
fn memory_stays_bounded_whatever_snapshots_see() {
    let disk = sim(5);
    let engine = create(&disk.as_disk());
    let mut held = Vec::new();
    for round in 0..400 {
        put_blob(&engine, &format!("b{}", round % 50), &content(round, 20_000), Durability::Deferred)
            .expect("commit");
        held.push(engine.snapshot());
        if round % 100 == 0 {
            engine.checkpoint().expect("checkpoint");
        }
    }
    let stat = engine.stat().expect("stat");
    assert!(stat.deferred_bytes <= 3 * SEGMENT_BYTES / 4, "{stat:?}");
    drop(held);
    put_blob(&engine, "last", &content(1, 2000), Durability::Deferred).expect("commit");
    engine.sync().expect("sync");
    put_blob(&engine, "last", &content(2, 2000), Durability::Deferred).expect("commit");
    assert!(engine.stat().expect("stat").deferred_bytes <= 2 * 2000);
    sound(&engine);
}

#[test]
fn threads_defer_and_readers_see_whole_commits() {
    let disk = sim(6);
    Engine::create(&disk.as_disk(), &format_options(), &[]).expect("create");
    let with_threads = EngineOptions { background: true, ..options() };
    let engine = Engine::open(disk.as_disk(), with_threads).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let engine = &engine;
            scope.spawn(move || {
                for round in 0..300usize {
                    let name = format!("t{thread}");
                    let durability = match round % 50 {
                        49 => Durability::Durable,
                        20 => Durability::Ordered,
                        _ => Durability::Deferred,
                    };
                    put_blob(engine, &name, &content(round, 3000), durability).expect("commit");
                    let snapshot = engine.snapshot();
                    let value = snapshot.get(&blob_key(&name, 0)).expect("get").expect("there");
                    let extent = Extent::decode(&value).expect("extent");
                    let mut bytes = vec![0; 3000];
                    engine.read(&extent, 0, &mut bytes).expect("read");
                    assert_eq!(bytes, content(round, 3000));
                    if round % 97 == 96 {
                        engine.checkpoint().expect("checkpoint");
                    }
                }
            });
        }
    });
    sound(&engine);
    engine.close().expect("close");
    let engine = Engine::open(disk.as_disk(), options()).expect("open");
    for thread in 0..4 {
        assert_eq!(get_blob(&engine, &format!("t{thread}")).expect("read"), content(299, 3000));
    }
    sound(&engine);
}
