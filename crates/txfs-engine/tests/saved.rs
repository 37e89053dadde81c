//! Saved values: what they point to is live, is checked, and moves when its segment is cleaned, whether others share it or
//! not.

mod common;

use common::*;
use txfs_engine::{
    Applied, Chunk, CleanOptions, Commit, ConflictSet, Durability, Engine, EngineOptions, Extent,
    FormatOptions, Mutation, MutationList, PAGE_BYTES, Read, read_saved_value, saved_key, saved_value,
};

const PAGES: usize = 16;
const TAIL: &[u8] = b"what else is to be known";

fn content(fill: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(fill);
    (0..PAGES * PAGE_BYTES).map(|_| random.u8(..)).collect()
}

fn key(object: u64) -> Vec<u8> {
    let mut key = vec![b'e'];
    key.extend_from_slice(&object.to_be_bytes());
    key.extend_from_slice(&0_u64.to_be_bytes());
    key
}

/// Writes the object anew; with a number, what it held before is saved under that.
fn write(engine: &Engine, object: u64, fill: u64, save: Option<(u8, u64)>, durability: Durability) {
    let empty = ConflictSet::new();
    let data = vec![Chunk(content(fill).into(), key(object).try_into().ok())];
    engine
        .commit(Commit {
            snapshot: &engine.snapshot(),
            reads: &empty,
            writes: &empty,
            data,
            prepared: &MutationList::new(),
            durability,
            apply: &|read, places| {
                let mut mutations = vec![Mutation::Put { key: key(object), value: places[0].encode() }];
                if let Some((tag, number)) = save {
                    let old = read.get(&key(object))?;
                    let mut value = saved_value(old.as_deref());
                    value.extend_from_slice(TAIL);
                    let key = saved_key(tag, number, &key(object));
                    mutations.push(Mutation::Put { key, value });
                }
                Ok(Applied { mutations, ..Applied::default() })
            },
        })
        .expect("commit");
}

fn saved(engine: &Engine, tag: u8, number: u64, object: u64) -> Vec<u8> {
    let value = engine.snapshot().get(&saved_key(tag, number, &key(object))).expect("get").expect("saved");
    let value = read_saved_value(&value).expect("decodes").expect("there was something");
    let extent = value.strip_suffix(TAIL).expect("the tail stays");
    read(engine, &Extent::decode(extent).expect("extent"))
}

fn present(engine: &Engine, object: u64) -> Vec<u8> {
    let value = engine.snapshot().get(&key(object)).expect("get").expect("there");
    read(engine, &Extent::decode(&value).expect("extent"))
}

fn read(engine: &Engine, extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.len as usize];
    engine.read(extent, 0, &mut bytes).expect("read");
    bytes
}

fn engine(disk: &txfs_disk::sim::SimulatedDisk) -> Engine {
    let format = FormatOptions { size_bytes_max: Some(16 * SEGMENT_BYTES), ..format_options() };
    Engine::create(&disk.as_disk(), &format, &[]).expect("create");
    Engine::open(disk.as_disk(), options()).expect("open")
}

fn clean_all(engine: &Engine) -> txfs_engine::CleanReport {
    let options = CleanOptions { live_percent_max: 99, ..CleanOptions::default() };
    engine.clean(&options, &mut |_, _| {}).expect("clean")
}

#[test]
fn a_saved_extent_stays_and_moves() {
    let disk = sim(1);
    let engine = engine(&disk);
    for object in 0..40 {
        write(&engine, object, object, None, Durability::Ordered);
    }
    for object in 0..40 {
        let save = (object % 4 == 0).then_some((b'u', 7));
        write(&engine, object, 100 + object, save, Durability::Ordered);
    }
    sound(&engine);
    let live = engine.stat().expect("stat").live_bytes;
    assert_eq!(live, (40 + 10) * (PAGES * PAGE_BYTES) as u64);
    for _ in 0..3 {
        let report = clean_all(&engine);
        assert!(report.bytes_moved > 0, "{report:?}");
        for object in 0..40 {
            assert!(present(&engine, object) == content(100 + object));
            if object % 4 == 0 {
                assert!(saved(&engine, b'u', 7, object) == content(object));
            }
        }
        sound(&engine);
        assert_eq!(engine.stat().expect("stat").live_bytes, live);
        // Something dies, so that there is something to gain.
        for object in 0..40 {
            write(&engine, object, 100 + object, None, Durability::Ordered);
        }
    }
    drop(engine);
    let engine = Engine::open(disk.as_disk(), options()).expect("open");
    sound(&engine);
    let dropped: Vec<Mutation> =
        (0..40).map(|object| Mutation::Delete { key: saved_key(b'u', 7, &key(object)) }).collect();
    commit(&engine, &dropped, Durability::Durable).expect("delete");
    assert_eq!(engine.stat().expect("stat").live_bytes, 40 * (PAGES * PAGE_BYTES) as u64);
    sound(&engine);
}

#[test]
fn what_several_share_counts_for_each_and_is_copied_for_each() {
    let disk = sim(2);
    let engine = engine(&disk);
    for object in 0..20 {
        write(&engine, object, object, None, Durability::Ordered);
    }
    // Whole in two saved values, and still live: three times as much as the segments have.
    let mut shared = Vec::new();
    for object in 0..20 {
        let value = engine.snapshot().get(&key(object)).expect("get");
        for tag in [b'b', b'u'] {
            let mut value = saved_value(value.as_deref());
            value.extend_from_slice(TAIL);
            shared.push(Mutation::Put { key: saved_key(tag, 3, &key(object)), value });
        }
    }
    commit(&engine, &shared, Durability::Ordered).expect("commit");
    sound(&engine);
    assert_eq!(engine.stat().expect("stat").live_bytes, 60 * (PAGES * PAGE_BYTES) as u64);
    // Two of three are given up, so that the segments are worth cleaning.
    for object in (0..20).filter(|object| object % 5 != 0) {
        let gone: Vec<Mutation> =
            [b'b', b'u'].map(|tag| Mutation::Delete { key: saved_key(tag, 3, &key(object)) }).into();
        commit(&engine, &gone, Durability::Ordered).expect("commit");
        write(&engine, object, 200 + object, None, Durability::Ordered);
    }
    let before = engine.stat().expect("stat");
    let report = clean_all(&engine);
    assert!(report.bytes_moved > 0, "{report:?}");
    for object in 0..20 {
        let shared = object % 5 == 0;
        assert!(present(&engine, object) == content(if shared { object } else { 200 + object }));
        if shared {
            assert!(saved(&engine, b'b', 3, object) == content(object));
            assert!(saved(&engine, b'u', 3, object) == content(object));
        }
    }
    assert_eq!(engine.stat().expect("stat").live_bytes, before.live_bytes);
    sound(&engine);
}

#[test]
fn deferred_data_can_be_saved() {
    let disk = sim(3);
    let engine = engine(&disk);
    for round in 0..30 {
        write(&engine, 1, round, Some((b'u', round)), Durability::Deferred);
        let snapshot = (round % 7 == 0).then(|| engine.snapshot());
        if round % 11 == 0 {
            engine.sync().expect("sync");
        }
        drop(snapshot);
    }
    let compare = |engine: &Engine| {
        assert!(present(engine, 1) == content(29));
        for round in 1..30 {
            assert!(saved(engine, b'u', round, 1) == content(round - 1), "{round}");
        }
        sound(engine);
    };
    compare(&engine);
    drop(engine);
    let engine = Engine::open(disk.as_disk(), options()).expect("open");
    compare(&engine);
    clean_all(&engine);
    compare(&engine);
}

#[test]
fn a_volume_full_of_saved_values_goes_on_when_they_are_dropped() {
    let disk = sim(4);
    let format = FormatOptions { size_bytes_max: Some(16 * SEGMENT_BYTES), ..format_options() };
    Engine::create(&disk.as_disk(), &format, &[]).expect("create");
    let engine = Engine::open(disk.as_disk(), EngineOptions { recent_bytes: 0, ..options() }).expect("open");
    let objects = 30;
    for object in 0..objects {
        write(&engine, object, object, None, Durability::Ordered);
    }
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..2000 {
        // A window of the last twenty old values.
        write(&engine, random.u64(0..objects), round, Some((b'u', round)), Durability::Ordered);
        if round >= 20 {
            let mut gone = Vec::new();
            let (from, to) = (saved_key(b'u', 0, b""), saved_key(b'u', round - 20, b""));
            engine
                .snapshot()
                .scan(&from, &to, &mut |key, _| {
                    gone.push(Mutation::Delete { key: key.to_vec() });
                    std::ops::ControlFlow::Continue(())
                })
                .expect("scan");
            commit(&engine, &gone, Durability::Ordered).expect("delete");
        }
    }
    assert!(engine.stat().expect("stat").segments_cleaned > 0);
    sound(&engine);
}
