//! `open-after-crash`: how long it takes until a crashed volume can be used again, against mounting what the same load
//! left of other file systems; table 3 of TxSSD (IEEE Access'19).
//!
//! Two measurements. The device under each contestant is copied under load, which is what a crash leaves, and the copy is
//! mounted (TxFS: its host's ext4 is mounted and the volume opened). And TxFS alone, killed at the worst moment, just
//! before a checkpoint, for several distances between checkpoints.

use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use txfs::{Durability, Paths, Volume};

use crate::Result;
use crate::bench::Bench;
use crate::beside::beside;
use crate::contestants::Kind;
use crate::contestants::loopback::{Image, LoopDevice, possible};
use crate::figures::Spread;
use crate::result::{Bars, Cell, Goal, Lines, Plot, Section, Table};
use crate::scale::opening::{self, Work};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "open-after-crash",
    "time to open after a crash under load, against mounting ext4, xfs and btrfs",
    run,
);

const IMAGE_BYTES: u64 = 768 << 20;
const LOAD_DURATION: Duration = Duration::from_millis(1500);
const THREADS: usize = 4;
const ROUNDS_MAX: u32 = 3;
/// Checkpoint distances, in MiB.
const DISTANCES: [u64; 5] = [8, 9, 16, 32, 64];
/// What volumes have when nobody says otherwise.
const DISTANCE_DEFAULT: u64 = 9;
/// Other loads: what their transactions do, and with how many bytes.
const LOADS: [(&str, Work, u64); 3] = [
    ("files of 64 KiB", Work::Files, 64 << 10),
    ("random overwrites of 4 KiB", Work::Overwrite, 4096),
    ("empty files", Work::Names, 4096),
];

/// Durable files of 4 KiB from several threads until a copy of the device has been taken; how many.
fn load(
    one: impl Fn(&str, &[u8]) -> Result<()> + Sync,
    duration: Duration,
    take: impl FnOnce() -> Result<Image>,
) -> Result<(Image, u64)> {
    let (files, gate) = (AtomicU64::new(0), RwLock::new(()));
    let work = |thread, over: &AtomicBool| {
        let mut number = 0;
        while !over.load(Ordering::Relaxed) {
            // held still while the device is copied: the copy is of one moment
            let _pass = gate.read();
            one(&format!("file-{thread}-{number}"), &[thread as u8; 4096])?;
            number += 1;
            files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let (image, _) = beside(THREADS, work, || {
        thread::sleep(duration);
        let _closed = gate.write();
        take()
    })?;
    Ok((image, files.load(Ordering::Relaxed)))
}

fn plain_file(directory: &Path, name: &str, content: &[u8]) -> Result<()> {
    let mut file = std::fs::File::create_new(directory.join(name))?;
    std::io::Write::write_all(&mut file, content)?;
    Ok(file.sync_all()?)
}

/// What one crash cost, in milliseconds.
struct Opened {
    mount_ms: f64,
    /// Of TxFS on it.
    open_ms: Option<f64>,
    files: u64,
}

/// One crash of a file system, or of a volume of TxFS on ext4, on a device of its own.
fn crash(images: &Path, kind: Kind, bytes: u64, duration: Duration) -> Result<Opened> {
    let file_system = if kind == Kind::Txfs { Kind::Ext4 } else { kind };
    let at = tempfile::tempdir_in(images)?;
    let path = at.path().join("volume");
    let (copy, files) = {
        let image = Image::create(images, &format!("crash-{kind}"), bytes)?;
        let device = LoopDevice::attach(&image)?;
        device.format(file_system)?;
        let _mounted = device.mount(file_system, at.path())?;
        let take = || image.copy(&format!("crashed-{kind}"));
        if kind == Kind::Txfs {
            Volume::create(&path)?;
            let volume = Volume::open(&path)?;
            let one = |name: &str, content: &[u8]| {
                let transaction = volume.begin();
                transaction.write_file(name, content)?;
                transaction.commit(Durability::Durable)?;
                Ok(())
            };
            let done = load(one, duration, take)?;
            volume.close()?;
            done
        } else {
            load(|name, content| plain_file(at.path(), name, content), duration, take)?
        }
    };
    let device = LoopDevice::attach(&copy)?;
    let begun = Instant::now();
    let _mounted = device.mount(file_system, at.path())?;
    let mount_ms = begun.elapsed().as_secs_f64() * 1e3;
    let mut open_ms = None;
    if kind == Kind::Txfs {
        let begun = Instant::now();
        let volume = Volume::open(&path)?;
        open_ms = Some(begun.elapsed().as_secs_f64() * 1e3);
        volume.close()?;
    }
    Ok(Opened { mount_ms, open_ms, files })
}

/// A name with its milliseconds over the rounds, and the files that were there.
type Row = (String, Vec<f64>, u64);

fn crashes(bench: &Bench, images: &Path) -> Result<Vec<Row>> {
    let kinds: Vec<Kind> = std::iter::once(Kind::Txfs)
        .chain(
            bench
                .places
                .plain
                .iter()
                .map(|place| place.kind)
                .filter(|kind| matches!(kind, Kind::Ext4 | Kind::Xfs | Kind::Btrfs)),
        )
        .collect();
    let rounds = bench.rounds.min(ROUNDS_MAX);
    bench.progress.begin(u64::from(rounds) * kinds.len() as u64);
    let mut rows: Vec<Row> = Vec::new();
    let mut put = |name: String, ms: f64, files: u64| match rows.iter_mut().find(|row| row.0 == name) {
        Some(row) => {
            row.1.push(ms);
            row.2 = row.2.max(files);
        }
        None => rows.push((name, vec![ms], files)),
    };
    for _ in 0..rounds {
        for &kind in &kinds {
            bench.progress.step(&format!("{kind} crashes"));
            let duration = LOAD_DURATION.mul_f64(bench.scale.max(0.1));
            let opened = crash(images, kind, bench.scaled(IMAGE_BYTES, 384 << 20), duration)?;
            match opened.open_ms {
                Some(open_ms) => {
                    put("TxFS: open".to_owned(), open_ms, opened.files);
                    put(
                        "TxFS: mount of its host's ext4, open".to_owned(),
                        opened.mount_ms + open_ms,
                        opened.files,
                    );
                }
                None => put(format!("{kind}: mount"), opened.mount_ms, opened.files),
            }
        }
    }
    Ok(rows)
}

fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section {
        title: "Open after a crash under load".to_owned(),
        about: "Four threads make durable files of 4 KiB. After 1.5 s the device under them is copied, which is what a \
                crash leaves of it, and the copy is mounted; for TxFS, its host's ext4 is mounted and the volume opened. \
                TxFS alone is also killed at the worst moment, just before a checkpoint is due, for several distances \
                between checkpoints (9 MiB of log where nobody says otherwise, a change of the index counted as 256 bytes \
                more), with nothing of it in memory. Table 3 of the \
                TxSSD paper has 0.8 ms for e2xt4, 249 ms for ext4 and 1380 ms for btrfs."
            .to_owned(),
        ..Section::default()
    };
    match &bench.images {
        Some(images) if possible(Some(images)) => {
            let rows = crashes(bench, images)?;
            section.tables.push(Table {
                caption: "After a crash of the device, milliseconds".to_owned(),
                columns: ["", "milliseconds", "files, at most"].map(str::to_owned).to_vec(),
                rows: rows
                    .iter()
                    .map(|(name, ms, files)| {
                        let files = Cell::number(*files as f64, 0);
                        vec![Cell::text(name), Cell::figure(Spread::of(ms), 1), files]
                    })
                    .collect(),
            });
            let bars = rows.iter().map(|(name, ms, _)| (name.clone(), Spread::of(ms)));
            section.plots.push(Plot::Bars(Bars {
                name: "open-after-crash".to_owned(),
                title: "Until a crashed file system can be used again".to_owned(),
                unit: "milliseconds".to_owned(),
                logarithmic: true,
                groups: vec![("after a crash".to_owned(), bars.collect())],
            }));
            section.notes.push(
                "The file systems get their figures from mounting alone; the memory of what they hold is cold.".to_owned(),
            );
        }
        _ => section.notes.push(
            "Mounting other file systems after a crash was not measured: that needs root, loop devices and --images."
                .to_owned(),
        ),
    }

    bench.progress.prepare("volumes killed just before a checkpoint");
    let quick = bench.scale < 1.0;
    let measure = |work: Work, file_bytes: u64, distances: Vec<u64>| -> Result<opening::Outcome> {
        let options = opening::Options {
            dir: bench.places.txfs.directory.clone(),
            distances,
            data_mib: bench.scaled(256, 1),
            rounds: bench.rounds.min(ROUNDS_MAX),
            work,
            file_bytes,
            load: None,
        };
        Ok(opening::run(&options)?.ok_or("the measurement of opening found nothing")?)
    };
    let small = if quick { 64 << 10 } else { 4096 };
    let distances = if quick { vec![2, 4] } else { DISTANCES.to_vec() };
    let outcome = measure(Work::Files, small, distances)?;
    let row = |step: &opening::Step| {
        vec![
            Cell::text(format!("{} MiB", step.distance_mib)),
            Cell::number(step.replayed_mib, 1),
            Cell::number(step.commits as f64, 0),
            Cell::number(step.changes as f64, 0),
            Cell::figure(step.open_ms, 1),
            Cell::figure(step.replay_ms, 1),
            Cell::figure(step.clean_ms, 1),
        ]
    };
    let columns =
        ["replayed, MiB", "commits", "changes", "open, ms", "of that replay, ms", "open after a close, ms"]
            .map(str::to_owned);
    section.tables.push(Table {
        caption: "TxFS, killed just before a checkpoint, files of 4 KiB".to_owned(),
        columns: std::iter::once("checkpoint distance".to_owned()).chain(columns.clone()).collect(),
        rows: outcome.steps.iter().map(row).collect(),
    });
    let mut others = Vec::new();
    if !quick {
        for (name, work, bytes) in LOADS {
            let found = measure(work, bytes, vec![DISTANCE_DEFAULT])?;
            others.extend(found.steps.into_iter().map(|step| (name, step)));
        }
        section.tables.push(Table {
            caption: "The same for other loads, at the default distance".to_owned(),
            columns: std::iter::once("load".to_owned()).chain(columns).collect(),
            rows: others
                .iter()
                .map(|(name, step)| {
                    std::iter::once(Cell::text(*name)).chain(row(step).into_iter().skip(1)).collect()
                })
                .collect(),
        });
    }
    let point = |step: &opening::Step| (step.replayed_mib, step.open_ms.median);
    section.plots.push(Plot::Lines(Lines {
        name: "open-by-distance".to_owned(),
        title: "Opening a volume that was killed".to_owned(),
        across: "log replayed, MiB".to_owned(),
        up: "milliseconds".to_owned(),
        logarithmic: false,
        series: vec![("TxFS".to_owned(), outcome.steps.iter().map(point).collect())],
    }));
    let step = |distance: u64| outcome.steps.iter().find(|step| step.distance_mib == distance);
    let figure = "time to open after a crash, at the default checkpoint distance, worst moment";
    let found = step(DISTANCE_DEFAULT).map(|step| step.open_ms);
    section.goals.push(Goal::at_most(figure, 0, 20.0, found).unit(" ms", 1));
    let slowest = others.iter().map(|(_, step)| step.open_ms).max_by(|a, b| a.median.total_cmp(&b.median));
    let figure = "the same for the slowest of the other loads";
    section.goals.push(Goal::at_most(figure, 0, 20.0, slowest).unit(" ms", 1));
    let growth = step(DISTANCES[4]).zip(step(DISTANCES[0]));
    let growth = growth.map(|(far, near)| Spread::of(&[far.open_ms.median / near.open_ms.median]));
    let figure = "time to open with eight times the checkpoint distance, against once";
    section.goals.push(Goal::at_most(figure, 0, 8.0, growth));
    Ok(section)
}
