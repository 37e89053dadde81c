//! `cleaning`: three small inserts a transaction, without cleaning and while a segment is cleaned after every 100
//! transactions; figure 13 of exF2FS (FAST'22).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use txfs::{CleanOptions, CreateOptions, Durability, Ino, OpenOptions, View};

use crate::Result;
use crate::bench::Bench;
use crate::beside::beside;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::PAGE_BYTES;
use crate::figures::{Spread, percentile};
use crate::result::{Cell, Goal, Section, Table};
use crate::rounds::delay_text;
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "cleaning",
    "three small inserts a transaction, while a segment is cleaned after every 100 transactions",
    run,
);

const TRANSACTIONS_PER_CLEANING: u64 = 100;
const FILES: usize = 3;
const FILE_BYTES: u64 = 64 << 20;
/// As F2FS has them.
const SEGMENT_BYTES: u64 = 2 << 20;

/// A turn is so many times as long as a round: a 99.9th percentile needs thousands of transactions.
const ROUNDS_PER_TURN: u32 = 4;
/// What the paper has: no worse than that.
const RATE_MIN: f64 = 0.95;
const P999_MAX: f64 = 1.57;

/// One turn: transactions a second, and the 99.9th percentile in microseconds.
struct Turn {
    rate: f64,
    p999_us: f64,
    cleaned: u64,
    aborted: u64,
}

fn turn(embedded: &Embedded, files: &[Ino], cleaning: bool, duration: Duration, seed: u64) -> Result<Turn> {
    let done = AtomicU64::new(0);
    let volume = &embedded.volume;
    let clean = |_, over: &AtomicBool| {
        let options = CleanOptions { segments_max: 1, live_percent_max: 95, give_back: false, gentle: true };
        let (mut next, mut cleaned) = (TRANSACTIONS_PER_CLEANING, 0);
        while !over.load(Ordering::Relaxed) {
            if done.load(Ordering::Relaxed) < next {
                thread::sleep(Duration::from_micros(200));
                continue;
            }
            next = done.load(Ordering::Relaxed) + TRANSACTIONS_PER_CLEANING;
            cleaned += volume.clean(&options, &mut |_, _| {})?.segments;
        }
        Ok(cleaned)
    };
    let work = || {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut latencies, mut aborted, mut content) = (Vec::new(), 0, [1; 200]);
        let begun = Instant::now();
        while begun.elapsed() < duration {
            random.fill(&mut content);
            let at = Instant::now();
            let transaction = volume.begin();
            for ino in files {
                let page = random.u64(0..FILE_BYTES / PAGE_BYTES as u64);
                transaction.write(*ino, page * PAGE_BYTES as u64 + random.u64(0..3800), &content)?;
            }
            match transaction.commit(Durability::Durable) {
                Ok(_) => latencies.push(at.elapsed().as_secs_f64() * 1e6),
                Err(error) if error.is_conflict() => aborted += 1,
                Err(error) => return Err(error.into()),
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        latencies.sort_by(f64::total_cmp);
        let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
        Ok((rate, percentile(&latencies, 0.999), aborted))
    };
    let ((rate, p999_us, aborted), cleaned) = beside(usize::from(cleaning), clean, work)?;
    Ok(Turn { rate, p999_us, cleaned: cleaned.into_iter().sum(), aborted })
}

/// What turns without cleaning differ by among themselves, in percent of their median.
fn differ_percent(rounds: &[f64]) -> f64 {
    let spread = Spread::of(rounds);
    (spread.max - spread.min) / spread.median * 100.0
}

fn run(bench: &Bench) -> Result<Section> {
    bench.progress.prepare("three files");
    let create = CreateOptions {
        segment_bytes: SEGMENT_BYTES,
        preallocate_bytes: 512 << 20,
        ..CreateOptions::default()
    };
    let embedded = Embedded::create_with(&bench.places.txfs, &create, &OpenOptions::default())?;
    let files: Vec<Ino> = (0..FILES)
        .map(|number| embedded.file(&format!("database-{number}"), FILE_BYTES))
        .collect::<Result<_>>()?;
    let delays = bench.flush_delays_us.clone();
    let duration = bench.round_duration * ROUNDS_PER_TURN;
    bench.progress.begin(u64::from(bench.rounds) * delays.len() as u64 * 2 + 1);
    bench.progress.step("warm-up");
    turn(&embedded, &files, false, bench.round_duration, 1)?;
    let (mut rows, mut goals, mut equal) = (Vec::new(), Vec::new(), Vec::new());
    for delay_us in delays {
        bench.flush_delay.set_us(delay_us)?;
        let mut found: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
        for round in 0..bench.rounds {
            for (index, name) in ["without cleaning", "with cleaning"].into_iter().enumerate() {
                bench.progress.step(&format!("{name}, +{delay_us} us a flush"));
                let seed = u64::from(round) * 2 + index as u64 + 2;
                found[index].push(turn(&embedded, &files, index == 1, duration, seed)?);
            }
        }
        bench.flush_delay.set_us(0)?;
        let [without, with] = &found;
        let rates = |turns: &[Turn]| turns.iter().map(|turn| turn.rate).collect::<Vec<_>>();
        let tails = |turns: &[Turn]| turns.iter().map(|turn| turn.p999_us).collect::<Vec<_>>();
        let aborted = |turns: &[Turn]| turns.iter().map(|turn| turn.aborted).sum::<u64>() as f64;
        for (name, turns) in [("without cleaning", without), ("with cleaning", with)] {
            let cleaned: Vec<f64> = turns.iter().map(|turn| turn.cleaned as f64).collect();
            rows.push(vec![
                Cell::text(format!("{name}, {}", delay_text(delay_us))),
                Cell::figure(Spread::of(&rates(turns)), 0),
                Cell::figure(Spread::of(&tails(turns)), 0),
                Cell::figure(Spread::of(&cleaned), 0),
                Cell::number(aborted(turns), 0),
            ]);
        }
        let rate = Spread::of_ratios(&rates(with), &rates(without));
        let tail = Spread::of_ratios(&tails(with), &tails(without));
        let (faster, slower) =
            ("throughput while cleaning, against without", "p99.9 while cleaning, against without");
        goals.push(Goal::at_least(faster, delay_us, RATE_MIN, Some(rate)));
        goals.push(Goal::at_most(slower, delay_us, P999_MAX, Some(tail)));
        let aborted = Spread::of(&[aborted(with)]);
        goals.push(
            Goal::at_most("transactions aborted while cleaning", delay_us, 0.0, Some(aborted)).unit("", 0),
        );
        if without.len() > 1 {
            equal.push(format!(
                "Equal turns, all without cleaning, differ by {:.0} % in throughput and {:.0} % in p99.9 between the \
                 smallest and the largest of them ({}).",
                differ_percent(&rates(without)),
                differ_percent(&tails(without)),
                delay_text(delay_us)
            ));
        }
    }
    let columns = ["", "Transactions a second", "p99.9, us", "Segments cleaned in a turn", "Aborted"];
    Ok(Section {
        title: "Transactions while cleaning".to_owned(),
        about: format!(
            "Durable transactions write 200 bytes to a random place of each of three files of {} MiB. After every {} \
             of them another thread cleans one segment of 2 MiB, live data and all. A turn takes {:.1} s.",
            FILE_BYTES >> 20,
            TRANSACTIONS_PER_CLEANING,
            duration.as_secs_f64()
        ),
        tables: vec![Table {
            caption: "Three small inserts a transaction".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        }],
        goals,
        notes: [format!(
            "No worse than exF2FS (figure 13 of its paper) is the goal: throughput 5 % lower, p99.9 {P999_MAX} times as long, \
             nothing aborted."
        )]
        .into_iter()
        .chain(equal)
        .collect(),
        ..Section::default()
    })
}
