//! One file per subcommand, and the way to them.

mod cat;
mod check;
mod completions;
mod diff;
mod gc;
mod get;
mod log;
mod ls;
mod man;
mod mkfs;
mod mount;
mod mount_helper;
mod put;
mod snapshot;
mod stat;
pub mod tx;
mod umount;
mod undo;

use std::ffi::OsString;
use std::io;
use std::path::Path;

use clap::Parser;

use crate::cli::{Cli, Command, Daemon, Exec, TxCommand, internal};
use crate::error::Error;
use crate::exit_code::ExitCode;
use crate::output;
use crate::run;

/// Everything: parses the arguments, does what they say, reports what failed. Returns the exit code.
pub fn main(arguments: Vec<OsString>) -> u8 {
    let name = arguments.first().map(|name| Path::new(name).file_name().unwrap_or(name).to_os_string());
    if name.is_some_and(|name| name.to_string_lossy().ends_with("mount.txfs")) {
        return mount_helper::main(arguments);
    }
    match arguments.get(1).and_then(|first| first.to_str()) {
        Some(internal::EXEC) => return run::supervisor::main(Exec::parse_from(&arguments[1..])) as u8,
        Some(internal::MOUNT) => return finish(mount::daemon(Daemon::parse_from(&arguments[1..]))),
        _ => {}
    }
    let is_run = arguments.get(1).is_some_and(|subcommand| subcommand == "run");
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return match error.exit_code() {
                // Help and version are "errors" too.
                0 => ExitCode::Success as u8,
                // 2 could be the command's own.
                _ if is_run => ExitCode::RunFailed as u8,
                _ => ExitCode::Usage as u8,
            };
        }
    };
    let result = match cli.command {
        Command::Run(arguments) => return run::main(arguments),
        Command::Mkfs(arguments) => mkfs::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Umount(arguments) => umount::run(arguments),
        Command::Tx(arguments) => match arguments.command {
            TxCommand::List(arguments) => tx::list(arguments),
            TxCommand::Show(arguments) => tx::show(arguments),
            TxCommand::Diff(arguments) => tx::diff(arguments),
            TxCommand::Export(arguments) => tx::export_sides(arguments),
            TxCommand::Commit(arguments) => tx::commit(arguments),
            TxCommand::Abort(arguments) => tx::abort(arguments),
        },
        Command::Ls(arguments) => ls::run(arguments),
        Command::Cat(arguments) => cat::run(arguments),
        Command::Put(arguments) => put::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Stat(arguments) => stat::run(arguments),
        Command::Log(arguments) => log::run(arguments),
        Command::Diff(arguments) => diff::run(arguments),
        Command::Undo(arguments) => undo::run(arguments),
        Command::Snapshot(arguments) => snapshot::run(arguments),
        Command::Gc(arguments) => gc::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
    };
    finish(result)
}

/// The exit code of a result, after the error has been told.
fn finish(result: Result<(), Error>) -> u8 {
    match result {
        Ok(()) => ExitCode::Success as u8,
        // Whoever reads our output has seen enough: `txfs ls | head`.
        Err(Error::Io { source, path, .. })
            if source.kind() == io::ErrorKind::BrokenPipe && path == Path::new(STANDARD_OUTPUT) =>
        {
            ExitCode::Success as u8
        }
        Err(Error::Daemon { code: Some(code) }) if code != 0 => code,
        Err(error) => {
            output::error(&error.to_string(), error.hint().as_deref());
            error.exit_code() as u8
        }
    }
}

const STANDARD_OUTPUT: &str = "standard output";

/// For writes to standard output.
fn printed<T>(result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::io("write to", Path::new(STANDARD_OUTPUT), source))
}
