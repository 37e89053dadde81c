//! `--keep`, `--prepare` and `--on-conflict keep`: the end of a run that commits nothing yet.

use std::path::Path;

use txfs_protocol::{Client, ConflictReport};

use super::outcome::{Outcome, Verdict};
use crate::cli::{OnConflict, Run};
use crate::commands::tx::check_free;
use crate::error::Error;
use crate::exit_code::ExitCode;
use crate::output;

/// What is done with the changes instead of committing them.
pub enum Keeping {
    /// They are committed.
    Nothing,
    /// They are kept.
    Keep(String),
    /// They are prepared.
    Prepare(String),
    /// They are kept if they conflict.
    OnConflict(String),
}

impl Keeping {
    /// What the arguments say. A name that is taken is an error before the command runs.
    pub fn of(arguments: &Run, client: &mut Client) -> Result<Keeping, Error> {
        let on_conflict = arguments.on_conflict == Some(OnConflict::Keep);
        let keeping = match (&arguments.keep, &arguments.prepare) {
            (None, None) if !on_conflict => return Ok(Keeping::Nothing),
            (_, Some(_)) if on_conflict => {
                return Err(Error::Usage("--prepare and --on-conflict keep exclude each other".into()));
            }
            (_, Some(name)) => Keeping::Prepare(name.clone()),
            (Some(name), None) if on_conflict => Keeping::OnConflict(name.clone()),
            (Some(name), None) => Keeping::Keep(name.clone()),
            (None, None) => Keeping::OnConflict(made_up_name()),
        };
        if let Keeping::Keep(name) | Keeping::Prepare(name) | Keeping::OnConflict(name) = &keeping {
            check_free(client, name)?;
        }
        Ok(keeping)
    }

    /// Conflicts are only of interest at the end.
    pub fn is_late(&self) -> bool {
        matches!(self, Keeping::Keep(_) | Keeping::OnConflict(_))
    }

    /// Nothing is to be committed.
    pub fn instead(&self) -> bool {
        matches!(self, Keeping::Keep(_) | Keeping::Prepare(_))
    }

    /// The name under which what conflicts is kept.
    pub fn on_conflict(&self) -> Option<String> {
        match self {
            Keeping::OnConflict(name) => Some(name.clone()),
            _ => None,
        }
    }

    /// Keeps or prepares what the command has done.
    pub fn keep(&self, arguments: &Run, client: &mut Client, outcome: &mut Outcome) -> Result<(), Error> {
        let (name, prepare) = match self {
            Keeping::Keep(name) | Keeping::OnConflict(name) => (name, false),
            Keeping::Prepare(name) => (name, true),
            Keeping::Nothing => return Ok(()),
        };
        if let Some(report) = client.keep(name, prepare).map_err(Error::commit)? {
            outcome.outcome = Verdict::Conflict;
            outcome.exit_code = ExitCode::Conflict as u8;
            let message = &report.message;
            output::notice(&format!(
                "the command succeeded, but conflicts with another one that came first: {message}; nothing was \
                 prepared; try again"
            ));
            outcome.conflict(Some(report));
            return Ok(());
        }
        outcome.kept = Some(name.clone());
        outcome.outcome = if prepare { Verdict::Prepared } else { Verdict::Kept };
        let how = if prepare { "prepared" } else { "kept" };
        let named = format!("{name}{}", place(arguments));
        output::notice(&format!(
            "{how} as {name}, nothing is changed yet: txfs tx diff {named} shows it, txfs tx commit {named} makes it so, \
             txfs tx abort {named} drops it"
        ));
        Ok(())
    }
}

/// What conflicted has been kept: says so, and how to go on.
pub fn explain_conflict(arguments: &Run, report: ConflictReport, name: String, outcome: &mut Outcome) {
    outcome.outcome = Verdict::Conflict;
    outcome.exit_code = ExitCode::Conflict as u8;
    let place = place(arguments);
    let named = format!("{name}{place}");
    output::notice(&format!(
        "the command succeeded, but conflicts with another one that came first: {}; its changes are kept as {name}: \
         txfs tx show {named} lists the conflicts, txfs tx diff {named} shows what it would change, txfs tx export \
         {name} DIR{place} writes base, ours and theirs for a merge, txfs tx abort {named} drops it",
        report.message
    ));
    outcome.conflict(Some(report));
    outcome.kept = Some(name);
}

/// What other commands have to be told beside the name: the place, where this one had to be told it.
fn place(arguments: &Run) -> String {
    let place = arguments.mount.as_ref().or(arguments.volume.as_ref());
    place.map_or_else(String::new, |place| format!(" {}", quoted(place)))
}

/// For a shell, where it would take a path for something else.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+:,@%=~".contains(letter);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A name that nobody else has, and that says when it was.
fn made_up_name() -> String {
    let now = txfs::Timestamp::from(std::time::SystemTime::now()).to_string();
    let digits: String = now.chars().filter(char::is_ascii_digit).collect();
    format!("run-{digits}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted(Path::new("/home/me/vol-1")), "/home/me/vol-1");
        assert_eq!(quoted(Path::new("my files")), "'my files'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
