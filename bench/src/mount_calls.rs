//! What ordinary programs do, one call at a time: creating small files, looking at them, renaming, removing, making
//! durable, and copying a large file. It runs on any directory, so a mount of TxFS and a file system of the kernel are
//! measured by the same code, in turns.
//!
//! The rows are microseconds a call, but for the large file (GB/s). Nothing is cold: what is opened and read has been
//! opened and read before, and the large file is read through whatever cache the file system keeps; only the row
//! `read again` makes the kernel drop its pages first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::figures::Spread;

/// What `mount-calls` does and how often.
#[derive(Args, Clone, Debug)]
pub struct MountCallsOptions {
    /// Directories to measure, in turns; everything happens in a new subdirectory of each
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Rounds; in each, every directory has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls of each kind in a round
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    calls: u32,
    /// Durable calls of each kind in a round; 0 leaves them out
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    durable_calls: u32,
    /// Size of the large file in MiB; 0 leaves it out
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=65536))]
    large_mib: u32,
}

/// All rows and their units, when none is left out.
pub const SAMPLES: [(&str, &str); 11] = [
    ("create+write 4 KiB+close", "us"),
    ("stat after a write", "us"),
    ("stat", "us"),
    ("open+read+close", "us"),
    ("rename", "us"),
    ("unlink", "us"),
    ("create+write+fsync+close", "us"),
    ("replace by temp+fsync+rename", "us"),
    ("write large file+fsync", "GB/s"),
    ("read it", "GB/s"),
    ("read it again, pages dropped", "GB/s"),
];

/// One row of one directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was done.
    pub what: String,
    /// `us` (less is better) or `GB/s`.
    pub unit: String,
    /// Over the rounds.
    pub figure: Spread,
}

/// The rows of one directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contestant {
    /// The directory.
    pub dir: PathBuf,
    /// Its rows, the same for all.
    pub rows: Vec<Row>,
}

type Sample = (&'static str, &'static str, f64);

/// Measures all directories in turns.
pub fn run(options: &MountCallsOptions) -> Result<Vec<Contestant>> {
    let mut samples: Vec<Vec<Vec<Sample>>> = vec![Vec::new(); options.dirs.len()];
    for _ in 0..options.rounds {
        for (dir, of_dir) in options.dirs.iter().zip(&mut samples) {
            let (calls, durable_calls) = (options.calls as usize, options.durable_calls as usize);
            let round = mount_calls(dir, calls, durable_calls, options.large_mib as usize)
                .map_err(|error| format!("{}: {error}", dir.display()))?;
            of_dir.push(round);
        }
    }
    let mut contestants = Vec::new();
    for (dir, rounds) in options.dirs.iter().zip(&samples) {
        let Some(first) = rounds.first() else { continue };
        let rows = first.iter().enumerate().map(|(at, &(what, unit, _))| {
            let values: Vec<f64> = rounds.iter().map(|round| round[at].2).collect();
            Row { what: what.to_owned(), unit: unit.to_owned(), figure: Spread::of(&values) }
        });
        contestants.push(Contestant { dir: dir.clone(), rows: rows.collect() });
    }
    Ok(contestants)
}

/// Prints what [`run`] found.
pub fn print(json: bool, contestants: &[Contestant]) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(contestants)?);
        return Ok(());
    }
    let Some(first) = contestants.first() else { return Ok(()) };
    print!("| median (min-max) |");
    contestants.iter().for_each(|contestant| print!(" {} |", contestant.dir.display()));
    println!();
    println!("|{}", " --- |".repeat(contestants.len() + 1));
    for (at, row) in first.rows.iter().enumerate() {
        print!("| {}, {} |", row.what, row.unit);
        contestants.iter().for_each(|contestant| print!(" {} |", contestant.rows[at].figure.text(2)));
        println!();
    }
    Ok(())
}

/// Runs every row once in a new directory of `dir` and removes it again.
pub fn mount_calls(
    dir: &Path,
    calls: usize,
    durable_calls: usize,
    large_mib: usize,
) -> io::Result<Vec<Sample>> {
    let root = tempfile::Builder::new().prefix("mount-calls-").tempdir_in(dir)?;
    let root = root.path();
    let page = [0x5a; 4096];
    let names = |prefix: &str, count| -> Vec<PathBuf> {
        (0..count).map(|i| root.join(format!("{prefix}{i}"))).collect()
    };
    let mut buffer = [0; 4096];
    let mut rows = Vec::new();
    let mut timed = |what, count: usize, each: &mut dyn FnMut(usize) -> io::Result<()>| -> io::Result<()> {
        let start = Instant::now();
        (0..count).try_for_each(each)?;
        rows.push((what, "us", start.elapsed().as_secs_f64() * 1e6 / count as f64));
        Ok(())
    };

    let (files, renamed) = (names("file-", calls), names("name-", calls));
    timed("create+write 4 KiB+close", calls, &mut |i| File::create_new(&files[i])?.write_all(&page))?;
    timed("stat after a write", calls, &mut |i| fs::metadata(&files[i]).map(drop))?;
    timed("stat", calls, &mut |i| fs::metadata(&files[i]).map(drop))?;
    for file in &files {
        File::open(file)?.read_exact(&mut buffer)?;
    }
    timed("open+read+close", calls, &mut |i| File::open(&files[i])?.read_exact(&mut buffer))?;
    timed("rename", calls, &mut |i| fs::rename(&files[i], &renamed[i]))?;
    timed("unlink", calls, &mut |i| fs::remove_file(&renamed[i]))?;
    if durable_calls > 0 {
        let (durable, temporary) = (names("durable-", durable_calls), root.join("temporary"));
        timed("create+write+fsync+close", durable_calls, &mut |i| durable_file(&durable[i], &page))?;
        timed("replace by temp+fsync+rename", durable_calls, &mut |i| {
            durable_file(&temporary, &page)?;
            fs::rename(&temporary, &durable[i])
        })?;
    }
    if large_mib > 0 {
        rows.extend(large_file(&root.join("large"), large_mib)?);
    }
    Ok(rows)
}

fn durable_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn large_file(path: &Path, mib: usize) -> io::Result<Vec<Sample>> {
    let mut block: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let gigabytes = (mib << 20) as f64 / 1e9;
    let mut rows = Vec::new();
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let start = Instant::now();
    for _ in 0..mib {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    rows.push(("write large file+fsync", "GB/s", gigabytes / start.elapsed().as_secs_f64()));
    for what in ["read it", "read it again, pages dropped"] {
        let mut file = File::open(path)?;
        let start = Instant::now();
        for _ in 0..mib {
            file.read_exact(&mut block)?;
        }
        rows.push((what, "GB/s", gigabytes / start.elapsed().as_secs_f64()));
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_figure_and_nothing_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let rows = mount_calls(directory.path(), 10, 10, 1).unwrap();
        assert!(rows.iter().map(|(what, unit, _)| (*what, *unit)).eq(SAMPLES));
        assert!(rows.iter().all(|(_, _, figure)| figure.is_finite() && *figure > 0.0));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
