//! `checkpoint-latency`: latency of durable 4 KiB commits while checkpoints run one after the other in the background,
//! against none running.
//!
//! The index is made large first, and between two checkpoints another thread changes random inodes, so that each
//! checkpoint has work.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use txfs::{Durability, OpenOptions, Paths, ROOT_INO, View, Volume};

use super::{Failure, Latencies, probe, scratch};
use crate::beside::beside;

/// What `checkpoint-latency` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume is made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Files in the volume
    #[arg(long, default_value_t = 300_000)]
    pub files: u64,
    /// Inodes changed before each checkpoint
    #[arg(long, default_value_t = 20_000)]
    pub changes: u64,
    /// Seconds of each of the two phases
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
}

/// Everything that `checkpoint-latency` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// No checkpoint running.
    pub without: Latencies,
    /// During checkpoints.
    pub during: Latencies,
    /// Number of these.
    pub checkpoints: u64,
    /// How long they took altogether.
    pub checkpoint_s: f64,
}

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let directory = scratch(&options.dir)?;
    let path = directory.path().join("volume");
    Volume::create(&path)?;
    // Checkpoints are made here and not when the log's length says so.
    let open = OpenOptions { checkpoint_distance_bytes: 16 << 30, ..OpenOptions::default() };
    let volume = Volume::open_with(&path, &open)?;
    let mut inos = Vec::new();
    while (inos.len() as u64) < options.files {
        let transaction = volume.begin();
        for _ in 0..1000 {
            let name = format!("file-{}", inos.len());
            inos.push(transaction.make_file(ROOT_INO, name.as_bytes(), 0o644, 0, 0)?.ino);
        }
        transaction.commit(Durability::Ordered)?;
    }
    volume.base().write_file("small", &vec![0; 1 << 20])?;
    let small = volume.base().resolve("small")?;
    volume.checkpoint()?;

    let running = AtomicBool::new(false);
    let prober = |_, over: &AtomicBool| {
        let (mut without, mut during) = (Vec::new(), Vec::new());
        let mut page = 0;
        while !over.load(Ordering::Relaxed) {
            let before = running.load(Ordering::Relaxed);
            let latency = probe(&volume, small, page % 256)?;
            match (before, running.load(Ordering::Relaxed)) {
                (false, false) => without.push(latency),
                _ => during.push(latency),
            }
            page += 1;
        }
        Ok((without, during))
    };
    let ((checkpoints, checkpoint_s), latencies) = beside(1, prober, || {
        std::thread::sleep(Duration::from_secs(options.seconds));
        let mut random = fastrand::Rng::with_seed(9);
        let begun = Instant::now();
        let (mut checkpoints, mut checkpoint_s) = (0, 0.0);
        while begun.elapsed() < Duration::from_secs(options.seconds) {
            running.store(true, Ordering::Relaxed);
            let transaction = volume.begin();
            for _ in 0..options.changes {
                let ino = inos[random.usize(0..inos.len())];
                transaction.set_xattr(ino, b"user.mark", b"here", txfs::XattrMode::Set)?;
            }
            transaction.commit(Durability::Ordered)?;
            let at = Instant::now();
            volume.checkpoint()?;
            checkpoint_s += at.elapsed().as_secs_f64();
            checkpoints += 1;
        }
        Ok((checkpoints, checkpoint_s))
    })?;
    let (without, during) = latencies.into_iter().next().unwrap_or_default();
    Ok(Outcome { without: Latencies::of(without), during: Latencies::of(during), checkpoints, checkpoint_s })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "durable 4 KiB commits");
        let _ = writeln!(out, "  no checkpoint      {}", self.without.text());
        let _ = writeln!(out, "  during checkpoints {}", self.during.text());
        let _ = writeln!(out, "  {} checkpoints in {:.1} s", self.checkpoints, self.checkpoint_s);
        out
    }
}
