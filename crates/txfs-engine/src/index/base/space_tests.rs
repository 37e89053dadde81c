//! The space of the index file: used again, bounded, and never while somebody can still see what is in it.

use std::ops::ControlFlow;

use super::{BaseReader, IndexStore};
use crate::index::tests::{CACHE_BYTES, Model, VOLUME, all, changes, checkpoint_as_estimated, new_disk};
use crate::index::{IndexView, Memtable, Read};

fn view(base: BaseReader) -> IndexView {
    IndexView { active: Memtable::new(), frozen: None, base }
}

/// Checkpoints of random changes for a long time, with readers of old versions and openings in between.
#[test]
fn old_versions_stay_readable_while_space_is_used_again() {
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (_, disk) = new_disk();
        let mut model = Model::new();
        // A small cache, so that much is read from the file again.
        let mut store = IndexStore::create(&disk, "index", &VOLUME, 64 << 10).unwrap();
        let mut readers: Vec<(BaseReader, Model)> = Vec::new();
        for number in 0..120u64 {
            let count = [1, 30, 300, 2000][random.usize(..4)];
            let memtable = changes(&mut random, count, 3000, &mut model);
            checkpoint_as_estimated(&store, &memtable, &number.to_le_bytes());
            if random.u8(..4) == 0 {
                readers.push((store.reader(), model.clone()));
            }
            if !readers.is_empty() && random.u8(..5) == 0 {
                let (reader, expected) = readers.swap_remove(random.usize(..readers.len()));
                assert_eq!(all(&view(reader)), expected, "seed {seed}, {number}: an old version changed");
            }
            if random.u8(..20) == 0 {
                // Nobody is left who reads the old versions.
                readers.clear();
                store.close().unwrap();
                store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
            }
        }
        assert_eq!(all(&view(store.reader())), model);
        assert_eq!(store.verify().unwrap(), model.len() as u64);
    }
}

#[test]
fn the_file_stays_below_a_multiple_of_what_is_live() {
    let (_, disk) = new_disk();
    let (mut random, mut model) = (fastrand::Rng::with_seed(1), Model::new());
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    let mut bytes_max = 0;
    for _ in 0..400 {
        store.checkpoint(&changes(&mut random, 1000, 5000, &mut model), b"").unwrap();
        bytes_max = bytes_max.max(store.file_bytes().unwrap());
    }
    let live: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(bytes_max < 4 * live as u64 + (12 << 20), "{bytes_max} bytes for {live}");
    assert_eq!(store.verify().unwrap(), model.len() as u64);

    // All goes, and the space with it.
    let mut memtable = Memtable::new();
    model.keys().for_each(|key| memtable.put(key, None));
    for _ in 0..4 {
        store.checkpoint(&memtable, b"").unwrap();
    }
    assert_eq!(store.verify().unwrap(), 0);
    assert!(all(&view(store.reader())).is_empty());
}

#[test]
fn a_file_that_was_large_is_cut() {
    let (_, disk) = new_disk();
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    let keys = 0..300_000u64;
    let mut memtable = Memtable::new();
    for key in keys.clone() {
        memtable.put(&key.to_be_bytes(), Some(&[7; 200]));
    }
    store.checkpoint(&memtable, b"").unwrap();
    let large = store.file_bytes().unwrap();
    assert!(large > 60 << 20);
    let mut memtable = Memtable::new();
    for key in keys.skip(10) {
        memtable.put(&key.to_be_bytes(), None);
    }
    for _ in 0..8 {
        store.checkpoint(&memtable, b"").unwrap();
    }
    assert!(store.file_bytes().unwrap() < large / 8, "{} bytes are left", store.file_bytes().unwrap());
    assert_eq!(store.verify().unwrap(), 10);
    let mut count = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    view(store.reader()).scan_back(&[], &[0xff; 9], visit).unwrap();
    assert_eq!(count, 10);
}

/// Long keys, long values, empty values, and the longest that mutations may have.
#[test]
fn entries_of_every_size() {
    let mut random = fastrand::Rng::with_seed(3);
    let (_, disk) = new_disk();
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    let mut model = Model::new();
    for _ in 0..30 {
        let mut memtable = Memtable::new();
        for _ in 0..random.usize(1..60) {
            let mut key = vec![b'k'; random.usize(..4) * 300];
            key.extend(random.u16(..500).to_be_bytes());
            if random.u8(..3) == 0 {
                memtable.put(&key, None);
                model.remove(&key);
                continue;
            }
            let len = [0, 1, 500, 2040, 2100, 70_000, 128 << 10][random.usize(..7)];
            let value = vec![random.u8(..); len];
            memtable.put(&key, Some(&value));
            model.insert(key, value);
        }
        checkpoint_as_estimated(&store, &memtable, b"");
        assert_eq!(all(&view(store.reader())), model);
    }
    assert_eq!(store.verify().unwrap(), model.len() as u64);
}

#[test]
fn many_deletions_need_little_space() {
    let (_, disk) = new_disk();
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    let mut memtable = Memtable::new();
    for key in 0..20_000u64 {
        memtable.put(&key.to_be_bytes(), None);
    }
    assert!(store.written_bytes_max(&memtable) < 4 << 20);
    checkpoint_as_estimated(&store, &memtable, b"");
}
