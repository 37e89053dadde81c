//! `txfs run`: a command and all it starts, as one transaction.
//!
//! This process (A) talks to the owner of the mount: it begins the transaction, and commits or aborts it. It starts
//! a supervisor (B, `txfs __exec`), which enters a private mount namespace, lays the transaction's view over the
//! mount there, and starts the command (C). When C and everything that it started have ended, B tells A how.
//!
//! ```text
//!   owner <--socket-- A txfs run --control--> B supervisor --> C command --> ...
//! ```
//!
//! What dies takes the right things with it: the connection A-owner ends with A, and the owner aborts; B notices that
//! A is gone and kills C and its children; and A, should B be killed, does the same.

mod attempt;
mod control;
mod keep;
mod namespace;
mod outcome;
mod private_mount;
mod processes;
mod prompt;
pub mod review;
mod signals;
pub mod supervisor;
mod target;

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use txfs_protocol::{Change, Client, CommitOutcome, ConflictReport, Request};

use crate::cli::{Durability, Isolation, OnConflict, Policy, Run};
use crate::error::Error;
use crate::exit_code::ExitCode;
use crate::output::{self, colour, format};
pub use namespace::NamespaceError;
use outcome::{JsonTarget, Outcome, Verdict};
use private_mount::PrivateMount;
use prompt::{Answer, Terminal};
use signals::Signals;
use target::{Found, Target};

/// The first pause before a retry; doubled each time.
const BACK_OFF_FIRST: Duration = Duration::from_millis(10);
/// How often a command is run again with `--on-conflict retry` alone.
const RETRIES_UNLESS_SAID: u32 = 10;
/// The longest pause.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

/// `txfs run`; returns the exit code.
pub fn main(arguments: Run) -> u8 {
    let mut outcome = Outcome::new();
    let json = match &arguments.json {
        None => Ok(None),
        Some(path) => JsonTarget::open(path.as_deref()).map(Some),
    };
    let result = json.and_then(|json| {
        let result = run(&arguments, &mut outcome);
        if let Err(error) = &result {
            outcome.fail(error);
            output::error(&error.to_string(), error.hint().as_deref());
        }
        match json {
            Some(json) => outcome.write_json(json),
            None => Ok(()),
        }
    });
    if let Err(error) = result {
        output::error(&error.to_string(), None);
        if outcome.sequence.is_none() {
            return ExitCode::RunFailed as u8;
        }
    }
    outcome.exit_code
}

fn run(arguments: &Run, outcome: &mut Outcome) -> Result<(), Error> {
    // Before any thread starts: a private mount needs a namespace of its own.
    let private = match (&arguments.volume, &arguments.at) {
        (Some(volume), Some(at)) => Some(PrivateMount::mount(volume, at)?),
        _ => None,
    };
    let place: Option<PathBuf> = match &private {
        Some(private) => Some(private.mountpoint().to_path_buf()),
        None => arguments.mount.clone(),
    };
    let result = match target::find(place.as_deref()) {
        Ok(Found::Mount(target)) => in_transaction(arguments, &target, outcome),
        Ok(Found::InsideTransaction) => join(arguments),
        Err(error) => Err(error),
    };
    match private.map(PrivateMount::close) {
        None | Some(Ok(())) => result,
        // What the command did matters more than how the volume was closed.
        Some(Err(error)) if result.is_ok() && outcome.sequence.is_some() => {
            output::warning(&format!("the changes are committed, but closing the volume failed: {error}"));
            Ok(())
        }
        Some(Err(error)) => result.and(Err(error)),
    }
}

/// Inside a transaction there is nothing to begin or to commit: the outermost `txfs run` decides.
fn join(arguments: &Run) -> Result<(), Error> {
    let keeps = arguments.keep.is_some() || arguments.prepare.is_some();
    let options = [(arguments.dry_run, "--dry-run"), (arguments.review, "--review"), (keeps, "keeping it")];
    let option = options.into_iter().find_map(|(given, name)| given.then_some(name));
    if let Some(option) = option {
        return Err(Error::NestedOption { option });
    }
    let error = Command::new(&arguments.command[0]).args(&arguments.command[1..]).exec();
    let errno = supervisor::execute_errno(&arguments.command[0], &error);
    Err(attempt::execute_failed(&arguments.command[0], errno))
}

fn in_transaction(arguments: &Run, target: &Target, outcome: &mut Outcome) -> Result<(), Error> {
    let mut terminal = if arguments.review { Some(Terminal::open()?) } else { None };
    let signals = Signals::watch().map_err(|error| Error::run("cannot watch for signals", error))?;
    let mut client = Client::connect(&target.volume)?;
    let retries = retries(arguments)?;
    let keeping = keep::Keeping::of(arguments, &mut client)?;
    loop {
        outcome.attempts += 1;
        let begun = client.begin_as(begin(arguments, &keeping, outcome.attempts > 1))?;
        let ended = attempt::run(target, &begun, &arguments.command, &signals).inspect_err(|_| {
            // Closing the connection would do it too; this way the error comes after the end of the transaction.
            let _ = client.abort();
        })?;
        outcome.ended_processes = ended.leftovers;
        if !outcome.ended_processes.is_empty() {
            output::notice(&format!(
                "ended what the command left running: {}",
                outcome.ended_processes.join(", ")
            ));
        }
        outcome.exit_code = ended.status.exit_code();

        // A command that has failed because its transaction conflicts is run again like one that found out at the end.
        let status = client.status();
        let doomed = match &status {
            Ok(status) => status.conflict.clone(),
            Err(_) => None,
        };
        if let Some(report) = doomed {
            let _ = client.abort();
            match conflicted(
                report,
                "the command's transaction cannot commit any more: it conflicts",
                retries,
                outcome,
                &signals,
            ) {
                Next::Again => continue,
                Next::End => return Ok(()),
            }
        }
        if arguments.dry_run {
            let changes = review::merge(client.changes()?);
            outcome.changes = Some(changes.len() as u64);
            show_list(&changes, target, &begun)?;
            client.abort()?;
            outcome.outcome = Verdict::DryRun;
            return Ok(());
        }
        if outcome.exit_code != 0 {
            // An owner that is gone has aborted too.
            let _ = client.abort();
            outcome.outcome = Verdict::Aborted;
            output::notice(&format!("{}: nothing was changed", describe(ended.status)));
            return Ok(());
        }
        let changes = match arguments.review || arguments.json.is_some() {
            true => Some(review::merge(client.changes()?)),
            false => {
                // An owner that has died by now has certainly committed nothing; one that dies from here on may have.
                status?;
                None
            }
        };
        outcome.changes = changes.as_ref().map(|changes| changes.len() as u64);
        if let (Some(terminal), Some(changes)) = (&mut terminal, &changes)
            && !changes.is_empty()
        {
            let sides = review::Sides { base: target.base(), view: &target.view(&begun.view) };
            let paint = terminal.paint();
            review::diff(changes, sides, terminal, paint)
                .map_err(|error| Error::run("cannot show the changes", error))?;
            match terminal.ask("Commit these changes?", &signals)? {
                Answer::Yes => {}
                answer => {
                    client.abort()?;
                    outcome.outcome = Verdict::Declined;
                    outcome.exit_code = match answer {
                        Answer::Interrupted(signal) => 128u8.wrapping_add(signal as u8),
                        _ => ExitCode::RunFailed as u8,
                    };
                    output::notice("declined: nothing was changed");
                    return Ok(());
                }
            }
        }
        if keeping.instead() {
            return keeping.keep(arguments, &mut client, outcome);
        }
        let or_keep = keeping.on_conflict();
        let conflict = match client.commit_or_keep(durability(arguments), or_keep).map_err(Error::commit)? {
            CommitOutcome::Committed { sequence } => {
                outcome.sequence = Some(sequence);
                outcome.outcome =
                    if outcome.changes == Some(0) { Verdict::Unchanged } else { Verdict::Committed };
                return Ok(());
            }
            CommitOutcome::Conflicted(conflict) => conflict,
        };
        if let Some(name) = keeping.on_conflict() {
            keep::explain_conflict(arguments, conflict, name, outcome);
            return Ok(());
        }
        match conflicted(conflict, "the command succeeded, but conflicts", retries, outcome, &signals) {
            Next::Again => continue,
            Next::End => return Ok(()),
        }
    }
}

enum Next {
    Again,
    End,
}

/// Tells of a conflict, and waits a moment if the command is to be run again.
fn conflicted(
    report: ConflictReport,
    how: &str,
    retries: u32,
    outcome: &mut Outcome,
    signals: &Signals,
) -> Next {
    outcome.outcome = Verdict::Conflict;
    outcome.exit_code = ExitCode::Conflict as u8;
    let retries_done = outcome.attempts - 1;
    explain(&report, how, retries_done, retries);
    outcome.conflict(Some(report));
    if retries_done >= retries {
        return Next::End;
    }
    signals.sleep(txfs::back_off(retries_done + 1, BACK_OFF_FIRST, BACK_OFF_MAX));
    if let Some(signal) = signals.interrupted() {
        outcome.exit_code = 128u8.wrapping_add(signal as u8);
        outcome.outcome = Verdict::Aborted;
        return Next::End;
    }
    outcome.conflict(None);
    Next::Again
}

fn begin(arguments: &Run, keeping: &keep::Keeping, retry: bool) -> Request {
    Request::Begin {
        isolation: match arguments.isolation {
            Isolation::Serializable => txfs_protocol::Isolation::Serializable,
            Isolation::Snapshot => txfs_protocol::Isolation::Snapshot,
        },
        label: arguments.message.clone().unwrap_or_default(),
        command: command_line(arguments),
        policy: arguments.policy.map(|policy| match policy {
            Policy::FirstCommitter => txfs_protocol::Policy::FirstCommitter,
            Policy::Eager => txfs_protocol::Policy::Eager,
        }),
        retry,
        recorded: true,
        late_conflicts: keeping.is_late(),
    }
}

/// How often the command may be run again.
fn retries(arguments: &Run) -> Result<u32, Error> {
    match (arguments.on_conflict, arguments.retries) {
        (Some(OnConflict::Retry), 0) => Ok(RETRIES_UNLESS_SAID),
        (Some(OnConflict::Abort), 1..) => {
            Err(Error::Usage("--on-conflict abort and --retries exclude each other".into()))
        }
        (Some(OnConflict::Keep), 1..) => {
            Err(Error::Usage("--on-conflict keep and --retries exclude each other".into()))
        }
        (_, retries) => Ok(retries),
    }
}

fn durability(arguments: &Run) -> txfs_protocol::Durability {
    match arguments.durability {
        Durability::Durable => txfs_protocol::Durability::Durable,
        Durability::Ordered => txfs_protocol::Durability::Ordered,
        Durability::Deferred => txfs_protocol::Durability::Deferred,
    }
}

fn show_list(changes: &[Change], target: &Target, begun: &txfs_protocol::Begun) -> Result<(), Error> {
    let view = target.view(&begun.view);
    let sides = review::Sides { base: target.base(), view: &view };
    let mut out = io::BufWriter::new(io::stdout().lock());
    review::list(changes, sides, &mut out, colour::stdout())
        .and_then(|()| out.flush())
        .map_err(|error| Error::run("cannot print the changes", error))
}

fn describe(status: control::Status) -> String {
    match status {
        control::Status::Exited(code) => format!("the command exited with status {code}"),
        control::Status::Signalled(signal) => format!("the command was ended by signal {signal}"),
    }
}

fn explain(conflict: &ConflictReport, how: &str, retries_done: u32, retries: u32) {
    let next = if retries_done < retries {
        format!("running the command again (retry {} of {retries})", retries_done + 1)
    } else if retries > 0 {
        format!("giving up after {}", format::counted(retries.into(), "retry", "retries"))
    } else {
        "nothing was changed; try again, or let --retries N do it".into()
    };
    output::notice(&format!("{how} with another one that came first: {}; {next}", conflict.message));
}

fn command_line(arguments: &Run) -> String {
    let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
