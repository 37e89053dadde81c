//! `many-files`: cost of one operation and memory while a volume grows to millions of files, one directory of which
//! holds a share of its own.
//!
//! Files are empty: it is names and inodes that are counted here. Each size is reached by creating files in
//! transactions of a thousand; then come look-ups, listings, creations and removals at random places, a checkpoint, and
//! at the end of all a close and an opening.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use txfs::{Durability, Ino, Paths, View, Volume};

use super::{Failure, peak_mib, reset_peak, scratch, timed};

/// Files that a transaction makes while the volume grows.
const BATCH: u64 = 1000;
/// Files in an ordinary directory.
const DIRECTORY_FILES: u64 = 1000;

/// What `many-files` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume is made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Sizes to reach one after the other, in files
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    pub sizes: Vec<u64>,
    /// Of ten files, one goes into the large directory, until it holds so many
    #[arg(long, default_value_t = 1_000_000)]
    pub large_directory: u64,
    /// Operations of each kind measured at each size
    #[arg(long, default_value_t = 20_000)]
    pub operations: u64,
}

/// What was found at one size; times are for one file, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Files in the volume.
    pub files: u64,
    /// Files in the large directory.
    pub large_directory: u64,
    /// Creating files, a thousand to a transaction, from the size before to this one, checkpoints included.
    pub grow_us: f64,
    /// Creating in directories at random, ten to a transaction, checkpoint included.
    pub create_us: f64,
    /// Looking random names up.
    pub lookup_us: f64,
    /// The same in the large directory.
    pub lookup_large_us: f64,
    /// Listing directories at random.
    pub list_us: f64,
    /// Listing the large directory.
    pub list_large_us: f64,
    /// Removing what was created at random, ten to a transaction, checkpoint included.
    pub remove_us: f64,
    /// A checkpoint of a hundred random changes.
    pub checkpoint_ms: f64,
    /// Closing and opening.
    pub close_ms: f64,
    /// Opening.
    pub open_ms: f64,
    /// Bytes of the index file.
    pub index_bytes: u64,
    /// Highest resident memory at this size.
    pub peak_mib: f64,
}

/// Everything that `many-files` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// One for each size.
    pub steps: Vec<Step>,
}

struct Population {
    volume: Volume,
    large: Ino,
    large_files: u64,
    directories: Vec<Ino>,
    small_files: u64,
    random: fastrand::Rng,
}

fn name(number: u64) -> Vec<u8> {
    format!("file-{number:08}.txt").into_bytes()
}

impl Population {
    fn files(&self) -> u64 {
        self.large_files + self.small_files
    }

    fn grow(&mut self, target: u64, large_max: u64) -> Result<(), Failure> {
        while self.files() < target {
            let count = BATCH.min(target - self.files());
            let transaction = self.volume.begin();
            for _ in 0..count {
                if self.files() % 10 == 9 && self.large_files < large_max {
                    transaction.make_file(self.large, &name(self.large_files), 0o644, 0, 0)?;
                    self.large_files += 1;
                    continue;
                }
                let place = self.small_files;
                if place.is_multiple_of(DIRECTORY_FILES) {
                    let directory = format!("directory-{}", place / DIRECTORY_FILES);
                    let made =
                        transaction.make_directory(txfs::ROOT_INO, directory.as_bytes(), 0o755, 0, 0)?;
                    self.directories.push(made.ino);
                }
                let Some(&directory) = self.directories.last() else { continue };
                transaction.make_file(directory, &name(place), 0o644, 0, 0)?;
                self.small_files += 1;
            }
            transaction.commit(Durability::Ordered)?;
        }
        self.volume.sync()?;
        self.volume.checkpoint()?;
        Ok(())
    }

    /// A random file of an ordinary directory.
    fn pick(&mut self) -> (Ino, Vec<u8>) {
        let place = self.random.u64(0..self.small_files);
        (self.directories[(place / DIRECTORY_FILES) as usize], name(place))
    }
}

fn per_file(taken: std::time::Duration, files: u64) -> f64 {
    taken.as_secs_f64() * 1e6 / files as f64
}

fn measure(
    mut population: Population,
    path: &std::path::Path,
    operations: u64,
    grow_us: f64,
) -> Result<(Population, Step), Failure> {
    let base = population.volume.base();
    let ((), lookup) = timed(|| {
        for _ in 0..operations {
            let (directory, name) = population.pick();
            base.lookup(directory, &name)?;
        }
        Ok(())
    })?;
    let ((), lookup_large) = timed(|| {
        for _ in 0..operations {
            let number = population.random.u64(0..population.large_files);
            base.lookup(population.large, &name(number))?;
        }
        Ok(())
    })?;
    let (listed, list) = timed(|| {
        let mut listed = 0;
        while listed < operations {
            let (directory, _) = population.pick();
            listed += base.list_directory(directory)?.len() as u64;
        }
        Ok(listed)
    })?;
    let (listed_large, list_large) = timed(|| {
        let mut count = 0;
        base.read_directory(population.large, 0, &mut |_| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(count)
    })?;
    let extra: Vec<(Ino, Vec<u8>)> =
        (0..operations).map(|number| (population.pick().0, format!("extra-{number}").into_bytes())).collect();
    let ((), create) = timed(|| {
        for batch in extra.chunks(10) {
            let transaction = population.volume.begin();
            for (directory, name) in batch {
                transaction.make_file(*directory, name, 0o644, 0, 0)?;
            }
            transaction.commit(Durability::Ordered)?;
        }
        population.volume.checkpoint()?;
        Ok(())
    })?;
    let ((), remove) = timed(|| {
        for batch in extra.chunks(10) {
            let transaction = population.volume.begin();
            for (directory, name) in batch {
                transaction.unlink(*directory, name)?;
            }
            transaction.commit(Durability::Ordered)?;
        }
        population.volume.checkpoint()?;
        Ok(())
    })?;
    let transaction = population.volume.begin();
    for _ in 0..100 {
        let (directory, name) = population.pick();
        let ino = transaction.lookup(directory, &name)?.ino;
        transaction.set_xattr(ino, b"user.mark", b"here", txfs::XattrMode::Set)?;
    }
    transaction.commit(Durability::Ordered)?;
    let ((), checkpoint) = timed(|| Ok(population.volume.checkpoint()?))?;
    let stat = population.volume.stat()?.engine;
    let ((), close) = timed(|| Ok(population.volume.close()?))?;
    // The handle keeps nothing open that the next one needs.
    let (volume, open) = timed(|| Ok(Volume::open(path)?))?;
    population.volume = volume;
    let step = Step {
        files: population.files(),
        large_directory: population.large_files,
        grow_us,
        create_us: per_file(create, operations),
        lookup_us: per_file(lookup, operations),
        lookup_large_us: per_file(lookup_large, operations),
        list_us: per_file(list, listed),
        list_large_us: per_file(list_large, listed_large),
        remove_us: per_file(remove, operations),
        checkpoint_ms: checkpoint.as_secs_f64() * 1e3,
        close_ms: close.as_secs_f64() * 1e3,
        open_ms: open.as_secs_f64() * 1e3,
        index_bytes: stat.index_bytes,
        peak_mib: peak_mib(),
    };
    Ok((population, step))
}

/// Runs the benchmark.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let directory = scratch(&options.dir)?;
    let path = directory.path().join("volume");
    Volume::create(&path)?;
    let volume = Volume::open(&path)?;
    let large = volume.base().create_dir("large")?.ino;
    let random = fastrand::Rng::with_seed(1);
    let mut population =
        Population { volume, large, large_files: 0, directories: Vec::new(), small_files: 0, random };
    let mut steps: Vec<Step> = Vec::new();
    for &size in &options.sizes {
        reset_peak();
        let before = population.files();
        let ((), grown) = timed(|| population.grow(size, options.large_directory))?;
        let (measured, step) =
            measure(population, &path, options.operations, per_file(grown, (size - before).max(1)))?;
        population = measured;
        eprintln!("{}", line(&step));
        steps.push(step);
    }
    population.volume.close()?;
    Ok(Outcome { steps })
}

fn line(step: &Step) -> String {
    format!(
        "{:>9} {:>8} {:>6.1} {:>7.1} {:>7.2} {:>7.2} {:>6.2} {:>6.2} {:>7.1} {:>8.1} {:>8.1} {:>7.1} {:>9.0} {:>6.0}",
        step.files,
        step.large_directory,
        step.grow_us,
        step.create_us,
        step.lookup_us,
        step.lookup_large_us,
        step.list_us,
        step.list_large_us,
        step.remove_us,
        step.checkpoint_ms,
        step.close_ms,
        step.open_ms,
        step.index_bytes as f64 / 1e6,
        step.peak_mib
    )
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "microseconds a file; checkpoint of 100 changes, close and open in ms; index in MB"
        );
        let _ = writeln!(
            out,
            "{:>9} {:>8} {:>6} {:>7} {:>7} {:>7} {:>6} {:>6} {:>7} {:>8} {:>8} {:>7} {:>9} {:>6}",
            "files",
            "one dir",
            "grow",
            "create",
            "lookup",
            "in dir",
            "list",
            "in dir",
            "remove",
            "checkpt",
            "close",
            "open",
            "index",
            "MiB"
        );
        for step in &self.steps {
            let _ = writeln!(out, "{}", line(step));
        }
        out
    }
}
