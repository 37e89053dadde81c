//! `txfs put`: everything in one transaction, so an import that fails half-way leaves nothing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use txfs::Durability;
use txfs_protocol::{CommitOutcome, Isolation, mounts};

use crate::cli::Put;
use crate::error::Error;
use crate::output;
use crate::output::progress::Progress;
use crate::place::{self, Access, Place};
use crate::tree::copy::{Copier, Watch, total_bytes};
use crate::tree::host::HostTree;
use crate::tree::volume::VolumeTree;
use crate::tree::{Sink, Source};

/// Imports the sources.
pub fn run(arguments: Put) -> Result<(), Error> {
    let place = Place::parse(&arguments.destination)?;
    for source in &arguments.sources {
        // Before a transaction begins, and with the name as it was given.
        std::fs::symlink_metadata(source).map_err(|error| Error::io("read", source, error))?;
    }
    match place::open(&place.volume)? {
        // Inside a transaction, the mount point shows its view: then the import is a part of it.
        Access::Mounted { mountpoint, .. } if shows_view(&mountpoint)? => {
            import(&arguments.sources, &HostTree::new(&mountpoint), &place)
        }
        Access::Mounted { mut client, mountpoint } => {
            let begun = client.begin(Isolation::Serializable, "txfs put")?;
            let view = mountpoint.join(begun.view.as_path());
            import(&arguments.sources, &HostTree::new(&view), &place)?;
            match client.commit(txfs_protocol::Durability::Durable).map_err(Error::commit)? {
                CommitOutcome::Committed { .. } => Ok(()),
                CommitOutcome::Conflicted(conflict) => Err(Error::PutConflict { message: conflict.message }),
            }
        }
        Access::Embedded(volume) => {
            let transaction = volume.begin();
            let result = import(&arguments.sources, &VolumeTree::new(&transaction), &place).and_then(|()| {
                transaction.commit(Durability::Durable).map_err(|source| Error::volume(&place.volume, source))
            });
            transaction.abort();
            let closed = volume.close().map_err(|source| Error::volume(&place.volume, source));
            result.and(closed)
        }
    }
}

fn shows_view(mountpoint: &Path) -> Result<bool, Error> {
    let mount = mounts::txfs_holding(mountpoint)
        .map_err(|source| Error::io("find the mount of", mountpoint, source))?;
    Ok(mount.is_some_and(|mount| mount.transaction_view().is_some()))
}

/// Progress and warnings of a copy.
pub struct Reporter {
    progress: Progress,
}

impl Reporter {
    pub fn new(what: &'static str, total_bytes: u64) -> Reporter {
        Reporter { progress: Progress::new(what, total_bytes) }
    }
}

impl Watch for Reporter {
    fn advance(&mut self, bytes: u64) {
        self.progress.advance(bytes);
    }

    fn warn(&mut self, message: String) {
        self.progress.suspend(|| output::warning(&message));
    }
}

fn import<D: Sink>(sources: &[PathBuf], sink: &D, place: &Place) -> Result<(), Error> {
    let host = HostTree::new(Path::new("/"));
    let total = sources.iter().map(|source| total_bytes(&host, source)).sum();
    let mut reporter = Reporter::new("importing", total);
    let mut copier = Copier::new(&host, sink, &mut reporter);
    for source in sources {
        copy_to(&mut copier, &host, sink, source.clone(), source, place, sources.len() > 1)?;
    }
    Ok(())
}

/// Copies one source to a place, as `cp -a` chooses names.
fn copy_to<D: Sink>(
    copier: &mut Copier<'_, HostTree, D>,
    host: &HostTree,
    sink: &D,
    from: PathBuf,
    source: &Path,
    place: &Place,
    several: bool,
) -> Result<(), Error> {
    let failed = |error| Error::io("look for", Path::new(&place.display()), error);
    let existing = sink.lookup(&place.path).map_err(failed)?;
    let directory = match existing {
        Some((id, node)) if node.is_directory() => Some(id),
        Some(_) if place.into || several => return Err(failed(std::io::ErrorKind::NotADirectory.into())),
        None if place.into || several => return Err(failed(std::io::ErrorKind::NotFound.into())),
        _ => None,
    };
    if let Some(directory) = directory {
        return match base_name(source) {
            Some(name) => copier.copy(from, &directory, name, source),
            // `dir/.` or `/`: what is in it.
            None if host.node(&from).is_ok_and(|node| node.is_directory()) => {
                copier.copy_contents(from, &directory, source)
            }
            None => Err(Error::Usage(format!("{} has no name of its own", source.display()))),
        };
    }
    let (parent, name) = (place.path.parent().unwrap_or(Path::new("")), place.path.file_name());
    let name = name.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    match sink.lookup(parent).map_err(failed)? {
        Some((parent, node)) if node.is_directory() => copier.copy(from, &parent, name, source),
        Some(_) => Err(failed(std::io::ErrorKind::NotADirectory.into())),
        None => Err(failed(std::io::ErrorKind::NotFound.into())),
    }
}

/// The name that a source brings along: none for `.`, `dir/.`, `..` and `/`.
fn base_name(source: &Path) -> Option<&OsStr> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = source.as_os_str().as_bytes();
    if bytes.ends_with(b"/.") || bytes == b"." { None } else { source.file_name() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_sources_bring() {
        for (source, name) in [
            ("a/b", Some("b")),
            ("a/b/", Some("b")),
            ("a/.", None),
            (".", None),
            ("..", None),
            ("/", None),
            ("a", Some("a")),
        ] {
            assert_eq!(base_name(Path::new(source)), name.map(OsStr::new), "{source}");
        }
    }
}
