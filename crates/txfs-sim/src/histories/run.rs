//! Threads on one volume, through the library.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use txfs::{
    CleanOptions, CreateOptions, Durability, Isolation, OpenOptions, Paths, TransactionOptions, View, Volume,
};
use txfs_disk::Disk;
use txfs_disk::host::HostDisk;
use txfs_disk::sim::{SimOptions, SimulatedDisk};

use super::access::{Failure, Outcome};
use super::embedded::Embedded;
use super::layout::{Counts, Layout};
use super::worker::Worker;
use crate::history::{
    ABSENT, Action, Class, History, Kind, Level, Outcome as End, Record, Recorder, Report, check,
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Transactions that must commit.
    pub transactions: u64,
    /// Clients.
    pub threads: u32,
    /// How transactions are isolated.
    pub isolation: Isolation,
    /// Of the clients' choices; the schedule is the operating system's.
    pub seed: u64,
    /// A directory of the host for the volume; otherwise it is on a simulated disk.
    pub directory: Option<PathBuf>,
}

/// What came of it.
pub struct Summary {
    /// What happened.
    pub history: History,
    /// Whether that was as promised.
    pub report: Report,
    /// How often what happened.
    pub counts: Counts,
    /// How long the clients took, and the checker.
    pub took: (Duration, Duration),
}

impl Summary {
    /// As promised: with snapshot isolation that it is not more than that, too.
    pub fn problem(&self, isolation: Isolation) -> Option<String> {
        if !self.report.is_good() {
            let mut text = String::new();
            for (class, count) in self.report.classes() {
                text += &format!("{count} x {}; ", class.name());
            }
            for example in self.report.examples() {
                text += &format!("\n{}", example.describe(&self.history));
            }
            return Some(text);
        }
        let skew = self.report.permitted.iter().any(|anomaly| anomaly.class == Class::WriteSkew);
        (isolation == Isolation::Snapshot && !skew)
            .then(|| "no write skew was found, so this run says nothing about the checker".to_owned())
    }
}

fn open_options() -> OpenOptions {
    // Many checkpoints.
    OpenOptions { checkpoint_distance_bytes: 2 << 20, ..OpenOptions::default() }
}

fn wrong(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// Runs it and checks what happened. An error is something that must not happen beside anomalies.
pub fn run(options: &Options) -> Result<Summary, String> {
    // Segments so small, and space so short, that the cleaner always has work.
    let create =
        CreateOptions { segment_bytes: 1 << 20, size_bytes_max: Some(64 << 20), ..CreateOptions::default() };
    let disk = || -> Result<Arc<dyn Disk>, String> {
        Ok(match &options.directory {
            Some(path) => Arc::new(HostDisk::create(path).map_err(|error| wrong("the directory", error))?),
            None => Arc::new(SimulatedDisk::new(SimOptions::default())),
        })
    };
    let disk = disk()?;
    Volume::create_on(disk.clone(), &create).map_err(|error| wrong("making the volume", error))?;
    // A disk of the host is locked by whoever has it.
    let again: Arc<dyn Disk> = match &options.directory {
        Some(path) => {
            drop(disk);
            Arc::new(HostDisk::open(path).map_err(|error| wrong("the directory", error))?)
        }
        None => disk,
    };
    let volume = Volume::open_on(again.clone(), &open_options()).map_err(|error| wrong("opening", error))?;
    let epoch = Instant::now();
    let now = move || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (layout, temporary) = make(&volume).map_err(|error| wrong("making the files", error))?;
    let base = volume.base();
    let filled = layout.fill(&Embedded { view: &base, temporary }, now(), now);
    let filled = filled.map_err(|failure| format!("filling the files: {failure:?}"))?;

    let run = Run {
        options,
        layout: &layout,
        temporary,
        now: &now,
        committed: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
        problems: Mutex::default(),
    };
    let mut records = vec![filled];
    records.extend(run.clients(&volume));
    let took = Duration::from_nanos(now());
    if let Some(problem) = run.problems.lock().pop() {
        return Err(problem);
    }
    records.push(run.look(&volume)?);
    volume.close().map_err(|error| wrong("closing", error))?;
    drop((base, volume));
    let volume = Volume::open_on(again, &open_options()).map_err(|error| wrong("opening again", error))?;
    records.push(run.look(&volume)?);
    let report = volume.check().map_err(|error| wrong("checking the volume", error))?;
    if !report.is_clean() {
        return Err(format!("the volume is damaged: {report:?}"));
    }

    let history = History { records };
    let level = match options.isolation {
        Isolation::Serializable => Level::Serializable,
        Isolation::Snapshot => Level::Snapshot,
    };
    let began = Instant::now();
    let report = check(&history, level);
    let counts = Counts::of(&history);
    Ok(Summary { history, report, counts, took: (took, began.elapsed()) })
}

/// A transaction that undid itself all that it did made no commit and has its snapshot's number; what it wrote nobody may
/// ever see, as if it had aborted.
fn without_effect(record: Record) -> Result<Record, String> {
    if !record.writes() || record.sequence() > record.snapshot {
        return Ok(record);
    }
    let created: Vec<u64> = record
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Write(item, file) if item.kind == Kind::Name => Some(*file),
            _ => None,
        })
        .collect();
    let undone = record.installed().into_iter().all(|(item, left)| {
        left.value == ABSENT || (item.kind == Kind::Page && created.contains(&item.object))
    });
    match undone {
        true => Ok(Record { outcome: End::Aborted, ..record }),
        false => Err(format!("a commit that made nothing of these changes: {record:?}")),
    }
}

fn make(volume: &Volume) -> txfs::Result<(Layout, u64)> {
    let base = volume.base();
    let mut numbers = Vec::new();
    for path in Layout::PATHS {
        if path.starts_with('d') {
            base.create_dir(path)?;
        } else {
            base.write_file(path, b"")?;
        }
        numbers.push(base.resolve(path)?);
    }
    Ok((Layout::from_numbers(&numbers), base.create_dir("temporary")?.ino))
}

struct Run<'a> {
    options: &'a Options,
    layout: &'a Layout,
    temporary: u64,
    now: &'a (dyn Fn() -> u64 + Sync),
    committed: AtomicU64,
    stopped: AtomicBool,
    problems: Mutex<Vec<String>>,
}

impl Run<'_> {
    fn clients(&self, volume: &Volume) -> Vec<Record> {
        std::thread::scope(|scope| {
            let upkeep = scope.spawn(|| self.upkeep(volume));
            let clients: Vec<_> = (0..self.options.threads)
                .map(|process| scope.spawn(move || self.client(volume, process)))
                .collect();
            let mut records = Vec::new();
            for client in clients {
                match client.join() {
                    Ok(more) => records.extend(more),
                    Err(_) => self.give_up("a client panicked".into()),
                }
            }
            self.stopped.store(true, Ordering::Release);
            if upkeep.join().is_err() {
                self.give_up("the upkeep panicked".into());
            }
            records
        })
    }

    fn give_up(&self, problem: String) {
        self.problems.lock().push(problem);
        self.stopped.store(true, Ordering::Release);
    }

    /// Checkpoints and cleaning beside the engine's own.
    fn upkeep(&self, volume: &Volume) {
        while !self.stopped.load(Ordering::Acquire) {
            let options =
                CleanOptions { segments_max: 4, live_percent_max: 90, give_back: false, gentle: true };
            let done = volume.checkpoint().and_then(|()| volume.clean(&options, &mut |_, _| {}).map(drop));
            if let Err(error) = done {
                self.give_up(wrong("upkeep", error));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn worker(&self, process: u32) -> Worker<'_> {
        let seed = self.options.seed.wrapping_mul(1000).wrapping_add(u64::from(process));
        Worker {
            process,
            layout: self.layout,
            random: fastrand::Rng::with_seed(seed),
            now: self.now,
            values: 0,
            owners: true,
        }
    }

    fn client(&self, volume: &Volume, process: u32) -> Vec<Record> {
        let mut worker = self.worker(process);
        let mut records = Vec::new();
        let trace = Arc::new(AtomicU64::new(0));
        let base = volume.base().traced(trace.clone());
        let outside = Embedded { view: &base, temporary: self.temporary };
        while !self.stopped.load(Ordering::Acquire)
            && self.committed.load(Ordering::Relaxed) < self.options.transactions
        {
            if worker.random.u8(0..4) == 0 {
                match worker.call(&outside, &|| Some(trace.load(Ordering::Acquire))) {
                    Ok(record) => records.extend(record),
                    Err(failure) => self.give_up(format!("a call outside of transactions: {failure:?}")),
                }
                continue;
            }
            match self.transaction(volume, &mut worker) {
                Ok(record) => {
                    self.committed.fetch_add(u64::from(record.is_committed()), Ordering::Relaxed);
                    records.push(record);
                }
                Err(problem) => self.give_up(problem),
            }
        }
        records
    }

    fn transaction(&self, volume: &Volume, worker: &mut Worker<'_>) -> Result<Record, String> {
        let mut recorder = Recorder::begin(worker.process, (self.now)());
        let options = TransactionOptions { isolation: self.options.isolation, ..Default::default() };
        let transaction = volume.begin_with(options);
        recorder.begun((self.now)(), Some(transaction.snapshot_sequence()));
        let done =
            worker.transaction(&Embedded { view: &transaction, temporary: self.temporary }, &mut recorder);
        match done {
            Ok(()) if worker.random.u8(0..30) == 0 => transaction.abort(),
            Ok(()) => {
                recorder.committing((self.now)());
                let durability = match worker.random.u8(0..40) {
                    0 => Durability::Durable,
                    1..=9 => Durability::Deferred,
                    _ => Durability::Ordered,
                };
                match transaction.commit(durability) {
                    Ok(receipt) => {
                        let record = recorder.end((self.now)(), End::Committed(Some(receipt.sequence)));
                        return without_effect(record);
                    }
                    Err(error) if error.is_conflict() => {}
                    Err(error) => return Err(wrong("a commit", error)),
                }
            }
            Err(Failure::Conflict) => transaction.abort(),
            Err(failure) => return Err(format!("inside of a transaction: {failure:?}")),
        }
        Ok(recorder.end((self.now)(), End::Aborted))
    }

    /// A transaction that reads everything.
    fn look(&self, volume: &Volume) -> Result<Record, String> {
        let mut recorder = Recorder::begin(0, (self.now)());
        let transaction = volume.begin();
        recorder.begun((self.now)(), Some(transaction.snapshot_sequence()));
        let view: &dyn View = &transaction;
        let done: Outcome<()> =
            self.worker(0).read_all(&Embedded { view, temporary: self.temporary }, &mut recorder);
        done.map_err(|failure| format!("reading everything: {failure:?}"))?;
        recorder.committing((self.now)());
        let receipt = transaction.commit(Durability::Ordered).map_err(|error| wrong("a commit", error))?;
        Ok(recorder.end((self.now)(), End::Committed(Some(receipt.sequence))))
    }
}
