//! Where the contestants work: TxFS's volume and plain files on several file systems, each on a device of its own where
//! the user gives one.

pub mod embedded;
pub mod loopback;
pub mod mounted;
pub mod plain;
pub mod program;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FsWord;
use tempfile::TempDir;

use crate::Result;
use crate::device::{Device, Traffic, mounts};

/// Who works in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A volume of TxFS; the place is the host file system under it.
    Txfs,
    /// Plain files on ext4.
    Ext4,
    /// Plain files on xfs.
    Xfs,
    /// Plain files on btrfs.
    Btrfs,
    /// Plain files on a mount of TxFS.
    Mount,
    /// Plain files on another file system.
    Other,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Txfs => "TxFS",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::Mount => "TxFS mount",
            Kind::Other => "plain files",
        })
    }
}

/// A directory to work in.
#[derive(Clone, Debug)]
pub struct Place {
    /// Who works there.
    pub kind: Kind,
    /// Where.
    pub directory: PathBuf,
    /// The counters of the device under it.
    pub device: Option<Device>,
    /// The directory is the root of a file system other than the machine's own.
    is_mount: bool,
    /// Under a mount of TxFS: where its volume lies.
    host: Option<Box<Place>>,
}

impl Place {
    /// A place for plain files; the kind is that of the file system.
    pub fn plain(directory: &Path) -> Result<Place> {
        const EXT4: FsWord = 0xEF53;
        const XFS: FsWord = 0x5846_5342;
        const BTRFS: FsWord = 0x9123_683E;
        let at = |error: rustix::io::Errno| format!("{}: {error}", directory.display());
        let kind = match rustix::fs::statfs(directory).map_err(at)?.f_type {
            EXT4 => Kind::Ext4,
            XFS => Kind::Xfs,
            BTRFS => Kind::Btrfs,
            _ => Kind::Other,
        };
        Place::new(kind, directory)
    }

    /// A place for a volume.
    pub fn txfs(directory: &Path) -> Result<Place> {
        Place::new(Kind::Txfs, directory)
    }

    fn new(kind: Kind, directory: &Path) -> Result<Place> {
        let directory =
            directory.canonicalize().map_err(|error| format!("{}: {error}", directory.display()))?;
        let device = Device::under(&directory)?;
        let is_mount =
            directory.parent().is_some() && mounts()?.iter().any(|mount| directory == Path::new(&mount.at));
        Ok(Place { kind, directory, device, is_mount, host: None })
    }

    /// A directory in it that is removed when it is dropped.
    pub fn scratch(&self) -> Result<TempDir> {
        tempfile::Builder::new()
            .prefix("txfs-bench.")
            .tempdir_in(&self.directory)
            .map_err(|error| format!("{}: {error}", self.directory.display()).into())
    }

    /// What its device has seen so far; nothing without a device.
    pub fn traffic(&self) -> Result<Option<Traffic>> {
        Ok(self.device.as_ref().map(Device::traffic).transpose()?)
    }

    /// Everything that was written there reaches the device. Only where the place is a mount of its own: what others wrote
    /// to a file system is not for us to wait for, and the counters mean little there anyway.
    pub fn flush(&self) -> Result<()> {
        if self.is_mount {
            rustix::fs::syncfs(File::open(&self.directory)?)?;
        }
        self.host.as_ref().map_or(Ok(()), |host| host.flush())
    }

    /// As [`Place::flush`], and the file system's journal is written back to where it belongs, so that the device's
    /// counters hold that too. Done by freezing it for a moment, as root.
    pub fn flush_journal(&self) -> Result<()> {
        self.flush()?;
        if let Some(host) = &self.host {
            return host.flush_journal();
        }
        if self.is_mount && rustix::process::geteuid().is_root() {
            for step in ["--freeze", "--unfreeze"] {
                let status = Command::new("fsfreeze").arg(step).arg(&self.directory).status()?;
                if !status.success() {
                    return Err(format!("fsfreeze {step} {}: {status}", self.directory.display()).into());
                }
            }
        }
        Ok(())
    }
}

/// All places of a run.
#[derive(Clone, Debug)]
pub struct Places {
    /// TxFS's.
    pub txfs: Place,
    /// Those of plain files, in the order in which they take their turns.
    pub plain: Vec<Place>,
}
