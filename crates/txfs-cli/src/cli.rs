//! The command line: every subcommand, its options and its examples. Completions and man pages come from here too.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

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
    /// Options, separated by commas: allow_other, ro, nosuid, nodev, noexec, noatime, threads=N, policy=eager ...
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

/// Run a command as one transaction: exit 0 commits it, anything else leaves no trace
///
/// The command and all it starts see the mount as it was at the start plus their own changes; nobody else sees these
/// before the commit. Processes that it leaves behind are ended before the commit. A `txfs run` inside a transaction
/// joins it.
#[derive(Debug, Args)]
#[command(
    override_usage = "txfs run [OPTIONS] -- CMD [ARGS]...",
    after_help = "\
Examples:
  txfs run -- make install
  txfs run --mount ~/files -m 'nightly import' -- ./import.sh
  txfs run --dry-run -- ./cleanup.sh             what would it change?
  txfs run --review -- sed -i s/old/new/ *.conf  look at the diff, then decide
  txfs run --retries 5 -- ./count.sh             again when it conflicts
  txfs run --on-conflict retry -- ./import.sh    again and again; the oldest wins in the end
  txfs run --isolation snapshot -- ./report.sh   what it only read may change meanwhile
  txfs run --policy eager -- ./long.sh           fail at the write that somebody else was first with
  txfs run --volume ~/volume --at /mnt -- git -C /mnt gc   a private mount

Exit codes: the command's own, and
   75  it conflicts with another transaction (after all retries); where that was found out while the command ran,
       its next operation on the mount has failed with ECANCELED
  125  txfs itself failed, or the review was declined
  126  the command could not be executed
  127  the command was not found
128+N  it was ended by signal N
Only after 0 is anything changed.

--json writes one line of JSON when all is done, to FILE, or to standard error as its last line, because standard
output belongs to the command: outcome (committed, unchanged, aborted, conflict, declined, dry-run, failed, unknown),
exit_code, sequence, changes, attempts, duration_ms, conflicts (each with kind, access, path and other: state, the commit,
its time, process and command), more_conflicts, error."
)]
pub struct Run {
    /// The TxFS mount to use; by default the one that holds the current directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "volume")]
    pub mount: Option<PathBuf>,
    /// Mount this volume privately while the command runs
    #[arg(long, value_hint = ValueHint::DirPath, requires = "at")]
    pub volume: Option<PathBuf>,
    /// Where to mount --volume; only the command sees it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "volume")]
    pub at: Option<PathBuf>,
    /// Print what would change and abort
    #[arg(long, conflicts_with = "review")]
    pub dry_run: bool,
    /// Show the changes as a diff and ask before the commit
    #[arg(long)]
    pub review: bool,
    /// Run the command again, up to N times, when it conflicts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// What to do about a conflict; by default abort, or with --retries retry
    #[arg(long, value_enum)]
    pub on_conflict: Option<OnConflict>,
    /// What a conflict is
    #[arg(long, value_enum, default_value_t)]
    pub isolation: Isolation,
    /// When it is one; by default as the volume was mounted
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,
    /// When the commit is safe from a power cut
    #[arg(long, value_enum, default_value_t)]
    pub durability: Durability,
    /// Write the outcome as JSON to FILE, or to standard error as its last line
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, value_hint = ValueHint::FilePath)]
    pub json: Option<Option<PathBuf>>,
    /// What `txfs tx list` calls the transaction; by default the command
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Isolation levels of DESIGN.md §2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// What was read must not have changed either
    #[default]
    Serializable,
    /// Only writes are compared
    Snapshot,
}

/// When a conflict between two transactions is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// The first to commit wins
    FirstCommitter,
    /// Of two eager transactions the first to write wins
    Eager,
}

/// What is done about a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnConflict {
    /// Change nothing, exit with 75
    Abort,
    /// Run the command again, --retries times or 10 times
    Retry,
}

/// Durability classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// On the device when the command returns
    #[default]
    Durable,
    /// Soon, in commit order
    Ordered,
    /// May be held back a little longer
    Deferred,
}

/// Look at open transactions
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Tx {
    #[command(subcommand)]
    pub command: TxCommand,
}

#[derive(Debug, Subcommand)]
pub enum TxCommand {
    List(TxList),
}

/// List the open transactions of a mount
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs tx list
  txfs tx list ~/files --json")]
pub struct TxList {
    /// The mount or its volume; by default the mount that holds the current directory
    #[arg(value_name = "MOUNT|VOLUME", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

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
fn parse_size(text: &str) -> Result<u64, String> {
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
