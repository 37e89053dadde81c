//! `txfs log`.

use std::io::{self, Write};

use txfs_protocol::{Logged, Undoable};

use super::printed;
use super::tx::current_mount;
use crate::cli::Log;
use crate::error::Error;
use crate::output::{self, colour, format};
use crate::place;

/// Shows recorded commits, from the volume's owner or from opening it.
pub fn run(arguments: Log) -> Result<(), Error> {
    let target = match arguments.target {
        Some(target) => target,
        None => current_mount()?,
    };
    let commits = match place::connect(&target)? {
        Some((mut client, _)) => client.log(arguments.before, arguments.count)?,
        None => {
            let failed = |source| Error::volume(&target, source);
            let volume = place::open_unmounted(&target)?;
            let count = usize::try_from(arguments.count).unwrap_or(usize::MAX);
            let commits = volume.history(arguments.before, count).map_err(failed)?;
            volume.close().map_err(failed)?;
            commits.into_iter().map(txfs_fuse::logged).collect()
        }
    };
    printed(if arguments.json { output::print_json(&commits) } else { print(&commits) })
}

fn print(commits: &[Logged]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let paint = colour::stdout();
    if commits.is_empty() {
        return writeln!(out, "{}", paint.dim("no recorded commits: `txfs run` makes some"));
    }
    for commit in commits {
        let number = paint.bold(format!("{:>8}", commit.sequence));
        // Seconds will do for people: 2026-11-22T10:31:07.123456789Z.
        let time = commit.time.get(..19).unwrap_or(&commit.time).replace('T', " ");
        let command = match commit.command.as_str() {
            "" => "-".to_owned(),
            command => format::name(command.as_bytes()),
        };
        writeln!(out, "{number}  {time}Z  {command}")?;
        if !commit.message.is_empty() {
            writeln!(out, "          {}", format::name(commit.message.as_bytes()))?;
        }
        let nodes = format::counted(commit.nodes, "node", "nodes");
        let names = format::counted(commit.names, "name", "names");
        let data = format::bytes(commit.data_bytes);
        let undo = match commit.undo {
            Undoable::Yes => "",
            Undoable::No | Undoable::TooLarge => ", cannot be undone",
            Undoable::Expired | Undoable::GaveWay => ", cannot be undone any more",
        };
        let changed = format!("{nodes}, {names}, {data} of data, process {}{undo}", commit.process);
        writeln!(out, "          {}", paint.dim(changed))?;
    }
    Ok(())
}
