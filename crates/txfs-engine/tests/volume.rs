//! A volume's life on both disks: create, commit, read, reopen, close; large commits; wrong use.

mod common;

use std::sync::Arc;

use common::*;
use txfs_disk::Disk;
use txfs_disk::host::HostDisk;
use txfs_engine::{Durability, Engine, EngineError, Mutation};

fn on_both(test: impl Fn(Arc<dyn Disk>)) {
    test(sim(1).as_disk());
    let directory = tempfile::tempdir().expect("directory");
    test(Arc::new(HostDisk::open(directory.path()).expect("host disk")));
}

#[test]
fn commits_survive_closing_and_reopening() {
    on_both(|disk| {
        let engine = create(&disk);
        assert!(engine.recovery().clean());
        for round in 0..50 {
            commit(&engine, &[put("k", &round.to_string())], Durability::Ordered).expect("commit");
        }
        put_blob(&engine, "b", b"hello", Durability::Durable).expect("blob");
        assert_eq!(get(&engine, "k").as_deref(), Some("49"));
        engine.close().expect("close");
        let engine = Engine::open(disk.clone(), options()).expect("reopen");
        assert!(engine.recovery().clean(), "{:?}", engine.recovery());
        assert_eq!(get(&engine, "k").as_deref(), Some("49"));
        assert_eq!(get_blob(&engine, "b").expect("blob"), b"hello");
        sound(&engine);
    });
}

#[test]
fn recovery_replays_the_log_without_a_close() {
    on_both(|disk| {
        let engine = create(&disk);
        commit(&engine, &[put("a", "1")], Durability::Ordered).expect("commit");
        commit(&engine, &[put("b", "2"), Mutation::Delete { key: b"a".to_vec() }], Durability::Durable)
            .expect("commit");
        // The process dies: nothing is closed, but what was written is there.
        std::mem::forget(engine);
        if disk
            .try_lock("LOCK", "x")
            .is_ok_and(|outcome| matches!(outcome, txfs_disk::LockOutcome::Held { .. }))
        {
            return; // The forgotten engine still holds the host's lock; the simulator covers this.
        }
        let engine = Engine::open(disk.clone(), options()).expect("reopen");
        assert_eq!(engine.recovery().commits_replayed, 2);
        assert_eq!((get(&engine, "a"), get(&engine, "b").as_deref()), (None, Some("2")));
    });
}

#[test]
fn large_data_and_large_metadata_cross_segments() {
    on_both(|disk| {
        let engine = create(&disk);
        let big: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
        put_blob(&engine, "big", &big, Durability::Durable).expect("blob");
        let many: Vec<Mutation> = (0..30_000).map(|at| put(&format!("key{at:08}"), "some value")).collect();
        commit(&engine, &many, Durability::Durable).expect("many");
        assert_eq!(get_blob(&engine, "big").expect("read"), big);
        let crashed_disk = disk.clone();
        engine.close().expect("close");
        let engine = Engine::open(crashed_disk, options()).expect("reopen");
        assert_eq!(get_blob(&engine, "big").expect("read"), big);
        assert_eq!(get(&engine, "key00029999").as_deref(), Some("some value"));
        sound(&engine);
    });
}

#[test]
fn overwriting_for_long_reuses_segments() {
    on_both(|disk| {
        let engine = create(&disk);
        for round in 0..300u32 {
            put_blob(&engine, "x", &[round as u8; 100_000], Durability::Ordered).expect("blob");
            if round % 10 == 9 {
                engine.checkpoint().expect("checkpoint");
            }
        }
        assert!(engine.stat().expect("stat").segments < 12, "{:?}", engine.stat());
        assert_eq!(get_blob(&engine, "x").expect("read"), [299u32 as u8; 100_000]);
        sound(&engine);
        engine.close().expect("close");
        let engine = Engine::open(disk.clone(), options()).expect("reopen");
        assert_eq!(get_blob(&engine, "x").expect("read"), [299u32 as u8; 100_000]);
        sound(&engine);
    });
}

#[test]
fn a_snapshot_keeps_what_it_sees() {
    on_both(|disk| {
        let engine = create(&disk);
        put_blob(&engine, "x", &[1; 100_000], Durability::Durable).expect("blob");
        let snapshot = engine.snapshot();
        let value = txfs_engine::Read::get(&snapshot, &blob_key("x", 0)).expect("get").expect("there");
        let extent = txfs_engine::Extent::decode(&value).expect("extent");
        for round in 0..100u32 {
            put_blob(&engine, "x", &[round as u8; 100_000], Durability::Ordered).expect("blob");
            if round % 10 == 9 {
                engine.checkpoint().expect("checkpoint");
            }
        }
        let mut bytes = vec![0; 100_000];
        engine.read(&extent, 0, &mut bytes).expect("read the old data");
        assert_eq!(bytes, [1; 100_000]);
    });
}

#[test]
fn conflicts_are_found_by_range() {
    let engine = create(&sim(3).as_disk());
    let (first, second) = (engine.snapshot(), engine.snapshot());
    let none = txfs_engine::ConflictSet::new();
    commit_at(&engine, &first, &none, &point(5), &[put("a", "1")], Durability::Ordered).expect("first");
    let other = commit_at(&engine, &second, &none, &point(6), &[put("b", "1")], Durability::Ordered);
    assert!(other.is_ok());
    let same = commit_at(&engine, &second, &point(5), &point(7), &[put("c", "1")], Durability::Ordered);
    match same {
        Err(EngineError::Conflict(report)) => {
            let clash = &report.clashes[0];
            assert_eq!((clash.range.first, clash.sequence()), (5, Some(1)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(get(&engine, "c"), None);
    let third = engine.snapshot();
    commit_at(&engine, &third, &point(5), &point(5), &[put("c", "2")], Durability::Ordered)
        .expect("newer snapshot");
}

#[test]
fn wrong_use_has_clear_errors() {
    let disk = sim(4).as_disk();
    assert!(matches!(Engine::open(disk.clone(), options()), Err(EngineError::NotAVolume { .. })));
    let engine = create(&disk);
    match Engine::open(disk.clone(), options()) {
        Err(EngineError::AlreadyOpen { owner }) => assert!(owner.contains(&std::process::id().to_string())),
        other => panic!("{other:?}"),
    }
    let again = Engine::create(&disk, &format_options(), &[]);
    assert!(matches!(again, Err(EngineError::AlreadyExists { .. })));
    engine.close().expect("close");
    assert!(matches!(engine.sync(), Err(EngineError::Closed)));
    disk.rename("MANIFEST", "elsewhere").expect("rename");
    assert!(matches!(Engine::open(disk.clone(), options()), Err(EngineError::MissingManifest)));
    disk.rename("elsewhere", "MANIFEST").expect("rename");
    let manifest = disk.open("MANIFEST").expect("open");
    manifest.write_at(12, &9u32.to_le_bytes()).expect("write");
    assert!(matches!(Engine::open(disk.clone(), options()), Err(EngineError::NewerFormat { found: 9, .. })));
    manifest.write_at(12, &1u32.to_le_bytes()).expect("write");
    disk.rename("index", "elsewhere").expect("rename");
    assert!(matches!(Engine::open(disk.clone(), options()), Err(EngineError::MissingFile { .. })));
    disk.rename("elsewhere", "index").expect("rename");
    disk.rename("segment-0000000001", "elsewhere").expect("rename");
    assert!(matches!(Engine::open(disk.clone(), options()), Err(EngineError::MissingFile { .. })));
    disk.rename("elsewhere", "segment-0000000001").expect("rename");
    Engine::open(disk, options()).expect("all is well again");
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let disk = sim(6);
    let engine = create(&disk.as_disk());
    put_blob(&engine, "kept", &[1; 50_000], Durability::Durable).expect("blob");
    disk.set_capacity(Some(2 * SEGMENT_BYTES));
    let mut refused = 0;
    for round in 0..20u8 {
        match put_blob(&engine, "more", &[round; 200_000], Durability::Durable) {
            Ok(_) => {}
            Err(EngineError::NoSpace { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0);
    assert_eq!(get_blob(&engine, "kept").expect("read"), [1; 50_000]);
    sound(&engine);
    disk.set_capacity(None);
    put_blob(&engine, "more", &[99; 200_000], Durability::Durable).expect("there is space again");
    engine.close().expect("close");
    let engine = Engine::open(disk.as_disk(), options()).expect("reopen");
    assert_eq!(get_blob(&engine, "more").expect("read"), [99; 200_000]);
    sound(&engine);
}
