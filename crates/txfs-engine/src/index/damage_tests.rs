//! Damaged index files: every read gives the right data or an error, and nothing panics.

use std::ops::ControlFlow;

use txfs_disk::sim::SimulatedDisk;

use super::tests::{CACHE_BYTES, Model, VOLUME, base_view, changes, key, new_disk};
use super::{IndexError, IndexStore, Memtable, Read};

const SECTOR_BYTES: usize = 512;
const RECORD: &[u8] = b"the record";
const SPREAD: u64 = 400;

/// A disk with an index of a few hundred pages, and what is in it. Closed in good order or not.
fn sound(seed: u64, closed: bool) -> (SimulatedDisk, Model) {
    let (simulated, disk) = new_disk();
    let (mut random, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    for _ in 0..4 {
        store.checkpoint(&changes(&mut random, 1500, SPREAD, &mut model), RECORD).unwrap();
    }
    if closed {
        store.close().unwrap();
    } else {
        std::mem::forget(store);
    }
    (simulated, model)
}

/// Uses the index in every way. All that succeeds must be right; returns whether everything succeeded.
fn exercise(simulated: &SimulatedDisk, model: &Model, seed: u64) -> bool {
    let disk = simulated.as_disk();
    let store = match IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES) {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error, IndexError::Corrupt { .. }), "{error}");
            return false;
        }
    };
    assert_eq!(store.record(), RECORD);
    let mut sound = match store.verify() {
        Ok(entries) => {
            assert_eq!(entries, model.len() as u64);
            true
        }
        Err(error) => {
            assert!(matches!(error, IndexError::Corrupt { .. }), "{error}");
            false
        }
    };
    let view = base_view(&store);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..30 {
        let key = key(&mut random, SPREAD);
        match view.get(&key) {
            Ok(value) => assert_eq!(value.as_ref(), model.get(&key)),
            Err(_) => sound = false,
        }
    }
    let mut expected = model.iter();
    let scanned = view.scan(&[], &[0xff; 9], &mut |key, value| {
        let (expected_key, expected_value) = expected.next().unwrap();
        assert_eq!((key, value), (expected_key.as_slice(), expected_value.as_slice()));
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) => assert!(expected.next().is_none()),
        Err(_) => sound = false,
    }
    let mut memtable = Memtable::new();
    for (key, _) in model.iter().step_by(50) {
        memtable.put(key, Some(b"changed"));
    }
    sound &= store.checkpoint(&memtable, b"another").is_ok();
    sound
}

#[test]
fn flipped_bits_are_errors_or_do_not_matter() {
    for closed in [false, true] {
        let (simulated, model) = sound(1, closed);
        assert!(exercise(&simulated.fork(), &model, 0), "the index was not sound in the first place");
        let len = simulated.file_bytes("index").unwrap().len() as u64;
        let mut random = fastrand::Rng::with_seed(2);
        let mut noticed = 0;
        let cases = 400;
        for case in 0..cases {
            let damaged = simulated.fork();
            // The header's sector gets its share, and some cases have more than one flip.
            let range = if case % 8 == 0 { 0..512 } else { 0..len };
            for _ in 0..[1, 1, 1, 2, 30][case as usize % 5] {
                damaged.flip_bit("index", random.u64(range.clone()), random.u8(..8)).unwrap();
            }
            noticed += u64::from(!exercise(&damaged, &model, case));
        }
        // Free pages are never read, so not every flip can be noticed.
        assert!(noticed > cases / 4, "only {noticed} of {cases} noticed");
    }
}

#[test]
fn lost_swapped_and_stale_sectors_are_errors_or_do_not_matter() {
    let (simulated, model) = sound(3, false);
    let (other, _) = sound(4, false);
    let bytes = simulated.file_bytes("index").unwrap();
    let other = other.file_bytes("index").unwrap();
    let sectors = bytes.len().min(other.len()) / 512;
    let mut random = fastrand::Rng::with_seed(5);
    for case in 0..400 {
        let damaged = simulated.fork();
        let at = random.usize(..sectors) * 512;
        let source = random.usize(..sectors) * 512;
        let sector = match case % 4 {
            // Lost, misdirected, or another life of the same sector.
            0 => &[0; 512][..],
            1 => &bytes[source..source + 512],
            2 => &other[at..at + 512],
            _ => &other[source..source + 512],
        };
        damaged.overwrite("index", at as u64, sector).unwrap();
        exercise(&damaged, &model, case);
    }
}

#[test]
fn truncated_files_are_errors_or_do_not_matter() {
    let (simulated, model) = sound(6, true);
    let len = simulated.file_bytes("index").unwrap().len() as u64;
    let mut random = fastrand::Rng::with_seed(7);
    for case in 0..60 {
        let damaged = simulated.fork();
        let cut =
            [random.u64(..len), random.u64(..len / SECTOR_BYTES as u64) * SECTOR_BYTES as u64][case % 2];
        txfs_disk::Disk::open(&damaged, "index").unwrap().set_len(cut).unwrap();
        exercise(&damaged, &model, case as u64);
    }
}

/// Whole sectors from the past: what lies there was written once, but is not what the tree refers to.
#[test]
fn lost_writes_are_errors_or_do_not_matter() {
    let (simulated, disk) = new_disk();
    let (mut random, mut model) = (fastrand::Rng::with_seed(8), Model::new());
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    let mut images = Vec::new();
    // Long enough that regions are written again.
    for number in 0..150 {
        store.checkpoint(&changes(&mut random, 300, SPREAD, &mut model), RECORD).unwrap();
        if number > 20 && number % 10 == 0 {
            images.push(simulated.file_bytes("index").unwrap());
        }
    }
    std::mem::forget(store);
    let mut found_damage = 0;
    let cases = 1000;
    for case in 0..cases {
        let damaged = simulated.fork();
        for _ in 0..random.usize(1..4) {
            let image = &images[random.usize(..images.len())];
            let sectors = random.usize(1..40);
            let at = random.usize(1..image.len() / SECTOR_BYTES - sectors) * SECTOR_BYTES;
            damaged.overwrite("index", at as u64, &image[at..at + sectors * SECTOR_BYTES]).unwrap();
        }
        found_damage += u64::from(!exercise(&damaged, &model, case));
    }
    assert!(found_damage > cases / 10, "only {found_damage} of {cases} noticed");
}
