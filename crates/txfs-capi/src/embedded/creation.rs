//! Creating a volume such that a crash leaves none, or all of it.
//!
//! A program that opens its volume and creates it where there is none must not find half of one after a crash, which it could
//! neither open nor create. So a new directory is made beside its place, under `NAME.creating`, and renamed when it is done.
//! Who makes it has its lock; what a crash has left of one is made anew.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use volume::{CreateOptions, Volume};

use super::failure::{Failure, Result};

/// Makes a volume; EEXIST when there is one. In a directory that exists it is made in its place.
pub fn create(path: &Path, options: &CreateOptions) -> Result<()> {
    let failed = |error| Failure::on_host("create the volume", path, &error);
    let Some(beside) = beside(path) else { return Volume::create_with(path, options).map_err(failed) };
    let io = |error: io::Error| {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        Failure::new(number, format!("cannot create the volume {}: {error}", path.display()))
    };
    loop {
        if fs::symlink_metadata(path).is_ok() {
            return Volume::create_with(path, options).map_err(failed);
        }
        let Some(lock) = lock(&beside).map_err(io)? else { continue };
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_dir_all(&beside).map_err(io)?;
            continue;
        }
        for entry in fs::read_dir(&beside).map_err(io)? {
            fs::remove_file(entry.map_err(io)?.path()).map_err(io)?;
        }
        Volume::create_with(&beside, options).map_err(failed)?;
        fs::rename(&beside, path).map_err(io)?;
        drop(lock);
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return File::open(parent).and_then(|parent| parent.sync_all()).map_err(io);
    }
}

/// Where a volume is made that does not exist yet; `None` for a path that has no name at its end.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(".creating");
    Some(path.with_file_name(name))
}

/// Makes the directory and takes its lock; `None` if somebody else was there and has renamed or removed it meanwhile.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let locked = match File::open(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    locked.lock()?;
    let identity = |file: fs::Metadata| (file.dev(), file.ino());
    let same = fs::metadata(directory)
        .is_ok_and(|now| locked.metadata().is_ok_and(|locked| identity(now) == identity(locked)));
    Ok(same.then_some(locked))
}
