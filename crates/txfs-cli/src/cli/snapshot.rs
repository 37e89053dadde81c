//! `txfs snapshot`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Make, list, mount, restore from and delete named snapshots of a volume
///
/// A snapshot keeps the whole volume as it is at that moment. Making one takes a moment, however large the volume is; from then on
/// the volume keeps what is overwritten or deleted, until the snapshot is deleted.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Snapshot {
    #[command(subcommand)]
    pub command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Keep the volume as it is now under a name
    Create(SnapshotName),
    /// List the snapshots of a volume, oldest first
    List(SnapshotList),
    /// Mount a snapshot read-only
    ///
    /// Of a volume that is not mounted, the snapshot is mounted by itself, until `txfs umount`. Of a mounted one, its files are at
    /// .txfs/snapshots/NAME in the mount; the snapshot is bound to the directory, which takes root.
    Mount(SnapshotMount),
    /// Make paths as they were in a snapshot, in one transaction
    ///
    /// Files get the content and attributes that they had; directories get back everything below them, and lose what was not there
    /// then. All of it happens or nothing, and it is a commit that `txfs log` shows.
    Restore(SnapshotRestore),
    /// Delete a snapshot, and free what only that one kept
    ///
    /// Refused while the snapshot is mounted.
    Delete(SnapshotName),
}

/// A snapshot's name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs snapshot create monday
  txfs snapshot create before-upgrade ~/volume     mounted or not
  txfs snapshot delete monday --json")]
pub struct SnapshotName {
    /// Its name
    pub name: String,
    /// The volume, or its mount; by default the mount that holds the current directory
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Which volume's snapshots.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs snapshot list
  txfs snapshot list ~/volume --json")]
pub struct SnapshotList {
    /// The volume, or its mount; by default the mount that holds the current directory
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What to mount where.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs snapshot mount ~/volume monday /mnt
  ls ~/files/.txfs/snapshots/monday     without mounting it, where the volume is mounted")]
pub struct SnapshotMount {
    /// The volume, or its mount
    #[arg(value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Name of the snapshot
    pub name: String,
    /// An existing directory
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
}

/// What to restore.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  txfs snapshot restore monday src/main.c
  txfs snapshot restore monday --volume ~/volume /etc /home/ann/notes
  txfs snapshot restore monday /                 everything")]
pub struct SnapshotRestore {
    /// Name of the snapshot
    pub name: String,
    /// What to restore, from the root of the volume
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// The volume, or its mount; by default the mount that holds the current directory
    #[arg(long, value_name = "VOLUME|MOUNT", value_hint = ValueHint::DirPath)]
    pub volume: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
