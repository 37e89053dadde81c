//! `txfs tx commit` and `txfs tx abort`: the end of a kept transaction, or of a part of it.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use txfs_protocol::{CommitOutcome, ConflictReport, KeptPart, PartOutcome, PathText};

use super::{close, target};
use crate::cli::{TxCommit, TxEnd};
use crate::commands::printed;
use crate::error::Error;
use crate::output::{self, format};
use crate::place::{self, Access};

/// How the end of a kept transaction went, as JSON.
#[derive(Serialize)]
struct Ended {
    name: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    /// Of a part: new directories that came along.
    #[serde(skip_serializing_if = "Option::is_none")]
    along: Option<Vec<PathText>>,
    /// Of a part: something is left, and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    remains: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflicting: Option<ConflictReport>,
}

impl Ended {
    fn new(name: &str, outcome: &'static str) -> Ended {
        let name = name.to_owned();
        Ended { name, outcome, sequence: None, along: None, remains: None, conflicting: None }
    }
}

/// Commits a kept transaction, or a part of it.
pub fn commit(arguments: TxCommit) -> Result<(), Error> {
    let target = target(arguments.target)?;
    let name = arguments.name;
    let (outcome, part) = match arguments.only.is_empty() {
        true => (commit_all(&target, &name)?, None),
        false => match commit_part(&target, &name, &arguments.only)? {
            PartOutcome::Committed(part) => {
                (CommitOutcome::Committed { sequence: part.sequence }, Some(part))
            }
            PartOutcome::Conflicted(report) => (CommitOutcome::Conflicted(report), None),
        },
    };
    let message = match &outcome {
        CommitOutcome::Committed { .. } => None,
        CommitOutcome::Conflicted(report) => Some(report.message.clone()),
    };
    match (arguments.json, outcome) {
        (true, CommitOutcome::Conflicted(report)) => {
            let ended = Ended { conflicting: Some(report), ..Ended::new(&name, "conflict") };
            printed(output::print_json(&ended))?;
        }
        (true, CommitOutcome::Committed { sequence }) => {
            let remains = part.as_ref().map(|part| part.remains);
            let along = part.map(|part| part.along);
            let ended = Ended { sequence: Some(sequence), along, remains, ..Ended::new(&name, "committed") };
            printed(output::print_json(&ended))?;
        }
        (false, CommitOutcome::Committed { sequence }) => {
            printed(print_commit(&name, sequence, part.as_ref()))?;
        }
        (false, CommitOutcome::Conflicted(_)) => {}
    }
    match message {
        None => Ok(()),
        Some(message) => Err(Error::KeptConflict { name, message }),
    }
}

fn print_commit(name: &str, sequence: u64, part: Option<&KeptPart>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let name = format::name(name.as_bytes());
    let Some(part) = part.filter(|part| part.remains) else {
        return writeln!(out, "{name} is commit {sequence}");
    };
    writeln!(out, "a part of {name} is commit {sequence}; the rest is kept")?;
    for path in &part.along {
        writeln!(out, "  with the new directory {}", format::name(path.as_path().as_os_str().as_bytes()))?;
    }
    Ok(())
}

fn commit_all(target: &Path, name: &str) -> Result<CommitOutcome, Error> {
    match place::open(target)? {
        Access::Mounted { mut client, .. } => client.commit_kept(name).map_err(Error::commit),
        Access::Embedded(volume) => {
            let outcome = match volume.commit_kept(name) {
                Ok(receipt) => CommitOutcome::Committed { sequence: receipt.sequence },
                Err(error) => CommitOutcome::Conflicted(conflicts(target, error)?),
            };
            close(target, &volume)?;
            Ok(outcome)
        }
    }
}

fn commit_part(target: &Path, name: &str, only: &[PathBuf]) -> Result<PartOutcome, Error> {
    match place::open(target)? {
        Access::Mounted { mut client, mountpoint } => {
            let paths = only.iter().map(|path| in_volume(path, &mountpoint).into()).collect();
            client.commit_kept_only(name, paths).map_err(Error::commit)
        }
        Access::Embedded(volume) => {
            let outcome = match volume.commit_kept_only(name, only) {
                Ok(part) => PartOutcome::Committed(txfs_fuse::kept_part(part)),
                Err(error) => PartOutcome::Conflicted(conflicts(target, error)?),
            };
            close(target, &volume)?;
            Ok(outcome)
        }
    }
}

/// The conflicts that an error is about; any other error is one.
fn conflicts(target: &Path, error: txfs::Error) -> Result<ConflictReport, Error> {
    match error.conflicts() {
        Some(report) => Ok(txfs_fuse::conflict_report(report)),
        None => Err(Error::volume(target, error)),
    }
}

/// A path from the volume's root: that of a file on the mount, or one that is given so already.
fn in_volume(path: &Path, mountpoint: &Path) -> PathBuf {
    path.strip_prefix(mountpoint).unwrap_or(path).to_path_buf()
}

/// Drops a kept transaction.
pub fn abort(arguments: TxEnd) -> Result<(), Error> {
    let target = target(arguments.target)?;
    let name = arguments.name;
    match place::open(&target)? {
        Access::Mounted { mut client, .. } => client.abort_kept(&name)?,
        Access::Embedded(volume) => {
            volume.abort_kept(&name).map_err(|source| Error::volume(&target, source))?;
            close(&target, &volume)?;
        }
    }
    match arguments.json {
        true => printed(output::print_json(&Ended::new(&name, "aborted"))),
        false => Ok(()),
    }
}
