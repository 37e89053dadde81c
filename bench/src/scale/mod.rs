//! Size: transactions larger than memory, volumes of millions of files, time to open after a crash, large sequential
//! reads and writes, and what a checkpoint costs those who commit meanwhile; and small transactions against the device.
//!
//! These take minutes and gigabytes, so each is a command of its own with its size as an option.

pub mod checkpoint;
pub mod fullness;
pub mod huge;
pub mod large;
pub mod long_run;
pub mod many;
pub mod opening;
pub mod sequential;
pub mod small;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use txfs::{Durability, View, Volume};

use crate::figures::percentile;

/// Whatever a benchmark can fail with.
pub type Failure = crate::Error;

/// The highest resident memory of this process since [`reset_peak`], in MiB.
pub fn peak_mib() -> f64 {
    status_mib("VmHWM:")
}

/// The resident memory of this process now, in MiB.
pub fn resident_mib() -> f64 {
    status_mib("VmRSS:")
}

fn status_mib(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// Starts [`peak_mib`] anew.
pub fn reset_peak() {
    // Only a figure is lost where the kernel does not allow it.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// A directory under `parent` that goes when it is dropped.
pub fn scratch(parent: &Path) -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new()
        .prefix("txfs-bench.")
        .tempdir_in(parent)
        .map_err(|error| format!("{}: {error}", parent.display()).into())
}

/// Runs `work` and says how long it took.
pub fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Duration), Failure> {
    let begun = Instant::now();
    let result = work()?;
    Ok((result, begun.elapsed()))
}

/// Latencies, in microseconds.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Latencies {
    /// Number of operations.
    pub count: usize,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latencies {
    /// Of all values.
    pub fn of(mut values: Vec<f64>) -> Latencies {
        values.sort_by(f64::total_cmp);
        Latencies {
            count: values.len(),
            p50_us: percentile(&values, 0.5),
            p99_us: percentile(&values, 0.99),
            p999_us: percentile(&values, 0.999),
            max_us: percentile(&values, 1.0),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        format!(
            "{} commits, median {:.0} us, p99 {:.0}, p99.9 {:.0}, longest {:.0}",
            self.count, self.p50_us, self.p99_us, self.p999_us, self.max_us
        )
    }
}

/// One durable 4 KiB overwrite in a file, timed.
pub fn probe(volume: &Volume, ino: txfs::Ino, page: u64) -> Result<f64, Failure> {
    let begun = Instant::now();
    let transaction = volume.begin();
    transaction.write(ino, page * 4096, &[page as u8; 4096])?;
    transaction.commit(Durability::Durable)?;
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}
