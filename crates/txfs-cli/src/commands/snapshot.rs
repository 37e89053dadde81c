//! `txfs snapshot`: named snapshots of a volume, mounted or not.
//!
//! What is mounted is asked for through its owner's socket; any other volume is opened for the moment.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use txfs::{Durability, Volume};
use txfs_protocol::{Client, NamedSnapshot};

use super::printed;
use super::tx::current_mount;
use crate::cli::{
    Mount, Snapshot, SnapshotCommand, SnapshotList, SnapshotMount, SnapshotName, SnapshotRestore,
};
use crate::error::Error;
use crate::output::{self, colour, format};
use crate::place;

/// Carries out a subcommand.
pub fn run(arguments: Snapshot) -> Result<(), Error> {
    match arguments.command {
        SnapshotCommand::Create(arguments) => create(arguments),
        SnapshotCommand::List(arguments) => list(arguments),
        SnapshotCommand::Mount(arguments) => mount(arguments),
        SnapshotCommand::Restore(arguments) => restore(arguments),
        SnapshotCommand::Delete(arguments) => delete(arguments),
    }
}

/// Asks the owner of a mounted volume, or opens the volume for it.
fn ask<T>(
    target: &Path,
    owner: impl FnOnce(&mut Client) -> Result<T, txfs_protocol::ProtocolError>,
    embedded: impl FnOnce(&Volume) -> txfs::Result<T>,
) -> Result<T, Error> {
    match place::connect(target)? {
        Some((mut client, _)) => Ok(owner(&mut client)?),
        None => {
            let failed = |source| Error::volume(target, source);
            let volume = place::open_unmounted(target)?;
            let answer = embedded(&volume).map_err(failed)?;
            volume.close().map_err(failed)?;
            Ok(answer)
        }
    }
}

fn target(given: Option<PathBuf>) -> Result<PathBuf, Error> {
    given.map_or_else(current_mount, Ok)
}

fn create(arguments: SnapshotName) -> Result<(), Error> {
    let SnapshotName { name, target: given, json } = arguments;
    let made = ask(
        &target(given)?,
        |client| client.create_snapshot(&name),
        |volume| volume.create_snapshot(&name, Durability::Durable).map(txfs_fuse::named_snapshot),
    )?;
    printed(match json {
        true => output::print_json(&made),
        false => writeln!(
            io::stdout(),
            "snapshot {} of commit {}",
            format::name(made.name.as_bytes()),
            made.sequence
        ),
    })
}

fn list(arguments: SnapshotList) -> Result<(), Error> {
    let all: Vec<NamedSnapshot> = ask(&target(arguments.target)?, Client::snapshots, |volume| {
        Ok(volume.snapshots()?.into_iter().map(txfs_fuse::named_snapshot).collect())
    })?;
    printed(if arguments.json { output::print_json(&all) } else { print(&all) })
}

fn print(all: &[NamedSnapshot]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let paint = colour::stdout();
    if all.is_empty() {
        return writeln!(out, "{}", paint.dim("no snapshots: `txfs snapshot create NAME` makes one"));
    }
    let header = format!("{:>8}  {:<20}  {:>10}  {:>10}  NAME", "COMMIT", "TIME", "AGE", "PINNED");
    writeln!(out, "{}", paint.bold(header))?;
    for snapshot in all {
        // Seconds will do for people: 2026-11-22T10:31:07.123456789Z.
        let time = format!("{}Z", snapshot.time.get(..19).unwrap_or(&snapshot.time).replace('T', " "));
        let age = format::duration(Duration::from_millis(snapshot.age_ms));
        let pinned = format::bytes(snapshot.pinned_bytes);
        let name = format::name(snapshot.name.as_bytes());
        let going = if snapshot.going { "  (being deleted)" } else { "" };
        writeln!(out, "{:>8}  {time:<20}  {age:>10}  {pinned:>10}  {name}{going}", snapshot.sequence)?;
    }
    Ok(())
}

fn restore(arguments: SnapshotRestore) -> Result<(), Error> {
    let SnapshotRestore { name, paths, volume, json } = arguments;
    let texts = paths.iter().map(|path| path.as_path().into()).collect();
    let restored = ask(
        &target(volume)?,
        |client| client.restore(&name, texts),
        |volume| volume.restore_all(&name, &paths, Durability::Durable).map(txfs_fuse::restored),
    )?;
    if json {
        return printed(output::print_json(&restored));
    }
    let made = format::counted(restored.made, "node", "nodes");
    let data = format::bytes(restored.data_bytes);
    printed(writeln!(
        io::stdout(),
        "{made} made, {} changed, {} as they were; {} removed; {data} of data written",
        restored.changed,
        restored.unchanged,
        format::counted(restored.removed, "name", "names"),
    ))
}

fn delete(arguments: SnapshotName) -> Result<(), Error> {
    let SnapshotName { name, target: given, json } = arguments;
    ask(&target(given)?, |client| client.delete_snapshot(&name), |volume| volume.delete_snapshot(&name))?;
    match json {
        true => printed(output::print_json(&serde_json::json!({ "deleted": name }))),
        false => Ok(()),
    }
}

fn mount(arguments: SnapshotMount) -> Result<(), Error> {
    let SnapshotMount { target, name, directory } = arguments;
    match place::connect(&target)? {
        Some((_, mountpoint)) => {
            let view = mountpoint.join(txfs_protocol::SNAPSHOTS_DIRECTORY).join(&name);
            txfs_fuse::bind_read_only(&view, &directory).map_err(Error::from)
        }
        None => super::mount::run(Mount {
            volume: target,
            mountpoint: directory,
            foreground: false,
            allow_other: false,
            threads: None,
            options: vec![format!("snapshot={name}")],
        }),
    }
}
