//! What can go wrong with the index file.

use std::io;

/// Why the index could not be read or written. The file name is relative to the volume directory.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// Bytes of the index file are not what was written. Never served; nothing was changed.
    #[error(
        "the index file {file:?} is damaged: {what}; run `txfs check`, or restore the volume from a copy"
    )]
    Corrupt {
        /// Name of the file inside the volume.
        file: String,
        /// What was found, and where.
        what: String,
    },
    /// The host refused an operation on the index file.
    #[error("cannot {doing} the index file {file:?}: {source}")]
    Io {
        /// Name of the file inside the volume.
        file: String,
        /// The verb: `read`, `write`, `open` ...
        doing: &'static str,
        /// What the host said.
        source: io::Error,
    },
    /// The host file system has too little room for a checkpoint; found before anything was written.
    #[error(
        "a checkpoint may need {needed_bytes} bytes for the index file {file:?}, and {free_bytes} are free"
    )]
    NoSpace {
        /// Name of the file inside the volume.
        file: String,
        /// Upper estimate of what the checkpoint writes to new places.
        needed_bytes: u64,
        /// What the host file system has left.
        free_bytes: u64,
    },
    /// The index was closed, or an earlier error made it unusable until it is opened again.
    #[error("the index file {file:?} is not usable any more: {what}")]
    Unusable {
        /// Name of the file inside the volume.
        file: String,
        /// The first error, or that it was closed.
        what: String,
    },
}
