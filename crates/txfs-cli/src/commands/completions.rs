//! `txfs completions`.

use std::io::{self, Write};

use clap::CommandFactory;

use super::printed;
use crate::cli::{Cli, Completions};
use crate::error::Error;

/// Prints the script.
pub fn run(arguments: Completions) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "txfs", &mut script);
    printed(io::stdout().lock().write_all(&script))
}
