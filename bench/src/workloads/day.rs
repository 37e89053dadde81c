//! `day`: a day of mixed work compressed into a long run. Whether space, memory and latency stay as they are while data is
//! written many times over.
//!
//! The amount of live data stays the same from the first minute, so whatever grows is waste.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use txfs::{Durability, Error, FileOptions, Ino, Paths, View, Volume};

use crate::Result;
use crate::bench::Bench;
use crate::beside::beside;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::PAGE_BYTES;
use crate::figures::{Spread, number, percentile};
use crate::result::{Cell, Goal, Lines, Plot, Section, Table};
use crate::scale::resident_mib;
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "day",
    "a day of mixed work compressed into a long run: space, memory, latency over time",
    run,
);

/// How often is looked.
const WINDOWS: usize = 24;
const THREADS: usize = 4;
const DATABASE_BYTES: u64 = 64 << 20;
/// Small files of each thread.
const FILES: u64 = 500;
const FILE_BYTES: usize = 32 << 10;
const BULK_BYTES: usize = 8 << 20;
/// How much a figure may grow between the second and the last quarter and still count as flat.
const GROWTH_MAX: f64 = 1.25;

/// What was seen at the end of one window.
struct Look {
    seconds: f64,
    volume_bytes: f64,
    live_bytes: f64,
    resident_mib: f64,
    rate: f64,
    latency_us: f64,
    latency_us_p99: f64,
}

/// Shared by the threads that work and the one that looks.
struct Day<'volume> {
    volume: &'volume Volume,
    database: Ino,
    pages: u64,
    operations: AtomicU64,
    conflicts: AtomicU64,
    /// Of durable commits in this window, in microseconds.
    latencies_us: Mutex<Vec<f64>>,
}

impl Day<'_> {
    /// A few pages of the database, durable.
    fn update(&self, random: &mut fastrand::Rng) -> Result<()> {
        let begun = Instant::now();
        let transaction = self.volume.begin();
        let content = [random.u8(..); PAGE_BYTES];
        for _ in 0..random.u32(1..4) {
            let page = random.u64(0..self.pages);
            transaction.write(self.database, page * PAGE_BYTES as u64, &content)?;
        }
        transaction.commit(Durability::Durable)?;
        let taken = begun.elapsed().as_secs_f64() * 1e6;
        self.latencies_us.lock().map_err(|_| "a thread panicked")?.push(taken);
        Ok(())
    }

    /// A small file is written anew, another is renamed away and back, a third removed.
    fn files(&self, thread: u64, random: &mut fastrand::Rng, content: &[u8]) -> Result<()> {
        let mut name = || format!("files{thread}/{}", random.u64(0..FILES));
        let (written, renamed, removed) = (name(), name(), name());
        let transaction = self.volume.begin();
        transaction.write_file(&written, &content[..random.usize(1..FILE_BYTES)])?;
        if transaction.exists(&renamed)? {
            transaction.rename_path(&renamed, format!("files{thread}/renamed"))?;
            transaction.rename_path(format!("files{thread}/renamed"), &renamed)?;
        }
        if removed != written && transaction.exists(&removed)? {
            transaction.remove(&removed)?;
        }
        transaction.commit(if random.bool() { Durability::Ordered } else { Durability::Deferred })?;
        Ok(())
    }

    /// A large file, half of the times given up in the end.
    fn bulk(&self, thread: u64, random: &mut fastrand::Rng, content: &[u8]) -> Result<()> {
        let transaction = self.volume.begin();
        let file = transaction.open(format!("bulk{thread}"), &FileOptions::new().write(true).create(true))?;
        file.write_at(0, content)?;
        drop(file);
        if random.bool() {
            transaction.commit(Durability::Ordered)?;
        } else {
            transaction.abort();
        }
        Ok(())
    }

    fn work(&self, thread: u64, over: &AtomicBool) -> Result<()> {
        let mut random = fastrand::Rng::with_seed(thread);
        let mut content = vec![0; BULK_BYTES];
        random.fill(&mut content);
        let mut number = 0_u64;
        while !over.load(Ordering::Relaxed) {
            let done = match number % 200 {
                199 => self.bulk(thread, &mut random, &content),
                turn if turn % 4 == 3 => self.files(thread, &mut random, &content),
                // somebody looks at the whole database for a while and pins what it sees
                100 if thread == 0 => {
                    let view = self.volume.snapshot();
                    thread::sleep(Duration::from_millis(20));
                    view.read(self.database, 0, BULK_BYTES)?;
                    Ok(())
                }
                _ => self.update(&mut random),
            };
            match done {
                Ok(()) => self.operations.fetch_add(1, Ordering::Relaxed),
                Err(error) if error.downcast_ref::<Error>().is_some_and(Error::is_conflict) => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed)
                }
                Err(error) => return Err(error),
            };
            number += 1;
        }
        Ok(())
    }

    fn look(&self, begun: Instant, window: Duration, operations_before: u64) -> Result<Look> {
        let mut latencies = std::mem::take(&mut *self.latencies_us.lock().map_err(|_| "a thread panicked")?);
        latencies.sort_by(f64::total_cmp);
        let stat = self.volume.stat()?.engine;
        let operations = self.operations.load(Ordering::Relaxed) - operations_before;
        Ok(Look {
            seconds: begun.elapsed().as_secs_f64(),
            volume_bytes: (stat.segments * stat.segment_bytes + stat.index_bytes) as f64,
            live_bytes: stat.live_bytes as f64,
            resident_mib: resident_mib(),
            rate: operations as f64 / window.as_secs_f64(),
            latency_us: percentile(&latencies, 0.5),
            latency_us_p99: percentile(&latencies, 0.99),
        })
    }
}

/// The last quarter of the run over its second quarter, medians of each.
fn growth(looks: &[Look], figure: impl Fn(&Look) -> f64) -> Spread {
    let quarter = looks.len() / 4;
    let values = |from: usize| {
        let values: Vec<f64> = looks[from..from + quarter].iter().map(&figure).collect();
        Spread::of(&values)
    };
    let (second, last) = (values(quarter), values(looks.len() - quarter));
    Spread {
        median: last.median / second.median,
        min: last.min / second.median,
        max: last.max / second.median,
    }
}

fn run(bench: &Bench) -> Result<Section> {
    bench.progress.prepare("a volume with its data");
    let embedded = Embedded::create(&bench.places.txfs)?;
    let bytes = bench.scaled(DATABASE_BYTES, 1 << 20);
    let database = embedded.file("database", bytes)?;
    for thread in 0..THREADS {
        embedded.volume.base().create_dir_all(format!("files{thread}"))?;
    }
    embedded.settle()?;
    let day = Day {
        volume: &embedded.volume,
        database,
        pages: bytes / PAGE_BYTES as u64,
        operations: AtomicU64::new(0),
        conflicts: AtomicU64::new(0),
        latencies_us: Mutex::default(),
    };
    let traffic_before = embedded.place.traffic()?;
    let window = bench.day_duration / WINDOWS as u32;
    bench.progress.begin(WINDOWS as u64);
    let begun = Instant::now();
    let look = |_| {
        let before = day.operations.load(Ordering::Relaxed);
        bench.progress.step("mixed work");
        thread::sleep(window);
        day.look(begun, window, before)
    };
    let (looks, _): (Vec<Look>, _) =
        beside(THREADS, |thread, over| day.work(thread as u64, over), || (0..WINDOWS).map(look).collect())?;
    embedded.settle()?;
    let written =
        traffic_before.zip(embedded.place.traffic()?).map(|(before, after)| after.since(before).bytes as f64);
    let problems = embedded.volume.check()?;
    if !problems.problems.is_empty() {
        return Err(format!("after the day, the volume has problems: {:?}", problems.problems).into());
    }
    Ok(section(bench, &day, &looks, written))
}

fn section(bench: &Bench, day: &Day<'_>, looks: &[Look], written: Option<f64>) -> Section {
    const MIB: f64 = (1 << 20) as f64;
    let line = |name: &str, figure: fn(&Look) -> f64| {
        let points = looks.iter().map(|look| (look.seconds, figure(look)));
        (name.to_owned(), points.filter(|point| point.1.is_finite()).collect())
    };
    let plot = |name: &str, title: &str, up: &str, logarithmic, series| {
        Plot::Lines(Lines {
            name: name.to_owned(),
            title: title.to_owned(),
            across: "seconds".to_owned(),
            up: up.to_owned(),
            logarithmic,
            series,
        })
    };
    let row = |look: &Look| {
        vec![
            Cell::number(look.seconds, 0),
            Cell::number(look.volume_bytes / MIB, 0),
            Cell::number(look.live_bytes / MIB, 0),
            Cell::number(look.resident_mib, 0),
            Cell::number(look.rate, 0),
            Cell::number(look.latency_us, 0),
            Cell::number(look.latency_us_p99, 0),
        ]
    };
    let columns = [
        "second",
        "volume, MiB",
        "live, MiB",
        "resident, MiB",
        "a second",
        "median, us",
        "99th percentile, us",
    ];
    let goal = |figure: &str, of: fn(&Look) -> f64| {
        let figure = format!("a day of mixed work, {figure}, last quarter against the second");
        Goal::at_most(figure, 0, GROWTH_MAX, Some(growth(looks, of)))
    };
    let mut notes = vec![format!(
        "{} operations, {} of them ended in a conflict{}.",
        number(day.operations.load(Ordering::Relaxed) as f64, 0),
        number(day.conflicts.load(Ordering::Relaxed) as f64, 0),
        written.map_or_else(String::new, |written| {
            format!("; the device was given {} MiB", number(written / MIB, 0))
        })
    )];
    notes.push("`txfs check` found the volume sound at the end.".to_owned());
    Section {
        title: "A day of mixed work".to_owned(),
        about: format!(
            "{THREADS} threads for {:.0} s on a volume whose live data stays the same: durable updates of one to three \
             pages of a database of {} MiB, transactions that write, rename and remove small files (ordered and deferred), \
             large files that are written and half of the times given up, snapshots that are held. `--day-seconds` makes \
             it longer. Flat means that the last quarter of the run is within {GROWTH_MAX} times the second.",
            bench.day_duration.as_secs_f64(),
            (day.pages * PAGE_BYTES as u64) >> 20
        ),
        tables: vec![Table {
            caption: "What was seen on the way".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            // every third look says enough; the plots have them all
            rows: looks.iter().skip(2).step_by(3).map(row).collect(),
        }],
        plots: vec![
            plot(
                "day-space",
                "Space and memory during the run",
                "MiB",
                false,
                vec![
                    line("volume", |look| look.volume_bytes / MIB),
                    line("live data", |look| look.live_bytes / MIB),
                    line("resident memory", |look| look.resident_mib),
                ],
            ),
            plot(
                "day-latency",
                "Latency of durable commits during the run",
                "us",
                true,
                vec![
                    line("median", |look| look.latency_us),
                    line("99th percentile", |look| look.latency_us_p99),
                ],
            ),
        ],
        goals: vec![
            goal("space", |look| look.volume_bytes),
            goal("resident memory", |look| look.resident_mib),
            goal("median latency of durable commits", |look| look.latency_us),
        ],
        notes,
        ..Section::default()
    }
}
