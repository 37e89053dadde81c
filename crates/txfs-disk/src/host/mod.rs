//! A volume's directory on an ordinary host file system.
//!
//! Log writes bypass the page cache and carry their own flush where the host takes that (found by [`probe`] when the
//! directory is opened); elsewhere they are ordinary writes followed by `fdatasync`, with the same promises.
//!
//! Everything is relative to the directory's descriptor, so a volume that is moved while open keeps working.

mod file;
mod lock;
mod many;
mod probe;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

use crate::arguments::check_name;
use crate::error::at;
use crate::{Capabilities, Disk, DiskFile, LockOutcome};

use file::HostFile;
use many::{OneOfMany, OpenFiles};

/// Volumes are private to their owner: what is in them may belong to many users of the mount.
const DIRECTORY_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Which of the host's faculties may be used; by default all that the probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Allow log writes past the page cache (`O_DIRECT`).
    pub direct: bool,
    /// Allow writes that carry their own flush (`RWF_DSYNC`).
    pub data_sync_writes: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions { direct: true, data_sync_writes: true }
    }
}

/// A directory on the host.
#[derive(Debug)]
pub struct HostDisk {
    opener: Arc<Opener>,
    open_files: Arc<OpenFiles>,
}

/// What it takes to open a file of the directory.
#[derive(Debug)]
struct Opener {
    directory: OwnedFd,
    /// As it was opened, for messages.
    path: PathBuf,
    capabilities: Capabilities,
}

impl HostDisk {
    /// Makes a directory for a new volume, durably, and opens it. An empty directory that exists is taken as it is;
    /// `AlreadyExists` when it is not empty or is no directory.
    pub fn create(path: impl AsRef<Path>) -> io::Result<HostDisk> {
        Self::create_with(path, HostOptions::default())
    }

    /// As [`HostDisk::create`], with less than what the host can do.
    pub fn create_with(path: impl AsRef<Path>, options: HostOptions) -> io::Result<HostDisk> {
        let path = path.as_ref();
        match rustix::fs::mkdirat(CWD, path, DIRECTORY_MODE) {
            Ok(()) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                File::open(parent)
                    .and_then(|parent| parent.sync_all())
                    .map_err(|error| at("sync", parent, error))?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(at("create the directory", path, error)),
        }
        let disk = Self::open_with(path, options).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => already_exists(path, "it exists and is not a directory"),
            _ => error,
        })?;
        if !disk.names()?.is_empty() {
            return Err(already_exists(path, "the directory exists and is not empty"));
        }
        Ok(disk)
    }

    /// Opens a volume's directory and finds out how log writes are best made there.
    pub fn open(path: impl AsRef<Path>) -> io::Result<HostDisk> {
        Self::open_with(path, HostOptions::default())
    }

    /// As [`HostDisk::open`], with less than what the host can do.
    pub fn open_with(path: impl AsRef<Path>, options: HostOptions) -> io::Result<HostDisk> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::io::retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
            .map_err(|error| at("open the directory", path, error))?;
        let capabilities = probe::probe(&directory, options);
        let opener = Opener { directory, path: path.to_owned(), capabilities };
        Ok(HostDisk { opener: Arc::new(opener), open_files: Arc::default() })
    }

    /// The directory, as it was given.
    pub fn path(&self) -> &Path {
        &self.opener.path
    }

    /// Every name in the directory, as bytes.
    fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        let read = || -> rustix::io::Result<Vec<Vec<u8>>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.opener.directory)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push(name.to_vec());
                }
            }
            Ok(names)
        };
        read().map_err(|error| at("list", self.path(), error))
    }
}

impl Opener {
    fn open_file(&self, name: &str, flags: OFlags, doing: &'static str) -> io::Result<OwnedFd> {
        check_name(name)?;
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::io::retry_on_intr(|| rustix::fs::openat(&self.directory, name, flags, FILE_MODE))
            .map_err(|error| at(doing, &self.path.join(name), error))
    }

    /// The second descriptor, for log writes; without one they go through the page cache.
    fn with_direct(&self, name: &str, buffered: OwnedFd) -> HostFile {
        let direct = self
            .capabilities
            .direct
            .then(|| self.open_file(name, OFlags::DIRECT, "open"))
            .and_then(Result::ok);
        HostFile::new(buffered, direct, &self.capabilities, self.path.join(name))
    }

    fn open(&self, name: &str) -> io::Result<HostFile> {
        let buffered = self.open_file(name, OFlags::empty(), "open")?;
        Ok(self.with_direct(name, buffered))
    }

    fn create(&self, name: &str) -> io::Result<HostFile> {
        let buffered = self.open_file(name, OFlags::CREATE | OFlags::EXCL, "create")?;
        Ok(self.with_direct(name, buffered))
    }

    /// Length of a file that is not open.
    fn len(&self, name: &str) -> io::Result<u64> {
        check_name(name)?;
        let found = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map_err(|error| at("find the length of", &self.path.join(name), error))?;
        Ok(u64::try_from(found.st_size).unwrap_or(0))
    }
}

fn already_exists(path: &Path, what: &str) -> io::Error {
    let message = format!("cannot create a volume at {}: {what}; choose another place", path.display());
    io::Error::new(io::ErrorKind::AlreadyExists, message)
}

impl Disk for HostDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.opener.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.opener.create(name)?))
    }

    fn open_one_of_many(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.opener.len(name)?;
        Ok(OneOfMany::new(&self.opener, &self.open_files, name, None))
    }

    fn create_one_of_many(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.opener.create(name)?;
        Ok(OneOfMany::new(&self.opener, &self.open_files, name, Some(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        rustix::fs::renameat(&self.opener.directory, from, &self.opener.directory, to)
            .map_err(|error| at("rename", &self.path().join(from), error))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        rustix::fs::unlinkat(&self.opener.directory, name, AtFlags::empty())
            .map_err(|error| at("remove", &self.path().join(name), error))
    }

    /// Names that are not UTF-8 are left out: they are none of the volume's.
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names()?.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        rustix::fs::fsync(&self.opener.directory)
            .map_err(|error| at("sync the directory", self.path(), error))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let statistics = rustix::fs::fstatvfs(&self.opener.directory);
        let statistics = statistics.map_err(|error| at("find the free space of", self.path(), error))?;
        Ok(statistics.f_bavail.saturating_mul(statistics.f_frsize))
    }

    fn capabilities(&self) -> Capabilities {
        self.opener.capabilities.clone()
    }

    fn try_lock(&self, name: &str, note: &str) -> io::Result<LockOutcome> {
        let file = File::from(self.opener.open_file(name, OFlags::CREATE, "open the lock file")?);
        lock::try_lock(file, note).map_err(|error| at("lock", &self.path().join(name), error))
    }
}
