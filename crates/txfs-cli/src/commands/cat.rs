//! `txfs cat`.

use std::io::{self, Write};
use std::path::Path;

use super::printed;
use crate::cli::Cat;
use crate::error::Error;
use crate::place::{self, Access, Place};
use crate::tree::Source;
use crate::tree::host::HostTree;
use crate::tree::volume::VolumeTree;

const BUFFER_BYTES: usize = 1 << 20;

/// Prints the files, one after the other.
pub fn run(arguments: Cat) -> Result<(), Error> {
    for text in &arguments.places {
        let place = Place::parse(text)?;
        match place::open(&place.volume)? {
            Access::Mounted { mountpoint, .. } => print(&HostTree::new(&mountpoint), &place)?,
            Access::Embedded(volume) => {
                let printed = print(&VolumeTree::new(&volume.snapshot()), &place);
                let closed = volume.close().map_err(|source| Error::volume(&place.volume, source));
                printed.and(closed)?;
            }
        }
    }
    Ok(())
}

fn print<S: Source>(tree: &S, place: &Place) -> Result<(), Error> {
    let failed = |source| Error::io("read", Path::new(&place.display()), source);
    let id = tree.resolve(&place.path, true).map_err(failed)?;
    if tree.node(&id).map_err(failed)?.is_directory() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let file = tree.open(&id).map_err(failed)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut offset = 0;
    let mut out = io::stdout().lock();
    loop {
        let count = tree.read_at(&file, offset, &mut buffer).map_err(failed)?;
        if count == 0 {
            return printed(out.flush());
        }
        printed(out.write_all(&buffer[..count]))?;
        offset += count as u64;
    }
}
