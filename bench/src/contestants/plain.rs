//! Plain files for a workload, through the system calls that a careful program makes.

use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytemuck::{Pod, Zeroable};
use rustix::io::ReadWriteFlags;
use tempfile::TempDir;

use crate::Result;
use crate::contestants::Place;

/// Size of a page, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// A page at an address that direct I/O accepts.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_BYTES]);

/// Incompressible bytes at an address that direct I/O accepts.
#[derive(Debug)]
pub struct Aligned {
    pages: Vec<Page>,
}

impl Aligned {
    /// At least so many.
    pub fn new(bytes: usize) -> Aligned {
        let mut pages = vec![Page::zeroed(); bytes.div_ceil(PAGE_BYTES)];
        fastrand::Rng::with_seed(3).fill(bytemuck::cast_slice_mut(&mut pages));
        Aligned { pages }
    }

    /// The first so many of them.
    pub fn bytes(&self, len: usize) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..len]
    }

    /// To read into.
    pub fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..len]
    }
}

/// A directory that is removed with its files at the end, and its descriptor, to sync it.
#[derive(Debug)]
pub struct PlainDirectory {
    /// The open directory.
    pub handle: File,
    directory: TempDir,
}

impl PlainDirectory {
    /// A new one.
    pub fn create(place: &Place) -> Result<PlainDirectory> {
        let directory = place.scratch()?;
        let handle = File::open(directory.path())?;
        Ok(PlainDirectory { handle, directory })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The path of a file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new file with `bytes` bytes of incompressible content, on the device.
    pub fn file(&self, name: &str, bytes: u64) -> Result<File> {
        let file = File::options().create_new(true).read(true).write(true).open(self.join(name))?;
        fill(&file, bytes)?;
        Ok(file)
    }

    /// As [`PlainDirectory::file`], for direct I/O.
    pub fn direct_file(&self, name: &str, bytes: u64) -> Result<DirectFile> {
        // cached pages would be in the way
        rustix::fs::fadvise(self.file(name, bytes)?, 0, None, rustix::fs::Advice::DontNeed)?;
        let path = self.join(name);
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits())?;
        let file =
            File::options().read(true).write(true).custom_flags(direct).open(&path).map_err(|error| {
                format!(
                    "{}: {error}; the file system must take direct I/O (ext4, xfs, btrfs)",
                    path.display()
                )
            })?;
        Ok(DirectFile { file })
    }
}

/// Writes the first `bytes` bytes of a file and syncs it.
pub fn fill(file: &File, bytes: u64) -> Result<()> {
    let mut content = vec![0; 1 << 20];
    let mut random = fastrand::Rng::with_seed(bytes);
    let mut at = 0;
    while at < bytes {
        let len = (content.len() as u64).min(bytes - at) as usize;
        random.fill(&mut content[..len]);
        file.write_all_at(&content[..len], at)?;
        at += len as u64;
    }
    Ok(file.sync_all()?)
}

/// A file for direct I/O: the least that reading, writing and a durable write can cost. Offsets and lengths are multiples of
/// the device's sectors, and memory is [`Aligned`].
#[derive(Debug)]
pub struct DirectFile {
    file: File,
}

impl DirectFile {
    /// Overwrites a page; it is on the device afterwards.
    pub fn overwrite(&self, page: u64, content: &Page) -> Result<()> {
        self.write_durably(page * PAGE_BYTES as u64, &content.0)
    }

    /// One data-sync write: it is on the device afterwards.
    pub fn write_durably(&self, at: u64, content: &[u8]) -> Result<()> {
        let pieces = [IoSlice::new(content)];
        let count = rustix::io::pwritev2(&self.file, &pieces, at, ReadWriteFlags::DSYNC)?;
        if count == content.len() {
            Ok(())
        } else {
            Err(format!("a direct write of {} bytes took only {count}", content.len()).into())
        }
    }

    /// Writes, without a flush.
    pub fn write(&self, at: u64, content: &[u8]) -> Result<()> {
        Ok(self.file.write_all_at(content, at)?)
    }

    /// Reads what was written there.
    pub fn read(&self, at: u64, content: &mut [u8]) -> Result<()> {
        Ok(self.file.read_exact_at(content, at)?)
    }

    /// What was written before is on the device afterwards.
    pub fn sync(&self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }
}
