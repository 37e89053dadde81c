//! `libtxfs-protocols`: a C program's update protocols on a mount, between `fs_tx_begin` and `fs_tx_commit` of libtxfs,
//! beside the same program on ext4 with all its syncs.
//!
//! The rename protocol on two files (figure 1a of TxFS, ATC'18) becomes two writes in place; the logging protocol (figure
//! 1b) stays as it is. What an empty transaction costs, and one of a single write, is what the two functions cost.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::Result;
use crate::bench::Bench;
use crate::contestants::mounted::MountedVolume;
use crate::contestants::plain::PlainDirectory;
use crate::contestants::program::{Program, Worker, libtxfs};
use crate::contestants::{Kind, Place};
use crate::figures::Spread;
use crate::result::{Cell, Goal, Plot, Section, Table};
use crate::rounds::{Contestant, Meter, compete};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "libtxfs-protocols",
    "rename and logging protocols of a C program in transactions of libtxfs, against ext4 with its syncs",
    run,
)
.on_mount();

const FILE_BYTES: u64 = 16 << 20;
const PAGE_BYTES: u64 = 4096;
/// Transactions whose messages are counted.
const COUNTED: u64 = 200;

/// What the program does on the mount, in transactions, and how it is called.
const INSIDE: [(&str, &str); 5] = [
    ("update", "libtxfs: two files written in place"),
    ("rename", "libtxfs: rename protocol, unchanged"),
    ("logging", "libtxfs: logging protocol, unchanged"),
    ("write", "libtxfs: one write, ordered"),
    ("nothing", "libtxfs: empty"),
];

/// What it does without transactions.
const BARE: [(&str, &str); 3] = [
    ("rename", "rename protocol"),
    ("replace", "rename protocol, no sync before the rename"),
    ("logging", "logging protocol"),
];

fn inside(work: &str) -> &'static str {
    INSIDE.iter().find(|(other, _)| *other == work).map_or("", |(_, name)| name)
}

fn bare(kind: Kind, work: &str) -> String {
    let name = BARE.iter().find(|(other, _)| *other == work).map_or("", |(_, name)| name);
    format!("{kind}: {name}")
}

fn prepared(place: &Place, bytes: u64) -> Result<PlainDirectory> {
    let directory = PlainDirectory::create(place)?;
    directory.file("original", bytes)?;
    directory.file("first", PAGE_BYTES)?;
    directory.file("second", PAGE_BYTES)?;
    Ok(directory)
}

fn run(bench: &Bench) -> Result<Section> {
    let title = "Transactions around system calls";
    let Some(program) = Program::compile()? else {
        let notes = vec!["There is no C compiler here.".to_owned()];
        return Ok(Section { title: title.to_owned(), notes, ..Section::default() });
    };
    let bytes = bench.scaled(FILE_BYTES, 1 << 20);
    bench.progress.prepare("files");
    let library = libtxfs();
    let on_mount = bench.mounted.as_ref().zip(library.as_deref());
    let mut notes = Vec::new();
    let mut directories = Vec::new();
    for place in &bench.places.plain {
        if place.kind != Kind::Mount {
            directories.push((place, prepared(place, bytes)?));
        }
    }
    let mount_directory = match on_mount {
        Some((mounted, _)) => Some(prepared(&mounted.place, bytes)?),
        None => {
            notes.push(
                "No mount of TxFS took part: no FUSE here, or no txfs or libtxfs.so beside the benchmark."
                    .to_owned(),
            );
            None
        }
    };

    let mut workers = Vec::new();
    if let (Some((mounted, library)), Some(directory)) = (on_mount, &mount_directory) {
        for (work, name) in INSIDE {
            let worker = program.start(work, directory.path(), Some(library))?;
            workers.push((name.to_owned(), &mounted.place, RefCell::new(worker)));
        }
    }
    for (place, directory) in &directories {
        for (work, _) in BARE {
            let worker = program.start(work, directory.path(), None)?;
            workers.push((bare(place.kind, work), *place, RefCell::new(worker)));
        }
    }
    let mut contestants: Vec<Contestant<'_>> = workers
        .iter()
        .map(|(name, place, worker)| Contestant::new(name, place, |meter| worker.borrow_mut().round(meter)))
        .collect();
    let contest = compete(bench, &mut contestants)?;
    drop(contestants);

    let mut tables = contest.tables();
    if let Some((mounted, _)) = on_mount {
        tables.push(messages(mounted, &workers)?);
    }
    let outside =
        workers.iter().map(|(_, _, worker)| worker.borrow().intercepted_outside()).sum::<u64>() as f64;

    let ext4 = |work| bare(Kind::Ext4, work);
    let mut goals = Vec::new();
    for (delay, rename, logging) in [(0, 5.0, 3.0), (1000, 6.0, 4.0)] {
        if bench.flush_delays_us.contains(&delay) {
            let found = contest.rate_ratio(inside("update"), &ext4("rename"), delay);
            let figure = "two files replaced together, times the rate of ext4's rename protocol";
            goals.push(Goal::at_least(figure, delay, rename, found));
            let found = contest.rate_ratio(inside("logging"), &ext4("logging"), delay);
            goals.push(Goal::at_least(
                "logging protocol unchanged, times the rate of ext4",
                delay,
                logging,
                found,
            ));
        }
    }
    let empty = contest.find(inside("nothing"), 0).map(|outcome| Spread::of(&outcome.latencies_us));
    goals.push(Goal::at_most("empty transaction of libtxfs", 0, 25.0, empty).unit(" µs", 2));
    let found = on_mount.map(|_| Spread { median: outside, min: outside, max: outside });
    goals.push(Goal::at_most("system calls intercepted outside of transactions", 0, 0.0, found).unit("", 0));
    notes.push(
        "The median of an empty transaction decides. The program makes system calls between its transactions too; \
         libtxfs counts what it intercepts."
            .to_owned(),
    );
    Ok(Section {
        title: title.to_owned(),
        about: format!(
            "A C program, one thread, 4 KiB for each file. Rename protocol: create a temporary file, write and sync it, \
             sync the directory, rename it over the file, sync the directory, for two files; many programs do without the \
             first sync of the directory. Logging protocol: write and sync a log and its \
             directory, write at a random place of a file of {} MiB that is open all the time, sync it, remove the log, sync \
             the directory. In transactions of libtxfs on a mount (FUSE) the protocols are the same calls, and two files \
             replaced together are opened and written in place; these commits are durable.",
            bytes >> 20
        ),
        plots: vec![Plot::Bars(contest.bars(
            "libtxfs-protocols",
            "Update protocols of a C program",
            "a second",
        ))],
        tables,
        goals,
        notes,
        ..Section::default()
    })
}

/// The kernel's messages to the mount, for each transaction.
fn messages(mounted: &MountedVolume, workers: &[(String, &Place, RefCell<Worker>)]) -> Result<Table> {
    let mut columns = BTreeMap::new();
    for (_, name) in INSIDE {
        let Some((_, place, worker)) = workers.iter().find(|(other, ..)| other == name) else { continue };
        place.flush()?;
        let before = mounted.messages()?;
        // Not timed, so it may last.
        let mut meter = Meter::new(1, std::time::Duration::from_secs(10), COUNTED);
        worker.borrow_mut().round(&mut meter)?;
        let operations = meter.operations() as f64;
        for (kind, count) in mounted.messages()? {
            let more = count - before.get(&kind).copied().unwrap_or(0);
            columns.entry(kind).or_insert_with(BTreeMap::new).insert(name, more as f64 / operations);
        }
    }
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut total: BTreeMap<&str, f64> = BTreeMap::new();
    for (kind, counts) in &columns {
        // Others look at the mount now and then.
        if counts.values().all(|count| *count < 0.05) {
            continue;
        }
        let mut row = vec![Cell::text(kind)];
        for (_, name) in INSIDE {
            let count = counts.get(name).copied().unwrap_or(0.0);
            *total.entry(name).or_default() += count;
            row.push(Cell::number(count, 1));
        }
        rows.push(row);
    }
    let sum = INSIDE.iter().map(|(_, name)| Cell::number(total.get(name).copied(), 1));
    rows.push(std::iter::once(Cell::text("all")).chain(sum).collect());
    Ok(Table {
        caption: "messages of the kernel to the mount, for each transaction".to_owned(),
        columns: std::iter::once(String::new())
            .chain(INSIDE.iter().map(|(_, name)| (*name).to_owned()))
            .collect(),
        rows,
    })
}
