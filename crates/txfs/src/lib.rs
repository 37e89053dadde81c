//! TxFS: a file system with ACID transactions over ordinary files, as a library.
//!
//! A [`Volume`] is a directory of the host's file system that holds a whole tree of files. All changes to it are
//! made in transactions: a [`Transaction`] reads one snapshot of the volume and its own changes, nobody else sees
//! them before [`Transaction::commit`], and after a crash either all of them are there or none is. Operations
//! outside a transaction go through [`Volume::base`], where each one is a small transaction of its own.
//!
//! ```
//! use txfs::{Durability, Paths, Volume};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("vol");
//! Volume::create(&path)?;
//! let volume = Volume::open(&path)?;
//!
//! let tx = volume.begin();
//! tx.create_dir_all("mail/new")?;
//! tx.write_file("mail/new/7.eml", b"Subject: hello\n")?;
//! tx.write_file("mail/index", b"7\n")?;
//! assert!(volume.base().read_file("mail/index").is_err(), "not visible before the commit");
//! tx.commit(Durability::Durable)?;
//!
//! assert_eq!(volume.base().read_file("mail/index")?, b"7\n");
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//! * [`View`] is the set of POSIX operations on inode numbers; [`Transaction`], [`BaseView`] and [`SnapshotView`]
//!   implement it. [`Paths`] adds operations on paths to every view, [`File`] an open file with a position.
//! * [`Error`] says what failed and on which path; [`Error::errno`] is its POSIX number. Two transactions that
//!   cannot both be true end in [`Error::Conflict`] for the second one to commit.
//! * [`Volume::check`] examines a whole volume.
//!
//! Permissions are stored but not enforced: the kernel does that on a mount, and an embedding process owns its
//! volume anyway.

mod attempts;
mod base;
mod check;
mod conflict;
mod error;
mod file;
mod history;
mod kept;
mod named;
mod observe;
mod options;
mod origin;
mod paths;
mod place;
mod reclaim;
mod records;
mod shared;
mod snapshot;
mod transaction;
mod types;
mod undo;
mod view;
mod volume;

pub use attempts::{Attempts, back_off};
pub use base::BaseView;
pub use check::{Problem, ProblemKind, VolumeCheck};
pub use conflict::{Access, Conflict, ConflictKind, ConflictReport, Other, OtherState};
pub use error::{Error, Result};
pub use file::{File, FileOptions};
pub use history::RecordedCommit;
pub use kept::{KeptPart, KeptSide, KeptState, KeptTransaction};
pub use named::{SNAPSHOT_NAME_BYTES_MAX, SNAPSHOTS_MAX, SnapshotInfo};
pub use observe::{CommitChanges, CommitObserver};
pub use options::{Clock, CreateOptions, Isolation, OpenOptions, Policy, TransactionOptions};
pub use origin::set_caller;
pub use paths::{Paths, WalkEntry};
pub use place::Place;
pub use records::history::UndoState;
pub use snapshot::SnapshotView;
pub use transaction::changes::{Change, ChangeKind};
pub use transaction::restore::Restored;
pub use transaction::savepoint::Savepoint;
pub use transaction::{CommitReceipt, Transaction};
pub use txfs_engine::{
    CleanOptions, CleanReport, Durability, EngineError, EngineStat, RecoveryReport, SpaceStat,
};
pub use types::{
    AllocateMode, Attributes, DirectoryEntry, Ino, NAME_BYTES_MAX, NewNode, NodeKind, PAGE_BYTES, ROOT_INO,
    RenameMode, SetAttributes, SetTime, Statistics, Timestamp, XattrMode,
};
pub use view::View;
pub use volume::{Volume, VolumeStat};
