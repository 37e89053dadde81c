//! Commits that count themselves, so that a recovered volume says by itself which commits it holds.
//!
//! Every commit reads and increments one counter while the engine applies it, and notes which number it got. After
//! that, number *n* stands for one state only: that of the first *n* commits in the order in which the engine applied
//! them. A volume must hold one of these states, and one not older than what was acknowledged as durable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use txfs_disk::sim::SimulatedDisk;
use txfs_engine::{
    Applied, CHUNK_BYTES_MAX, Chunk, Commit, ConflictSet, Durability, Engine, EngineError, IndexError,
    Mutation, MutationList, Read, Snapshot,
};

use crate::engine_mode::{Contents, contents};
use crate::generator::Profile;
use crate::hash::{derive_seed, hash_bytes};
use crate::operation::fill_bytes;
use crate::verify;

const COUNTER: &[u8] = b"n";

/// What a commit does to one key: new contents, or none.
struct Change {
    key: Vec<u8>,
    bytes: Option<Vec<u8>>,
}

/// One commit, given by its seed.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Everything that it does follows from this.
    pub seed: u64,
    /// How far it must have come when it returns.
    pub durability: Durability,
    /// Its data is placed before the commit, in a call of its own.
    pub ahead: bool,
}

impl Work {
    /// Draws one.
    pub fn draw(random: &mut fastrand::Rng, profile: &Profile) -> Work {
        let [durable, ordered, deferred] = profile.durability_weights;
        let at = random.u32(0..durable + ordered + deferred);
        let durability = match at {
            at if at < durable => Durability::Durable,
            at if at < durable + ordered => Durability::Ordered,
            _ => Durability::Deferred,
        };
        Work { seed: random.u64(..), durability, ahead: random.u32(0..4) == 0 }
    }

    fn changes(&self, profile: &Profile) -> Vec<Change> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..random.u32(0..4) {
            let len = if random.u32(0..40) == 0 { 20_000 } else { 60 };
            let bytes = (random.u32(0..5) > 0).then(|| fill_bytes(random.u64(..), random.u64(0..len)));
            changes.insert(vec![b'k', random.u8(0..12)], bytes);
        }
        let write_bytes_max = profile.write_bytes_max.min(CHUNK_BYTES_MAX as u64);
        for _ in 0..random.u32(0..3) {
            let len = if random.bool() { random.u64(1..600) } else { random.u64(1..=write_bytes_max) };
            let bytes = (random.u32(0..4) > 0).then(|| fill_bytes(random.u64(..), len));
            changes.insert(vec![b'e', random.u8(0..10)], bytes);
        }
        changes.into_iter().map(|(key, bytes)| Change { key, bytes }).collect()
    }
}

/// The commits of one engine and what was promised about them. Shared by its threads.
#[derive(Debug)]
pub struct Ledger {
    profile: &'static Profile,
    /// Seeds of the commits by their numbers. An entry of a commit that failed is replaced by the next one.
    order: Mutex<BTreeMap<u64, u64>>,
    /// States by number, as far as they were asked for; the first one is that of `base`.
    states: Mutex<Vec<Contents>>,
    base: u64,
    /// Highest number that was acknowledged as durable.
    durable: AtomicU64,
    /// Highest number that the death of the process cannot undo.
    handed: AtomicU64,
}

impl Ledger {
    /// For an empty volume.
    pub fn new(profile: &'static Profile) -> Ledger {
        Ledger {
            profile,
            order: Mutex::default(),
            states: Mutex::new(vec![Contents::new()]),
            base: 0,
            durable: AtomicU64::new(0),
            handed: AtomicU64::new(0),
        }
    }

    /// For a volume that was recovered with the first `number` commits.
    pub fn recovered(&self, number: u64, durable: u64) -> Ledger {
        Ledger {
            profile: self.profile,
            order: Mutex::default(),
            states: Mutex::new(vec![self.state(number)]),
            base: number,
            durable: AtomicU64::new(durable),
            handed: AtomicU64::new(durable),
        }
    }

    /// Highest number that was acknowledged as durable so far.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Highest number that the death of the process cannot undo.
    pub fn handed(&self) -> u64 {
        self.handed.load(Ordering::SeqCst)
    }

    /// Highest number that any commit got.
    pub fn newest(&self) -> u64 {
        self.order.lock().keys().next_back().copied().unwrap_or(self.base)
    }

    fn promise(&self, number: u64) {
        self.durable.fetch_max(number, Ordering::SeqCst);
        self.handed.fetch_max(number, Ordering::SeqCst);
    }

    /// Commits; returns the number that it got.
    pub fn commit(&self, engine: &Engine, work: Work) -> Result<u64, EngineError> {
        let changes = work.changes(self.profile);
        let (mut keys, mut chunks) = (Vec::new(), Vec::new());
        let mut mutations = Vec::new();
        for Change { key, bytes } in changes {
            match bytes {
                None => mutations.push(Mutation::Delete { key }),
                Some(bytes) if key[0] == b'e' => {
                    keys.push(key);
                    chunks.push(Chunk::from(bytes));
                }
                Some(value) => mutations.push(Mutation::Put { key, value }),
            }
        }
        let (data, placed) =
            if work.ahead { (Vec::new(), Some(engine.place(None, chunks)?)) } else { (chunks, None) };
        let given = AtomicU64::new(0);
        let empty = ConflictSet::new();
        engine.commit(Commit {
            snapshot: &engine.snapshot(),
            reads: &empty,
            writes: &empty,
            data,
            prepared: &MutationList::new(),
            durability: work.durability,
            apply: &|state, extents| {
                let extents = placed.as_ref().map_or(extents, |placed| placed.extents());
                let number = counter(state)? + 1;
                self.order.lock().insert(number, work.seed);
                given.store(number, Ordering::SeqCst);
                let puts = keys
                    .iter()
                    .zip(extents)
                    .map(|(key, extent)| Mutation::Put { key: key.clone(), value: extent.encode() });
                let mut all: Vec<Mutation> = mutations.iter().cloned().chain(puts).collect();
                all.push(Mutation::Put { key: COUNTER.to_vec(), value: number.to_be_bytes().to_vec() });
                Ok(Applied { mutations: all, ..Applied::default() })
            },
        })?;
        let number = given.load(Ordering::SeqCst);
        if work.durability == Durability::Durable {
            self.promise(number);
        }
        Ok(number)
    }

    /// Makes everything durable.
    pub fn sync(&self, engine: &Engine) -> Result<u64, EngineError> {
        let number = counter(&engine.snapshot())?;
        engine.sync()?;
        self.promise(number);
        Ok(number)
    }

    /// Hands everything to the host.
    pub fn write_pending(&self, engine: &Engine) -> Result<u64, EngineError> {
        let number = counter(&engine.snapshot())?;
        engine.write_pending()?;
        self.handed.fetch_max(number, Ordering::SeqCst);
        Ok(number)
    }

    /// The state that a number stands for.
    fn state(&self, number: u64) -> Contents {
        let mut states = self.states.lock();
        let order = self.order.lock();
        while states.len() as u64 <= number - self.base {
            let next = self.base + states.len() as u64;
            let mut state = states[states.len() - 1].clone();
            if let Some(seed) = order.get(&next) {
                let work = Work { seed: *seed, durability: Durability::Ordered, ahead: false };
                for Change { key, bytes } in work.changes(self.profile) {
                    match bytes {
                        Some(bytes) => state.insert(key, hash_bytes(&bytes)),
                        None => state.remove(&key),
                    };
                }
            }
            states.push(state);
        }
        states[(number - self.base) as usize].clone()
    }

    /// Holds what a snapshot shows against the state that its counter stands for, and returns the counter.
    pub fn compare(&self, engine: &Engine, snapshot: &Snapshot) -> Result<u64, String> {
        let number = counter(snapshot).map_err(|error| error.to_string())?;
        let mut found = contents(engine, snapshot).map_err(|error| error.to_string())?;
        found.remove(COUNTER);
        if number < self.base || number > self.newest() {
            return Err(format!("it counts {number} commits; there were {} to {}", self.base, self.newest()));
        }
        let expected = self.state(number);
        if found == expected {
            return Ok(number);
        }
        let keys = found.keys().chain(expected.keys());
        let wrong: Vec<String> = keys
            .filter(|key| found.get(*key) != expected.get(*key))
            .map(|key| format!("{}{}", char::from(key[0]), key.get(1).copied().unwrap_or(0)))
            .collect();
        Err(format!("it counts {number} commits, and does not hold their state: {} differ", wrong.join(", ")))
    }

    /// As [`Ledger::compare`], on a disk that may lose power meanwhile.
    pub fn compare_live(
        &self,
        engine: &Engine,
        snapshot: &Snapshot,
        disk: &SimulatedDisk,
    ) -> Result<(), String> {
        match self.compare(engine, snapshot) {
            Err(problem) if !disk.power_lost() => Err(format!("a snapshot: {problem}")),
            _ => Ok(()),
        }
    }

    /// Recovers `disk` and holds it against the ledger; returns the engine and the number of its commits.
    pub fn recover(
        &self,
        disk: &SimulatedDisk,
        options: txfs_engine::EngineOptions,
        oldest: u64,
    ) -> Result<(Engine, u64), String> {
        let engine = Engine::open(disk.as_disk(), options).map_err(|error| error.to_string())?;
        let number = self.compare(&engine, &engine.snapshot())?;
        if number < oldest {
            return Err(format!("lost: it holds {number} commits, and {oldest} were acknowledged"));
        }
        verify::check_engine(disk, &engine)?;
        Ok((engine, number))
    }
}

/// True when an action failed because the disk is full.
pub(crate) fn is_no_space(error: &EngineError) -> bool {
    use EngineError::{Index, NoSpace, SpaceHeld};
    matches!(error, NoSpace { .. } | SpaceHeld { .. } | Index(IndexError::NoSpace { .. }))
}

/// The number of commits in a state.
pub fn counter(state: &dyn Read) -> Result<u64, EngineError> {
    let value = state.get(COUNTER)?;
    Ok(value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes))
}

/// An independent seed for one purpose.
pub(super) fn purpose(seed: u64, index: u64) -> u64 {
    derive_seed(seed, 100 + index)
}
