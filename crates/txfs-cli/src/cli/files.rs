//! `txfs ls`, `cat`, `put` and `get`: files of a volume that need not be mounted.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// List files in a volume, mounted or not
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs ls ~/volume
  txfs ls -l ~/volume:/etc
  txfs ls -R --json ~/volume:src

A volume whose path has a colon in it is named as ./a:b/: (the last colon that follows an existing directory counts).")]
pub struct Ls {
    /// The volume, and a path in it
    #[arg(value_name = "VOLUME[:PATH]", value_hint = ValueHint::DirPath)]
    pub place: OsString,
    /// Modes, owners, sizes and times as well
    #[arg(short)]
    pub long: bool,
    /// Directories below as well
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// As JSON, one object for each entry
    #[arg(long)]
    pub json: bool,
}

/// Print files of a volume, mounted or not
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs cat ~/volume:/etc/motd
  txfs cat ~/volume:a ~/volume:b > both")]
pub struct Cat {
    /// Volume and path of each file
    #[arg(value_name = "VOLUME:PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
}

/// Import files and directories in one transaction
///
/// As `cp -a`: modes, times, symbolic links, hard links among the sources, extended attributes and holes are kept, and
/// owners too for root. Where PATH is a directory, or ends in /, or there are several sources, they go into it; else
/// the source gets that name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs put ~/project ~/volume:/              as /project
  txfs put ~/project/. ~/volume:/            its contents
  txfs put a.txt b.txt ~/volume:/notes/")]
pub struct Put {
    /// What to import, and the volume and path to put it at
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<PathBuf>,
    /// The volume and a path in it
    #[arg(value_name = "VOLUME:PATH", value_hint = ValueHint::AnyPath)]
    pub destination: OsString,
}

/// Export a file or a directory
///
/// As `cp -a`: modes, times, symbolic links, hard links, extended attributes and holes are kept, and owners for root.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs get ~/volume:/project ./copy
  txfs get ~/volume:/etc/motd .")]
pub struct Get {
    /// The volume and a path in it
    #[arg(value_name = "VOLUME:PATH", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// Where to put it; into it, where it is a directory
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub destination: PathBuf,
}
