//! The memtable against the standard library's map.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Memtable;

type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn random_key(random: &mut fastrand::Rng, spread: u32) -> Vec<u8> {
    let number = random.u32(..spread);
    match random.u8(..4) {
        // Prefixes of one another, and the empty key.
        0 => vec![b'a'; number as usize % 40],
        1 => number.to_be_bytes().to_vec(),
        2 => format!("d{:02}/{number}", number % 7).into_bytes(),
        _ => [&b"e"[..], &u64::from(number).to_be_bytes()].concat(),
    }
}

fn random_value(random: &mut fastrand::Rng) -> Option<Vec<u8>> {
    let len = match random.u8(..20) {
        0..4 => return None,
        4 => random.usize(..10_000),
        5 => 0,
        _ => random.usize(..120),
    };
    Some(vec![random.u8(..); len])
}

fn check(memtable: &Memtable, model: &Model, random: &mut fastrand::Rng, spread: u32) {
    assert_eq!(memtable.len(), model.len());
    assert_eq!(memtable.is_empty(), model.is_empty());
    let bytes: usize = model.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum();
    assert_eq!(memtable.bytes(), bytes as u64);
    assert!(memtable.iter().eq(model.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))));
    for _ in 0..20 {
        let key = random_key(random, spread);
        assert_eq!(memtable.get(&key), model.get(&key).map(Option::as_deref));
        let (from, to) = (random_key(random, spread), random_key(random, spread));
        let bounds = (Bound::Included(from.clone()), Bound::Excluded(to.clone().max(from.clone())));
        let expected: Vec<_> =
            model.range(bounds).map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        let ascending: Vec<_> = memtable.range(&from, &to).collect();
        assert_eq!(ascending, expected);
        let mut descending: Vec<_> = memtable.range_back(&from, &to).collect();
        descending.reverse();
        assert_eq!(descending, expected);
    }
}

#[test]
fn behaves_as_an_ordered_map_and_its_clones_do_not_change() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let spread = [10, 300, 100_000][seed as usize % 3];
        let (mut memtable, mut model) = (Memtable::new(), Model::new());
        let mut snapshots = vec![(memtable.clone(), model.clone())];
        for step in 0..2000 {
            let (key, value) = (random_key(&mut random, spread), random_value(&mut random));
            memtable.put(&key, value.as_deref());
            model.insert(key, value);
            if step % 200 == 0 {
                snapshots.push((memtable.clone(), model.clone()));
            }
        }
        for (memtable, model) in snapshots.iter().chain([&(memtable, model)]) {
            check(memtable, model, &mut random, spread);
        }
    }
}

#[test]
fn ascending_and_descending_runs_keep_the_order() {
    for descending in [false, true] {
        let (mut memtable, mut model) = (Memtable::new(), Model::new());
        for step in 0..20_000_u32 {
            let number = if descending { 20_000 - step } else { step };
            let (key, value) = (number.to_be_bytes().to_vec(), Some(vec![0; 20]));
            memtable.put(&key, value.as_deref());
            model.insert(key, value);
        }
        check(&memtable, &model, &mut fastrand::Rng::with_seed(1), 20_000);
    }
}

#[test]
fn a_newer_map_is_taken_over_whichever_is_larger() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut older, mut older_model) = (Memtable::new(), Model::new());
        let (mut newer, mut newer_model) = (Memtable::new(), Model::new());
        for (memtable, model) in [(&mut older, &mut older_model), (&mut newer, &mut newer_model)] {
            for _ in 0..random.usize(0..1500) {
                let (key, value) = (random_key(&mut random, 3000), random_value(&mut random));
                memtable.put(&key, value.as_deref());
                model.insert(key, value);
            }
        }
        let (held, held_model) = (older.clone(), older_model.clone());
        older.merge(newer.clone());
        older_model.extend(newer_model.clone());
        check(&older, &older_model, &mut random, 3000);
        check(&held, &held_model, &mut random, 3000);
        check(&newer, &newer_model, &mut random, 3000);
    }
}
