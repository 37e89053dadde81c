//! Everything that keeps older values, at the same time: transactions that are kept and prepared, commits that are
//! undone, named snapshots that are read, restored from and deleted, a cleaner that moves what they need,
//! checkpoints, openings, and crashes in between. Each by itself is the simulator's; here
//! it is what they do to each other.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::*;
use txfs::{
    CleanOptions, Durability, Error, FileOptions, KeptSide, OpenOptions, Paths, TransactionOptions, View,
    Volume,
};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

type Files = BTreeMap<String, Arc<Vec<u8>>>;

/// What a transaction does; the same on the volume and on the model.
#[derive(Clone, Debug)]
enum Edit {
    Write(String, Vec<u8>),
    /// Bytes at an offset of a file that exists.
    Patch(String, u64, Vec<u8>),
    Rename(String, String),
    Remove(String),
}

impl Edit {
    fn random(random: &mut fastrand::Rng, files: &Files) -> Edit {
        let new = |random: &mut fastrand::Rng| format!("f{}", random.u32(..24));
        let old = |random: &mut fastrand::Rng| match files.len() {
            0 => None,
            count => files.keys().nth(random.usize(..count)).cloned(),
        };
        let fill = |random: &mut fastrand::Rng, len: usize| -> Vec<u8> {
            let mut bytes = vec![random.u8(..); len];
            random.fill(&mut bytes[..len.min(64)]);
            bytes
        };
        match (random.u8(..8), old(random)) {
            (0, Some(from)) => Edit::Rename(from, new(random)),
            (1, Some(old)) => Edit::Remove(old),
            (2..=5, Some(old)) => {
                let (at, len) = (random.u64(..60_000), random.usize(1..20_000));
                Edit::Patch(old, at, fill(random, len))
            }
            _ => {
                let len = [0, 10, 5000, 70_000, 300_000][random.usize(..5)];
                Edit::Write(new(random), fill(random, len))
            }
        }
    }

    fn apply(&self, tx: &impl View) -> txfs::Result<()> {
        match self {
            Edit::Write(name, content) => tx.write_file(name, content),
            Edit::Patch(name, at, bytes) => {
                tx.open(name, &FileOptions::new().write(true))?.write_at(*at, bytes).map(drop)
            }
            Edit::Rename(from, to) => tx.rename_path(from, to),
            Edit::Remove(name) => tx.remove(name),
        }
    }

    fn model(&self, files: &mut Files) {
        match self {
            Edit::Write(name, content) => {
                files.insert(name.clone(), Arc::new(content.clone()));
            }
            Edit::Patch(name, at, bytes) => {
                let file = Arc::make_mut(files.get_mut(name).expect("no conflict, so it is there"));
                let end = *at as usize + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*at as usize..end].copy_from_slice(bytes);
            }
            Edit::Rename(from, to) => {
                let content = files.remove(from).expect("no conflict, so it is there");
                files.insert(to.clone(), content);
            }
            Edit::Remove(name) => {
                files.remove(name);
            }
        }
    }
}

fn edits(random: &mut fastrand::Rng, files: &Files) -> Vec<Edit> {
    let mut after = files.clone();
    let edit = |_| {
        let edit = Edit::random(random, &after);
        edit.model(&mut after);
        edit
    };
    (0..3).map(edit).collect()
}

fn files(view: &impl View) -> Files {
    let names = view.read_dir("/").unwrap().into_iter().map(|entry| String::from_utf8(entry.name).unwrap());
    names
        .map(|name| {
            let content = view.read_file(&name).unwrap();
            (name, Arc::new(content))
        })
        .collect()
}

#[derive(Clone)]
struct Kept {
    edits: Vec<Edit>,
    prepared: bool,
    /// As its view is to show them, until others commit.
    shown: Files,
    /// The model when it was kept, and the last commit.
    base: Files,
    sequence: u64,
}

/// What the volume is to be.
#[derive(Clone, Default)]
struct Model {
    files: Files,
    kept: BTreeMap<String, Kept>,
    snapshots: BTreeMap<String, Files>,
    recorded: Vec<u64>,
}

impl Model {
    /// True when a volume that was opened after a crash is this.
    fn is(&self, volume: &Volume) -> bool {
        let names = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
        let kept = names(volume.kept().unwrap().into_iter().map(|kept| kept.name).collect());
        let shown = volume.snapshots().unwrap().into_iter().filter(|snapshot| !snapshot.going);
        let snapshots = names(shown.map(|snapshot| snapshot.name).collect());
        kept.iter().eq(self.kept.keys())
            && snapshots.iter().eq(self.snapshots.keys())
            && files(&volume.base()) == self.files
            && self.snapshots.iter().all(|(name, then)| files(&volume.open_snapshot(name).unwrap()) == *then)
    }
}

struct Together {
    seed: u64,
    disk: SimulatedDisk,
    volume: Option<Volume>,
    random: fastrand::Rng,
    model: Model,
    /// What it was after each change, and the one that a crash must not take.
    past: Vec<Model>,
    durable: usize,
    done: BTreeMap<&'static str, u64>,
}

fn open_options() -> OpenOptions {
    OpenOptions {
        checkpoint_distance_bytes: 1 << 20,
        transaction_memory_bytes: 256 << 10,
        ..common::open_options()
    }
}

impl Together {
    fn new(seed: u64) -> Together {
        let disk = SimulatedDisk::new(SimOptions::default());
        let create = txfs::CreateOptions {
            segment_bytes: 1 << 20,
            size_bytes_max: Some(48 << 20),
            identity: Some(([1; 16], [2; 16])),
            clock: clock(),
            ..Default::default()
        };
        Volume::create_on(disk.as_disk(), &create).unwrap();
        let volume = Volume::open_on(disk.as_disk(), &open_options()).unwrap();
        Together {
            seed,
            disk,
            volume: Some(volume),
            random: fastrand::Rng::with_seed(seed),
            model: Model::default(),
            past: vec![Model::default()],
            durable: 0,
            done: BTreeMap::new(),
        }
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open")
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn commit(&mut self) {
        let recorded = self.random.bool();
        let edits = edits(&mut self.random, &self.model.files);
        let tx = self.volume().begin_with(TransactionOptions { recorded, ..Default::default() });
        edits.iter().for_each(|edit| edit.apply(&tx).unwrap());
        let durability =
            [Durability::Durable, Durability::Ordered, Durability::Deferred][self.random.usize(..3)];
        match tx.commit(durability) {
            Ok(receipt) => {
                if durability == Durability::Durable {
                    self.durable = self.past.len();
                }
                edits.iter().for_each(|edit| edit.model(&mut self.model.files));
                self.model.recorded.extend(recorded.then_some(receipt.sequence));
                self.count("commit");
            }
            Err(Error::Held { name, .. }) => {
                assert!(self.model.kept[&name].prepared);
                self.count("held");
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn keep(&mut self) {
        if self.model.kept.len() >= 4 {
            return;
        }
        let name = format!("k{}", self.random.u32(..1000));
        let prepared = self.random.bool();
        let edits = edits(&mut self.random, &self.model.files);
        let tx = self.volume().begin();
        edits.iter().for_each(|edit| edit.apply(&tx).unwrap());
        let shown = files(&tx);
        let result = if prepared { tx.prepare(&name) } else { tx.keep(&name) };
        match result {
            Ok(()) => {
                self.durable = self.past.len();
                let sequence = self.volume().stat().unwrap().sequence;
                self.model
                    .kept
                    .insert(name, Kept { edits, prepared, shown, base: self.model.files.clone(), sequence });
                self.count(if prepared { "prepare" } else { "keep" });
            }
            Err(Error::KeptExists { .. }) => {}
            Err(Error::Held { .. }) => self.count("held"),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn look_at_kept(&mut self) {
        for (name, kept) in &self.model.kept {
            // With a conflict there may be another file under the same name, though it looks the same.
            let conflicts = self.volume().kept_conflicts(name).unwrap().is_some();
            if kept.base == self.model.files && !conflicts {
                assert!(
                    files(&self.volume().kept_view(name, KeptSide::Ours).unwrap()) == kept.shown,
                    "{name}"
                );
            }
        }
        let names: Vec<_> = self.volume().kept().unwrap().into_iter().map(|kept| kept.name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        assert!(sorted.iter().eq(self.model.kept.keys()), "{names:?}");
    }

    fn end_kept(&mut self) {
        let count = self.model.kept.len();
        let Some(name) = (count > 0).then(|| self.random.usize(..count)) else { return };
        let name = self.model.kept.keys().nth(name).expect("counted").clone();
        if self.random.u8(..4) == 0 {
            self.volume().abort_kept(&name).unwrap();
            self.model.kept.remove(&name);
            self.durable = self.past.len();
            return self.count("abort kept");
        }
        match self.volume().commit_kept(&name) {
            Ok(_) => {
                self.durable = self.past.len();
                let kept = self.model.kept.remove(&name).expect("it was there");
                // One of which nothing is left in the end has no conflicts and changes nothing.
                if kept.shown != kept.base {
                    kept.edits.iter().for_each(|edit| edit.model(&mut self.model.files));
                }
                self.count("commit kept");
            }
            Err(Error::Conflict(report)) => {
                let kept = &self.model.kept[&name];
                // Those who changed it may have been undone: it is a conflict all the same.
                let since = self.volume().stat().unwrap().sequence - kept.sequence;
                assert!(!kept.prepared && report.count() > 0 && since > 0, "{report:?}");
                self.volume().abort_kept(&name).unwrap();
                self.model.kept.remove(&name);
                self.count("kept conflict");
            }
            Err(Error::Held { .. }) => self.count("held"),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn undo(&mut self) {
        let count = self.model.recorded.len();
        let Some(at) = (count > 0).then(|| self.random.usize(..count)) else { return };
        // Mostly one of the last, where there is something to change back.
        let at = if self.random.u8(..4) == 0 { at } else { count - 1 - at.min(count - 1) / 8 };
        match self.volume().undo(self.model.recorded[at], Durability::Ordered) {
            Ok(receipt) => {
                self.model.recorded.push(receipt.sequence);
                self.model.files = files(&self.volume().base());
                self.count("undo");
            }
            Err(Error::UndoConflict { .. }) => self.count("undo conflict"),
            Err(Error::NotUndoable { .. }) => self.count("not undoable"),
            Err(Error::Held { .. }) => self.count("held"),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn snapshot(&mut self) {
        let count = self.model.snapshots.len();
        if count == 0 || count < 4 && self.random.bool() {
            let name = format!("s{}", self.random.u32(..1_000_000));
            self.volume().create_snapshot(&name, Durability::Ordered).unwrap();
            self.model.snapshots.insert(name, self.model.files.clone());
            return self.count("snapshot");
        }
        let name = self.model.snapshots.keys().nth(self.random.usize(..count)).expect("counted").clone();
        let shown = self.volume().open_snapshot(&name).unwrap();
        assert!(files(&shown) == self.model.snapshots[&name], "seed {}: {name}", self.seed);
        drop(shown);
        match self.random.u8(..3) {
            0 => {
                self.volume().delete_snapshot(&name).unwrap();
                self.model.snapshots.remove(&name);
                self.count("delete snapshot");
            }
            1 if !self.model.snapshots[&name].is_empty() => {
                let then = &self.model.snapshots[&name];
                let file = then.keys().nth(self.random.usize(..then.len())).expect("counted").clone();
                match self.volume().restore(&name, &file, Durability::Ordered) {
                    Ok(_) => {
                        self.model.files.insert(file.clone(), self.model.snapshots[&name][&file].clone());
                        self.count("restore");
                    }
                    Err(Error::Held { .. }) => self.count("held"),
                    Err(error) => panic!("seed {}: {error}", self.seed),
                }
            }
            _ => self.count("look at snapshot"),
        }
    }

    fn open_again(&mut self) {
        let volume = self.volume.take().expect("open");
        if self.random.bool() {
            volume.close().unwrap();
        } else {
            volume.sync().unwrap();
        }
        drop(volume);
        self.volume = Some(Volume::open_on(self.disk.as_disk(), &open_options()).unwrap());
        self.durable = self.past.len();
        self.count("open");
    }

    fn crash(&mut self) {
        drop(self.volume.take());
        self.disk = self.disk.crash(self.random.u64(..));
        let volume = Volume::open_on(self.disk.as_disk(), &open_options()).unwrap();
        let found = (self.durable..self.past.len()).rev().find(|at| self.past[*at].is(&volume));
        let Some(found) = found else {
            panic!("seed {}: none of the states {}..{}", self.seed, self.durable, self.past.len())
        };
        self.model = self.past[found].clone();
        self.volume = Some(volume);
        self.past.truncate(found + 1);
        self.durable = found;
        self.count("crash");
    }

    fn step(&mut self) {
        match self.random.u8(..24) {
            0..=8 => self.commit(),
            9..=10 => self.keep(),
            11..=12 => self.end_kept(),
            13..=15 => self.undo(),
            16 => self.volume().checkpoint().unwrap(),
            17 => {
                let options = CleanOptions { live_percent_max: 99, ..Default::default() };
                let report = self.volume().clean(&options, &mut |_, _| {}).unwrap();
                if report.extents > 0 {
                    self.count("clean");
                }
            }
            18 => self.look_at_kept(),
            19..=21 => self.snapshot(),
            22 => return self.crash(),
            _ => self.open_again(),
        }
        assert!(files(&self.volume().base()) == self.model.files, "seed {}", self.seed);
        self.past.push(self.model.clone());
    }
}

#[test]
fn what_is_kept_for_one_is_not_lost_by_another() {
    let mut done: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..10 {
        let mut together = Together::new(seed);
        for step in 0..150 {
            together.step();
            if step % 25 == 24 {
                assert_clean(together.volume());
            }
        }
        for name in together.model.kept.keys().cloned().collect::<Vec<_>>() {
            together.volume().abort_kept(&name).unwrap();
        }
        for (name, files_then) in &together.model.snapshots {
            assert!(files(&together.volume().open_snapshot(name).unwrap()) == *files_then);
            together.volume().delete_snapshot(name).unwrap();
        }
        assert_clean(together.volume());
        together.done.iter().for_each(|(what, count)| *done.entry(what).or_default() += count);
    }
    for what in [
        "snapshot",
        "delete snapshot",
        "restore",
        "commit",
        "held",
        "keep",
        "prepare",
        "commit kept",
        "kept conflict",
        "undo",
        "undo conflict",
        "clean",
        "open",
        "crash",
    ] {
        assert!(done.get(what).is_some_and(|count| *count > 5), "hardly any {what}: {done:?}");
    }
}
