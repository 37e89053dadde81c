//! `sequential`: a large file written and read from one end to the other through the embedded library, against direct
//! writes and reads of a plain file on the same file system, in turns.
//!
//! Both write into blocks that are already written and reuse them in every round; both start reading with nothing of
//! the file in the host's page cache.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use txfs::{Durability, Ino, Paths, View, Volume};

use super::{Failure, timed};
use crate::contestants::Place;
use crate::contestants::plain::{Aligned, DirectFile, PlainDirectory};
use crate::figures::Spread;

/// What `sequential` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the files are made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Size of the file, in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: u64,
    /// Bytes of one call, in KiB
    #[arg(long, default_value_t = 1024)]
    pub call_kib: u64,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
}

/// Everything that `sequential` found; rates in MB/s.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Size of the file.
    pub bytes: u64,
    /// Direct writes and a flush.
    pub raw_write: Spread,
    /// Transactions' writes and a durable commit.
    pub txfs_write: Spread,
    /// Round by round.
    pub write_ratio: Spread,
    /// Direct reads.
    pub raw_read: Spread,
    /// Reads of a snapshot.
    pub txfs_read: Spread,
    /// Round by round.
    pub read_ratio: Spread,
}

fn raw_write(raw: &DirectFile, bytes: u64, call: &[u8]) -> Result<(), Failure> {
    for at in (0..bytes).step_by(call.len()) {
        raw.write(at, call)?;
    }
    raw.sync()
}

fn raw_read(raw: &DirectFile, bytes: u64, call: &mut [u8]) -> Result<(), Failure> {
    for at in (0..bytes).step_by(call.len()) {
        raw.read(at, call)?;
    }
    Ok(())
}

fn write(volume: &Volume, ino: Ino, bytes: u64, call: &[u8]) -> Result<(), Failure> {
    let transaction = volume.begin();
    let mut at = 0;
    while at < bytes {
        transaction.write(ino, at, call)?;
        at += call.len() as u64;
    }
    transaction.commit(Durability::Durable)?;
    Ok(())
}

fn read(volume: &Volume, ino: Ino, bytes: u64, call: &mut [u8]) -> Result<(), Failure> {
    let base = volume.base();
    let mut at = 0;
    while at < bytes {
        at += base.read_into(ino, at, call)? as u64;
    }
    Ok(())
}

/// Has the kernel forget what it holds of every file in `directory`.
fn forget(directory: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            let file = File::open(entry.path())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let directory = PlainDirectory::create(&Place::txfs(&options.dir)?)?;
    let len = (options.call_kib << 10) as usize;
    // whole calls
    let bytes = (options.mib << 20).next_multiple_of(len as u64);
    let mut call = Aligned::new(len);
    let raw = directory.direct_file("raw", bytes)?;
    let path = directory.join("volume");
    Volume::create(&path)?;
    let volume = Volume::open(&path)?;
    volume.base().write_file("file", b"")?;
    let ino = volume.base().resolve("file")?;
    // The volume is in its steady state when it reuses its segments.
    for _ in 0..3 {
        write(&volume, ino, bytes, call.bytes(len))?;
        volume.checkpoint()?;
    }

    let mut rates: [Vec<f64>; 4] = Default::default();
    let megabytes = bytes as f64 / 1e6;
    for _ in 0..options.rounds {
        let ((), taken) = timed(|| raw_write(&raw, bytes, call.bytes(len)))?;
        rates[0].push(megabytes / taken.as_secs_f64());
        let ((), taken) = timed(|| write(&volume, ino, bytes, call.bytes(len)))?;
        rates[1].push(megabytes / taken.as_secs_f64());
        volume.checkpoint()?;
        forget(directory.path())?;
        let ((), taken) = timed(|| raw_read(&raw, bytes, call.bytes_mut(len)))?;
        rates[2].push(megabytes / taken.as_secs_f64());
        let ((), taken) = timed(|| read(&volume, ino, bytes, call.bytes_mut(len)))?;
        rates[3].push(megabytes / taken.as_secs_f64());
    }
    volume.close()?;
    Ok(Outcome {
        bytes,
        raw_write: Spread::of(&rates[0]),
        txfs_write: Spread::of(&rates[1]),
        write_ratio: Spread::of_ratios(&rates[1], &rates[0]),
        raw_read: Spread::of(&rates[2]),
        txfs_read: Spread::of(&rates[3]),
        read_ratio: Spread::of_ratios(&rates[3], &rates[2]),
    })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "a file of {} MiB, MB/s, median (min-max)\n", self.bytes >> 20);
        let _ = writeln!(out, "  {:<6} {:>20} {:>20} {:>18}", "", "raw, direct", "embedded", "ratio");
        for (name, raw, txfs, ratio) in [
            ("write", &self.raw_write, &self.txfs_write, &self.write_ratio),
            ("read", &self.raw_read, &self.txfs_read, &self.read_ratio),
        ] {
            let _ =
                writeln!(out, "  {name:<6} {:>20} {:>20} {:>18}", raw.text(0), txfs.text(0), ratio.text(2));
        }
        out
    }
}
