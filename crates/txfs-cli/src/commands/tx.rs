//! `txfs tx`: open transactions of a mount, and the kept and prepared ones of a volume, mounted or not.
//!
//! Committing and aborting is in [`end`]. What is mounted is asked for through its owner's socket; any other volume
//! is opened for the moment.

mod end;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use txfs::Volume;
use txfs_protocol::{
    Change, Client, ConflictReport, KeptSide, KeptState, KeptTransaction, OpenTransaction, ProtocolError,
    mounts,
};

use super::printed;
use crate::cli::{TxExport, TxList, TxLook};
use crate::error::Error;
use crate::output::colour::Paint;
use crate::output::{self, colour, format};
use crate::place::{self, Access};
use crate::run::review;
use crate::tree::copy::{Copier, Watch};
use crate::tree::host::HostTree;
use crate::tree::volume::VolumeTree;
use crate::tree::{Source, inside};
pub use end::{abort, commit};

/// A line of the list, as JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Open {
        state: &'static str,
        #[serde(flatten)]
        transaction: OpenTransaction,
    },
    Kept(KeptTransaction),
}

/// Lists the open transactions, and the kept ones, both oldest first.
pub fn list(arguments: TxList) -> Result<(), Error> {
    let target = target(arguments.target)?;
    let (open, kept) = match place::open(&target)? {
        Access::Mounted { mut client, .. } => {
            let open = client.list()?;
            let kept = match client.kept() {
                // Other users of a mount see the open ones only.
                Err(ProtocolError::Remote { errno: libc::EPERM, .. }) => Vec::new(),
                kept => kept?,
            };
            (open, kept)
        }
        Access::Embedded(volume) => {
            let kept = volume.kept().map_err(|source| Error::volume(&target, source))?;
            close(&target, &volume)?;
            (Vec::new(), kept.into_iter().map(txfs_fuse::kept_transaction).collect())
        }
    };
    if arguments.json {
        let open = open.into_iter().map(|transaction| Listed::Open { state: "open", transaction });
        let all: Vec<Listed> = open.chain(kept.into_iter().map(Listed::Kept)).collect();
        return printed(output::print_json(&all));
    }
    let mut out = io::stdout().lock();
    let paint = colour::stdout();
    if open.is_empty() && kept.is_empty() {
        return printed(writeln!(out, "{}", paint.dim("no open transactions")));
    }
    printed(print_open(&open, &mut out, paint).and_then(|()| print_kept(&kept, &mut out, paint)))
}

fn print_open(open: &[OpenTransaction], out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    if open.is_empty() {
        return Ok(());
    }
    let header =
        format!("{:>6}  {:>10}  {:>8}  {:>6}  {:>10}  COMMAND", "ID", "AGE", "PID", "USER", "CHANGED");
    writeln!(out, "{}", paint.bold(header))?;
    for transaction in open {
        writeln!(
            out,
            "{:>6}  {:>10}  {:>8}  {:>6}  {:>10}  {}",
            transaction.transaction,
            age(transaction.age_ms),
            transaction.pid,
            transaction.uid,
            format::bytes(transaction.dirty_bytes),
            format::name(transaction.command.as_bytes()),
        )?;
    }
    Ok(())
}

fn print_kept(kept: &[KeptTransaction], out: &mut dyn Write, paint: Paint) -> io::Result<()> {
    if kept.is_empty() {
        return Ok(());
    }
    let header =
        format!("{:<8}  {:>10}  {:>10}  {:>10}  {:>9}  NAME", "STATE", "AGE", "DATA", "PINNED", "CONFLICTS");
    writeln!(out, "{}", paint.bold(header))?;
    for kept in kept {
        let name = format::name(kept.name.as_bytes());
        let command = match kept.command.is_empty() {
            true => String::new(),
            false => format!("  {}", paint.dim(format::name(kept.command.as_bytes()))),
        };
        let line = format!(
            "{:<8}  {:>10}  {:>10}  {:>10}  {:>9}",
            state(kept.state),
            age(kept.age_ms),
            format::bytes(kept.data_bytes),
            format::bytes(kept.pinned_bytes),
            kept.conflicts,
        );
        writeln!(out, "{line}  {name}{command}")?;
    }
    Ok(())
}

fn age(milliseconds: u64) -> String {
    format::duration(Duration::from_millis(milliseconds))
}

fn state(state: KeptState) -> &'static str {
    match state {
        KeptState::Kept => "kept",
        KeptState::Prepared => "prepared",
    }
}

/// What is known of one, as JSON.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    kept: KeptTransaction,
    /// What keeps it from being committed.
    conflicting: Option<ConflictReport>,
}

/// Shows what is known of a kept transaction, and its conflicts.
pub fn show(arguments: TxLook) -> Result<(), Error> {
    let target = target(arguments.target)?;
    let name = &arguments.name;
    let (all, conflicting) = match place::open(&target)? {
        Access::Mounted { mut client, .. } => (client.kept()?, client.kept_conflicts(name)?),
        Access::Embedded(volume) => {
            let failed = |source| Error::volume(&target, source);
            let all = volume.kept().map_err(failed)?;
            let report = volume.kept_conflicts(name).map_err(failed)?;
            close(&target, &volume)?;
            let all = all.into_iter().map(txfs_fuse::kept_transaction).collect();
            (all, report.as_ref().map(txfs_fuse::conflict_report))
        }
    };
    let Some(kept) = all.into_iter().find(|kept| kept.name == *name) else {
        return Err(Error::volume(&target, txfs::Error::NoSuchKept { name: name.clone() }));
    };
    if arguments.json {
        return printed(output::print_json(&Shown { kept, conflicting }));
    }
    printed(print_one(&kept, conflicting.as_ref()))
}

fn print_one(kept: &KeptTransaction, conflicting: Option<&ConflictReport>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let paint = colour::stdout();
    let time = kept.time.get(..19).unwrap_or(&kept.time).replace('T', " ");
    writeln!(out, "{}  {} since {time}Z", paint.bold(format::name(kept.name.as_bytes())), state(kept.state))?;
    if !kept.command.is_empty() {
        writeln!(out, "  {} (process {})", format::name(kept.command.as_bytes()), kept.process)?;
    }
    if !kept.message.is_empty() {
        writeln!(out, "  {}", format::name(kept.message.as_bytes()))?;
    }
    let nodes = format::counted(kept.nodes, "node", "nodes");
    let names = format::counted(kept.names, "name", "names");
    let (data, pinned) = (format::bytes(kept.data_bytes), format::bytes(kept.pinned_bytes));
    writeln!(out, "  {nodes}, {names}, {data} of data; it keeps {pinned} in the volume")?;
    let Some(report) = conflicting else {
        return writeln!(out, "  {}", paint.green("no conflicts: it can be committed"));
    };
    writeln!(out, "  {}", paint.red("it cannot be committed, because of others:"))?;
    for conflict in &report.conflicts {
        writeln!(out, "    {}", format::line(&conflict.message))?;
    }
    match report.more {
        0 => Ok(()),
        more => writeln!(out, "    and {more} more"),
    }
}

/// Shows what a kept transaction changes.
pub fn diff(arguments: TxLook) -> Result<(), Error> {
    let target = target(arguments.target)?;
    match place::open(&target)? {
        Access::Mounted { mut client, mountpoint } => {
            let begun = client.open_kept(&arguments.name, KeptSide::Ours)?;
            let changes = review::merge(client.changes()?);
            let ours = mountpoint.join(begun.view.as_path());
            // One view for each connection.
            let (mut other, _) = connect(&target)?;
            let begun = other.open_kept(&arguments.name, KeptSide::Base)?;
            let base = mountpoint.join(begun.view.as_path());
            output_changes(&changes, &base, &ours, arguments.json)
        }
        Access::Embedded(volume) => {
            let failed = |source| Error::volume(&target, source);
            let name = &arguments.name;
            let (base, ours) = (
                volume.kept_view(name, txfs::KeptSide::Base).map_err(failed)?,
                volume.kept_view(name, txfs::KeptSide::Ours).map_err(failed)?,
            );
            let changes = ours.changes().map_err(failed)?;
            let changes = review::merge(changes.into_iter().map(txfs_fuse::change).collect());
            let temporary = tempfile::tempdir()
                .map_err(|source| Error::io("make a directory in", &std::env::temp_dir(), source))?;
            let places = (temporary.path().join("base"), temporary.path().join("ours"));
            if !arguments.json {
                for change in &changes {
                    let old = change.from.as_ref().unwrap_or(&change.path);
                    export(&VolumeTree::new(&base), old.as_path(), &places.0)?;
                    export(&VolumeTree::new(&ours), change.path.as_path(), &places.1)?;
                }
            }
            drop((base, ours));
            close(&target, &volume)?;
            output_changes(&changes, &places.0, &places.1, arguments.json)
        }
    }
}

/// Writes the three states of all files that a kept transaction changes, or over which it conflicts, into `base`, `ours` and
/// `theirs` below a directory: for programs that merge.
pub fn export_sides(arguments: TxExport) -> Result<(), Error> {
    let target = target(arguments.target)?;
    let (name, directory) = (&arguments.name, &arguments.directory);
    let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
    let mut add = |changes: &[Change], report: Option<&ConflictReport>| {
        let changed = changes.iter().flat_map(|change| [Some(&change.path), change.from.as_ref()]).flatten();
        let conflicting = report.iter().flat_map(|report| &report.conflicts).map(|conflict| &conflict.path);
        paths.extend(changed.chain(conflicting).map(|path| path.to_path_buf()));
    };
    match place::open(&target)? {
        Access::Mounted { mut client, mountpoint } => {
            let report = client.kept_conflicts(name)?;
            let begun = client.open_kept(name, KeptSide::Ours)?;
            add(&client.changes()?, report.as_ref());
            let (mut other, _) = connect(&target)?;
            let base = other.open_kept(name, KeptSide::Base)?;
            for (root, side) in [
                (mountpoint.join(base.view.as_path()), "base"),
                (mountpoint.join(begun.view.as_path()), "ours"),
                (mountpoint, "theirs"),
            ] {
                export_all(&HostTree::new(&root), &paths, &directory.join(side))?;
            }
        }
        Access::Embedded(volume) => {
            let failed = |source| Error::volume(&target, source);
            let report = volume.kept_conflicts(name).map_err(failed)?;
            let ours = volume.kept_view(name, txfs::KeptSide::Ours).map_err(failed)?;
            let changes: Vec<Change> =
                ours.changes().map_err(failed)?.into_iter().map(txfs_fuse::change).collect();
            add(&changes, report.as_ref().map(txfs_fuse::conflict_report).as_ref());
            let base = volume.kept_view(name, txfs::KeptSide::Base).map_err(failed)?;
            for (view, side) in [(&base, "base"), (&ours, "ours")] {
                export_all(&VolumeTree::new(view), &paths, &directory.join(side))?;
            }
            export_all(&VolumeTree::new(&volume.snapshot()), &paths, &directory.join("theirs"))?;
            drop((base, ours));
            close(&target, &volume)?;
        }
    }
    Ok(())
}

fn export_all<S: Source>(tree: &S, paths: &BTreeSet<PathBuf>, to: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(to).map_err(|source| Error::io("make", to, source))?;
    paths.iter().try_for_each(|path| export(tree, path, to))
}

fn connect(target: &Path) -> Result<(Client, PathBuf), Error> {
    place::connect(target)?.ok_or_else(|| Error::NotMounted { target: target.to_path_buf() })
}

fn output_changes(changes: &[Change], base: &Path, view: &Path, json: bool) -> Result<(), Error> {
    if json {
        return printed(output::print_json(&changes));
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let sides = review::Sides { base, view };
    printed(review::diff(changes, sides, &mut out, colour::stdout()).and_then(|()| out.flush()))
}

/// Copies a file, if it is there, to the same place below a directory of the host.
fn export<S: Source>(tree: &S, path: &Path, to: &Path) -> Result<(), Error> {
    let path = inside(path);
    let Ok(id) = tree.resolve(&path, false) else { return Ok(()) };
    let node = tree.node(&id).map_err(|source| Error::io("read", &path, source))?;
    let Some(name) = path.file_name().filter(|_| !node.is_directory()) else { return Ok(()) };
    let into = to.join(path.parent().unwrap_or(Path::new("")));
    std::fs::create_dir_all(&into).map_err(|source| Error::io("make", &into, source))?;
    if std::fs::symlink_metadata(into.join(name)).is_ok() {
        return Ok(());
    }
    Copier::new(tree, &HostTree::new(Path::new("/")), &mut Silent).copy(id, &into, name, &path)
}

/// Nobody wants to know how far a copy is.
struct Silent;

impl Watch for Silent {
    fn advance(&mut self, _bytes: u64) {}
    fn warn(&mut self, _message: String) {}
}

/// Fails early when a transaction cannot be kept under this name.
pub fn check_free(client: &mut Client, name: &str) -> Result<(), Error> {
    match client.kept()?.iter().any(|kept| kept.name == name) {
        true => Err(Error::Usage(txfs::Error::KeptExists { name: name.to_owned() }.to_string())),
        false => Ok(()),
    }
}

fn close(target: &Path, volume: &Volume) -> Result<(), Error> {
    volume.close().map_err(|source| Error::volume(target, source))
}

fn target(given: Option<PathBuf>) -> Result<PathBuf, Error> {
    given.map_or_else(current_mount, Ok)
}

/// The volume of the mount that holds the current directory.
pub(super) fn current_mount() -> Result<PathBuf, Error> {
    let here = std::env::current_dir()
        .map_err(|source| Error::io("find the current directory", Path::new("."), source))?;
    match mounts::txfs_holding(&here) {
        Ok(Some(mount)) => Ok(mount.source),
        Ok(None) => Err(Error::NotOnMount { path: here }),
        Err(source) => Err(Error::io("find the mount of", &here, source)),
    }
}
