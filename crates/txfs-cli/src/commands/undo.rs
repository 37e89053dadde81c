//! `txfs undo`.

use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use txfs::{Durability, TransactionOptions};
use txfs_protocol::{Change, Client, CommitOutcome, Conflict, ConflictReport, ProtocolError};

use super::diff::list;
use super::printed;
use super::tx::current_mount;
use crate::cli::Undo;
use crate::error::Error;
use crate::output::{self, colour};
use crate::place;

/// How often it is tried again when somebody else comes in between.
const ATTEMPTS_MAX: u32 = 20;
/// Pauses in between.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_LONGEST: Duration = Duration::from_millis(500);

/// What became of it, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Outcome {
    /// The commit that is to be undone.
    commit: u64,
    /// `undone`, `dry-run`, `conflict`.
    outcome: &'static str,
    /// The commit that undid it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    changes: Vec<Change>,
    conflicts: Vec<Conflict>,
    more_conflicts: u64,
}

impl Outcome {
    fn new(commit: u64, outcome: &'static str, sequence: Option<u64>, changes: Vec<Change>) -> Outcome {
        Outcome { commit, outcome, sequence, changes, conflicts: Vec::new(), more_conflicts: 0 }
    }

    fn refused(commit: u64, report: ConflictReport) -> Outcome {
        let (conflicts, more_conflicts) = (report.conflicts, report.more);
        Outcome { conflicts, more_conflicts, ..Outcome::new(commit, "conflict", None, Vec::new()) }
    }
}

/// Undoes a commit, through the volume's owner or by opening it.
pub fn run(arguments: Undo) -> Result<(), Error> {
    let target = match &arguments.target {
        Some(target) => target.clone(),
        None => current_mount()?,
    };
    let outcome = match place::connect(&target)? {
        Some((client, _)) => mounted(client, &arguments)?,
        None => unmounted(&target, &arguments)?,
    };
    if arguments.json {
        printed(output::print_json(&outcome))?;
    } else if outcome.outcome != "conflict" {
        printed(print(&outcome))?;
    }
    match outcome.outcome {
        "conflict" => {
            let mut message = String::new();
            for conflict in &outcome.conflicts {
                message.push_str(&format!("\n  {}", conflict.message));
            }
            if outcome.more_conflicts > 0 {
                message.push_str(&format!("\n  and {} more", outcome.more_conflicts));
            }
            Err(Error::UndoConflict { commit: arguments.commit, message })
        }
        _ => Ok(()),
    }
}

fn mounted(mut client: Client, arguments: &Undo) -> Result<Outcome, Error> {
    let commit = arguments.commit;
    let mut attempt = 1;
    loop {
        match client.undo(commit) {
            Ok(_) => {}
            Err(ProtocolError::Conflict(report)) => return Ok(Outcome::refused(commit, *report)),
            Err(error) => return Err(error.into()),
        }
        let changes = client.changes()?;
        if arguments.dry_run {
            client.abort()?;
            return Ok(Outcome::new(commit, "dry-run", None, changes));
        }
        match client.commit(txfs_protocol::Durability::Durable).map_err(Error::commit)? {
            CommitOutcome::Committed { sequence } => {
                return Ok(Outcome::new(commit, "undone", Some(sequence), changes));
            }
            CommitOutcome::Conflicted(report) if attempt >= ATTEMPTS_MAX => {
                return Ok(Outcome::refused(commit, report));
            }
            CommitOutcome::Conflicted(_) => {
                thread::sleep(txfs::back_off(attempt, PAUSE_FIRST, PAUSE_LONGEST))
            }
        }
        attempt += 1;
    }
}

fn unmounted(target: &Path, arguments: &Undo) -> Result<Outcome, Error> {
    let failed = |source| Error::volume(target, source);
    let commit = arguments.commit;
    let volume = place::open_unmounted(target)?;
    let begun = volume.begin_undo(commit, TransactionOptions::default());
    let outcome = match begun {
        Ok(transaction) => {
            let changes = transaction.changes().map_err(failed)?;
            let changes = changes.into_iter().map(txfs_fuse::change).collect();
            if arguments.dry_run {
                transaction.abort();
                Outcome::new(commit, "dry-run", None, changes)
            } else {
                // Nobody else has the volume open.
                let receipt = transaction.commit(Durability::Durable).map_err(failed)?;
                Outcome::new(commit, "undone", Some(receipt.sequence), changes)
            }
        }
        Err(txfs::Error::UndoConflict { report, .. }) => {
            Outcome::refused(commit, txfs_fuse::conflict_report(&report))
        }
        Err(error) => return Err(failed(error)),
    };
    volume.close().map_err(failed)?;
    Ok(outcome)
}

fn print(outcome: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    list(&mut out, &outcome.changes)?;
    let paint = colour::stdout();
    match outcome.sequence {
        Some(sequence) => {
            let text = format!("commit {} is undone, by commit {sequence}", outcome.commit);
            writeln!(out, "{}", paint.bold(text))
        }
        None => writeln!(out, "{}", paint.dim(format!("commit {} is not undone: dry run", outcome.commit))),
    }
}
