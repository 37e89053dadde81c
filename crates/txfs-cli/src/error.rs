//! Everything that can go wrong in the command, what to do about it, and the exit code for it.

use std::io;
use std::path::{Path, PathBuf};

use txfs::EngineError;
use txfs_fuse::MountError;
use txfs_protocol::ProtocolError;

use crate::exit_code::ExitCode;
use crate::run::NamespaceError;

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `run`, `tx`: nothing of TxFS here.
    #[error("{} is not on a TxFS mount", path.display())]
    NotOnMount {
        /// What was looked at.
        path: PathBuf,
    },
    /// Only a part of the file system is mounted where we can see it.
    #[error("the root of the mount at {} is not visible here", mountpoint.display())]
    RootNotVisible {
        /// The part that is.
        mountpoint: PathBuf,
    },
    /// An option that only the outermost `txfs run` can honour.
    #[error("{option} has no meaning inside a transaction: the outermost txfs run decides")]
    NestedOption {
        /// Which.
        option: &'static str,
    },
    /// `--review` without a terminal.
    #[error("--review needs a terminal to ask on, and there is none: {}", reason(source))]
    NoTerminal {
        /// Why /dev/tty cannot be opened.
        source: io::Error,
    },
    /// The command's namespace could not be set up.
    #[error("{message}")]
    Namespace {
        /// What failed.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A part of `txfs run` itself failed.
    #[error("{doing}: {}", reason(source))]
    Run {
        /// What was to be done, as a sentence.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke between the request to commit and the answer.
    #[error("the owner of the mount ended during the commit, so its outcome is not known: {source}")]
    CommitUnknown {
        /// How it broke.
        source: ProtocolError,
    },
    /// Somebody killed the supervisor.
    #[error("the command's supervisor was killed, and the command with it: the transaction is aborted")]
    SupervisorDied,
    /// Processes that withstand SIGKILL could still be writing.
    #[error("processes of the command cannot be ended, so nothing is committed: {}", processes.join(", "))]
    ProcessesSurvive {
        /// Which.
        processes: Vec<String>,
    },
    /// Exit code 127.
    #[error("{}: command not found", command.display())]
    CommandNotFound {
        /// The command.
        command: PathBuf,
    },
    /// Exit code 126.
    #[error("{}: cannot be executed: {}", command.display(), reason(source))]
    CannotExecute {
        /// The command.
        command: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A place in a volume without the volume's or the path's part.
    #[error("{}: a place in a volume is written VOLUME:PATH", place.display())]
    NotAPlace {
        /// What was given.
        place: PathBuf,
    },
    /// The volume is in use where we cannot reach it.
    #[error("{} is in use by process {owner_pid}, at a mount point that is not visible here", volume.display())]
    MountedElsewhere {
        /// The volume.
        volume: PathBuf,
        /// Who has it.
        owner_pid: u32,
    },
    /// For what needs the volume to itself.
    #[error("{} is mounted at {} by process {owner_pid}", volume.display(), mountpoint.display())]
    Mounted {
        /// The volume.
        volume: PathBuf,
        /// Where.
        mountpoint: PathBuf,
        /// Who has it.
        owner_pid: u32,
    },
    /// Neither a mount point nor a mounted volume.
    #[error("{}: no TxFS is mounted here, and it is no volume that is mounted", target.display())]
    NotMounted {
        /// What was given.
        target: PathBuf,
    },
    /// A mount that works, without the socket that belongs to it.
    #[error("{}: its owner does not answer on the volume's socket", mountpoint.display())]
    OwnerSilent {
        /// Where.
        mountpoint: PathBuf,
    },
    /// The mount point cannot be mounted on, or not unmounted.
    #[error("{} is in use{}", mountpoint.display(), by(users))]
    MountPointBusy {
        /// Where.
        mountpoint: PathBuf,
        /// Processes, as far as we may see them.
        users: Vec<String>,
    },
    /// `umount` while transactions are open.
    #[error("{}: transactions are open: {}", mountpoint.display(), transactions.join(", "))]
    TransactionsOpen {
        /// Where.
        mountpoint: PathBuf,
        /// Which.
        transactions: Vec<String>,
    },
    /// `undo`: what the commit has left is not there any more.
    #[error("commit {commit} cannot be undone, and nothing was changed; in the way are:{message}")]
    UndoConflict {
        /// Which commit.
        commit: u64,
        /// What is in the way, each on a line.
        message: String,
    },
    /// `put`: somebody else changed the same.
    #[error("nothing was imported: {message}")]
    PutConflict {
        /// With whom.
        message: String,
    },
    /// `tx commit`: somebody else changed what it has read or written.
    #[error("{name} conflicts with others and stays as it is: {message}")]
    KeptConflict {
        /// Its name.
        name: String,
        /// With whom.
        message: String,
    },
    /// `check` found something; it has said so already.
    #[error("{}: {count} found", volume.display())]
    DamageFound {
        /// The volume.
        volume: PathBuf,
        /// `1 problem`, `2 problems`.
        count: String,
    },
    /// The background process has told its error itself.
    #[error("the mount was not started")]
    Daemon {
        /// Its exit code; none when it was killed.
        code: Option<u8>,
    },
    /// The library.
    #[error("{}", with_place(place, source))]
    Volume {
        /// Of which volume.
        place: PathBuf,
        /// What.
        source: txfs::Error,
    },
    /// The mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The owner of the mount.
    #[error(transparent)]
    Owner(#[from] ProtocolError),
    /// A system call.
    #[error("cannot {doing} {}: {}", path.display(), reason(source))]
    Io {
        /// `open`, `read` ...
        doing: &'static str,
        /// What.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Arguments that contradict each other in a way that the parser cannot see.
    #[error("{0}")]
    Usage(String),
}

/// The message names the volume, once.
fn with_place(place: &Path, error: &txfs::Error) -> String {
    let (place, message) = (place.display().to_string(), error.to_string());
    if message.contains(&place) { message } else { format!("{place}: {message}") }
}

fn by(users: &[String]) -> String {
    if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) }
}

/// As C programs have it: `No such file or directory`, without the number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// The error number in an I/O error, also where the library wrapped its own into it.
pub fn errno(error: &io::Error) -> Option<i32> {
    error
        .raw_os_error()
        .or_else(|| Some(error.get_ref()?.downcast_ref::<txfs::Error>()?.errno()))
        .or_else(|| (error.kind() == io::ErrorKind::NotFound).then_some(libc::ENOENT))
}

impl Error {
    /// A failed system call.
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { doing, path: path.to_path_buf(), source }
    }

    /// A failure of `txfs run` itself.
    pub fn run(doing: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Run { doing, source: source.into() }
    }

    /// A failed commit: the owner's refusal means that nothing was changed, a broken connection means nothing.
    pub fn commit(source: ProtocolError) -> Error {
        match source {
            ProtocolError::Remote { .. } => Error::Owner(source),
            source => Error::CommitUnknown { source },
        }
    }

    /// A failure to get the command or a private mount into a namespace.
    pub fn namespace(error: NamespaceError) -> Error {
        Error::Namespace { message: error.to_string(), hint: error.hint().map(str::to_owned) }
    }

    /// The library's.
    pub fn volume(place: &Path, source: txfs::Error) -> Error {
        Error::Volume { place: place.to_path_buf(), source }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::NotOnMount { .. } => "use --mount DIR or --volume VOLUME --at DIR",
            Error::RootNotVisible { .. } => {
                "mount the volume's root as well, or run this where it is visible"
            }
            Error::NoTerminal { .. } => "run it from a terminal, or use --dry-run to only list the changes",
            Error::Namespace { hint, .. } => return hint.clone(),
            Error::MountedElsewhere { .. } => {
                "wait until it has ended; txfs run --volume keeps a volume to itself"
            }
            Error::Mounted { mountpoint, .. } => {
                return Some(format!("unmount it first: txfs umount {}", mountpoint.display()));
            }
            Error::NotMounted { .. } => {
                "txfs mount VOLUME MOUNTPOINT mounts a volume; findmnt -t fuse.txfs lists all mounts"
            }
            Error::OwnerSilent { .. } => "try again in a moment, or unmount it with umount (fusermount3 -u)",
            Error::MountPointBusy { .. } => "end them, or detach it at once: txfs umount --lazy",
            Error::TransactionsOpen { .. } => "wait for them, or detach it at once: txfs umount --lazy",
            Error::CommitUnknown { .. } => {
                "mount the volume and look: either all of the changes are there, or none"
            }
            Error::PutConflict { .. } => "try again",
            Error::KeptConflict { .. } => {
                "txfs tx show NAME lists all conflicts, txfs tx diff NAME what it would change; txfs tx commit NAME --only PATH \
                 commits what others have not touched, txfs tx abort NAME drops it"
            }
            Error::UndoConflict { .. } => "undo the commits that did that first, the last one first",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// What the subcommands other than `run` exit with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Error::NotOnMount { .. } | Error::NotMounted { .. } | Error::RootNotVisible { .. } => {
                ExitCode::NotFound
            }
            Error::NotAPlace { .. } | Error::Usage(_) | Error::NestedOption { .. } => ExitCode::Usage,
            Error::Mounted { .. }
            | Error::MountedElsewhere { .. }
            | Error::MountPointBusy { .. }
            | Error::OwnerSilent { .. }
            | Error::TransactionsOpen { .. } => ExitCode::Busy,
            Error::PutConflict { .. } | Error::KeptConflict { .. } | Error::UndoConflict { .. } => {
                ExitCode::Conflict
            }
            Error::DamageFound { .. } => ExitCode::Damaged,
            Error::Volume { source, .. } => volume_exit_code(source),
            Error::Mount(error) => mount_exit_code(error),
            Error::Owner(error) => match error {
                ProtocolError::NotMounted { .. } => ExitCode::NotFound,
                other => errno_exit_code(Some(other.errno())),
            },
            Error::Io { source, .. } | Error::Run { source, .. } => {
                match source.get_ref().and_then(|inner| inner.downcast_ref::<txfs::Error>()) {
                    Some(error) => volume_exit_code(error),
                    None => errno_exit_code(errno(source)),
                }
            }
            Error::CommandNotFound { .. } => ExitCode::CommandNotFound,
            Error::CannotExecute { .. } => ExitCode::CannotExecute,
            Error::Daemon { .. } => ExitCode::Failure,
            Error::NoTerminal { .. }
            | Error::Namespace { .. }
            | Error::CommitUnknown { .. }
            | Error::SupervisorDied
            | Error::ProcessesSurvive { .. } => ExitCode::RunFailed,
        }
    }

    /// What `run` exits with: its own failures are all 125.
    pub fn run_exit_code(&self) -> ExitCode {
        match self {
            Error::CommandNotFound { .. } => ExitCode::CommandNotFound,
            Error::CannotExecute { .. } => ExitCode::CannotExecute,
            _ => ExitCode::RunFailed,
        }
    }
}

fn volume_exit_code(error: &txfs::Error) -> ExitCode {
    match error {
        txfs::Error::Corrupt { .. }
        | txfs::Error::Engine(
            EngineError::Corrupt { .. }
            | EngineError::MissingManifest
            | EngineError::MissingFile { .. }
            | EngineError::Index(_),
        ) => ExitCode::Damaged,
        txfs::Error::Engine(EngineError::NewerFormat { .. }) => ExitCode::NewerFormat,
        txfs::Error::Engine(EngineError::NotAVolume { .. }) => ExitCode::NotFound,
        txfs::Error::Engine(EngineError::AlreadyOpen { .. }) => ExitCode::Busy,
        txfs::Error::Engine(EngineError::Io { source, .. })
            if source.kind() == io::ErrorKind::AlreadyExists =>
        {
            ExitCode::Failure
        }
        txfs::Error::At { source, .. } => volume_exit_code(source),
        other => errno_exit_code(Some(other.errno())),
    }
}

fn mount_exit_code(error: &MountError) -> ExitCode {
    match error {
        MountError::NoFuseDevice | MountError::NoFusermount => ExitCode::FuseUnavailable,
        MountError::MountPointBusy { .. } | MountError::MountPointDead { .. } | MountError::InUse { .. } => {
            ExitCode::Busy
        }
        MountError::NotMounted { .. } => ExitCode::NotFound,
        MountError::Volume(error) => volume_exit_code(error),
        other => errno_exit_code(Some(other.errno())),
    }
}

fn errno_exit_code(errno: Option<i32>) -> ExitCode {
    match errno {
        Some(libc::ENOENT | libc::ENOTDIR) => ExitCode::NotFound,
        Some(libc::ENOSPC | libc::EDQUOT) => ExitCode::NoSpace,
        Some(libc::EIO) => ExitCode::InputOutput,
        Some(libc::ECANCELED) => ExitCode::Conflict,
        Some(libc::EPERM | libc::EACCES) => ExitCode::PermissionDenied,
        Some(libc::EBUSY) => ExitCode::Busy,
        _ => ExitCode::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_numbers_come_through_io_errors() {
        let error = io::Error::from(txfs::Error::NoSpace);
        assert_eq!(errno(&error), Some(libc::ENOSPC));
        assert_eq!(Error::io("write", Path::new("x"), error).exit_code(), ExitCode::NoSpace);
    }

    #[test]
    fn run_has_only_its_three_codes() {
        let error = Error::NotOnMount { path: "/".into() };
        assert_eq!(error.run_exit_code(), ExitCode::RunFailed);
        let missing = Error::CommandNotFound { command: "x".into() };
        assert_eq!(missing.run_exit_code(), ExitCode::CommandNotFound);
    }
}
