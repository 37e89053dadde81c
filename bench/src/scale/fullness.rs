//! `fullness`: what a byte of random overwrites costs in the log, against how full a volume with a size limit is.
//!
//! Steady state: before each measurement as much is overwritten as the volume holds, in ordered transactions, which takes
//! a tenth of the time and leaves the same behind: a record for each page. Then durable ones are measured, in two halves.
//! A percentage that is given twice is measured again after as much again was overwritten: that both cost the same shows
//! that the state is steady. Checkpoints and cleaning are counted.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use txfs::{CreateOptions, Durability, Ino, OpenOptions, View};

use super::Failure;
use crate::contestants::Place;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::PAGE_BYTES;

/// What is measured is so much of what the volume holds.
pub const MEASURED_SHARE: u64 = 8;
/// Of one transaction while the file grows.
const GROWTH_BYTES: u64 = 256 << 10;
/// With `skewed`, so many of a hundred overwrites go to the hot pages, and so many of a hundred pages are hot.
pub const HOT_WRITES_PERCENT: u64 = 90;
/// See [`HOT_WRITES_PERCENT`].
pub const HOT_PAGES_PERCENT: u64 = 10;

/// What `fullness` does.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the volume is made, and removed again at the end
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// The volume's limit, MiB
    #[arg(long, default_value_t = 512)]
    pub size_mib: u64,
    /// Size of a segment, MiB
    #[arg(long, default_value_t = 8)]
    pub segment_mib: u64,
    /// How full, of what statfs shows, in rising order
    #[arg(long, value_delimiter = ',', default_values_t = [30, 50, 70, 80, 90])]
    pub percent: Vec<u64>,
    /// Nine of ten overwrites go to a tenth of the pages, which lie spread over the file
    #[arg(long)]
    pub skewed: bool,
}

/// Everything that `fullness` found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// In the order of the options.
    pub points: Vec<Point>,
}

/// One measurement; bytes are per byte of user data.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// How full.
    pub percent: u64,
    /// At the device, where its counters are known.
    pub device: Option<f64>,
    /// Appended to the log.
    pub log: f64,
    /// Of the two halves of the measurement.
    pub log_halves: [f64; 2],
    /// Moved by cleaning.
    pub moved: f64,
    /// Written into the index.
    pub index: f64,
    /// Commits a second.
    pub rate: f64,
}

/// Runs it by itself.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    let place = Place::txfs(&options.dir)?;
    let (size, segment) = (options.size_mib << 20, options.segment_mib << 20);
    let volume = Overwritten::create(&place, size, segment, options.skewed)?;
    let pages = size / PAGE_BYTES as u64;
    let points = volume.points(&options.percent, pages, pages / MEASURED_SHARE, &mut |_| {})?;
    Ok(Outcome { points })
}

impl Outcome {
    /// For people.
    pub fn table(&self) -> String {
        let mut out = String::from("full %  device   log  (halves)       moved  index  commits/s\n");
        for point in &self.points {
            let device = point.device.map_or_else(|| "-".to_owned(), |device| format!("{device:.2}"));
            let Point { percent, log, log_halves: [first, second], moved, index, rate, .. } = point;
            let halves = format!("({first:.2} {second:.2})");
            let _ = writeln!(
                out,
                "{percent:6}  {device:>6} {log:5.2}  {halves:13}  {moved:5.2}  {index:5.2}  {rate:9.0}"
            );
        }
        out
    }
}

/// A volume with one file that is overwritten at random.
pub struct Overwritten {
    embedded: Embedded,
    ino: Ino,
    usable: u64,
    skewed: bool,
}

impl Overwritten {
    /// A volume of `size` bytes at most, all of them written already.
    pub fn create(
        place: &Place,
        size: u64,
        segment_bytes: u64,
        skewed: bool,
    ) -> Result<Overwritten, Failure> {
        let create = CreateOptions {
            segment_bytes,
            size_bytes_max: Some(size),
            preallocate_bytes: size,
            ..CreateOptions::default()
        };
        let embedded = Embedded::create_with(place, &create, &OpenOptions::default())?;
        let space = embedded.volume.stat()?.statistics;
        let usable = space.blocks_total * u64::from(space.block_bytes);
        let ino = embedded.file("file", PAGE_BYTES as u64)?;
        Ok(Overwritten { embedded, ino, usable, skewed })
    }

    /// Fills the volume to each of `percents`, and measures `measured` overwrites after `before` that are not measured.
    pub fn points(
        &self,
        percents: &[u64],
        before: u64,
        measured: u64,
        step: &mut dyn FnMut(&str),
    ) -> Result<Vec<Point>, Failure> {
        let mut random = fastrand::Rng::with_seed(13);
        let (mut bytes, mut points) = (0, Vec::new());
        for &percent in percents {
            let pages = self.usable * percent / 100 / PAGE_BYTES as u64;
            step(&format!("{percent} % full, getting there"));
            self.grow(bytes, pages * PAGE_BYTES as u64)?;
            bytes = pages * PAGE_BYTES as u64;
            self.overwrite(pages, before, Durability::Ordered, &mut random)?;
            step(&format!("{percent} % full"));
            points.push(self.point(percent, pages, measured, &mut random)?);
        }
        Ok(points)
    }

    fn point(
        &self,
        percent: u64,
        pages: u64,
        count: u64,
        random: &mut fastrand::Rng,
    ) -> Result<Point, Failure> {
        let look = || -> Result<_, Failure> {
            self.embedded.settle()?;
            self.embedded.place.flush_journal()?;
            Ok((self.embedded.place.traffic()?, self.embedded.volume.stat()?.engine))
        };
        let (device_before, before) = look()?;
        let begun = Instant::now();
        let half = count / 2;
        self.overwrite(pages, half, Durability::Durable, random)?;
        let between = self.embedded.volume.stat()?.engine.log_bytes;
        self.overwrite(pages, count - half, Durability::Durable, random)?;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        let (device_after, after) = look()?;
        if after.conflicts > before.conflicts {
            return Err("transactions were aborted while cleaning".into());
        }
        let written = (count * PAGE_BYTES as u64) as f64;
        let device = device_before.zip(device_after);
        let share = |after: u64, before: u64| (after - before) as f64 / written;
        Ok(Point {
            percent,
            device: device.map(|(before, after)| after.since(before).bytes as f64 / written),
            log: share(after.log_bytes, before.log_bytes),
            log_halves: [
                share(between, before.log_bytes) * count as f64 / half.max(1) as f64,
                share(after.log_bytes, between) * count as f64 / (count - half).max(1) as f64,
            ],
            moved: share(after.bytes_moved, before.bytes_moved),
            index: share(after.index_bytes_written, before.index_bytes_written),
            rate,
        })
    }

    /// Grows the file, in ordered transactions.
    fn grow(&self, from: u64, to: u64) -> Result<(), Failure> {
        let mut content = vec![0; GROWTH_BYTES as usize];
        fastrand::Rng::with_seed(to).fill(&mut content);
        for at in (from..to).step_by(GROWTH_BYTES as usize) {
            let transaction = self.embedded.volume.begin();
            transaction.write(self.ino, at, &content[..GROWTH_BYTES.min(to - at) as usize])?;
            transaction.commit(Durability::Ordered)?;
        }
        Ok(())
    }

    /// Overwrites random pages, each in a transaction of its own.
    fn overwrite(
        &self,
        pages: u64,
        count: u64,
        durability: Durability,
        random: &mut fastrand::Rng,
    ) -> Result<(), Failure> {
        let mut content = [0; PAGE_BYTES];
        random.fill(&mut content);
        for number in 0..count {
            content[..8].copy_from_slice(&number.to_le_bytes());
            let page = if self.skewed && random.u64(0..100) < HOT_WRITES_PERCENT {
                let spread = 100 / HOT_PAGES_PERCENT;
                random.u64(0..pages / spread) * spread
            } else {
                random.u64(0..pages)
            };
            let transaction = self.embedded.volume.begin();
            transaction.write(self.ino, page * PAGE_BYTES as u64, &content)?;
            transaction.commit(durability)?;
        }
        Ok(())
    }
}
