//! `durable-4k`: the smallest durable thing that anybody does, one thread.
//!
//! A transaction that overwrites or appends 4 KiB and is durable when its commit returns, against what the device can do
//! at best, one direct data-sync write of 4 KiB over blocks that are already written, and against append and fsync on
//! each file system.

use std::io::Write;
use std::time::Instant;

use bytemuck::Zeroable;
use txfs::{Durability, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::Kind;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::{PAGE_BYTES, Page, PlainDirectory};
use crate::figures::Spread;
use crate::result::{Goal, Plot, Section};
use crate::rounds::{Contestant, compete, delay_text};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "durable-4k",
    "durable 4 KiB transactions, one thread, against direct data-sync writes and append+fsync",
    run,
)
.on_mount();

const FILE_BYTES: u64 = 64 << 20;
const PREPARED_BYTES: u64 = 512 << 20;

const RAW: &str = "raw: direct data-sync write";
const OVERWRITE: &str = "TxFS: overwrite";
const APPEND: &str = "TxFS: append";

/// Draws the same pages and contents for all contestants of a round.
struct Draw {
    random: fastrand::Rng,
    content: Page,
    pages: u64,
}

impl Draw {
    fn new(round: u32, pages: u64) -> Draw {
        Draw { random: fastrand::Rng::with_seed(u64::from(round)), content: Page::zeroed(), pages }
    }

    fn next(&mut self) -> (u64, &Page) {
        self.random.fill(&mut self.content.0);
        (self.random.u64(0..self.pages), &self.content)
    }
}

fn append_name(kind: Kind) -> String {
    format!("{kind}: append, fsync")
}

/// How many times as long as a raw write a transaction takes, one of each in turn, under each flush delay. Rounds of half a
/// second drift apart on a shared disk by more than what lies between the two.
fn in_turn(
    bench: &Bench,
    raw: impl Fn(u64, &Page) -> Result<()>,
    transaction: impl Fn(u64, &Page) -> Result<()>,
    pages: u64,
) -> Result<Vec<(u64, Spread)>> {
    let mut found = Vec::new();
    for &delay in &bench.flush_delays_us {
        bench.flush_delay.set_us(delay)?;
        let mut ratios = Vec::new();
        for round in 1..=bench.rounds {
            let mut draw = Draw::new(round, pages);
            let (mut raw_us, mut transaction_us) = (Vec::new(), Vec::new());
            let begun = Instant::now();
            while raw_us.is_empty() || begun.elapsed() < bench.round_duration * 2 {
                for (one, taken_us) in [
                    (&raw as &dyn Fn(u64, &Page) -> Result<()>, &mut raw_us),
                    (&transaction, &mut transaction_us),
                ] {
                    let (page, content) = draw.next();
                    let begun = Instant::now();
                    one(page, content)?;
                    taken_us.push(begun.elapsed().as_secs_f64() * 1e6);
                }
            }
            ratios.push(Spread::of(&transaction_us).median / Spread::of(&raw_us).median);
        }
        found.push((delay, Spread::of(&ratios)));
        bench.flush_delay.set_us(0)?;
    }
    Ok(found)
}

fn run(bench: &Bench) -> Result<Section> {
    let file_bytes = bench.scaled(FILE_BYTES, 1 << 20);
    let pages = file_bytes / PAGE_BYTES as u64;
    bench.progress.prepare("a volume and files");
    let embedded = Embedded::prepared(&bench.places.txfs, bench.scaled(PREPARED_BYTES, 1 << 20))?;
    let (overwritten, appended) = (embedded.file("overwritten", file_bytes)?, embedded.file("appended", 0)?);
    embedded.settle()?;

    let raw_directory = PlainDirectory::create(&bench.places.txfs)?;
    let raw = raw_directory.direct_file("raw", file_bytes)?;
    let overwrite = |page: u64, content: &Page| -> Result<()> {
        let transaction = embedded.volume.begin();
        transaction.write(overwritten, page * PAGE_BYTES as u64, &content.0)?;
        transaction.commit(Durability::Durable)?;
        Ok(())
    };
    let mut contestants = vec![
        Contestant::new(RAW, &bench.places.txfs, |meter| {
            let mut draw = Draw::new(meter.round, pages);
            while meter.goes_on() {
                let (page, content) = draw.next();
                meter.time(|| raw.overwrite(page, content))?;
            }
            Ok(())
        }),
        Contestant::new(OVERWRITE, &embedded.place, |meter| {
            let mut draw = Draw::new(meter.round, pages);
            while meter.goes_on() {
                let (page, content) = draw.next();
                meter.time(|| overwrite(page, content))?;
            }
            Ok(())
        })
        .settling(|| embedded.settle()),
        Contestant::new(APPEND, &embedded.place, |meter| {
            let mut draw = Draw::new(meter.round, pages);
            while meter.goes_on() {
                let (_, content) = draw.next();
                meter.time(|| {
                    let transaction = embedded.volume.begin();
                    transaction.append(appended, &content.0)?;
                    transaction.commit(Durability::Durable)?;
                    Ok(())
                })?;
            }
            Ok(())
        })
        .settling(|| embedded.settle()),
    ];
    for place in &bench.places.plain {
        let directory = PlainDirectory::create(place)?;
        let mut file = directory.file("appended", 0)?;
        contestants.push(Contestant::new(append_name(place.kind), place, move |meter| {
            // the files stay until the contestant goes
            let _ = &directory;
            let mut draw = Draw::new(meter.round, pages);
            while meter.goes_on() {
                let (_, content) = draw.next();
                meter.time(|| {
                    file.write_all(&content.0)?;
                    Ok(file.sync_all()?)
                })?;
            }
            Ok(())
        }));
    }
    let contest = compete(bench, &mut contestants)?;
    drop(contestants);
    let of_raw_found = in_turn(bench, |page, content| raw.overwrite(page, content), overwrite, pages)?;

    let limits = |delay: u64| match delay {
        0 => Some([1.25, 4.0, 3.0]),
        1000 => Some([1.03, f64::NAN, f64::NAN]),
        _ => None,
    };
    let mut goals = Vec::new();
    for &delay in &bench.flush_delays_us {
        let Some([of_raw, than_ext4, than_xfs]) = limits(delay) else { continue };
        goals.push(Goal::at_most(
            "durable 4 KiB transaction, latency against a raw direct data-sync write",
            delay,
            of_raw,
            of_raw_found.iter().find(|(other, _)| *other == delay).map(|(_, found)| *found),
        ));
        for (kind, limit) in [(Kind::Ext4, than_ext4), (Kind::Xfs, than_xfs)] {
            if !limit.is_nan() {
                let other = append_name(kind);
                let figure = format!("durable 4 KiB append, times as fast as {kind} append+fsync");
                let found = contest.latency_ratio(&other, APPEND, delay);
                let goal = Goal::at_least(figure, delay, limit, found);
                goals.push(goal.raw(contest.latency_ratio(&other, RAW, delay)));
            }
        }
    }
    Ok(Section {
        title: "A durable 4 KiB transaction".to_owned(),
        about: format!(
            "One thread. TxFS overwrites random pages of a file of {} MiB, or appends to a file, one durable \
             transaction for each 4 KiB. Raw is a direct write with RWF_DSYNC over blocks that were written before, the \
             least that a durable write costs on the device. The file systems append 4 KiB and fsync. TxFS's volume is \
             settled (checkpoint) after each round; that is in its device bytes, not in its time.",
            file_bytes >> 20
        ),
        plots: vec![Plot::Bars(contest.bars(
            "durable-4k",
            "Durable 4 KiB operations, one thread",
            "a second",
        ))],
        tables: contest.tables(),
        goals,
        notes: vec![format!(
            "Goals are judged by median latencies, round by round, and against the raw write with one operation of each \
             in turn; {} there is no goal against ext4 and xfs, since all pay mostly for their flushes.",
            delay_text(1000)
        )],
        ..Section::default()
    })
}
