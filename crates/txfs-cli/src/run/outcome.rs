//! How a `txfs run` ended: what it exits with, and what `--json` says.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use txfs_protocol::{Conflict, ConflictReport};

use crate::error::Error;

/// In one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The changes are there.
    Committed,
    /// The command succeeded and changed nothing.
    Unchanged,
    /// The command failed; nothing was changed.
    Aborted,
    /// The command succeeded, but somebody else was first; nothing was changed.
    Conflict,
    /// The changes are kept under a name, and not there yet.
    Kept,
    /// The same, and they are certain to be committed when that is asked for.
    Prepared,
    /// The review was answered with no; nothing was changed.
    Declined,
    /// `--dry-run`; nothing was changed.
    DryRun,
    /// txfs itself failed; nothing was changed.
    Failed,
    /// The owner of the mount died during the commit: the changes may be there or not, all of them or none.
    Unknown,
}

/// Everything about the end of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// In one word.
    pub outcome: Verdict,
    /// What `txfs run` exits with.
    pub exit_code: u8,
    /// The commit's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The name under which the changes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// How many paths the last attempt changed or would have changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<u64>,
    /// How often the command ran.
    pub attempts: u32,
    /// From start to end.
    pub duration_ms: u64,
    /// Who was first, and where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// How many more conflicts there were.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_conflicts: u64,
    /// Processes that the command had left running and that were ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended_processes: Vec<String>,
    /// What failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip)]
    started: Instant,
}

impl Outcome {
    /// Nothing has happened yet.
    pub fn new() -> Outcome {
        Outcome {
            outcome: Verdict::Failed,
            exit_code: crate::exit_code::ExitCode::RunFailed as u8,
            sequence: None,
            kept: None,
            changes: None,
            attempts: 0,
            duration_ms: 0,
            conflicts: Vec::new(),
            more_conflicts: 0,
            ended_processes: Vec::new(),
            error: None,
            started: Instant::now(),
        }
    }

    /// The last attempt had this conflict, or none.
    pub fn conflict(&mut self, report: Option<ConflictReport>) {
        (self.conflicts, self.more_conflicts) =
            report.map(|report| (report.conflicts, report.more)).unwrap_or_default();
    }

    /// txfs itself failed.
    pub fn fail(&mut self, error: &Error) {
        self.outcome = match error {
            Error::CommitUnknown { .. } => Verdict::Unknown,
            _ => Verdict::Failed,
        };
        self.exit_code = error.run_exit_code() as u8;
        self.error = Some(error.to_string());
    }

    /// Writes the line of JSON.
    pub fn write_json(&mut self, to: JsonTarget) -> Result<(), Error> {
        self.duration_ms = self.started.elapsed().as_millis() as u64;
        let written = serde_json::to_vec(self).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            match to {
                JsonTarget::StandardError => io::stderr().lock().write_all(&line),
                JsonTarget::File(mut file) => file.write_all(&line),
            }
        });
        written.map_err(|error| Error::run("cannot write the outcome as JSON", error))
    }
}

/// Where the JSON goes.
#[derive(Debug)]
pub enum JsonTarget {
    /// The command owns standard output, so this is where it comes, as the last line.
    StandardError,
    /// A file, a pipe, /dev/fd/3 ...
    File(File),
}

impl JsonTarget {
    /// Opened before anything else happens: a name that cannot be written to should not be found out after the commit.
    pub fn open(path: Option<&Path>) -> Result<JsonTarget, Error> {
        let Some(path) = path else { return Ok(JsonTarget::StandardError) };
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map(JsonTarget::File)
            .map_err(|source| Error::io("open", path, source))
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
