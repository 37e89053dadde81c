//! `large-update`: three new files of 10 MB, then an update of 10 MB in a file of 40 MB; the first is to be in order before
//! the second, and both durable at the end (TxFS, ATC'18). With plain files that takes a flush in between; with TxFS an
//! ordered commit and a durable one.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use txfs::{Durability, Paths, ROOT_INO, View, Volume};

use super::{Failure, scratch, timed};
use crate::figures::Spread;

const MEGABYTE: usize = 1_000_000;

/// What `large-update` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume and the plain files are made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Where the plain files are made instead
    #[arg(long)]
    pub plain_dir: Option<PathBuf>,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Repetitions in a round
    #[arg(long, default_value_t = 20)]
    pub operations: u32,
}

/// Everything that `large-update` found; repetitions in a second.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Plain files.
    pub plain: Spread,
    /// Embedded transactions.
    pub txfs: Spread,
    /// Round by round.
    pub ratio: Spread,
}

fn plain(directory: &Path, big: &File, content: &[u8], number: u32) -> Result<(), Failure> {
    let mut files = Vec::new();
    for file in 0..3 {
        let file = File::create(directory.join(format!("new-{file}")))?;
        file.write_all_at(content, 0)?;
        files.push(file);
    }
    for file in &files {
        file.sync_all()?;
    }
    big.write_all_at(content, u64::from(number % 4) * content.len() as u64)?;
    big.sync_all()?;
    drop(files);
    for file in 0..3 {
        std::fs::remove_file(directory.join(format!("new-{file}")))?;
    }
    Ok(())
}

fn embedded(volume: &Volume, big: txfs::Ino, content: &[u8], number: u32) -> Result<(), Failure> {
    let transaction = volume.begin();
    for file in 0..3 {
        let ino = transaction.make_file(ROOT_INO, format!("new-{file}").as_bytes(), 0o644, 0, 0)?.ino;
        transaction.write(ino, 0, content)?;
    }
    transaction.commit(Durability::Ordered)?;
    let transaction = volume.begin();
    transaction.write(big, u64::from(number % 4) * content.len() as u64, content)?;
    transaction.commit(Durability::Durable)?;
    for file in 0..3 {
        volume.base().unlink(ROOT_INO, format!("new-{file}").as_bytes())?;
    }
    Ok(())
}

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let directory = scratch(&options.dir)?;
    let elsewhere = options.plain_dir.as_deref().map(scratch).transpose()?;
    let plain_directory = elsewhere.as_ref().unwrap_or(&directory).path();
    let mut content = vec![0; 10 * MEGABYTE];
    fastrand::Rng::with_seed(5).fill(&mut content);
    let big_file = File::create_new(plain_directory.join("big"))?;
    let path = directory.path().join("volume");
    Volume::create(&path)?;
    let volume = Volume::open(&path)?;
    volume.base().write_file("big", b"")?;
    let big = volume.base().resolve("big")?;
    for number in 0..4u64 {
        big_file.write_all_at(&content, number * content.len() as u64)?;
        volume.base().write(big, number * content.len() as u64, &content)?;
    }
    big_file.sync_all()?;
    volume.sync()?;
    for number in 0..options.operations {
        embedded(&volume, big, &content, number)?;
        plain(plain_directory, &big_file, &content, number)?;
    }
    let (mut plain_rates, mut txfs_rates) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let ((), taken) = timed(|| {
            (0..options.operations).try_for_each(|n| plain(plain_directory, &big_file, &content, n))
        })?;
        plain_rates.push(f64::from(options.operations) / taken.as_secs_f64());
        let ((), taken) =
            timed(|| (0..options.operations).try_for_each(|n| embedded(&volume, big, &content, n)))?;
        txfs_rates.push(f64::from(options.operations) / taken.as_secs_f64());
    }
    volume.close()?;
    Ok(Outcome {
        plain: Spread::of(&plain_rates),
        txfs: Spread::of(&txfs_rates),
        ratio: Spread::of_ratios(&txfs_rates, &plain_rates),
    })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "three files of 10 MB, then 10 MB in a file of 40 MB; repetitions a second\n");
        let _ = writeln!(out, "  plain files  {:>20}", self.plain.text(1));
        let _ = writeln!(out, "  embedded     {:>20}", self.txfs.text(1));
        let _ = writeln!(out, "  ratio        {:>20}", self.ratio.text(2));
        out
    }
}
