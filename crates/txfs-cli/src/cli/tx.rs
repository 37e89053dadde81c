//! `txfs tx`: open, kept and prepared transactions.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Look at open transactions, and commit or abort those that are kept
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Tx {
    #[command(subcommand)]
    pub command: TxCommand,
}

#[derive(Debug, Subcommand)]
pub enum TxCommand {
    List(TxList),
    /// Show what is known of a kept transaction, and the conflicts that keep it from being committed
    Show(TxLook),
    /// Show what a kept transaction changes
    Diff(TxLook),
    Export(TxExport),
    Commit(TxCommit),
    Abort(TxEnd),
}

/// A kept transaction to look at.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs tx show monday
  txfs tx diff monday ~/volume     mounted or not
  txfs tx show monday --json")]
pub struct TxLook {
    /// Its name, as in `txfs tx list`
    pub name: String,
    /// The mount or its volume; by default the mount that holds the current directory
    #[arg(value_name = "MOUNT|VOLUME", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Write what a kept transaction began with, made of it, and conflicts with, for programs that merge
///
/// Into DIR go `base`, `ours` and `theirs`, each with all files that the transaction changes, or over which it conflicts: as it
/// found them, as it has them, and as they are now.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs tx export monday /tmp/monday
  diff3 -m /tmp/monday/ours/file /tmp/monday/base/file /tmp/monday/theirs/file")]
pub struct TxExport {
    /// Its name, as in `txfs tx list`
    pub name: String,
    /// Where to write; made where it is missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// The mount or its volume; by default the mount that holds the current directory
    #[arg(value_name = "MOUNT|VOLUME", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
}

/// Commit a kept or prepared transaction, or a part of a kept one
///
/// Its changes are applied to the volume as it is now. When others have changed what it has read or written since it began, it
/// stays as it is, and the exit code is 75. A prepared one has no conflicts.
///
/// With --only, what it changes at or below the paths is committed, all of it at once, and the rest stays kept under
/// the same name. New directories on the way come along. What makes no sense by itself, such as one half of a rename,
/// is refused, and the message says which path is missing. What others have changed counts if the part writes it, or
/// if the transaction has read it and the rest does not write it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs tx commit monday
  txfs tx commit monday ~/volume   mounted or not
  txfs tx commit monday --only src/main.c docs
  txfs tx commit monday ~/volume --only docs --json")]
pub struct TxCommit {
    /// Its name, as in `txfs tx list`
    pub name: String,
    /// The mount or its volume; by default the mount that holds the current directory
    #[arg(value_name = "MOUNT|VOLUME", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// Commit only what it changes at or below these paths
    ///
    /// From the volume's root, as `txfs tx diff` prints them; on a mount also absolute paths of files there. Both
    /// paths of what was renamed.
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    pub only: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Drop a kept or prepared transaction
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs tx abort monday
  txfs tx abort monday ~/volume    mounted or not")]
pub struct TxEnd {
    /// Its name, as in `txfs tx list`
    pub name: String,
    /// The mount or its volume; by default the mount that holds the current directory
    #[arg(value_name = "MOUNT|VOLUME", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// List the open transactions of a mount, and the kept ones of a volume
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
