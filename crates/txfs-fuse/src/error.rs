//! Why a volume could not be mounted, served or unmounted.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error of a mount as a whole; errors of single operations go to the programs that ask for them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MountError {
    /// A snapshot of a mounted volume is bound to a directory, which not everybody may do.
    #[error("only root may mount a snapshot of a mounted volume; its files are at {}", path.display())]
    NotPermittedToBind {
        /// Where they are.
        path: PathBuf,
    },
    /// The kernel offers no FUSE.
    #[error(
        "/dev/fuse is missing: load the kernel module with `modprobe fuse`, or give the container the device"
    )]
    NoFuseDevice,
    /// A user who is not root needs the helper.
    #[error("fusermount3 is missing, and only root can mount without it: install the package fuse3")]
    NoFusermount,
    /// There is nothing at the mount point.
    #[error("{path}: the mount point does not exist; make the directory first")]
    MountPointMissing {
        /// The mount point.
        path: PathBuf,
    },
    /// It is not a directory.
    #[error("{path}: the mount point is not a directory")]
    MountPointNotDirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// A TxFS volume is mounted there already.
    #[error("{path}: the mount point is busy, {volume} is mounted there; `txfs umount {path}` first")]
    MountPointBusy {
        /// The mount point.
        path: PathBuf,
        /// The volume that is mounted there.
        volume: PathBuf,
    },
    /// A mount whose server died is still there.
    #[error(
        "{path}: a mount without its server is still there; `txfs umount {path}` (or `umount -l`) removes it"
    )]
    MountPointDead {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount would hide the volume's own files.
    #[error("{mountpoint}: the volume {volume} lies under the mount point and would be hidden by it")]
    VolumeUnderMountPoint {
        /// The mount point.
        mountpoint: PathBuf,
        /// The volume's directory.
        volume: PathBuf,
    },
    /// The kernel or fusermount3 refused.
    #[error("{path}: mounting failed: {reason}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What they said.
        reason: String,
    },
    /// Files are in use.
    #[error("{path}: in use; end the programs that use it, or unmount lazily")]
    InUse {
        /// The mount point.
        path: PathBuf,
    },
    /// Nothing is mounted there.
    #[error("{path}: nothing is mounted there")]
    NotMounted {
        /// The path given.
        path: PathBuf,
    },
    /// The owner's socket could not be made.
    #[error("{path}: can't listen on the volume's socket: {source}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The volume itself reported an error.
    #[error(transparent)]
    Volume(#[from] txfs::Error),
    /// Some other system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, and on which path.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

impl MountError {
    pub(crate) fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> MountError {
        MountError::Io { doing: doing.into(), source: source.into() }
    }

    /// The Linux error number that says this best.
    pub fn errno(&self) -> i32 {
        let system = |error: rustix::io::Errno| error.raw_os_error();
        match self {
            MountError::NoFuseDevice => system(rustix::io::Errno::NODEV),
            MountError::NoFusermount => system(rustix::io::Errno::PERM),
            MountError::MountPointMissing { .. } => system(rustix::io::Errno::NOENT),
            MountError::MountPointNotDirectory { .. } => system(rustix::io::Errno::NOTDIR),
            MountError::MountPointBusy { .. } | MountError::InUse { .. } => system(rustix::io::Errno::BUSY),
            MountError::MountPointDead { .. } => system(rustix::io::Errno::NOTCONN),
            MountError::VolumeUnderMountPoint { .. } | MountError::NotMounted { .. } => {
                system(rustix::io::Errno::INVAL)
            }
            MountError::Refused { .. } | MountError::NotPermittedToBind { .. } => {
                system(rustix::io::Errno::PERM)
            }
            MountError::Volume(error) => error.errno(),
            MountError::Socket { source, .. } | MountError::Io { source, .. } => {
                source.raw_os_error().unwrap_or(system(rustix::io::Errno::IO))
            }
        }
    }
}
