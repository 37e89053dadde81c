//! Everything that can go wrong, with its POSIX number.

use std::path::{Path, PathBuf};

use txfs_engine::EngineError;

use crate::conflict::{Conflict, ConflictReport};

/// Result of an operation on a volume.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. [`Error::errno`] gives the POSIX number.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `ENOENT`
    #[error("no such file or directory")]
    NotFound,
    /// `EEXIST`
    #[error("it exists already")]
    Exists,
    /// `ENOTDIR`
    #[error("not a directory")]
    NotDirectory,
    /// `EISDIR`
    #[error("it is a directory")]
    IsDirectory,
    /// `ENOTEMPTY`
    #[error("the directory is not empty")]
    NotEmpty,
    /// `EINVAL`
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// `EPERM`
    #[error("not permitted: {0}")]
    NotPermitted(&'static str),
    /// `ENAMETOOLONG`
    #[error("the name is longer than {} bytes", crate::NAME_BYTES_MAX)]
    NameTooLong,
    /// `EMLINK`
    #[error("the node has too many names")]
    TooManyLinks,
    /// `EFBIG`
    #[error("the file would become too large")]
    FileTooLarge,
    /// `ELOOP`
    #[error("too many symbolic links on the way")]
    TooManySymlinks,
    /// `ENODATA`
    #[error("no such extended attribute")]
    NoAttribute,
    /// `ERANGE`
    #[error("the extended attribute's name is too long")]
    AttributeNameTooLong,
    /// `E2BIG`
    #[error("the extended attribute's value is too large")]
    AttributeTooLarge,
    /// `ENOTSUP`
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// `ENXIO`
    #[error("no such place in the file: it lies behind the end, or there is no more data")]
    NoSuchPlace,
    /// `EROFS`
    #[error("this view is read-only")]
    ReadOnly,
    /// `ESTALE`
    #[error("inode {ino} does not exist any more")]
    Stale {
        /// The inode asked for.
        ino: u64,
    },
    /// `EBADF`
    #[error("the file is not open for {0}")]
    NotOpenFor(&'static str),
    /// `EINVAL`: an operation on a transaction that has been committed or aborted.
    #[error("the transaction has ended ({0}): begin a new one")]
    TransactionEnded(&'static str),
    /// `ECANCELED`: the transaction cannot commit any more; abort it and try again.
    #[error("conflict with another transaction over {0}: run the transaction again")]
    Conflict(Box<ConflictReport>),
    /// `ECANCELED`: what a commit has left is not there any more, so that it cannot be undone.
    #[error("commit {sequence} cannot be undone: {report}; nothing was changed")]
    UndoConflict {
        /// The commit.
        sequence: u64,
        /// What is in the way.
        report: Box<ConflictReport>,
    },
    /// `ENODATA`: a commit that cannot be undone, whatever the volume looks like.
    #[error("commit {sequence} cannot be undone: {why}")]
    NotUndoable {
        /// The commit.
        sequence: u64,
        /// Why.
        why: &'static str,
    },
    /// `EBUSY`: a prepared transaction has read or written what would change, and is certain to commit.
    #[error("held by the prepared transaction {name:?}{}: commit or abort that one, and try again", where_held(.path))]
    Held {
        /// Its name.
        name: String,
        /// A node that it is about; of a name, the directory.
        ino: u64,
        /// A path of it, where it could be found out.
        path: Option<PathBuf>,
    },
    /// `EEXIST`: there is a kept or prepared transaction of that name.
    #[error("there is a kept transaction {name:?} already: choose another name, or commit or abort that one")]
    KeptExists {
        /// The name.
        name: String,
    },
    /// `ENOENT`: there is no kept or prepared transaction of that name.
    #[error("there is no kept transaction {name:?}")]
    NoSuchKept {
        /// The name.
        name: String,
    },
    /// `EBUSY`: somebody is committing or aborting it.
    #[error("the kept transaction {name:?} is being committed or aborted")]
    KeptInUse {
        /// Its name.
        name: String,
    },
    /// `ENOENT`: a part of a kept transaction that it does not have.
    #[error(
        "the kept transaction {name:?} changes nothing at or below {}: `txfs tx diff` shows what it changes", path.display()
    )]
    NotInKept {
        /// Its name.
        name: String,
        /// The path that was asked for.
        path: PathBuf,
    },
    /// `EINVAL`: a part of a kept transaction makes no sense without another one.
    #[error("{} cannot be committed without {}, since {why}: also name {}", path.display(), other.display(), other.display())]
    NotSeparable {
        /// The path that was asked for, or one below it.
        path: PathBuf,
        /// The one that it needs.
        other: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// `EINVAL`: a prepared transaction has promised to commit as a whole.
    #[error("{name:?} is prepared, so it commits as a whole or not at all: leave out the paths, or abort it")]
    PreparedAsWhole {
        /// Its name.
        name: String,
    },
    /// `ENOENT`
    #[error("there is no snapshot {name:?}; `txfs snapshot list` shows those that there are")]
    NoSuchSnapshot {
        /// The name asked for.
        name: String,
    },
    /// `EEXIST`
    #[error("there is a snapshot {name:?} already: delete it first, or choose another name")]
    SnapshotExists {
        /// The name asked for.
        name: String,
    },
    /// `EBUSY`
    #[error("somebody has the snapshot {name:?} open: unmount it and try again")]
    SnapshotInUse {
        /// Its name.
        name: String,
    },
    /// `ENOSPC`
    #[error("there are {} snapshots already: delete one of them", crate::SNAPSHOTS_MAX)]
    TooManySnapshots,
    /// `ENOSPC`
    #[error("no space left on the file system that holds the volume: free some and try again")]
    NoSpace,
    /// `ENOSPC`: the space is held by snapshots or open transactions that have not ended for a while.
    #[error(
        "no space left: {segments} log segments hold only what snapshots or open transactions still see, and none of those \
         has ended for {} s: end them and try again", .waited.as_secs_f32()
    )]
    SpaceHeld {
        /// How many segments wait for them.
        segments: u64,
        /// For how long none of them has ended.
        waited: std::time::Duration,
    },
    /// `EIO`: stored bytes do not decode or do not match their checksum.
    #[error("damaged: {what}; run `txfs check` on the volume")]
    Corrupt {
        /// What is damaged, and how.
        what: String,
    },
    /// An error of the engine that is none of the above: the volume is already open, not a volume, of a newer
    /// format, closed, poisoned by a failed flush ...
    #[error(transparent)]
    Engine(EngineError),
    /// An error with the path that it happened on.
    #[error("cannot {doing} {}: {source}", path.display())]
    At {
        /// What was to be done: "open", "rename" ...
        doing: &'static str,
        /// The path inside the volume.
        path: PathBuf,
        /// What went wrong.
        source: Box<Error>,
    },
}

impl Error {
    /// The POSIX error number, as in Linux's `errno.h`.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound | Error::NoSuchSnapshot { .. } => 2,
            Error::Exists | Error::SnapshotExists { .. } => 17,
            Error::SnapshotInUse { .. } => 16,
            Error::NotDirectory => 20,
            Error::IsDirectory => 21,
            Error::NotEmpty => 39,
            Error::Invalid(_) | Error::TransactionEnded(_) => 22,
            Error::NotPermitted(_) => 1,
            Error::NameTooLong => 36,
            Error::TooManyLinks => 31,
            Error::FileTooLarge => 27,
            Error::TooManySymlinks => 40,
            Error::NoAttribute | Error::NotUndoable { .. } => 61,
            Error::AttributeNameTooLong => 34,
            Error::AttributeTooLarge => 7,
            Error::NotSupported(_) => 95,
            Error::NoSuchPlace => 6,
            Error::ReadOnly => 30,
            Error::Stale { .. } => 116,
            Error::NotOpenFor(_) => 9,
            Error::Conflict(_) | Error::UndoConflict { .. } => 125,
            Error::Held { .. } | Error::KeptInUse { .. } => 16,
            Error::KeptExists { .. } => 17,
            Error::NoSuchKept { .. } | Error::NotInKept { .. } => 2,
            Error::NotSeparable { .. } | Error::PreparedAsWhole { .. } => 22,
            Error::NoSpace | Error::SpaceHeld { .. } | Error::TooManySnapshots => 28,
            Error::Corrupt { .. } => 5,
            Error::Engine(error) => engine_errno(error),
            Error::At { source, .. } => source.errno(),
        }
    }

    /// True when another transaction was in the way: the same transaction, run again, may succeed.
    pub fn is_conflict(&self) -> bool {
        self.conflicts().is_some()
    }

    /// The first conflict, if it is one.
    pub fn conflict(&self) -> Option<&Conflict> {
        self.conflicts().and_then(|report| report.conflicts.first())
    }

    /// All conflicts, if it is one.
    pub fn conflicts(&self) -> Option<&ConflictReport> {
        match self {
            Error::Conflict(report) => Some(report),
            Error::At { source, .. } => source.conflicts(),
            _ => None,
        }
    }

    /// True when the thing asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        self.errno() == 2
    }

    pub(crate) fn at(self, doing: &'static str, path: &Path) -> Error {
        match self {
            already @ Error::At { .. } => already,
            source => Error::At { doing, path: path.to_path_buf(), source: Box::new(source) },
        }
    }
}

fn where_held(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default()
}

fn engine_errno(error: &EngineError) -> i32 {
    match error {
        EngineError::Conflict(_) => 125,
        EngineError::NoSpace { .. } | EngineError::SpaceHeld { .. } => 28,
        EngineError::AlreadyOpen { .. } | EngineError::Held { .. } => 16,
        EngineError::AlreadyExists { .. } => 17,
        EngineError::NotAVolume { .. } | EngineError::NewerFormat { .. } | EngineError::InvalidOption(_) => {
            22
        }
        EngineError::Closed => 108,
        EngineError::TooLarge(_) => 7,
        EngineError::Io { source, .. } => io_errno(source),
        _ => 5,
    }
}

/// The number of an I/O error, which may have been wrapped with what it happened on.
fn io_errno(error: &std::io::Error) -> i32 {
    use std::io::ErrorKind;
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::NotFound => 2,
        ErrorKind::PermissionDenied => 13,
        ErrorKind::AlreadyExists => 17,
        ErrorKind::NotADirectory => 20,
        ErrorKind::InvalidInput => 22,
        ErrorKind::StorageFull => 28,
        ErrorKind::ReadOnlyFilesystem => 30,
        _ => 5,
    })
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        match error {
            EngineError::NoSpace { .. } => Error::NoSpace,
            EngineError::Held { name, range } => Error::Held { name, ino: range.object, path: None },
            EngineError::SpaceHeld { segments, waited } => Error::SpaceHeld { segments, waited },
            EngineError::Corrupt { place, detail } => Error::Corrupt { what: format!("{place}: {detail}") },
            EngineError::Application(error) => match error.downcast::<Error>() {
                Ok(error) => *error,
                Err(error) => Error::Engine(EngineError::Application(error)),
            },
            error => Error::Engine(error),
        }
    }
}

impl From<Error> for EngineError {
    fn from(error: Error) -> EngineError {
        match error {
            Error::Engine(error) => error,
            error => EngineError::application(error),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}
