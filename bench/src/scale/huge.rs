//! `huge-transaction`: one transaction the size of an LSM compaction (exF2FS, FAST'22): it reads input files, writes new
//! ones, and deletes the inputs. Beside it a thread commits small durable transactions all the time: what these wait is
//! what the large one costs others. Then the same once more, and aborted.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use txfs::{Durability, Ino, Paths, ROOT_INO, Transaction, View, Volume};

use super::{Failure, Latencies, peak_mib, probe, reset_peak, scratch, timed};
use crate::beside::beside;

const PIECE_BYTES: usize = 1 << 20;

/// What `huge-transaction` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume is made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// New files of the transaction
    #[arg(long, default_value_t = 198)]
    pub files: u64,
    /// What they hold together, in GB
    #[arg(long, default_value_t = 13.3)]
    pub gigabytes: f64,
    /// Files of the same size each that it reads and deletes
    #[arg(long, default_value_t = 8)]
    pub inputs: u64,
    /// What the transaction that is aborted writes, in GB
    #[arg(long, default_value_t = 4.0)]
    pub abort_gigabytes: f64,
}

/// Everything that `huge-transaction` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// New files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Until the commit was called.
    pub work_s: f64,
    /// The commit.
    pub commit_s: f64,
    /// Highest resident memory up to here.
    pub peak_mib: f64,
    /// Small commits without the transaction.
    pub idle: Latencies,
    /// Small commits while it wrote.
    pub during_work: Latencies,
    /// Small commits while it committed.
    pub during_commit: Latencies,
    /// The aborted one: bytes written, until the abort, and the abort.
    pub abort_bytes: u64,
    /// Work of the aborted transaction.
    pub abort_work_s: f64,
    /// The abort itself.
    pub abort_s: f64,
    /// Highest resident memory while it wrote and was aborted.
    pub abort_peak_mib: f64,
    /// Opening the volume after a close.
    pub open_s: f64,
    /// Size of all segments before and after the abort, once its space is free again.
    pub segments_before: u64,
    /// Afterwards.
    pub segments_after: u64,
    /// Those of them that are ready for use.
    pub segments_spare: u64,
}

fn fill(piece: &mut [u8], file: u64, at: u64) {
    for (index, word) in piece.chunks_exact_mut(4096).enumerate() {
        word[..8].copy_from_slice(&file.to_le_bytes());
        word[8..16].copy_from_slice(&(at + index as u64 * 4096).to_le_bytes());
    }
}

fn write_files(transaction: &Transaction, prefix: &str, files: u64, bytes: u64) -> Result<(), Failure> {
    let mut piece = vec![0x5a; PIECE_BYTES];
    for file in 0..files {
        let name = format!("{prefix}-{file}");
        let ino = transaction.make_file(ROOT_INO, name.as_bytes(), 0o644, 0, 0)?.ino;
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(PIECE_BYTES as u64) as usize;
            fill(&mut piece, file, at);
            transaction.write(ino, at, &piece[..len])?;
            at += len as u64;
        }
    }
    Ok(())
}

fn check_file(volume: &Volume, name: &str, file: u64, bytes: u64) -> Result<(), Failure> {
    let ino = volume.base().resolve(name)?;
    let mut expected = vec![0x5a; 4096];
    for at in [0, bytes / 2 / 4096 * 4096, (bytes - 1) / 4096 * 4096] {
        fill(&mut expected, file, at);
        let found = volume.base().read(ino, at, 4096)?;
        if found != expected[..found.len()] || found.is_empty() {
            return Err(format!("{name} does not hold at {at} what was written").into());
        }
    }
    Ok(())
}

const IDLE: u8 = 0;
const WORK: u8 = 1;
const COMMIT: u8 = 2;

fn small_commits(
    volume: &Volume,
    ino: Ino,
    phase: &AtomicU8,
    over: &AtomicBool,
) -> Result<[Vec<f64>; 3], Failure> {
    let mut found = [Vec::new(), Vec::new(), Vec::new()];
    let mut page = 0;
    while !over.load(Ordering::Relaxed) {
        let began_in = phase.load(Ordering::Relaxed);
        let latency = probe(volume, ino, page % 256)?;
        // One that waited for the commit to be over belongs to it.
        found[usize::from(began_in.max(phase.load(Ordering::Relaxed)))].push(latency);
        page += 1;
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(found)
}

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let directory = scratch(&options.dir)?;
    let path = directory.path().join("volume");
    Volume::create(&path)?;
    let volume = Volume::open(&path)?;
    let bytes = (options.gigabytes * 1e9 / options.files as f64) as u64;

    for input in 0..options.inputs {
        let transaction = volume.begin();
        write_files(&transaction, &format!("input-{input}"), 1, bytes)?;
        transaction.commit(Durability::Ordered)?;
    }
    volume.base().write_file("small", &vec![0; 1 << 20])?;
    let small = volume.base().resolve("small")?;
    volume.sync()?;
    volume.checkpoint()?;
    reset_peak();

    let phase = AtomicU8::new(IDLE);
    let prober = |_, over: &AtomicBool| small_commits(&volume, small, &phase, over);
    let ((work_s, commit_s), latencies) = beside(1, prober, || {
        std::thread::sleep(Duration::from_secs(2));
        phase.store(WORK, Ordering::Relaxed);
        let begun = Instant::now();
        let transaction = volume.begin();
        for input in 0..options.inputs {
            let ino = transaction.resolve(format!("input-{input}-0"))?;
            let mut buffer = vec![0; PIECE_BYTES];
            let mut at = 0;
            while at < bytes {
                at += transaction.read_into(ino, at, &mut buffer)? as u64;
            }
        }
        write_files(&transaction, "output", options.files, bytes)?;
        for input in 0..options.inputs {
            transaction.remove(format!("input-{input}-0"))?;
        }
        let work_s = begun.elapsed().as_secs_f64();
        phase.store(COMMIT, Ordering::Relaxed);
        let begun = Instant::now();
        transaction.commit(Durability::Durable)?;
        Ok((work_s, begun.elapsed().as_secs_f64()))
    })?;
    let peak = peak_mib();
    let [idle, during_work, during_commit] =
        latencies.into_iter().next().unwrap_or_default().map(Latencies::of);
    for file in [0, options.files / 2, options.files - 1] {
        check_file(&volume, &format!("output-{file}"), file, bytes)?;
    }

    let files = ((options.abort_gigabytes * 1e9 / bytes as f64) as u64).max(1);
    let segments_before = volume.stat()?.engine.segments;
    reset_peak();
    let (transaction, work) = timed(|| {
        let transaction = volume.begin();
        write_files(&transaction, "aborted", files, bytes)?;
        Ok(transaction)
    })?;
    let ((), abort) = timed(|| {
        transaction.abort();
        Ok(())
    })?;
    let abort_peak = peak_mib();
    volume.sync()?;
    volume.checkpoint()?;
    let after = volume.stat()?.engine;
    if volume.base().exists("aborted-0")? {
        return Err("a file of the aborted transaction is there".into());
    }
    volume.close()?;
    drop(volume);
    let (volume, open) = timed(|| Ok(Volume::open(&path)?))?;
    for file in [0, options.files / 2, options.files - 1] {
        check_file(&volume, &format!("output-{file}"), file, bytes)?;
    }
    volume.close()?;
    Ok(Outcome {
        files: options.files,
        bytes: bytes * options.files,
        work_s,
        commit_s,
        peak_mib: peak,
        idle,
        during_work,
        during_commit,
        abort_bytes: bytes * files,
        abort_work_s: work.as_secs_f64(),
        abort_s: abort.as_secs_f64(),
        abort_peak_mib: abort_peak,
        open_s: open.as_secs_f64(),
        segments_before,
        segments_after: after.segments,
        segments_spare: after.segments_spare,
    })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let gigabytes = self.bytes as f64 / 1e9;
        let _ = writeln!(out, "one transaction: {} files, {gigabytes:.1} GB", self.files);
        let _ = writeln!(
            out,
            "  work {:.1} s ({:.0} MB/s), commit {:.3} s, peak resident {:.0} MiB",
            self.work_s,
            gigabytes * 1e3 / self.work_s,
            self.commit_s,
            self.peak_mib
        );
        let _ = writeln!(out, "  others, idle           {}", self.idle.text());
        let _ = writeln!(out, "  others, while it wrote {}", self.during_work.text());
        let _ = writeln!(out, "  others, at its commit  {}", self.during_commit.text());
        let _ = writeln!(
            out,
            "aborted: {:.1} GB, work {:.1} s, abort {:.3} s, peak resident {:.0} MiB; segments {} before, {} after, {} of \
             them spare",
            self.abort_bytes as f64 / 1e9,
            self.abort_work_s,
            self.abort_s,
            self.abort_peak_mib,
            self.segments_before,
            self.segments_after,
            self.segments_spare
        );
        let _ = writeln!(out, "opened after the close in {:.1} ms", self.open_s * 1e3);
        out
    }
}
