//! A volume for a workload, used through the library, in a process of its own.

use std::path::PathBuf;

use tempfile::TempDir;
use txfs::{CreateOptions, Durability, Ino, OpenOptions, Paths, View, Volume};

use crate::Result;
use crate::contestants::Place;

/// Size of what one transaction writes while files are filled.
const FILL_BYTES: u64 = 4 << 20;

/// An open volume that is removed with its directory at the end.
#[derive(Debug)]
pub struct Embedded {
    /// The volume.
    pub volume: Volume,
    /// Its directory.
    pub path: PathBuf,
    /// Where it lies.
    pub place: Place,
    _directory: TempDir,
}

impl Embedded {
    /// A new volume with default options.
    pub fn create(place: &Place) -> Result<Embedded> {
        Embedded::create_with(place, &CreateOptions::default(), &OpenOptions::default())
    }

    /// A new volume that has been given so many bytes of space at once, so that the first writes find what those of an
    /// older volume find: segments that were written before. A volume without writes zeros into new segments ahead of
    /// their use, once in its life.
    pub fn prepared(place: &Place, bytes: u64) -> Result<Embedded> {
        let create = CreateOptions { preallocate_bytes: bytes, ..CreateOptions::default() };
        Embedded::create_with(place, &create, &OpenOptions::default())
    }

    /// A new volume.
    pub fn create_with(place: &Place, create: &CreateOptions, open: &OpenOptions) -> Result<Embedded> {
        let directory = place.scratch()?;
        let path = directory.path().join("volume");
        Volume::create_with(&path, create)?;
        let volume = Volume::open_with(&path, open)?;
        Ok(Embedded { volume, path, place: place.clone(), _directory: directory })
    }

    /// A new file with `bytes` bytes of incompressible content.
    pub fn file(&self, name: &str, bytes: u64) -> Result<Ino> {
        self.volume.base().write_file(name, b"")?;
        let ino = self.volume.base().resolve(name)?;
        self.fill(ino, bytes)?;
        Ok(ino)
    }

    /// Writes the first `bytes` bytes of a file, in ordered transactions.
    pub fn fill(&self, ino: Ino, bytes: u64) -> Result<()> {
        let mut content = vec![0; FILL_BYTES as usize];
        fastrand::Rng::with_seed(bytes).fill(&mut content);
        let mut at = 0;
        while at < bytes {
            let len = FILL_BYTES.min(bytes - at);
            let transaction = self.volume.begin();
            transaction.write(ino, at, &content[..len as usize])?;
            transaction.commit(Durability::Ordered)?;
            at += len;
        }
        Ok(())
    }

    /// What a transaction gives to the log, in bytes: the least that a raw write has to do in its place.
    pub fn record_bytes(&self, transaction: impl Fn() -> Result<()>) -> Result<usize> {
        self.settle()?;
        let mut least = u64::MAX;
        // the smallest of some: one of them may begin a segment
        for _ in 0..3 {
            let before = self.volume.stat()?.engine.log_bytes;
            transaction()?;
            least = least.min(self.volume.stat()?.engine.log_bytes - before);
        }
        Ok(usize::try_from(least)?)
    }

    /// All background work ends and everything reaches the device, checkpoint included.
    pub fn settle(&self) -> Result<()> {
        self.volume.sync()?;
        self.volume.checkpoint()?;
        self.place.flush()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.volume.close() {
            eprintln!("txfs-bench: closing the volume in {}: {error}", self.path.display());
        }
    }
}
