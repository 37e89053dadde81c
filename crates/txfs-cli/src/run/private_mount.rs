//! `--volume VOLUME --at DIR`: a mount that lasts as long as the command, and that only the command sees.
//!
//! This process enters a mount namespace of its own and serves the mount from its own threads. It must do so before it
//! has any threads.

use std::path::{Path, PathBuf};

use super::namespace;
use crate::error::Error;
use crate::logging;
use crate::place;

/// The mount.
pub struct PrivateMount {
    mounted: txfs_fuse::MountedVolume,
    mountpoint: PathBuf,
}

impl PrivateMount {
    /// Enters the namespace and mounts.
    pub fn mount(volume: &Path, at: &Path) -> Result<PrivateMount, Error> {
        logging::start();
        let volume = volume.canonicalize().map_err(|source| Error::io("open the volume", volume, source))?;
        let mountpoint = at.canonicalize().map_err(|source| Error::io("mount at", at, source))?;
        namespace::enter_private_mount_namespace().map_err(Error::namespace)?;
        let options = txfs_fuse::MountOptions::default();
        let opened = place::open_unmounted(&volume)?;
        let mounted = txfs_fuse::mount(opened, &volume, &mountpoint, &options)?;
        // A current directory inside DIR is the one below the mount so far.
        if let Ok(directory) = std::env::current_dir()
            && directory.starts_with(&mountpoint)
        {
            std::env::set_current_dir(&directory)
                .map_err(|source| Error::io("enter, in the volume,", &directory, source))?;
        }
        Ok(PrivateMount { mounted, mountpoint })
    }

    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts and closes the volume.
    pub fn close(self) -> Result<(), Error> {
        // The mount must not be kept busy by ourselves.
        let _ = std::env::set_current_dir("/");
        // Nobody else can be using it; if something does, it is cut loose.
        if self.mounted.unmount(false).is_err() {
            self.mounted.unmount(true)?;
        }
        self.mounted.wait()?;
        Ok(())
    }
}
