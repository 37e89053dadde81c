//! What can go wrong in the engine. Every error says what failed, where, and what to do about it.

use std::io;

use crate::format::FormatError;
use crate::index::IndexError;
use crate::txn::claims::ClaimKind;
use crate::txn::conflict::ConflictRange;
use crate::txn::origin::Origin;

/// Shorthand for the engine's results.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Conflicts that a report lists, and those that it counts.
const LISTED_MAX: usize = 100;
const COUNTED_MAX: u64 = 10_000;

/// Why a commit was refused, or why it would be: what it read or wrote and somebody else touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConflictReport {
    /// The first hundred of them; what was written comes first.
    pub clashes: Vec<Clash>,
    /// How many more there are; nobody counts beyond ten thousand.
    pub more: u64,
}

/// One range on which two transactions met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The part of this transaction's read or write set that the other one touched.
    pub range: ConflictRange,
    /// True when the range is in the write set, false when it was only read.
    pub written: bool,
    /// The other one.
    pub with: Opponent,
}

/// Whom a transaction has met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opponent {
    /// Somebody who has committed.
    Commit {
        /// Sequence number of the commit.
        sequence: u64,
        /// Who made it.
        origin: Origin,
    },
    /// Somebody who has not, and who has claimed it.
    Claim {
        /// What that means.
        kind: ClaimKind,
        /// Who it is.
        origin: Origin,
    },
}

impl Clash {
    /// Sequence number of the other commit.
    pub fn sequence(&self) -> Option<u64> {
        match self.with {
            Opponent::Commit { sequence, .. } => Some(sequence),
            Opponent::Claim { .. } => None,
        }
    }
}

impl ConflictReport {
    /// True when there is no conflict.
    pub fn is_empty(&self) -> bool {
        self.clashes.is_empty()
    }

    /// True when waiting may help: nothing in particular is in the way.
    pub(crate) fn is_about_everything(&self) -> bool {
        let general =
            |clash: &Clash| matches!(clash.with, Opponent::Claim { kind: ClaimKind::Everything, .. });
        !self.is_empty() && self.clashes.iter().all(general)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.more >= COUNTED_MAX
    }

    /// Adds one, unless its range is there already.
    pub fn add(&mut self, range: ConflictRange, written: bool, with: &Opponent) {
        self.add_with(range, written, || with.clone());
    }

    /// Adds one, unless its range is there already: what was written has often been read as well.
    pub(crate) fn add_with(&mut self, range: ConflictRange, written: bool, with: impl FnOnce() -> Opponent) {
        if self.clashes.iter().any(|clash| clash.range.covers(&range)) {
            return;
        }
        match self.clashes.len() < LISTED_MAX {
            true => self.clashes.push(Clash { range, written, with: with() }),
            false => self.more += 1,
        }
    }
}

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A commit since the snapshot overlaps this transaction; abort it and run it again.
    #[error("conflict with {}: run the transaction again", opponents(.0))]
    Conflict(Box<ConflictReport>),
    /// A prepared transaction has read or written what the commit would change, and is certain to commit.
    #[error("held by the prepared transaction {name}, until that is committed or aborted")]
    Held {
        /// Its name.
        name: String,
        /// What it holds of what the commit would change.
        range: ConflictRange,
    },
    /// The host file system is full; nothing has changed.
    #[error(
        "no space left for {doing}: free space on the file system that holds the volume, or delete files"
    )]
    NoSpace {
        /// What needed the space.
        doing: String,
    },
    /// What was overwritten or deleted would be space enough, but snapshots or open transactions go on seeing it;
    /// nothing has changed.
    #[error(
        "no space left: {segments} segments hold only what snapshots or open transactions still see, and none of those \
         has ended for {} s: end them and try again", .waited.as_secs_f32()
    )]
    SpaceHeld {
        /// How many segments wait for them.
        segments: u64,
        /// For how long none of them has ended.
        waited: std::time::Duration,
    },
    /// An earlier write or flush failed, so nothing more is acknowledged; close the volume and open it again.
    #[error(
        "the volume stopped taking changes after {cause}; reads go on: unmount it and open it again to recover"
    )]
    Poisoned {
        /// The failure that did it.
        cause: String,
    },
    /// Bytes on disk are not what was written there.
    #[error("{place} is damaged: {detail}")]
    Corrupt {
        /// The file and the place in it.
        place: String,
        /// What is wrong.
        detail: String,
    },
    /// Data of a commit that was not durable, which a failed write or flush took away.
    #[error(
        "{place} cannot be read: it was not on stable storage yet when the volume stopped taking changes after {cause}; \
         unmount it and open it again to recover"
    )]
    Lost {
        /// The file and the place in it.
        place: String,
        /// The failure that did it.
        cause: String,
    },
    /// There is no volume here.
    #[error("not a TxFS volume: {detail}; `txfs mkfs` makes one")]
    NotAVolume {
        /// What was found instead.
        detail: String,
    },
    /// The volume's files are here but the manifest is not.
    #[error(
        "the volume's MANIFEST is missing, although its other files are here: restore MANIFEST from a backup of this volume"
    )]
    MissingManifest,
    /// A file that the volume cannot do without is missing.
    #[error("the volume's file {name} is missing: restore it from a backup of this volume")]
    MissingFile {
        /// The file's name.
        name: String,
    },
    /// There is something in the place where a volume was to be created.
    #[error("cannot create a volume here: {detail}")]
    AlreadyExists {
        /// What is in the way.
        detail: String,
    },
    /// A newer TxFS wrote the volume.
    #[error(
        "the volume has format version {found}, and this program reads up to version {supported}: use a newer txfs"
    )]
    NewerFormat {
        /// Version on disk.
        found: u32,
        /// Newest version known here.
        supported: u32,
    },
    /// Another process owns the volume.
    #[error("the volume is already open{}", if .owner.is_empty() { String::new() } else { format!(": {}", .owner) })]
    AlreadyOpen {
        /// What the owner left in the lock file, its process id as a rule.
        owner: String,
    },
    /// The volume was closed.
    #[error("the volume is closed")]
    Closed,
    /// An option has an impossible value.
    #[error("{0}")]
    InvalidOption(String),
    /// The transaction is larger than the format can describe.
    #[error("{0}")]
    TooLarge(String),
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, with the file's name.
        doing: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The index file could not be read or written.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The apply function refused; the error is the caller's own.
    #[error("{0}")]
    Application(Box<dyn std::error::Error + Send + Sync>),
}

impl EngineError {
    /// Wraps an I/O error with what was being done; a full file system becomes [`EngineError::NoSpace`].
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> EngineError {
        let doing = doing.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::NoSpace { doing },
            _ => EngineError::Io { doing, source },
        }
    }

    /// Bytes at `place` that do not decode.
    pub(crate) fn corrupt(place: impl Into<String>, error: &FormatError) -> EngineError {
        match *error {
            FormatError::Newer { found, .. } => {
                EngineError::NewerFormat { found, supported: crate::format::FORMAT_VERSION }
            }
            _ => EngineError::Corrupt { place: place.into(), detail: error.to_string() },
        }
    }

    /// Wraps an error of the layer above, to be carried through [`crate::Engine::commit`].
    pub fn application(error: impl std::error::Error + Send + Sync + 'static) -> EngineError {
        EngineError::Application(Box::new(error))
    }
}

fn opponents(report: &ConflictReport) -> String {
    match report.clashes.first().map(|clash| &clash.with) {
        Some(Opponent::Commit { sequence, .. }) => format!("commit {sequence}"),
        Some(Opponent::Claim { .. }) | None => "another transaction".into(),
    }
}
