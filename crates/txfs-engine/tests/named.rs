//! Named snapshots show exactly the state of their moment, whatever is committed, moved, merged, removed or lost in a crash
//! afterwards.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use common::*;
use fastrand::Rng;
use txfs_disk::sim::SimulatedDisk;
use txfs_engine::{
    Applied, Chunk, CleanOptions, Commit, ConflictSet, Durability, Engine, EngineError, Extent, Mutation,
    MutationList, Read, Snapshot,
};

const PAGE: usize = 4096;

/// Keys and what they mean.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(tag: u8, object: u64, rest: &[u8]) -> Vec<u8> {
    [&[tag][..], &object.to_be_bytes(), rest].concat()
}

fn extent_key(object: u64, page: u64) -> Vec<u8> {
    key(b'e', object, &page.to_be_bytes())
}

/// What an entry means: of an extent the bytes of each of its pages, since cleaning joins extents.
fn meaning(engine: &Engine, key: &[u8], value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    if key[0] != b'e' {
        return vec![(key.to_vec(), value.to_vec())];
    }
    let extent = Extent::decode(value).expect("an extent");
    let mut bytes = vec![0; extent.len as usize];
    engine.read(&extent, 0, &mut bytes).expect("its data");
    let (object, first) = (number(&key[1..9]), number(&key[9..]));
    let pages = (first..).zip(bytes.chunks(PAGE));
    pages.map(|(page, bytes)| (extent_key(object, page), bytes.to_vec())).collect()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn create_snapshot(engine: &Engine, objects_from: u64) -> u64 {
    let describe = |_: &[_]| Ok((objects_from, b"about it".to_vec()));
    engine.create_named(Durability::Durable, &describe).expect("create")
}

/// One transaction of a test.
#[derive(Default)]
struct Change {
    mutations: Vec<Mutation>,
    prepared: MutationList,
    data: Vec<(Vec<u8>, Vec<u8>)>,
    /// Extents that are cut behind their first page, and where the rest goes.
    cuts: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Change {
    fn commit(&self, engine: &Engine, durability: Durability) -> Result<(), EngineError> {
        let nothing = ConflictSet::new();
        let snapshot = engine.snapshot();
        let outcome = engine.commit(Commit {
            snapshot: &snapshot,
            reads: &nothing,
            writes: &nothing,
            data: self.data.iter().map(|(_, bytes)| Chunk::from(bytes.clone())).collect(),
            prepared: &self.prepared,
            durability,
            apply: &|read, places| {
                let mut mutations = self.mutations.clone();
                for (key, second) in &self.cuts {
                    let extent = Extent::decode(&read.get(key)?.expect("there")).expect("an extent");
                    let (head, tail) = (extent.slice_pages(0, 1), extent.slice_pages(1, extent.pages() - 1));
                    mutations.push(Mutation::Put { key: key.clone(), value: head.encode() });
                    mutations.push(Mutation::Put { key: second.clone(), value: tail.encode() });
                }
                let placed = self.data.iter().zip(places);
                mutations.extend(
                    placed.map(|((key, _), place)| Mutation::Put { key: key.clone(), value: place.encode() }),
                );
                Ok(Applied { mutations, ..Applied::default() })
            },
        });
        outcome.map(drop)
    }
}

struct World {
    engine: Engine,
    random: Rng,
    now: State,
    next_object: u64,
    /// Those that can be read, by number.
    snapshots: BTreeMap<u64, State>,
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let (now, snapshots) = (State::new(), BTreeMap::new());
        World { engine, random: Rng::with_seed(seed), now, next_object: 1, snapshots }
    }

    fn any_key(&mut self) -> Vec<u8> {
        let object = self.random.u64(self.next_object.saturating_sub(12).max(1)..=self.next_object);
        self.next_object = self.next_object.max(object + 1);
        match self.random.u8(..6) {
            0 => key(b'i', object, &[]),
            1 => key(b'o', object, &[]),
            2 => key(b'l', object, &[]),
            3 => key(b'x', object, b"name"),
            _ => key(b'd', object, &[self.random.u8(..20)]),
        }
    }

    /// A change of some keys and some data, at random.
    fn change(&mut self) {
        let mut change = Change::default();
        let mut next = self.now.clone();
        let mut touched = std::collections::BTreeSet::new();
        for _ in 0..self.random.usize(..8) {
            let key = self.any_key();
            if !touched.insert(key.clone()) {
                continue;
            }
            let value = vec![self.random.u8(..); self.random.usize(..40)];
            let (deletes, prepares) = (self.random.u8(..4) == 0, self.random.bool());
            match (deletes, prepares) {
                (true, true) => change.prepared.delete(&key),
                (true, false) => change.mutations.push(Mutation::Delete { key: key.clone() }),
                (false, true) => change.prepared.put(&key, &value),
                (false, false) => {
                    change.mutations.push(Mutation::Put { key: key.clone(), value: value.clone() });
                }
            }
            match deletes {
                true => next.remove(&key),
                false => next.insert(key, value),
            };
        }
        let mut extents: Vec<(Vec<u8>, u64)> = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            let pages = Extent::decode(value).expect("an extent").pages();
            extents.push((key.to_vec(), pages.into()));
            ControlFlow::Continue(())
        };
        self.engine.snapshot().scan(b"e", b"f", &mut visit).expect("scan");
        self.random.shuffle(&mut extents);
        for _ in 0..self.random.usize(..4) {
            match (self.random.u8(..4), extents.pop()) {
                (0, Some((key, pages))) => {
                    for page in 0..pages {
                        next.remove(&extent_key(number(&key[1..9]), number(&key[9..]) + page));
                    }
                    change.mutations.push(Mutation::Delete { key });
                }
                (1 | 2, Some((key, pages))) if pages > 1 => {
                    let second = extent_key(number(&key[1..9]), number(&key[9..]) + 1);
                    change.cuts.push((key, second));
                }
                _ => {
                    let object = self.random.u64(self.next_object.saturating_sub(8)..=self.next_object);
                    self.next_object = self.next_object.max(object + 1);
                    // Far from what is there, so that nothing overlaps.
                    let first = self.random.u64(..3) * 100;
                    if next.range(extent_key(object, first)..extent_key(object, first + 99)).next().is_some()
                    {
                        continue;
                    }
                    let bytes = vec![self.random.u8(..); PAGE * self.random.usize(1..6)];
                    for (page, bytes) in (first..).zip(bytes.chunks(PAGE)) {
                        next.insert(extent_key(object, page), bytes.to_vec());
                    }
                    change.data.push((extent_key(object, first), bytes));
                }
            }
        }
        let durability = match self.random.u8(..4) {
            0 => Durability::Durable,
            1 => Durability::Ordered,
            _ => Durability::Deferred,
        };
        change.commit(&self.engine, durability).expect("commit");
        self.now = next;
    }

    /// As [`World::change`], with so many prepared mutations that they are logged by themselves.
    fn large_change(&mut self) {
        let mut change = Change::default();
        let old: Vec<Vec<u8>> = self.now.keys().filter(|key| key[0] != b'e').cloned().collect();
        for key in old {
            match self.random.u8(..3) {
                0 => {
                    change.prepared.delete(&key);
                    self.now.remove(&key);
                }
                1 => {
                    change.prepared.put(&key, b"changed by many");
                    self.now.insert(key, b"changed by many".to_vec());
                }
                _ => {}
            }
        }
        for number in 0..40 {
            let key = key(b'd', self.next_object, &[number]);
            let value = vec![number; 2000];
            change.prepared.put_new(&key, &value);
            self.now.insert(key, value);
        }
        self.next_object += 1;
        change.commit(&self.engine, Durability::Ordered).expect("commit");
    }

    fn step(&mut self) {
        match self.random.u8(..40) {
            0 => self.large_change(),
            1 | 2 => {
                let id = create_snapshot(&self.engine, self.next_object);
                self.snapshots.insert(id, self.now.clone());
            }
            3 | 4 if !self.snapshots.is_empty() => {
                let which = self.random.usize(..self.snapshots.len());
                let id = *self.snapshots.keys().nth(which).expect("there");
                assert!(self.engine.begin_removal(id, Durability::Durable).expect("begin"));
                self.snapshots.remove(&id);
                assert!(self.engine.named_at(id).is_none());
            }
            5..=8 => drop(self.engine.removal_step().expect("step")),
            9 => self.engine.finish_removals().expect("finish"),
            10 => self.engine.checkpoint().expect("checkpoint"),
            11 => drop(self.engine.clean(&CleanOptions::default(), &mut |_, _| {}).expect("clean")),
            _ => self.change(),
        }
    }

    fn verify(&mut self) {
        let now = self.engine.snapshot();
        let present = self.now.clone();
        self.verify_state(&now, &present);
        let snapshots = self.snapshots.clone();
        for (id, state) in &snapshots {
            let snapshot = self.engine.named_at(*id).expect("it can be read");
            assert_eq!(snapshot.named(), Some(*id));
            self.verify_state(&snapshot, state);
        }
        sound(&self.engine);
    }

    fn verify_state(&mut self, read: &Snapshot, state: &State) {
        let engine = &self.engine;
        let tags = |key: &[u8]| txfs_engine::STATE_KEY_TAGS.contains(&key[0]);
        let mut seen = State::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            if tags(key) {
                let before = seen.last_key_value().map(|(key, _)| key.clone());
                assert!(before.is_none_or(|before| before.as_slice() < key), "in order");
                seen.extend(meaning(engine, key, value));
            }
            ControlFlow::Continue(())
        };
        read.scan(b"a", b"z", &mut visit).expect("scan");
        let differs = |(key, value): &(&Vec<u8>, &Vec<u8>)| state.get(*key) != Some(value);
        let wrong = seen.iter().find(differs).map(|(key, _)| key);
        assert_eq!((seen.len(), wrong), (state.len(), None));
        let mut back = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            back.extend((tags(key) && key[0] != b'e').then(|| key.to_vec()));
            ControlFlow::Continue(())
        };
        read.scan_back(b"a", b"z", &mut visit).expect("scan back");
        back.reverse();
        assert!(back.iter().eq(state.keys().filter(|key| key[0] != b'e')));
        for _ in 0..20 {
            let (from, mut to) = (self.any_key(), self.any_key());
            // Within one kind: between two there may be others that are no state.
            to[0] = from[0];
            let (from, to) = (from.clone().min(to.clone()), from.max(to));
            let mut first = None;
            let mut stop = |key: &[u8], _: &[u8]| {
                first = Some(key.to_vec());
                ControlFlow::Break(())
            };
            read.scan_back(&from, &to, &mut stop).expect("scan back");
            let mut inside = state.range(from.clone()..to.clone());
            assert_eq!(first.as_ref(), inside.clone().next_back().map(|(key, _)| key));
            let mut count = 0;
            read.scan(&from, &to, &mut |key, _| {
                assert_eq!(inside.next().map(|(key, _)| key.as_slice()), Some(key));
                count += 1;
                ControlFlow::Continue(())
            })
            .expect("scan");
            assert_eq!(inside.next(), None, "after {count}");
            let key = self.any_key();
            assert_eq!(read.get(&key).expect("get").as_ref(), state.get(&key));
        }
    }
}

#[test]
fn snapshots_show_their_moment_whatever_happens() {
    for seed in 0..12 {
        let mut world = World::new(create(&sim(seed).as_disk()), seed);
        for step in 0..300 {
            world.step();
            if step % 37 == 36 {
                world.verify();
            }
        }
        let ids: Vec<u64> = world.snapshots.keys().copied().collect();
        for id in ids {
            world.engine.begin_removal(id, Durability::Ordered).expect("begin");
            world.snapshots.remove(&id);
            world.engine.removal_step().expect("step");
            world.verify();
        }
        world.engine.finish_removals().expect("finish");
        assert_eq!(world.engine.named().expect("list"), []);
        let mut left = 0;
        let mut visit = |_: &[u8], _: &[u8]| {
            left += 1;
            ControlFlow::Continue(())
        };
        world.engine.snapshot().scan(b"s", b"t", &mut visit).expect("scan");
        assert_eq!(left, 0, "nothing stays behind");
        world.verify();
    }
}

#[test]
fn snapshots_survive_crashes() {
    for seed in 0..12 {
        let mut disk: SimulatedDisk = sim(seed);
        let mut world = World::new(create(&disk.as_disk()), seed);
        for round in 0..5 {
            for _ in 0..60 {
                world.step();
            }
            world.engine.sync().expect("sync");
            disk = disk.crash(round);
            world.engine = Engine::open(disk.as_disk(), options()).expect("recover");
            world.verify();
        }
    }
}

#[test]
fn without_a_change_nothing_is_saved_and_new_objects_cost_nothing() {
    let engine = create(&sim(1).as_disk());
    let old = key(b'i', 5, &[]);
    commit(&engine, &[Mutation::Put { key: old.clone(), value: b"one".to_vec() }], Durability::Ordered)
        .expect("commit");
    let id = create_snapshot(&engine, 6);
    let new = Mutation::Put { key: key(b'i', 6, &[]), value: b"new".to_vec() };
    commit(&engine, &[new, put("mnext", "7"), put("hentry", "x")], Durability::Ordered).expect("commit");
    assert_eq!(engine.saved_for(id).expect("saved").values, 0);
    for value in [b"two", b"six"] {
        commit(&engine, &[Mutation::Put { key: old.clone(), value: value.to_vec() }], Durability::Deferred)
            .expect("commit");
    }
    assert_eq!(engine.saved_for(id).expect("saved").values, 1);
    let past = engine.named_at(id).expect("there");
    assert_eq!(past.get(&old).expect("get").as_deref(), Some(&b"one"[..]));
    assert_eq!(past.get(&key(b'i', 6, &[])).expect("get"), None);
    assert_eq!(engine.named().expect("list")[0].description, b"about it");
}

#[test]
fn a_removal_goes_on_after_a_crash_and_is_right_at_every_moment() {
    for stop_after in 0..6 {
        let disk = sim(stop_after);
        let engine = create(&disk.as_disk());
        let entry =
            |number: u64, value: &[u8]| Mutation::Put { key: key(b'i', number, &[]), value: value.to_vec() };
        let fill = |value: &[u8], numbers: std::ops::Range<u64>| {
            let mutations: Vec<Mutation> = numbers.map(|number| entry(number, value)).collect();
            commit(&engine, &mutations, Durability::Ordered).expect("commit");
        };
        fill(b"one", 1..1000);
        let first = create_snapshot(&engine, 1000);
        fill(b"two", 1..300);
        let second = create_snapshot(&engine, 1000);
        fill(b"three", 1..1000);
        engine.begin_removal(second, Durability::Ordered).expect("begin");
        for _ in 0..stop_after {
            engine.removal_step().expect("step");
            fill(b"four", 500..600);
        }
        engine.sync().expect("sync");
        drop(engine);
        let engine = Engine::open(disk.crash(1).as_disk(), options()).expect("recover");
        for finished in [false, true] {
            let past = engine.named_at(first).expect("there");
            for number in 1..1000 {
                assert_eq!(past.get(&key(b'i', number, &[])).expect("get").as_deref(), Some(&b"one"[..]));
            }
            assert!(engine.named_at(second).is_none());
            sound(&engine);
            if !finished {
                engine.finish_removals().expect("finish");
                assert_eq!(engine.named().expect("list").len(), 1);
            }
        }
    }
}

#[test]
fn who_holds_the_state_of_a_snapshot_that_is_removed_goes_on_reading() {
    let engine = create(&sim(1).as_disk());
    put_blob(&engine, "blob", &[1; 9000], Durability::Durable).expect("commit");
    let id = create_snapshot(&engine, u64::MAX);
    put_blob(&engine, "blob", &[2; 9000], Durability::Durable).expect("commit");
    let past = engine.named_at(id).expect("there");
    engine.begin_removal(id, Durability::Durable).expect("begin");
    engine.finish_removals().expect("finish");
    engine.clean(&CleanOptions::default(), &mut |_, _| {}).expect("clean");
    engine.checkpoint().expect("checkpoint");
    for round in 0..200u32 {
        let _ = put_blob(&engine, &format!("more{round}"), &[3; 9000], Durability::Durable);
    }
    let value = past.get(&blob_key("blob", 0)).expect("get").expect("there");
    let extent = Extent::decode(&value).expect("an extent");
    let mut bytes = vec![0; 9000];
    engine.read(&extent, 0, &mut bytes).expect("its data");
    assert_eq!(bytes, [1; 9000]);
}

#[test]
fn numbers_that_are_handed_out_again_after_a_crash_are_known_to_all_snapshots() {
    let engine = create(&sim(1).as_disk());
    // The second one is told of fewer numbers than the first: some were handed out and lost.
    let (first, second) = (create_snapshot(&engine, 8), create_snapshot(&engine, 6));
    let new = Mutation::Put { key: key(b'i', 7, &[]), value: b"new".to_vec() };
    commit(&engine, &[new], Durability::Ordered).expect("commit");
    for id in [first, second] {
        assert_eq!(engine.named_at(id).expect("there").get(&key(b'i', 7, &[])).expect("get"), None);
    }
    engine.begin_removal(second, Durability::Ordered).expect("begin");
    engine.finish_removals().expect("finish");
    assert_eq!(engine.named_at(first).expect("there").get(&key(b'i', 7, &[])).expect("get"), None);
    sound(&engine);
}
