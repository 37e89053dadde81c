//! The index against a model: merged views, damage, and power cuts at every step of several checkpoints.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use txfs_disk::Disk;
use txfs_disk::sim::{SimOptions, SimulatedDisk};

use super::{IndexError, IndexStore, IndexView, Memtable, Read};

pub(super) const VOLUME: [u8; 16] = *b"sixteen byte id!";
pub(super) const CACHE_BYTES: usize = 1 << 20;

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn new_disk() -> (SimulatedDisk, Arc<dyn Disk>) {
    let simulated = SimulatedDisk::new(SimOptions::default());
    let disk = simulated.as_disk();
    (simulated, disk)
}

pub(super) fn key(random: &mut fastrand::Rng, spread: u64) -> Vec<u8> {
    match random.u8(..3) {
        0 => [&b"i"[..], &random.u64(..spread).to_be_bytes()].concat(),
        1 => [&b"d"[..], &random.u64(..spread / 10 + 1).to_be_bytes(), b"name"].concat(),
        _ => [&b"e"[..], &random.u64(..spread).to_be_bytes(), &random.u64(..4).to_be_bytes()].concat(),
    }
}

/// A memtable of random changes, a third of them deletions, also made to the model.
pub(super) fn changes(random: &mut fastrand::Rng, count: usize, spread: u64, model: &mut Model) -> Memtable {
    let mut memtable = Memtable::new();
    for _ in 0..count {
        let key = key(random, spread);
        if random.u8(..3) == 0 {
            memtable.put(&key, None);
            model.remove(&key);
        } else {
            let len = if random.u8(..50) == 0 { random.usize(..9000) } else { random.usize(..150) };
            let value = vec![random.u8(..); len];
            memtable.put(&key, Some(&value));
            model.insert(key, value);
        }
    }
    memtable
}

pub(super) fn all(view: &IndexView) -> Model {
    let mut found = Model::new();
    view.scan(&[], &[0xff; 9], &mut |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

pub(super) fn base_view(store: &IndexStore) -> IndexView {
    IndexView { active: Memtable::new(), frozen: None, base: store.reader() }
}

/// A checkpoint that must write no more than was estimated.
pub(super) fn checkpoint_as_estimated(store: &IndexStore, memtable: &Memtable, record: &[u8]) {
    let estimate = store.written_bytes_max(memtable);
    let before = store.bytes_written();
    store.checkpoint(memtable, record).unwrap();
    let written = store.bytes_written() - before;
    assert!(written <= estimate, "{} changes: {written} bytes of {estimate}", memtable.len());
}

fn check_view(view: &IndexView, model: &Model, random: &mut fastrand::Rng, spread: u64) {
    assert_eq!(all(view), *model);
    for _ in 0..100 {
        let (from, to) = (key(random, spread), key(random, spread));
        assert_eq!(view.get(&from).unwrap(), model.get(&from).cloned());
        let range = from.clone()..to.max(from);
        let expected: Vec<_> = model.range(range.clone()).collect();
        let limit = if random.bool() { usize::MAX } else { random.usize(1..4) };
        for back in [false, true] {
            let mut found = Vec::new();
            let visit = &mut |key: &[u8], value: &[u8]| {
                found.push((key.to_vec(), value.to_vec()));
                if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            if back {
                view.scan_back(&range.start, &range.end, visit).unwrap();
                assert!(found.iter().map(|(k, v)| (k, v)).eq(expected.iter().rev().take(limit).copied()));
            } else {
                view.scan(&range.start, &range.end, visit).unwrap();
                assert!(found.iter().map(|(k, v)| (k, v)).eq(expected.iter().take(limit).copied()));
            }
        }
        // An empty and a reversed range visit nothing.
        let nothing = &mut |_: &[u8], _: &[u8]| panic!("visited an entry outside the range");
        view.scan(&range.start, &range.start, nothing).unwrap();
        view.scan_back(&range.end, &range.start, nothing).unwrap();
        view.scan(&range.end, &range.start, nothing).unwrap();
    }
}

#[test]
fn a_view_merges_its_levels_and_never_changes() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let spread = [10, 100, 2000][seed as usize % 3];
        let (_, disk) = new_disk();
        let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
        let mut model = Model::new();
        let base = store.checkpoint(&changes(&mut random, 1000, spread, &mut model), b"first").unwrap();
        let base_model = model.clone();
        let frozen = changes(&mut random, 200, spread, &mut model);
        let frozen_model = model.clone();
        let active = changes(&mut random, 100, spread, &mut model);
        let view = IndexView { active, frozen: Some(frozen.clone()), base: base.clone() };
        check_view(&view, &model, &mut random, spread);
        let below = IndexView { active: frozen.clone(), frozen: None, base };
        check_view(&below, &frozen_model, &mut random, spread);

        let next = store.checkpoint(&frozen, b"second").unwrap();
        assert_eq!(store.record(), b"second");
        let after = IndexView { active: view.active.clone(), frozen: None, base: next };
        check_view(&after, &model, &mut random, spread);
        check_view(&view, &model, &mut random, spread);
        let old = IndexView { active: Memtable::new(), frozen: None, base: view.base.clone() };
        check_view(&old, &base_model, &mut random, spread);
        assert_eq!(store.verify().unwrap(), frozen_model.len() as u64);
    }
}

/// Keys that come in runs, as those of new nodes do, between old ones, over old ones and with deletions among them.
#[test]
fn runs_of_new_keys_go_in_like_any_other() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (_, disk) = new_disk();
        let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
        let mut model = Model::new();
        for _ in 0..8 {
            let mut memtable = changes(&mut random, 100, 2000, &mut model);
            for _ in 0..random.usize(1..8) {
                let (start, step) = (random.u64(..5000), [1, 1, 7, 100][random.usize(..4)]);
                let deleted_of_ten = [0, 0, 1, 5][random.usize(..4)];
                for at in (0..random.u64(1..400)).map(|at| start + at * step) {
                    let key = [&b"i"[..], &at.to_be_bytes()].concat();
                    if random.u8(..10) < deleted_of_ten {
                        memtable.put(&key, None);
                        model.remove(&key);
                    } else {
                        let len = if random.u8(..200) == 0 { 9000 } else { random.usize(..60) };
                        let value = vec![random.u8(..); len];
                        memtable.put(&key, Some(&value));
                        model.insert(key, value);
                    }
                }
            }
            checkpoint_as_estimated(&store, &memtable, b"record");
            assert_eq!(all(&base_view(&store)), model, "seed {seed}");
        }
        assert_eq!(store.verify().unwrap(), model.len() as u64);
    }
}

#[test]
fn what_was_closed_opens_as_it_was() {
    let (_, disk) = new_disk();
    let mut model = Model::new();
    let memtable = changes(&mut fastrand::Rng::with_seed(7), 3000, 1000, &mut model);
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    assert_eq!(store.record(), b"");
    store.checkpoint(&memtable, b"one").unwrap();
    store.close().unwrap();
    store.close().unwrap();
    assert!(matches!(store.checkpoint(&memtable, b"two"), Err(IndexError::Unusable { .. })));
    for _ in 0..3 {
        let store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
        assert_eq!(store.record(), b"one");
        assert_eq!(all(&base_view(&store)), model);
        assert_eq!(store.verify().unwrap(), model.len() as u64);
        store.close().unwrap();
    }
}

#[test]
fn opening_what_is_not_there_or_not_ours_is_an_error() {
    let (_, disk) = new_disk();
    let open = |volume| IndexStore::open(&disk, "index", volume, CACHE_BYTES);
    assert!(matches!(open(&VOLUME), Err(IndexError::Io { .. })));
    disk.create("index").unwrap();
    assert!(matches!(open(&VOLUME), Err(IndexError::Corrupt { .. })));
    disk.remove("index").unwrap();
    IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap().close().unwrap();
    assert!(matches!(open(b"another volume !"), Err(IndexError::Corrupt { .. })));
    assert!(matches!(
        IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES),
        Err(IndexError::Io { doing: "create", .. })
    ));
    open(&VOLUME).unwrap();
}

#[test]
fn a_checkpoint_without_space_changes_nothing_and_can_be_repeated() {
    let (simulated, disk) = new_disk();
    let (mut random, mut model) = (fastrand::Rng::with_seed(3), Model::new());
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    store.checkpoint(&changes(&mut random, 3000, 1000, &mut model), b"one").unwrap();
    let before = model.clone();
    let more = changes(&mut random, 3000, 1000, &mut model);
    simulated.set_capacity(Some(store.file_bytes().unwrap() + 100_000));
    assert!(matches!(store.checkpoint(&more, b"two"), Err(IndexError::NoSpace { .. })));
    assert_eq!((store.record(), all(&base_view(&store))), (b"one".to_vec(), before));
    simulated.set_capacity(None);
    store.checkpoint(&more, b"two").unwrap();
    assert_eq!((store.record(), all(&base_view(&store))), (b"two".to_vec(), model));
}

#[test]
fn a_checkpoint_writes_no_more_than_was_estimated() {
    let (_, disk) = new_disk();
    let store = IndexStore::create(&disk, "index", &VOLUME, 16 * CACHE_BYTES).unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    for count in [1, 10, 100, 5000, 1, 20_000, 1, 300, 1000, 5000, 20_000, 100] {
        for spread in [10, 20_000] {
            let memtable = changes(&mut random, count, spread, &mut Model::new());
            checkpoint_as_estimated(&store, &memtable, b"record");
        }
    }
}
