//! What every workload is given: the places, how long and how often, and the flush delay.

use std::path::PathBuf;
use std::time::Duration;

use crate::contestants::Places;
use crate::contestants::mounted::MountedVolume;
use crate::flush_delay::FlushDelay;
use crate::progress::Progress;

/// A run's settings.
#[derive(Debug)]
pub struct Bench {
    /// Where the contestants work.
    pub places: Places,
    /// The mount among them, where there is one.
    pub mounted: Option<MountedVolume>,
    /// A directory for images of devices; with it and as root, workloads may make loop devices.
    pub images: Option<PathBuf>,
    /// Each timing is taken with each of these added to every flush, in microseconds; the first is 0.
    pub flush_delays_us: Vec<u64>,
    /// Rounds, interleaved.
    pub rounds: u32,
    /// Length of one contestant's turn.
    pub round_duration: Duration,
    /// 1 for figures that mean something; less makes preparations and amounts of data smaller in proportion.
    pub scale: f64,
    /// Length of the long mixed run.
    pub day_duration: Duration,
    /// What makes flushes dearer, and counts them.
    pub flush_delay: FlushDelay,
    /// For people on a terminal.
    pub progress: Progress,
}

impl Bench {
    /// An amount of data or of operations, smaller in a quick run, and at least `least`.
    pub fn scaled(&self, amount: u64, least: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(least)
    }
}
