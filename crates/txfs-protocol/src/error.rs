//! What can go wrong between a client and the owner of a volume.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error of a connection to a volume's owner. `errno` maps it to a system error number.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// Nobody listens: the volume is not mounted, or its owner has died.
    #[error("{volume}: not mounted (nobody answers on its socket: {source}); mount it with `txfs mount`")]
    NotMounted {
        /// The volume's directory.
        volume: PathBuf,
        /// What connecting said.
        source: io::Error,
    },
    /// The socket can't be used by this user.
    #[error("{volume}: not allowed to talk to the owner of the volume; only its user and root may")]
    NotAllowed {
        /// The volume's directory.
        volume: PathBuf,
    },
    /// The other side speaks another version.
    #[error(
        "the volume's owner speaks protocol version {theirs}, this program {ours}; mount the volume with the same txfs version"
    )]
    Version {
        /// Our version.
        ours: u32,
        /// Their version.
        theirs: u32,
    },
    /// A frame that is too long, not JSON, or not one of our messages.
    #[error("malformed message on the volume's socket: {what}")]
    Malformed {
        /// What is wrong with it.
        what: String,
    },
    /// A reply of another kind than the request asks for.
    #[error("the volume's owner answered {request} with an unexpected message")]
    Unexpected {
        /// The request's name.
        request: &'static str,
    },
    /// The owner went away in the middle: it was killed or unmounted, and the transaction is aborted.
    #[error("the volume's owner closed the connection; an open transaction is aborted")]
    Closed,
    /// Reading or writing the socket failed.
    #[error("talking to the volume's owner failed: {0}")]
    Io(#[from] io::Error),
    /// The transaction is doomed.
    #[error("the transaction conflicts with another one: {}", .0.message)]
    Conflict(Box<crate::ConflictReport>),
    /// Another participant has ended the transaction.
    #[error("{message}")]
    EndedByOther {
        /// The commit, if it was committed; otherwise nothing is left of the transaction.
        sequence: Option<u64>,
        /// How it ended.
        message: String,
    },
    /// The owner refused the request.
    #[error("{message}")]
    Remote {
        /// A Linux error number, for example ENOSPC.
        errno: i32,
        /// The owner's words.
        message: String,
    },
}

impl ProtocolError {
    /// The Linux error number that says this best.
    pub fn errno(&self) -> i32 {
        match self {
            ProtocolError::NotMounted { .. } => rustix::io::Errno::NOTCONN.raw_os_error(),
            ProtocolError::NotAllowed { .. } => rustix::io::Errno::ACCESS.raw_os_error(),
            ProtocolError::Version { .. } => rustix::io::Errno::PROTONOSUPPORT.raw_os_error(),
            ProtocolError::Malformed { .. } | ProtocolError::Unexpected { .. } => {
                rustix::io::Errno::PROTO.raw_os_error()
            }
            ProtocolError::Closed => rustix::io::Errno::CONNRESET.raw_os_error(),
            ProtocolError::Io(error) => {
                error.raw_os_error().unwrap_or_else(|| rustix::io::Errno::IO.raw_os_error())
            }
            ProtocolError::Conflict(_) => rustix::io::Errno::CANCELED.raw_os_error(),
            ProtocolError::EndedByOther { sequence: None, .. } => rustix::io::Errno::CANCELED.raw_os_error(),
            // Nothing is lost, but it is not there any more.
            ProtocolError::EndedByOther { sequence: Some(_), .. } => rustix::io::Errno::STALE.raw_os_error(),
            ProtocolError::Remote { errno, .. } => *errno,
        }
    }
}
