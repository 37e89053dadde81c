//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::alone::Alone;

/// TxFS beside plain files on ext4, xfs and btrfs: time and device traffic, in one run
#[derive(Debug, Parser)]
#[command(name = "txfs-bench", version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArguments,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the workloads
    List,
    /// Write the page and its pictures again from the results beside it
    Page {
        /// The page; its results are in benchmarks/results.json beside it
        #[arg(default_value = "docs/BENCHMARKS.md")]
        page: PathBuf,
    },
    /// One measurement by itself, with options of its own, off the page
    Alone {
        #[command(subcommand)]
        measurement: Alone,
        /// One JSON object instead of a table
        #[arg(long, global = true)]
        json: bool,
    },
    /// Write zeros where a file has holes or unwritten blocks: what mkfs punches into an image
    FillHoles {
        /// The image
        file: PathBuf,
    },
}

#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// Workloads to run, or `all`
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// With `all`: those that take much time or disk, instead of the others
    #[arg(long)]
    pub huge: bool,
    /// Where all contestants work that have no directory of their own, and remove again what they made
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Where TxFS's volume lies
    #[arg(long, value_name = "DIR")]
    pub txfs: Option<PathBuf>,
    /// A directory on ext4 for plain files; without any of these three, plain files work where the volume does
    #[arg(long, value_name = "DIR")]
    pub ext4: Option<PathBuf>,
    /// A directory on xfs
    #[arg(long, value_name = "DIR")]
    pub xfs: Option<PathBuf>,
    /// A directory on btrfs
    #[arg(long, value_name = "DIR")]
    pub btrfs: Option<PathBuf>,
    /// Leave out the mount of TxFS, which otherwise takes part where the txfs command lies beside this program
    #[arg(long)]
    pub no_mount: bool,
    /// Where workloads may put images for loop devices of their own (as root); without it they do without
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Rounds of each timing
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Length of one contestant's turn in a round, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub round_seconds: f64,
    /// Added to each flush in the second half of a workload, in microseconds; 0 leaves that half out, and does without the
    /// preloaded library
    #[arg(long, default_value_t = 1000, value_name = "MICROSECONDS")]
    pub flush_delay_us: u64,
    /// Length of the long mixed run, in seconds
    #[arg(long, default_value_t = 60.0)]
    pub day_seconds: f64,
    /// A quick look: short rounds, small amounts of data; the figures mean little
    #[arg(long)]
    pub quick: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    /// Also write this page, its pictures and the results; sections of workloads that did not run stay
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Fail when a figure misses what was to reach
    #[arg(long)]
    pub strict: bool,
}
