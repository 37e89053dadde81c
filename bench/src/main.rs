//! `txfs-bench`: TxFS beside plain files on ext4, xfs and btrfs, in the same run, so that the ratios mean something on any
//! machine.

mod alone;
mod arguments;
mod bench;
mod beside;
mod contestants;
mod device;
mod figures;
mod flush_delay;
mod holes;
mod machine;
mod mount_calls;
mod progress;
mod report;
mod result;
mod rounds;
mod run;
mod scale;
mod workloads;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

/// Errors are for people; all of them end the workload.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::List) => run::list(),
        Some(Command::Page { page }) => run::page(page),
        Some(Command::FillHoles { file }) => holes::fill(file),
        Some(Command::Alone { measurement, json }) => measurement.run(*json),
        None => run::run(&arguments.run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("txfs-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
