//! Which mount a transaction is for, and whether this process is inside one already.

use std::path::{Path, PathBuf};

use txfs_protocol::PathText;
use txfs_protocol::mounts::{self, Mount};

use super::control::Bind;
use crate::error::Error;

/// Set for the command: the number of its transaction.
pub const TRANSACTION_VARIABLE: &str = "TXFS_TRANSACTION";
/// Set for the command: the mount point that its transaction is for.
pub const MOUNT_VARIABLE: &str = "TXFS_MOUNT";

/// A TxFS mount, in all the places where this process sees it.
#[derive(Debug)]
pub struct Target {
    /// The volume's directory.
    pub volume: PathBuf,
    /// The mount point that was asked for.
    pub mountpoint: PathBuf,
    /// Where the root of the file system is mounted: views are reached from there.
    root: PathBuf,
    /// Every mount of this file system that can be reached, in mount order.
    places: Vec<Mount>,
    /// Other file systems mounted on these.
    submounts: Vec<PathBuf>,
}

/// What [`find`] found.
#[derive(Debug)]
pub enum Found {
    /// A mount.
    Mount(Target),
    /// This process is part of a transaction on it: the view is mounted here.
    InsideTransaction,
}

/// Finds the mount that holds `mount`, or else the current directory, or else the transaction that this process was
/// started in (whatever its directory).
pub fn find(mount: Option<&Path>) -> Result<Found, Error> {
    let path = match mount {
        Some(path) => path.to_path_buf(),
        None => std::env::current_dir()
            .map_err(|source| Error::io("find the current directory", Path::new("."), source))?,
    };
    let holding = |path: &Path| {
        mounts::txfs_holding(path).map_err(|source| Error::io("find the mount of", path, source))
    };
    let found = match holding(&path)? {
        None if mount.is_none() => match std::env::var_os(MOUNT_VARIABLE) {
            Some(outer) => {
                holding(Path::new(&outer)).ok().flatten().filter(|outer| outer.transaction_view().is_some())
            }
            None => None,
        },
        found => found,
    };
    match found {
        None => Err(Error::NotOnMount { path }),
        Some(mount) if mount.transaction_view().is_some() => Ok(Found::InsideTransaction),
        Some(mount) => Target::new(mount).map(Found::Mount),
    }
}

impl Target {
    fn new(mount: Mount) -> Result<Target, Error> {
        let all =
            mounts::all().map_err(|source| Error::io("read", Path::new("/proc/self/mountinfo"), source))?;
        let places: Vec<Mount> = all
            .iter()
            .filter(|other| other.device == mount.device && other.is_txfs() && is_reachable(other))
            .cloned()
            .collect();
        let root = places
            .iter()
            .filter(|place| place.root == Path::new("/"))
            // The one that was asked for, if it shows the root; else any that does.
            .max_by_key(|place| place.id == mount.id)
            .map(|place| place.mountpoint.clone())
            .ok_or_else(|| Error::RootNotVisible { mountpoint: mount.mountpoint.clone() })?;
        let submounts = all
            .iter()
            .filter(|other| {
                other.device != mount.device && places.iter().any(|place| place.id == other.parent)
            })
            .map(|other| other.mountpoint.clone())
            .collect();
        Ok(Target { volume: mount.source.clone(), mountpoint: mount.mountpoint, root, places, submounts })
    }

    /// The directory of a view.
    pub fn view(&self, view: &PathText) -> PathBuf {
        self.root.join(view.as_path())
    }

    /// The root directory of what everybody sees.
    pub fn base(&self) -> &Path {
        &self.root
    }

    /// How a view must be laid over the mounts.
    pub fn binds(&self, view: &PathText) -> Vec<Bind> {
        let view = self.view(view);
        self.places
            .iter()
            .map(|place| {
                let below = place.root.strip_prefix("/").unwrap_or(&place.root);
                // `join` with nothing would leave a slash at the end.
                let source = if below.as_os_str().is_empty() { view.clone() } else { view.join(below) };
                Bind { source: source.into(), target: place.mountpoint.as_path().into() }
            })
            .collect()
    }

    /// What is mounted on top and must stay.
    pub fn submounts(&self) -> Vec<PathText> {
        self.submounts.iter().map(|path| path.as_path().into()).collect()
    }
}

/// Whether a mount is what one gets at its mount point: it is not covered by another one, and is no view.
fn is_reachable(mount: &Mount) -> bool {
    mount.transaction_view().is_none()
        && mounts::holding(&mount.mountpoint)
            .is_ok_and(|visible| visible.is_some_and(|visible| visible.id == mount.id))
}
