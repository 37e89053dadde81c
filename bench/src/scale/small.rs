//! `small-transactions`: what a small durable transaction costs above the device. Raw direct data-sync writes and
//! transactions take turns operation by operation, on one thread, so that what disturbs the disk for a while disturbs all
//! of them alike; rounds of half a second, as the workloads have them, drift apart by a third on a shared disk.
//!
//! The tail shows what checkpoints cost a writer: the same once more with the next checkpoint out of reach.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytemuck::Zeroable;
use clap::Args;
use serde::Serialize;
use txfs::{CreateOptions, Durability, FileOptions, OpenOptions, Paths, View};

use super::{Failure, Latencies};
use crate::contestants::Place;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::{PAGE_BYTES, Page, PlainDirectory};

/// What `small-transactions` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume and the plain file are made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Seconds of each of the two phases
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
}

/// Everything that `small-transactions` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// With checkpoints at the default distance.
    pub with_checkpoints: Phase,
    /// Without any.
    pub without: Phase,
}

/// One phase: who took turns, and how long each operation took.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// Checkpoints meanwhile.
    pub checkpoints: u64,
    /// By name.
    pub latencies: Vec<(&'static str, Latencies)>,
}

const FILE_BYTES: u64 = 16 << 20;
const PREPARED_BYTES: u64 = 512 << 20;
/// Further apart than anything that a phase writes.
const NEVER_BYTES: u64 = 1 << 40;

type Turn<'work> = Box<dyn FnMut(u64, &Page) -> Result<(), Failure> + 'work>;

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    Ok(Outcome {
        with_checkpoints: phase(options, &OpenOptions::default())?,
        without: phase(
            options,
            &OpenOptions { checkpoint_distance_bytes: NEVER_BYTES, ..OpenOptions::default() },
        )?,
    })
}

fn phase(options: &Options, open: &OpenOptions) -> Result<Phase, Failure> {
    let place = Place::txfs(&options.dir)?;
    let create = CreateOptions { preallocate_bytes: PREPARED_BYTES, ..CreateOptions::default() };
    let embedded = Embedded::create_with(&place, &create, open)?;
    let ino = embedded.file("original", FILE_BYTES)?;
    let grown = embedded.file("grown", 0)?;
    embedded.settle()?;
    let volume = &embedded.volume;
    let plain = PlainDirectory::create(&place)?;
    let raw = plain.direct_file("raw", FILE_BYTES)?;
    let writable = FileOptions::new().write(true);
    let creating = FileOptions::new().write(true).create(true).truncate(true);

    let mut turns: Vec<(&'static str, Turn<'_>, Vec<f64>)> = vec![
        ("raw write", Box::new(|page, content| raw.overwrite(page, content)), Vec::new()),
        (
            "overwrite",
            Box::new(|page, content| {
                let transaction = volume.begin();
                transaction.write(ino, page * PAGE_BYTES as u64, &content.0)?;
                transaction.commit(Durability::Durable)?;
                Ok(())
            }),
            Vec::new(),
        ),
        (
            "append",
            Box::new(|_, content| {
                let transaction = volume.begin();
                transaction.append(grown, &content.0)?;
                transaction.commit(Durability::Durable)?;
                Ok(())
            }),
            Vec::new(),
        ),
        (
            "log protocol",
            Box::new(|page, content| {
                let transaction = volume.begin();
                let log = transaction.open("log", &creating)?;
                log.write_at(0, &content.0)?;
                let original = transaction.open("original", &writable)?;
                original.write_at(page * PAGE_BYTES as u64, &content.0)?;
                drop((log, original));
                transaction.remove("log")?;
                transaction.commit(Durability::Durable)?;
                Ok(())
            }),
            Vec::new(),
        ),
    ];
    let before = volume.stat()?.engine.checkpoints;
    let mut random = fastrand::Rng::with_seed(1);
    let mut content = Page::zeroed();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(options.seconds) {
        random.shuffle(&mut turns);
        for (_, turn, latencies) in &mut turns {
            random.fill(&mut content.0);
            let page = random.u64(0..FILE_BYTES / PAGE_BYTES as u64);
            let begun = Instant::now();
            turn(page, &content)?;
            latencies.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    turns.sort_by_key(|(name, ..)| (*name != "raw write", *name));
    let latencies = turns.into_iter().map(|(name, _, latencies)| (name, Latencies::of(latencies))).collect();
    Ok(Phase { checkpoints: volume.stat()?.engine.checkpoints - before, latencies })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for phase in [&self.with_checkpoints, &self.without] {
            let raw_us = phase.latencies.first().map_or(f64::NAN, |(_, latencies)| latencies.p50_us);
            let _ = writeln!(out, "durable operations of 4 KiB, in turn; {} checkpoints", phase.checkpoints);
            for (name, latencies) in &phase.latencies {
                let times = latencies.p50_us / raw_us;
                let _ = writeln!(out, "  {name:<14} {times:.3} x raw; {}", latencies.text());
            }
        }
        out
    }
}
