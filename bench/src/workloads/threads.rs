//! `threads-16`: what sharing flushes gains: sixteen threads of durable 4 KiB overwrites against one.

use bytemuck::Zeroable;
use txfs::{Durability, Ino, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::{DirectFile, PAGE_BYTES, Page, PlainDirectory};
use crate::result::{Goal, Plot, Section};
use crate::rounds::{Contestant, Meter, compete};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload =
    Workload::new("threads-16", "16 threads of durable 4 KiB overwrites against 1: shared flushes", run)
        .on_mount();

const THREADS: usize = 16;
const FILE_BYTES: u64 = 8 << 20;
const PREPARED_BYTES: u64 = 512 << 20;

fn name(system: impl std::fmt::Display, threads: usize) -> String {
    format!("{system}: {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Overwrites random pages in a thread's own file, with as many threads as asked for.
fn overwrite(
    meter: &mut Meter,
    threads: usize,
    pages: u64,
    one: impl Fn(usize, u64, &Page) -> Result<()> + Sync,
) -> Result<()> {
    meter.threads(threads, |thread, meter| {
        let mut random = fastrand::Rng::with_seed(u64::from(meter.round) << 32 | thread as u64);
        let mut content = Page::zeroed();
        while meter.goes_on() {
            random.fill(&mut content.0);
            let page = random.u64(0..pages);
            meter.time(|| one(thread, page, &content))?;
        }
        Ok(())
    })
}

fn run(bench: &Bench) -> Result<Section> {
    let file_bytes = bench.scaled(FILE_BYTES, 64 << 10);
    let pages = file_bytes / PAGE_BYTES as u64;
    bench.progress.prepare("a volume and files");
    let embedded = Embedded::prepared(&bench.places.txfs, bench.scaled(PREPARED_BYTES, 1 << 20))?;
    let inos: Vec<Ino> = (0..THREADS)
        .map(|thread| embedded.file(&format!("file{thread}"), file_bytes))
        .collect::<Result<_>>()?;
    embedded.settle()?;
    let raw_directory = PlainDirectory::create(&bench.places.txfs)?;
    let raw: Vec<DirectFile> = (0..THREADS)
        .map(|thread| raw_directory.direct_file(&format!("raw{thread}"), file_bytes))
        .collect::<Result<_>>()?;

    let (embedded, raw, inos) = (&embedded, &raw, &inos);
    let mut contestants = Vec::new();
    for threads in [1, THREADS] {
        contestants.push(Contestant::new(name("raw", threads), &bench.places.txfs, move |meter| {
            overwrite(meter, threads, pages, |thread, page, content| raw[thread].overwrite(page, content))
        }));
    }
    for threads in [1, THREADS] {
        let turn = move |meter: &mut Meter| {
            overwrite(meter, threads, pages, |thread, page, content| {
                let transaction = embedded.volume.begin();
                transaction.write(inos[thread], page * PAGE_BYTES as u64, &content.0)?;
                transaction.commit(Durability::Durable)?;
                Ok(())
            })
        };
        contestants.push(
            Contestant::new(name("TxFS", threads), &embedded.place, turn).settling(|| embedded.settle()),
        );
    }
    for place in &bench.places.plain {
        let directory = std::sync::Arc::new(PlainDirectory::create(place)?);
        for threads in [1, THREADS] {
            let files: Vec<_> = (0..threads)
                .map(|thread| directory.file(&format!("{threads}-{thread}"), file_bytes))
                .collect::<Result<_>>()?;
            let directory = directory.clone();
            contestants.push(Contestant::new(name(place.kind, threads), place, move |meter| {
                let _ = &directory;
                overwrite(meter, threads, pages, |thread, page, content| {
                    std::os::unix::fs::FileExt::write_all_at(
                        &files[thread],
                        &content.0,
                        page * PAGE_BYTES as u64,
                    )?;
                    Ok(files[thread].sync_data()?)
                })
            }));
        }
    }
    let contest = compete(bench, &mut contestants)?;

    let mut goals = Vec::new();
    for (delay, limit) in [(0, 5.0), (1000, 14.0)] {
        if bench.flush_delays_us.contains(&delay) {
            let gain = |who| contest.rate_ratio(&name(who, THREADS), &name(who, 1), delay);
            let figure = "durable 4 KiB transactions, 16 threads against 1, throughput";
            goals.push(Goal::at_least(figure, delay, limit, gain("TxFS")).raw(gain("raw")));
        }
    }
    Ok(Section {
        title: "Sixteen threads of durable 4 KiB transactions".to_owned(),
        about: format!(
            "Each thread overwrites random pages of a file of its own of {} MiB: TxFS in one durable transaction for each \
             4 KiB, raw with direct data-sync writes, the file systems with a write and fdatasync. Flushes for each \
             operation say how many shared one.",
            file_bytes >> 20
        ),
        plots: vec![Plot::Bars(contest.bars("threads-16", "Durable 4 KiB overwrites", "a second"))],
        tables: contest.tables(),
        goals,
        ..Section::default()
    })
}
