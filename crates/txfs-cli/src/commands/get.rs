//! `txfs get`.

use std::path::{Path, PathBuf};

use crate::cli::Get;
use crate::commands::put::Reporter;
use crate::error::Error;
use crate::place::{self, Access, Place};
use crate::tree::Source;
use crate::tree::copy::{Copier, total_bytes};
use crate::tree::host::HostTree;
use crate::tree::volume::VolumeTree;

/// Exports a file or a directory: a consistent one, from a snapshot, when the volume is not mounted.
pub fn run(arguments: Get) -> Result<(), Error> {
    let place = Place::parse(&arguments.source)?;
    match place::open(&place.volume)? {
        Access::Mounted { mountpoint, .. } => {
            export(&HostTree::new(&mountpoint), &place, &arguments.destination)
        }
        Access::Embedded(volume) => {
            let exported = export(&VolumeTree::new(&volume.snapshot()), &place, &arguments.destination);
            let closed = volume.close().map_err(|source| Error::volume(&place.volume, source));
            exported.and(closed)
        }
    }
}

fn export<S: Source>(tree: &S, place: &Place, destination: &Path) -> Result<(), Error> {
    let shown = PathBuf::from(place.display());
    let id = tree.resolve(&place.path, false).map_err(|error| Error::io("read", &shown, error))?;
    let node = tree.node(&id).map_err(|error| Error::io("read", &shown, error))?;
    let mut reporter = Reporter::new("exporting", total_bytes(tree, &id));
    let host = HostTree::new(Path::new("/"));
    let mut copier = Copier::new(tree, &host, &mut reporter);

    if destination.is_dir() {
        let into = destination.to_path_buf();
        return match place.path.file_name() {
            Some(name) => copier.copy(id, &into, name, &shown),
            // The root of the volume has no name of its own: what is in it.
            None => copier.copy_contents(id, &into, &shown),
        };
    }
    let into = match destination.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    match destination.file_name() {
        Some(name) => copier.copy(id, &into, name, &shown),
        None => {
            let error = if node.is_directory() {
                std::io::ErrorKind::NotFound
            } else {
                std::io::ErrorKind::IsADirectory
            };
            Err(Error::io("write to", destination, error.into()))
        }
    }
}
