//! `txfs run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

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
  txfs run --keep monday -- ./import.sh          keep it; commit it later with txfs tx commit monday
  txfs run --prepare order-7 -- ./order.sh       the first of two phases; then txfs tx commit order-7
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
Only after 0 is anything changed, and with --keep and --prepare not even then, but when txfs tx commit NAME says so.

--json writes one line of JSON when all is done, to FILE, or to standard error as its last line, because standard
output belongs to the command: outcome (committed, unchanged, kept, prepared, aborted, conflict, declined, dry-run, failed,
unknown), exit_code, sequence, kept, changes, attempts, duration_ms, conflicts (each with kind, access, path and other: state, the commit,
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
    /// Keep the changes under NAME instead of committing them; with --on-conflict keep only if they conflict
    #[arg(long, value_name = "NAME", conflicts_with = "dry_run")]
    pub keep: Option<String>,
    /// Keep the changes under NAME, certain to be committed when that is asked for
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dry_run", "keep"])]
    pub prepare: Option<String>,
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
    /// Keep the changes, for txfs tx; exit with 75 all the same
    Keep,
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
