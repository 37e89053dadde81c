//! `cleaning`: three small inserts a transaction, without cleaning and while a segment is cleaned after every 100
//! transactions; figure 13 of exF2FS (FAST'22).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use txfs::{CleanOptions, CreateOptions, Durability, Ino, OpenOptions, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::embedded::Embedded;
use crate::figures::{Spread, percentile};
use crate::result::{Cell, Goal, Section, Table};
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
const PAGE_BYTES: u64 = 4096;

/// One turn: transactions a second, and the 99.9th percentile in microseconds.
struct Turn {
    rate: f64,
    p999_us: f64,
    cleaned: u64,
    conflicts: u64,
}

fn turn(embedded: &Embedded, files: &[Ino], cleaning: bool, duration: Duration, seed: u64) -> Result<Turn> {
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let volume = &embedded.volume;
    let conflicts_before = volume.stat()?.engine.conflicts;
    let mut random = fastrand::Rng::with_seed(seed);
    thread::scope(|scope| {
        let cleaner = cleaning.then(|| {
            scope.spawn(|| {
                let options =
                    CleanOptions { segments_max: 1, live_percent_max: 95, give_back: false, gentle: true };
                let (mut next, mut cleaned) = (TRANSACTIONS_PER_CLEANING, 0);
                while !over.load(Ordering::Relaxed) {
                    if done.load(Ordering::Relaxed) < next {
                        thread::sleep(Duration::from_micros(200));
                        continue;
                    }
                    next = done.load(Ordering::Relaxed) + TRANSACTIONS_PER_CLEANING;
                    cleaned += volume.clean(&options, &mut |_, _| {})?.segments;
                }
                Ok::<_, crate::Error>(cleaned)
            })
        });
        let begun = Instant::now();
        let mut latencies = Vec::new();
        let mut content = [1; 200];
        let mut work = || -> Result<()> {
            while begun.elapsed() < duration {
                random.fill(&mut content);
                let at = Instant::now();
                let transaction = volume.begin();
                for ino in files {
                    let page = random.u64(0..FILE_BYTES / PAGE_BYTES);
                    transaction.write(*ino, page * PAGE_BYTES + random.u64(0..3800), &content)?;
                }
                // A conflict is an error here, and ends the run: there must be none.
                transaction.commit(Durability::Durable)?;
                latencies.push(at.elapsed().as_secs_f64() * 1e6);
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let worked = work();
        let seconds = begun.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let cleaned = match cleaner {
            Some(cleaner) => cleaner.join().map_err(|_| "the cleaning thread panicked")??,
            None => 0,
        };
        worked?;
        let rate = latencies.len() as f64 / seconds;
        latencies.sort_by(f64::total_cmp);
        let conflicts = volume.stat()?.engine.conflicts - conflicts_before;
        Ok(Turn { rate, p999_us: percentile(&latencies, 0.999), cleaned, conflicts })
    })
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
    bench.progress.begin(u64::from(bench.rounds) * delays.len() as u64 * 2 + 1);
    bench.progress.step("warm-up");
    turn(&embedded, &files, false, bench.round_duration, 1)?;
    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    for delay_us in delays {
        bench.flush_delay.set_us(delay_us)?;
        let mut found: [Vec<Turn>; 2] = [Vec::new(), Vec::new()];
        for round in 0..bench.rounds {
            for (index, name) in ["without cleaning", "with cleaning"].into_iter().enumerate() {
                bench.progress.step(&format!("{name}, +{delay_us} us a flush"));
                let seed = u64::from(round) * 2 + index as u64 + 2;
                found[index].push(turn(&embedded, &files, index == 1, bench.round_duration, seed)?);
            }
        }
        bench.flush_delay.set_us(0)?;
        let [without, with] = &found;
        let rates = |turns: &[Turn]| turns.iter().map(|turn| turn.rate).collect::<Vec<_>>();
        let tails = |turns: &[Turn]| turns.iter().map(|turn| turn.p999_us).collect::<Vec<_>>();
        for (name, turns) in [("without cleaning", without), ("with cleaning", with)] {
            let cleaned: Vec<f64> = turns.iter().map(|turn| turn.cleaned as f64).collect();
            rows.push(vec![
                Cell::text(format!("{name}, +{delay_us} us a flush")),
                Cell::figure(Spread::of(&rates(turns)), 0),
                Cell::figure(Spread::of(&tails(turns)), 0),
                Cell::figure(Spread::of(&cleaned), 0),
                Cell::number(turns.iter().map(|turn| turn.conflicts as f64).sum::<f64>(), 0),
            ]);
        }
        let rate = Spread::of_ratios(&rates(with), &rates(without));
        let tail = Spread::of_ratios(&tails(with), &tails(without));
        goals.push(Goal::at_least("throughput while cleaning, against without", delay_us, 0.97, Some(rate)));
        goals.push(Goal::at_most("p99.9 while cleaning, against without", delay_us, 1.1, Some(tail)));
    }
    let columns = ["", "Transactions a second", "p99.9, us", "Segments cleaned in a turn", "Aborted"];
    Ok(Section {
        title: "Transactions while cleaning".to_owned(),
        about: format!(
            "Durable transactions write 200 bytes to a random place of each of three files of {} MiB. After every {} \
             of them another thread cleans one segment of 2 MiB, live data and all.",
            FILE_BYTES >> 20,
            TRANSACTIONS_PER_CLEANING
        ),
        tables: vec![Table {
            caption: "Three small inserts a transaction".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        }],
        goals,
        notes: vec![
            "The paper (figure 13): throughput 5 % lower, p99.9 1.57 times as long. A conflict would have ended the run; \
             no worse means within 3 % of the throughput and 10 % of p99.9, which is what equal turns differ by."
                .to_owned(),
        ],
        ..Section::default()
    })
}
