//! The engine by itself: keys, data extents, stolen data and long-lived snapshots, with power cut at every step.
//!
//! Faster than the file system above it, and nearer to the log: large commits in several records, data placed ahead
//! of its commit or given up, snapshots that outlive checkpoints and the reuse of segments.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use txfs_disk::sim::SimulatedDisk;
use txfs_engine::{
    Applied, CHUNK_BYTES_MAX, Chunk, CleanOptions, Commit, ConflictSet, Durability, Engine, EngineError,
    EngineOptions, Extent, FormatOptions, Mutation, MutationList, Placed, Read, Snapshot,
};

use crate::concurrent::work::is_no_space;
use crate::generator::Profile;
use crate::hash::{derive_seed, hash_bytes, mix};
use crate::images::{End, Image, ImageCollector};
use crate::operation::fill_bytes;
use crate::session::{RunOptions, Runner, ScenarioReport, Verdict, new_disk};
use crate::verify;
use crate::violation::{Mode, ScenarioId};

/// Key to a digest of what it holds.
pub(crate) type Contents = BTreeMap<Vec<u8>, u64>;

struct Held {
    snapshot: Snapshot,
    index: usize,
}

/// Data that was placed for a commit to come.
struct Shelved {
    key: Vec<u8>,
    digest: u64,
    placed: Placed,
}

struct EngineSession {
    disk: SimulatedDisk,
    engine: Option<Engine>,
    collector: ImageCollector,
    history: Vec<Contents>,
    durable: usize,
    handed: usize,
    held: Vec<Held>,
    shelf: Vec<Shelved>,
    /// Images that were verified, and against which lower bound.
    seen: HashSet<(u64, usize)>,
    random: fastrand::Rng,
    generation: u32,
    place: String,
    action: usize,
}

/// How the volumes of engine scenarios are made.
pub(crate) fn format(profile: &Profile, seed: u64) -> FormatOptions {
    let size_bytes_max = profile.segments_max.map(|count| count * profile.segment_bytes);
    // Half of the volumes with a limit have all their segments from the beginning.
    let preallocated = derive_seed(seed, 9).is_multiple_of(2);
    FormatOptions {
        segment_bytes: profile.segment_bytes,
        identity: Some(([3; 16], [4; 16])),
        size_bytes_max,
        preallocate_bytes: size_bytes_max.filter(|_| preallocated).unwrap_or(0),
    }
}

pub(crate) fn options(profile: &Profile) -> EngineOptions {
    EngineOptions {
        background: false,
        checkpoint_distance_bytes: profile.checkpoint_distance_bytes,
        checkpoint_change_bytes: 0,
        index_cache_bytes: 1 << 20,
        queue_bytes_max: 256 << 10,
        recent_bytes: 64 << 10,
        reader_patience: Duration::ZERO,
        ..EngineOptions::default()
    }
}

/// Runs one scenario on the engine.
pub fn run_engine(profile: &'static Profile, seed: u64, run_options: RunOptions) -> Verdict<ScenarioReport> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::Engine };
    let mut runner = Runner { profile, options: run_options, scenario, report: ScenarioReport::default() };
    let disk = new_disk(profile, seed);
    let format = format(profile, seed);
    let collector = ImageCollector::watch(&disk, derive_seed(seed, 1), 0);
    let engine = Engine::create(&disk.as_disk(), &format, &[])
        .and_then(|()| Engine::open(disk.as_disk(), options(profile)))
        .map_err(|error| runner.violation("making the volume", error.to_string()))?;
    let mut session = EngineSession {
        disk,
        engine: Some(engine),
        collector,
        history: vec![Contents::new()],
        durable: 0,
        handed: 0,
        held: Vec::new(),
        shelf: Vec::new(),
        seen: HashSet::new(),
        random: fastrand::Rng::with_seed(derive_seed(seed, 2)),
        generation: 1,
        place: String::new(),
        action: 0,
    };
    session.run(&mut runner, profile.steps)?;
    Ok(runner.report)
}

/// All keys of a snapshot, with digests of values or of the data that they refer to.
pub(crate) fn contents(engine: &Engine, snapshot: &Snapshot) -> Result<Contents, EngineError> {
    let mut entries = Vec::new();
    snapshot.scan(&[0], &[255], &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    let mut contents = Contents::new();
    for (key, value) in entries {
        let digest = if key[0] == b'e' {
            let extent = Extent::decode(&value).map_err(|error| EngineError::Application(Box::new(error)))?;
            let mut data = vec![0; extent.len as usize];
            engine.read(&extent, 0, &mut data)?;
            hash_bytes(&data)
        } else {
            hash_bytes(&value)
        };
        contents.insert(key, digest);
    }
    Ok(contents)
}

impl EngineSession {
    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("open while the session runs")
    }

    fn newest(&self) -> usize {
        self.history.len() - 1
    }

    fn run(&mut self, runner: &mut Runner, actions: usize) -> Verdict {
        let per_step =
            (runner.profile.images_per_write * runner.options.images_factor) >> (self.generation - 1).min(1);
        self.collector.set_per_step(per_step.max(1));
        for _ in 0..actions {
            self.action += 1;
            runner.report.actions += 1;
            let steps = self.disk.steps();
            match self.act(runner) {
                Ok(()) => {}
                // Nothing has changed; the images show whether that is true.
                Err(error) if runner.profile.is_limited() && is_no_space(&error) => {}
                Err(error) => {
                    let place = format!("{}action {}", self.place, self.action);
                    return Err(runner.violation(place, error.to_string()));
                }
            }
            self.collector.expect_at_least(self.durable, self.handed);
            if self.disk.steps() > steps {
                self.collector.take_now(&self.disk);
            }
            self.check_held(runner)?;
            for image in self.collector.drain() {
                runner.report.images += 1;
                runner.report.states.insert(image.fingerprint);
                if self.seen.insert((image.fingerprint, image.oldest)) {
                    self.verify(runner, &image)?;
                }
            }
        }
        runner.report.sessions += 1;
        runner.report.disk_steps += self.collector.steps();
        runner.report.trace_digest = mix(runner.report.trace_digest, self.collector.trace_digest());
        self.held.clear();
        self.shelf.clear();
        self.disk.stop_observing();
        self.disk.power_off();
        self.engine = None;
        Ok(())
    }

    fn act(&mut self, runner: &mut Runner) -> Result<(), EngineError> {
        let result = self.act_quietly(runner);
        if runner.options.trace {
            let indent = self.generation as usize * 2 - 2;
            let (newest, durable) = (self.newest(), self.durable);
            println!(
                "{:indent$}{:4} {newest} commits, {durable} durable, disk step {}",
                "",
                self.action,
                self.disk.steps()
            );
        }
        result
    }

    fn act_quietly(&mut self, runner: &mut Runner) -> Result<(), EngineError> {
        match self.random.u32(0..100 + 3 * runner.profile.clean_weight) {
            0..=69 => self.commit(runner)?,
            70..=74 => {
                self.engine().sync()?;
                self.durable = self.newest();
                self.handed = self.durable;
            }
            75..=80 => self.engine().checkpoint()?,
            81..=85 => {
                self.engine().write_pending()?;
                self.handed = self.newest();
            }
            86..=90 => {
                let snapshot = self.engine().snapshot();
                self.held.push(Held { snapshot, index: self.newest() });
            }
            91..=95 if !self.held.is_empty() => {
                let at = self.random.usize(0..self.held.len());
                self.held.swap_remove(at);
            }
            96..=97 => {
                self.held.clear();
                self.shelf.clear();
                let engine = self.engine.take().expect("open while the session runs");
                let closed = engine.close();
                drop(engine);
                if let Err(error) = closed {
                    // What was committed is durable all the same when only the checkpoint found no space.
                    self.engine = Some(Engine::open(self.disk.as_disk(), options(runner.profile))?);
                    return Err(error);
                }
                self.durable = self.newest();
                self.handed = self.durable;
                self.collector.expect_at_least(self.durable, self.handed);
                self.engine = Some(Engine::open(self.disk.as_disk(), options(runner.profile))?);
            }
            100.. => {
                let options = CleanOptions {
                    live_percent_max: 99,
                    segments_max: self.random.u64(1..4),
                    give_back: self.random.bool(),
                    gentle: self.random.bool(),
                };
                self.engine().clean(&options, &mut |_, _| {})?;
            }
            _ => {
                // Data that gets its commit much later, or never.
                let len = self.random.u64(1..100_000);
                let data = fill_bytes(self.random.u64(..), len);
                let (key, digest) = (vec![b'e', self.random.u8(0..8)], hash_bytes(&data));
                let placed = self.engine().place(None, vec![Chunk::from(data)])?;
                self.shelf.push(Shelved { key, digest, placed });
                if self.shelf.len() > 3 {
                    let at = self.random.usize(0..self.shelf.len());
                    self.shelf.swap_remove(at);
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, runner: &mut Runner) -> Result<(), EngineError> {
        let random = &mut self.random;
        let mut next = self.history[self.history.len() - 1].clone();
        let mut mutations = Vec::new();
        // Now and then so many large values that they take several records.
        let huge = random.u32(0..30) == 0;
        for _ in 0..if huge { 40 } else { random.u32(0..5) } {
            let key = vec![b'k', random.u8(0..if huge { 80 } else { 12 })];
            if random.u32(0..4) == 0 {
                next.remove(&key);
                mutations.push(Mutation::Delete { key });
            } else {
                let len = if huge || random.u32(0..30) == 0 { 30_000 } else { 60 };
                let value = fill_bytes(random.u64(..), random.u64(0..len));
                next.insert(key.clone(), hash_bytes(&value));
                mutations.push(Mutation::Put { key, value });
            }
        }
        let (mut chunks, mut keys) = (Vec::new(), Vec::new());
        let write_bytes_max = runner.profile.write_bytes_max.min(CHUNK_BYTES_MAX as u64);
        for _ in 0..random.u32(0..4) {
            let key = vec![b'e', random.u8(0..8)];
            if keys.contains(&key) {
                continue;
            }
            if random.u32(0..4) == 0 {
                next.remove(&key);
                mutations.push(Mutation::Delete { key });
                continue;
            }
            let len = if random.bool() { random.u64(1..600) } else { random.u64(1..=write_bytes_max) };
            let data = fill_bytes(random.u64(..), len);
            mutations.retain(|mutation| mutation.key() != key);
            next.insert(key.clone(), hash_bytes(&data));
            keys.push(key);
            chunks.push(Chunk::from(data));
        }
        let at = (!self.shelf.is_empty() && random.u32(0..5) == 0).then(|| random.usize(0..self.shelf.len()));
        let shelved = at.map(|at| self.shelf.swap_remove(at)).filter(|shelved| {
            let free = !keys.contains(&shelved.key);
            mutations.retain(|mutation: &Mutation| !free || mutation.key() != shelved.key);
            free
        });
        if let Some(Shelved { key, digest, placed }) = &shelved {
            next.insert(key.clone(), *digest);
            mutations.push(Mutation::Put { key: key.clone(), value: placed.extents()[0].encode() });
        }
        // Each key at most once: the last word counts.
        let mut last = BTreeMap::new();
        for mutation in mutations {
            last.insert(mutation.key().to_vec(), mutation);
        }
        let durability = [Durability::Durable, Durability::Ordered, Durability::Deferred][random.usize(0..3)];
        let ahead = random.u32(0..4) == 0;
        let engine = self.engine.as_ref().expect("open while the session runs");
        let (data, placed) =
            if ahead { (Vec::new(), Some(engine.place(None, chunks)?)) } else { (chunks, None) };
        let mut prepared = MutationList::new();
        if random.u32(0..3) == 0 {
            let before = &self.history[self.history.len() - 1];
            for (key, mutation) in std::mem::take(&mut last) {
                match mutation.value() {
                    Some(value) => prepared.put(&key, value),
                    None => prepared.delete(&key),
                }
            }
            if let Some(placed) = &placed {
                for (key, extent) in std::mem::take(&mut keys).iter().zip(placed.extents()) {
                    match before.contains_key(key) {
                        true => prepared.put(key, &extent.encode()),
                        false => prepared.put_new(key, &extent.encode()),
                    }
                }
            }
        }
        let empty = ConflictSet::new();
        engine.commit(Commit {
            snapshot: &engine.snapshot(),
            reads: &empty,
            writes: &empty,
            data,
            prepared: &prepared,
            durability,
            apply: &|_, extents| {
                let extents = placed.as_ref().map_or(extents, |placed| placed.extents());
                let puts = keys
                    .iter()
                    .zip(extents)
                    .map(|(key, extent)| Mutation::Put { key: key.clone(), value: extent.encode() });
                let mutations = last.values().cloned().chain(puts).collect();
                Ok(Applied { mutations, ..Applied::default() })
            },
        })?;
        runner.report.commits += 1;
        self.history.push(next);
        if durability == Durability::Durable {
            self.durable = self.newest();
            self.handed = self.durable;
        }
        Ok(())
    }

    /// Old snapshots still show what they showed.
    fn check_held(&self, runner: &Runner) -> Verdict {
        if !self.action.is_multiple_of(5) {
            return Ok(());
        }
        for held in &self.held {
            let place =
                || format!("{}action {}, a snapshot of commit {}", self.place, self.action, held.index);
            match contents(self.engine(), &held.snapshot) {
                Ok(found) if found == self.history[held.index] => {}
                Ok(_) => return Err(runner.violation(place(), "it shows something else than before")),
                Err(error) => return Err(runner.violation(place(), error.to_string())),
            }
        }
        Ok(())
    }

    fn verify(&mut self, runner: &mut Runner, image: &Image) -> Verdict {
        let place = format!("{}action {}, {}", self.place, self.action, image.describe());
        let choice = derive_seed(image.seed, 5);
        let lives_on = self.generation < 3 && choice.is_multiple_of(100);
        let collector = ImageCollector::watch(&image.disk, derive_seed(image.seed, 6), 0);
        let fail = |error: EngineError| runner.violation(place.clone(), error.to_string());
        let engine = Engine::open(image.disk.as_disk(), options(runner.profile)).map_err(fail)?;
        let found = contents(&engine, &engine.snapshot()).map_err(fail)?;
        let index = (image.oldest..self.history.len()).rev().find(|index| self.history[*index] == found);
        let Some(index) = index else {
            let at = self.history.iter().position(|state| *state == found);
            let what = format!(
                "the volume holds the state after commit {at:?}; expected one from {} to {}",
                image.oldest,
                self.newest()
            );
            return Err(runner.violation(place, what));
        };
        verify::check_engine(&image.disk, &engine).map_err(|what| runner.violation(place.clone(), what))?;
        runner.report.recoveries += 1;
        if !lives_on {
            image.disk.power_off();
            return Ok(());
        }
        let durable = if image.end == End::PowerCut { index } else { image.durable };
        if runner.options.trace {
            println!("session from commit {index}, {durable} durable, {:?}: {place}", engine.recovery());
        }
        EngineSession {
            disk: image.disk.clone(),
            engine: Some(engine),
            collector,
            history: self.history[..=index].to_vec(),
            durable,
            handed: durable,
            held: Vec::new(),
            shelf: Vec::new(),
            seen: HashSet::new(),
            random: fastrand::Rng::with_seed(derive_seed(image.seed, 7)),
            generation: self.generation + 1,
            place: format!("{place}, "),
            action: 0,
        }
        .run(runner, runner.profile.steps / 4)
    }
}
