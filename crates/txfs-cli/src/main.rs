//! The `txfs` command: thin, without file-system semantics of its own.

mod cli;
mod commands;
mod error;
mod exit_code;
mod logging;
mod output;
mod place;
mod run;
mod tree;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(commands::main(std::env::args_os().collect()))
}
