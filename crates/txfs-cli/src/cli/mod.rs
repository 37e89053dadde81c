//! The command line: every subcommand, its options and its examples. Completions and man pages come from here too.

mod files;
mod history;
mod run;
mod snapshot;
mod tx;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

pub use self::files::{Cat, Get, Ls, Put};
pub use self::history::{Diff, Log, Undo};
pub use self::run::{Durability, Isolation, OnConflict, Policy, Run};
pub use self::snapshot::{
    Snapshot, SnapshotCommand, SnapshotList, SnapshotMount, SnapshotName, SnapshotRestore,
};
pub use self::tx::{Tx, TxCommand, TxCommit, TxEnd, TxExport, TxList, TxLook};
use crate::exit_code::exit_code_table;

/// `txfs` as clap sees it.
#[derive(Debug, Parser)]
#[command(
    name = "txfs",
    version,
    about = "ACID transactions over ordinary files",
    long_about = "TxFS keeps files in a volume, a directory on any Linux file system, and gives ordinary programs \
                  ACID transactions over them: `txfs run -- make install` happens as a whole or not at all.",
    after_help = exit_code_table!(),
    after_long_help = TOP_EXAMPLES,
    styles = STYLES,
    max_term_width = 110,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Yellow.on_default().bold())
    .usage(AnsiColor::Yellow.on_default().bold())
    .literal(AnsiColor::Green.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

const TOP_EXAMPLES: &str = concat!(
    "\
Examples:
  txfs mkfs ~/volume                      make a volume
  txfs mount ~/volume ~/files             mount it, in the background
  cd ~/files && txfs run -- make install  one transaction: all of it, or nothing
  txfs run --review -- ./migrate.sh       see a diff first, then decide
  txfs umount ~/files                     write everything out and unmount

",
    exit_code_table!(),
    "

Environment:
  NO_COLOR  no colours
  TXFS_LOG  what the mount logs: error, warn (default), info, debug or trace"
);

#[derive(Debug, Subcommand)]
pub enum Command {
    Mkfs(Mkfs),
    Mount(Mount),
    Umount(Umount),
    Run(Run),
    Tx(Tx),
    Ls(Ls),
    Cat(Cat),
    Put(Put),
    Get(Get),
    Check(Check),
    Stat(Stat),
    Log(Log),
    Snapshot(Snapshot),
    Diff(Diff),
    Undo(Undo),
    Gc(Gc),
    Completions(Completions),
    Man(Man),
}

/// The first argument of the processes that txfs starts for itself. They are no subcommands, so that neither help
/// nor completions nor man pages show them.
pub mod internal {
    /// See [`Exec`](super::Exec).
    pub const EXEC: &str = "__exec";
    /// See [`Daemon`](super::Daemon).
    pub const MOUNT: &str = "__mount";
}

/// Make an empty volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs mkfs ~/volume
  txfs mkfs --size 20G /srv/scratch.txfs
  txfs mkfs --preallocate 4G /srv/mail.txfs    commits need not wait for new space to be prepared")]
pub struct Mkfs {
    /// The directory to make; it must not exist, or be empty
    #[arg(value_hint = ValueHint::DirPath)]
    pub volume: PathBuf,
    /// Size of the log's files; K, M and G are units of 1024. 32M, or less where --size is small
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub segment_size: Option<u64>,
    /// What file data may take on the host at most, deleted data that waits for cleaning included
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Space to allocate and to write with zeros now, as databases do with their logs; the volume keeps it
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub preallocate: u64,
}

/// Mount a volume
///
/// Without -f the mount goes on in the background and its log is VOLUME/mount.log; the command returns when the
/// mount can be used. SIGTERM to the mount process writes everything out and unmounts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs mount ~/volume ~/files
  txfs mount -f ~/volume ~/files          stay in the foreground, log to standard error
  txfs mount --allow-other /srv/v /data   other users may use it too
  txfs mount -o policy=eager /srv/v /data of two transactions the first to write wins, not the first to commit

In /etc/fstab, with mount.txfs installed as a link to txfs:
  /srv/v  /data  txfs  allow_other,nofail  0  0")]
pub struct Mount {
    /// The volume
    #[arg(value_hint = ValueHint::DirPath)]
    pub volume: PathBuf,
    /// The directory to mount it at
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    pub foreground: bool,
    /// Options, separated by commas: allow_other, ro, nosuid, nodev, noexec, noatime, threads=N, policy=eager,
    /// history=SIZE (what `txfs undo` may need later) ...
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Let other users use the mount (their permissions are checked)
    #[arg(long)]
    pub allow_other: bool,
    /// Threads that answer the kernel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
}

/// Unmount, and wait until the volume is closed cleanly
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs umount ~/files
  txfs umount ~/volume       the volume does as well
  txfs umount --lazy ~/files detach now, finish when the last user is gone")]
pub struct Umount {
    /// The mount point, or the volume
    #[arg(value_name = "MOUNTPOINT|VOLUME", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Detach at once, although somebody is using it; return without waiting
    #[arg(short, long)]
    pub lazy: bool,
}

/// Check a volume that is not mounted: structure, link counts, checksums of every byte
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs check ~/volume
  txfs check --json ~/volume

Exit codes: 0 when all is well, 65 when something is damaged, 78 when the volume is in use.")]
pub struct Check {
    /// The volume
    #[arg(value_hint = ValueHint::DirPath)]
    pub volume: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Move data together, and give the host the space between
///
/// A volume is cleaned in the background when space runs short or half of it is waste; this does it now. Files can be
/// used meanwhile. Space that open transactions still see comes free when they have ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs gc ~/volume
  txfs gc --json ~/files      a mount does as well")]
pub struct Gc {
    /// The volume, or its mount
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Clean segments of which at most so many percent are in use
    #[arg(long, value_name = "PERCENT", default_value_t = 90, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub live: u8,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Show a volume's sizes, how its input and output are done, and what it has seen
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs stat ~/volume
  txfs stat --json ~/files      a mount does as well")]
pub struct Stat {
    /// The volume, or its mount
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Print a shell's completion script
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs completions bash > ~/.local/share/bash-completion/completions/txfs
  txfs completions zsh  > ~/.zfunc/_txfs
  txfs completions fish > ~/.config/fish/completions/txfs.fish")]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// Print the man page, or write all of them into a directory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs man | man -l -
  txfs man --out /usr/local/share/man/man1")]
pub struct Man {
    /// Write txfs.1, txfs-run.1 ... here
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// What `txfs run` starts: enters the transaction's view, runs the command, ends what it leaves behind.
#[derive(Debug, Parser)]
pub struct Exec {
    /// The socket to the `txfs run` that started this
    #[arg(long)]
    pub control_descriptor: i32,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What `txfs mount` starts: the process that serves a mount in the background.
#[derive(Debug, Parser)]
pub struct Daemon {
    /// The pipe to the `txfs mount` that started this
    #[arg(long)]
    pub ready_descriptor: i32,
    #[command(flatten)]
    pub mount: Mount,
}

/// `8M`, `512K`, `1G`, or bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 =
        text[..digits_end].parse().map_err(|_| format!("{text:?} is not a size such as 32M"))?;
    let unit: u64 = match text[digits_end..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        unit => return Err(format!("unit {unit:?} is not known; use K, M or G")),
    };
    number.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("32M"), Ok(32 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("1gib"), Ok(1 << 30));
        assert!(parse_size("").is_err());
        assert!(parse_size("3x").is_err());
        assert!(parse_size("99999999999999G").is_err());
    }

    #[test]
    fn every_subcommand_has_examples() {
        for command in Cli::command().get_subcommands() {
            if command.is_hide_set() || command.get_name() == "help" || command.has_subcommands() {
                continue;
            }
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{} has no examples", command.get_name());
        }
    }
}
