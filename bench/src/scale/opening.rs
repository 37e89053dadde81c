//! `open-after-crash`: how long a volume takes to open after the process that wrote to it was killed under load, for
//! several distances between checkpoints, and with data of several sizes in the volume.
//!
//! The load runs in a process of its own (this program again) that is killed; the same directory is then opened several
//! times, each time from a copy of the state that the kill left, with nothing of it in the page cache, as after a power
//! cut.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use serde::Serialize;
use txfs::{Durability, OpenOptions, Paths, View, Volume};

use super::{Failure, scratch, timed};
use crate::figures::Spread;

/// What `open-after-crash` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume is made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Checkpoint distances to try, in MiB
    #[arg(long, value_delimiter = ',', default_values_t = [16, 32, 64, 128])]
    pub distances: Vec<u64>,
    /// File data in the volume before the load, in MiB
    #[arg(long, default_value_t = 1024)]
    pub data_mib: u64,
    /// How often each state is opened
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// What the load's transactions do
    #[arg(long, value_enum, default_value_t)]
    pub work: Work,
    /// Bytes that each transaction of the load writes
    #[arg(long, default_value_t = 4096)]
    pub file_bytes: u64,
    /// Used by the program itself: the volume to write to until killed
    #[arg(long, hide = true)]
    pub load: Option<PathBuf>,
}

/// What a load consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// New files.
    #[default]
    Files,
    /// Random places in the data that was there before.
    Overwrite,
    /// Empty files: nothing but changes of the index.
    Names,
}

/// One distance.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Checkpoint distance, in MiB.
    pub distance_mib: u64,
    /// Log that was replayed, in MiB.
    pub replayed_mib: f64,
    /// Commits in it.
    pub commits: u64,
    /// Changes of the index in them.
    pub changes: u64,
    /// Segments of the volume.
    pub segments: u64,
    /// Opening, in milliseconds.
    pub open_ms: Spread,
    /// Replaying the log, of that, in milliseconds.
    pub replay_ms: Spread,
    /// Opening after a clean close, in milliseconds.
    pub clean_ms: Spread,
}

/// Everything that `open-after-crash` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// One for each distance.
    pub steps: Vec<Step>,
}

fn options_with(distance_mib: u64) -> OpenOptions {
    OpenOptions { checkpoint_distance_bytes: distance_mib << 20, ..OpenOptions::default() }
}

/// Commits until just before the next checkpoint would be due, says so, and waits to be killed.
fn load(path: &Path, options: &Options) -> Result<(), Failure> {
    let (distance_mib, file_bytes) = (options.distances[0], options.file_bytes);
    let volume = Volume::open_with(path, &options_with(distance_mib))?;
    volume.checkpoint()?;
    let content = vec![7; file_bytes as usize];
    let data = volume.base().resolve("data")?;
    let places = ((options.data_mib << 20) / file_bytes.max(1)).max(1);
    let mut random = fastrand::Rng::with_seed(1);
    let mut number = 0;
    loop {
        let transaction = volume.begin();
        if options.work == Work::Overwrite {
            transaction.write(data, random.u64(0..places) * file_bytes, &content)?;
        } else {
            let name = format!("load-{number}");
            let ino = transaction.make_file(txfs::ROOT_INO, name.as_bytes(), 0o644, 0, 0)?.ino;
            if options.work == Work::Files {
                transaction.write(ino, 0, &content)?;
            }
        }
        let durability = if number % 64 == 0 { Durability::Durable } else { Durability::Ordered };
        transaction.commit(durability)?;
        number += 1;
        if number % 64 == 1 && volume.stat()?.engine.replay_distance_bytes + (1 << 20) >= distance_mib << 20 {
            println!("ready");
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
}

fn crash(path: &Path, distance_mib: u64, options: &Options) -> Result<(), Failure> {
    let work = options.work.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let mut child = Command::new(std::env::current_exe()?)
        .args(["alone", "open-after-crash"])
        .arg("--load")
        .arg(path)
        .args(["--distances", &distance_mib.to_string(), "--file-bytes", &options.file_bytes.to_string()])
        .args(["--work", &work, "--data-mib", &options.data_mib.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut word = [0; 5];
    let said = child.stdout.take().map_or(Ok(()), |mut out| out.read_exact(&mut word));
    child.kill()?;
    child.wait()?;
    said.map_err(|error| format!("the process of the load ended early: {error}").into())
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        // Segments are large and opening changes none of their bytes; the index and the manifest it does change.
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("segment-") {
            std::fs::hard_link(entry.path(), to.join(name))?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// Drops what the page cache holds of the volume's files: the log went past it, but what was opened before was read.
fn forget(path: &Path) -> Result<(), Failure> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let file = std::fs::File::open(entry.path())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Runs the benchmark; `None` in the process that was killed, which never returns in earnest.
pub fn run(options: &Options) -> Result<Option<Outcome>, Failure> {
    if let Some(path) = &options.load {
        load(path, options)?;
        return Ok(None);
    }
    let mut steps = Vec::new();
    for &distance_mib in &options.distances {
        let directory = scratch(&options.dir)?;
        let path = directory.path().join("volume");
        Volume::create(&path)?;
        let volume = Volume::open(&path)?;
        let piece = vec![1; 1 << 20];
        volume.base().write_file("data", b"")?;
        let ino = volume.base().resolve("data")?;
        for mib in 0..options.data_mib {
            volume.base().write(ino, mib << 20, &piece)?;
        }
        volume.close()?;
        drop(volume);
        let mut clean = Vec::new();
        for _ in 0..options.rounds {
            let (volume, open) = timed(|| Ok(Volume::open(&path)?))?;
            clean.push(open.as_secs_f64() * 1e3);
            volume.close()?;
        }
        crash(&path, distance_mib, options)?;
        let (mut times, mut replays) = (Vec::new(), Vec::new());
        let mut last = None;
        for round in 0..options.rounds {
            let copied = directory.path().join(format!("copy-{round}"));
            copy(&path, &copied)?;
            rustix::fs::sync();
            forget(&copied)?;
            let (volume, open) = timed(|| Ok(Volume::open_with(&copied, &options_with(distance_mib))?))?;
            times.push(open.as_secs_f64() * 1e3);
            let stat = volume.stat()?.engine;
            replays.push(stat.recovery.replay_us as f64 / 1e3);
            last = Some(stat);
            // Its checkpoint goes into the copied index, and the segments stay as they are.
            volume.close()?;
            std::fs::remove_dir_all(&copied)?;
        }
        let Some(stat) = last else { return Err("no rounds".into()) };
        let step = Step {
            distance_mib,
            replayed_mib: stat.recovery.bytes_replayed as f64 / f64::from(1 << 20),
            commits: stat.recovery.commits_replayed,
            changes: stat.recovery.changes_replayed,
            segments: stat.segments,
            open_ms: Spread::of(&times),
            replay_ms: Spread::of(&replays),
            clean_ms: Spread::of(&clean),
        };
        steps.push(step);
    }
    Ok(Some(Outcome { steps }))
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "opening after the process was killed, and after a clean close; median (min-max)\n"
        );
        let _ = writeln!(
            out,
            "  {:>12} {:>12} {:>9} {:>9} {:>9} {:>22} {:>22} {:>20}",
            "distance MiB",
            "replayed MiB",
            "commits",
            "changes",
            "segments",
            "open, ms",
            "of that replay, ms",
            "clean, ms"
        );
        for step in &self.steps {
            let _ = writeln!(
                out,
                "  {:>12} {:>12.1} {:>9} {:>9} {:>9} {:>22} {:>22} {:>20}",
                step.distance_mib,
                step.replayed_mib,
                step.commits,
                step.changes,
                step.segments,
                step.open_ms.text(1),
                step.replay_ms.text(1),
                step.clean_ms.text(1)
            );
        }
        out
    }
}
