//! Measurements with options of their own, outside of the table of workloads: for looking closer at one thing.

use clap::Subcommand;

use crate::{Result, mount_calls, scale};

/// One measurement.
#[derive(Debug, Subcommand)]
pub enum Alone {
    /// One transaction of many gigabytes, committed and aborted
    #[command(name = "huge-transaction")]
    Huge(scale::huge::Options),
    /// Millions of files: cost of one operation, and memory
    #[command(name = "many-files")]
    Many(scale::many::Options),
    /// Time to open a volume after its owner was killed
    #[command(name = "open-after-crash")]
    Opening(scale::opening::Options),
    /// A large file from end to end, against direct I/O on a plain file
    #[command(name = "sequential")]
    Sequential(scale::sequential::Options),
    /// Three files of 10 MB, then 10 MB in a file of 40 MB
    #[command(name = "large-update")]
    Large(scale::large::Options),
    /// Small durable transactions against raw writes, operation by operation
    #[command(name = "small-transactions")]
    Small(scale::small::Options),
    /// Commit latency while checkpoints run
    #[command(name = "checkpoint-latency")]
    Checkpoint(scale::checkpoint::Options),
    /// Bytes written for each byte of random overwrites, against how full the volume is
    #[command(name = "fullness")]
    Fullness(scale::fullness::Options),
    /// A `txfs run` of half an hour on a mount, beside a million small commits
    #[command(name = "long-run")]
    LongRun(scale::long_run::Options),
    /// What ordinary programs do, one call at a time, on any directories side by side
    #[command(name = "mount-calls")]
    MountCalls(mount_calls::MountCallsOptions),
}

impl Alone {
    /// Measures and prints.
    pub fn run(&self, json: bool) -> Result<()> {
        match self {
            Alone::Huge(options) => {
                let outcome = scale::huge::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::Many(options) => {
                let outcome = scale::many::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::Opening(options) => match scale::opening::run(options)? {
                Some(outcome) => print(json, &outcome, outcome.table()),
                None => Ok(()),
            },
            Alone::Sequential(options) => {
                let outcome = scale::sequential::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::Large(options) => {
                let outcome = scale::large::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::Small(options) => {
                let outcome = scale::small::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::Checkpoint(options) => {
                let outcome = scale::checkpoint::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::Fullness(options) => {
                let outcome = scale::fullness::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::LongRun(options) => {
                let outcome = scale::long_run::run(options)?;
                print(json, &outcome, outcome.table())
            }
            Alone::MountCalls(options) => mount_calls::print(json, &mount_calls::run(options)?),
        }
    }
}

fn print(json: bool, outcome: &impl serde::Serialize, table: String) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
    } else {
        print!("{table}");
    }
    Ok(())
}
