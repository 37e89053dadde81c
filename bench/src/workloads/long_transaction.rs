//! `long-transaction`: a million small commits on a volume where a transaction is open all the time, in turns with a
//! million on one without. What the open transaction costs the others must not grow with what happens meanwhile, and
//! what it kept from being used again must be free afterwards.

use std::time::Instant;

use txfs::{CleanOptions, Durability, Ino, Paths, Transaction, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::PAGE_BYTES;
use crate::figures::Spread;
use crate::result::{Cell, Goal, Lines, Plot, Section, Table};
use crate::scale::resident_mib;
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "long-transaction",
    "a million small commits while another transaction stays open all the time",
    run,
);

const COMMITS: u64 = 1_000_000;
const TURNS: u64 = 50;
const DATABASE_BYTES: u64 = 64 << 20;
/// What the long transaction reads and writes for itself.
const OWN_BYTES: usize = 1 << 20;
/// A transaction that is open for half an hour may cost the others a tenth.
const RATE_MIN: f64 = 0.9;
/// What the volume may take more than the other once the transaction has ended.
const SPACE_MAX: f64 = 1.1;

/// One of the two volumes, and what it did in each turn.
struct Side {
    name: &'static str,
    embedded: Embedded,
    database: Ino,
    rates: Vec<f64>,
    /// Of its turns, after each: commits so far, bytes of the segments, ranges remembered for conflicts.
    looks: Vec<(f64, f64, f64)>,
}

impl Side {
    fn new(bench: &Bench, name: &'static str) -> Result<Side> {
        let embedded = Embedded::create(&bench.places.txfs)?;
        let database = embedded.file("database", bench.scaled(DATABASE_BYTES, 1 << 20))?;
        embedded.volume.base().write_file("own", &vec![7; OWN_BYTES])?;
        embedded.settle()?;
        Ok(Side { name, embedded, database, rates: Vec::new(), looks: Vec::new() })
    }

    fn turn(&mut self, commits: u64, pages: u64, random: &mut fastrand::Rng) -> Result<()> {
        let volume = &self.embedded.volume;
        let content = [random.u8(..); 200];
        let begun = Instant::now();
        for _ in 0..commits {
            let transaction = volume.begin();
            let at = random.u64(0..pages) * PAGE_BYTES as u64 + random.u64(0..3800);
            transaction.write(self.database, at, &content)?;
            transaction.commit(Durability::Ordered)?;
        }
        self.rates.push(commits as f64 / begun.elapsed().as_secs_f64());
        let done = self.rates.len() as f64 * commits as f64;
        self.looks.push((done, self.bytes()?, volume.stat()?.engine.conflict_ranges as f64));
        Ok(())
    }

    fn bytes(&self) -> Result<f64> {
        let stat = self.embedded.volume.stat()?.engine;
        Ok((stat.segments * stat.segment_bytes + stat.index_bytes) as f64)
    }

    /// What the volume takes when everything has been cleaned that can be.
    fn cleaned_bytes(&self) -> Result<f64> {
        self.embedded.settle()?;
        let options = CleanOptions { give_back: true, ..CleanOptions::default() };
        self.embedded.volume.clean(&options, &mut |_, _| {})?;
        self.bytes()
    }

    fn row(&self, rates: Spread, bytes_after: f64, pinned: f64) -> Vec<Cell> {
        const MIB: f64 = (1 << 20) as f64;
        let bytes = self.looks.last().map(|look| look.1 / MIB);
        vec![
            Cell::text(self.name),
            Cell::figure(rates, 0),
            Cell::figure(Spread::of(last_quarter(&self.rates)), 0),
            Cell::number(bytes, 0),
            Cell::number(pinned / MIB, 0),
            Cell::number(bytes_after / MIB, 0),
        ]
    }
}

fn last_quarter(values: &[f64]) -> &[f64] {
    &values[values.len() - values.len().div_ceil(4)..]
}

/// The open transaction goes on: a look at something that it has not seen, and a change of its own.
fn go_on(long: &Transaction, turn: u64) -> Result<()> {
    long.exists(format!("not there {turn}"))?;
    long.write_file("result", format!("turn {turn}").as_bytes())?;
    Ok(())
}

fn run(bench: &Bench) -> Result<Section> {
    bench.progress.prepare("two volumes");
    let mut sides = [Side::new(bench, "with a long transaction")?, Side::new(bench, "without")?];
    let commits = bench.scaled(COMMITS, 1000) / TURNS;
    let pages = bench.scaled(DATABASE_BYTES, 1 << 20) / PAGE_BYTES as u64;
    let mut random = fastrand::Rng::with_seed(11);
    bench.progress.begin(TURNS + 1);
    let long = sides[0].embedded.volume.begin();
    if long.read_file("own")?.len() != OWN_BYTES {
        return Err("the long transaction does not find its own file".into());
    }
    let resident_before = resident_mib();
    for turn in 0..TURNS {
        bench.progress.step("turns of commits");
        // who comes first changes: background work of one reaches into the turn of the other
        for side in [turn % 2, 1 - turn % 2] {
            sides[side as usize].turn(commits, pages, &mut random)?;
        }
        go_on(&long, turn)?;
    }
    let resident_more = resident_mib() - resident_before;
    bench.progress.step("what is free afterwards");
    let while_open = [sides[0].cleaned_bytes()?, sides[1].cleaned_bytes()?];
    let begun = Instant::now();
    long.commit(Durability::Durable)?;
    let commit_ms = begun.elapsed().as_secs_f64() * 1e3;
    let after = [sides[0].cleaned_bytes()?, sides[1].cleaned_bytes()?];
    let ranges = sides[0].embedded.volume.stat()?.engine.conflict_ranges;
    for side in &sides {
        let check = side.embedded.volume.check()?;
        if !check.problems.is_empty() {
            return Err(format!("{}: the volume has problems: {:?}", side.name, check.problems).into());
        }
    }
    let [with, without] = &sides;
    let ratios = Spread::of_ratios(last_quarter(&with.rates), last_quarter(&without.rates));
    let series = |value: fn(&(f64, f64, f64)) -> f64| {
        sides
            .iter()
            .map(|side| (side.name.to_owned(), side.looks.iter().map(|look| (look.0, value(look))).collect()))
            .collect()
    };
    let columns = [
        "",
        "commits a second",
        "in the last quarter",
        "volume at the end, MiB",
        "cleaned, still open, MiB",
        "cleaned, ended, MiB",
    ];
    Ok(Section {
        title: "A million commits beside a long transaction".to_owned(),
        about: format!(
            "Ordered transactions of 200 bytes at random places of a file of {} MiB, one thread, {commits} in a turn, \
             {TURNS} turns on each of two volumes. On one of them a transaction has read a file before the first and \
             writes one between the turns, and commits after the last. Ordered commits, since what it costs \
             is processor time and space, which flushes would hide.",
            bench.scaled(DATABASE_BYTES, 1 << 20) >> 20
        ),
        tables: vec![Table {
            caption: "Small commits, and space".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: sides
                .iter()
                .enumerate()
                .map(|(side, found)| found.row(Spread::of(&found.rates), after[side], while_open[side]))
                .collect(),
        }],
        plots: vec![Plot::Lines(Lines {
            name: "long-transaction".to_owned(),
            title: "Size of the volume".to_owned(),
            across: "commits".to_owned(),
            up: "bytes".to_owned(),
            logarithmic: false,
            series: series(|look| look.1),
        })],
        goals: vec![
            Goal::at_least(
                "small commits beside a long transaction, last quarter of a million, against without",
                0,
                RATE_MIN,
                Some(ratios),
            ),
            Goal::at_most(
                "space after a long transaction, against the volume without",
                0,
                SPACE_MAX,
                Some(Spread::of(&[after[0] / after[1]])),
            ),
        ],
        notes: vec![format!(
            "The commit of the long transaction took {commit_ms:.1} ms. Until then the volume remembered up to {:.0} ranges \
             for finding conflicts (afterwards {ranges}), and the process, with both volumes, grew by {resident_more:.0} MiB.",
            with.looks.iter().map(|look| look.2).fold(0.0, f64::max),
        )],
        ..Section::default()
    })
}
