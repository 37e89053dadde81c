//! `txfs log`, `diff` and `undo`: what has been committed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Show the commits of `txfs run`, newest first
///
/// Each commit of `txfs run` leaves a line: its number, when and by which command it was made, what its -m says, and how much
/// it changed. The volume keeps the last 1000 of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs log
  txfs log -n 5 ~/volume
  txfs log --json ~/files       a mount does as well")]
pub struct Log {
    /// The volume, or its mount; by default the mount that holds the current directory
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// How many commits to show
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    pub count: u64,
    /// Only commits before the one with this number
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<u64>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Show what commits of `txfs run` have changed
///
/// A list of paths: for one commit, or for all from one to another, taken together. Known for as long as they can be undone; changes
/// outside of `txfs run` are not in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs diff 1234                 what commit 1234 has changed
  txfs diff 1200..1234           what those after 1200, up to 1234, have changed together
  txfs diff --json 1234 ~/volume")]
pub struct Diff {
    /// A commit's number as `txfs log` shows it, or two: the commits after A, up to B
    #[arg(value_name = "N|A..B", value_parser = parse_commits)]
    pub commits: (u64, u64),
    /// The volume, or its mount; by default the mount that holds the current directory
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Undo a commit of `txfs run`
///
/// Changes back what the commit changed, and nothing else, in a new transaction, which can be undone itself. Where what it left
/// is not there any more, nothing is changed: the error says what is in the way, and which commit did it. To undo several
/// commits, begin with the last one. `txfs log` says which can be undone; `txfs stat` what is kept for that.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs undo 1234
  txfs undo --dry-run 1234       what would change?
  txfs undo --json 1234 ~/volume

Exit codes: 0 when it is undone, 75 when something is in the way, 1 when the commit cannot be undone any more.")]
pub struct Undo {
    /// The commit's number, as `txfs log` shows it
    #[arg(value_name = "N")]
    pub commit: u64,
    /// The volume, or its mount; by default the mount that holds the current directory
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `7`, which is `6..7`, or `3..7`.
fn parse_commits(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| format!("{text:?} is not the number of a commit; see txfs log"))
    };
    match text.split_once("..") {
        None => number(text).and_then(|commit| match commit.checked_sub(1) {
            Some(before) => Ok((before, commit)),
            None => Err("commits have numbers from 1 on".into()),
        }),
        Some((after, up_to)) => match (number(after)?, number(up_to)?) {
            (after, up_to) if after < up_to => Ok((after, up_to)),
            _ => Err("A..B are the commits after A, up to B: B must be the larger one".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_commits() {
        assert_eq!(parse_commits("7"), Ok((6, 7)));
        assert_eq!(parse_commits("3..7"), Ok((3, 7)));
        for wrong in ["", "0", "7..3", "7..7", "a..b", "..", "-1"] {
            assert!(parse_commits(wrong).is_err(), "{wrong}");
        }
    }
}
