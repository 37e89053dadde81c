//! An open file with a position.

use std::fmt;
use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::types::{AllocateMode, Attributes, Ino, SetAttributes};
use crate::view::View;

/// How to open a file. The default opens for reading only.
///
/// ```
/// use txfs::FileOptions;
/// let options = FileOptions::new().write(true).create(true).mode(0o600);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) follow: bool,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            read: true,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            follow: true,
            mode: 0o644,
            uid: 0,
            gid: 0,
        }
    }
}

impl FileOptions {
    /// Opens an existing file for reading.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// Reading is allowed (it is, by default).
    pub fn read(mut self, read: bool) -> FileOptions {
        self.read = read;
        self
    }

    /// Writing is allowed.
    pub fn write(mut self, write: bool) -> FileOptions {
        self.write = write;
        self
    }

    /// Writing is allowed, and always goes to the end of the file.
    pub fn append(mut self, append: bool) -> FileOptions {
        self.append = append;
        self
    }

    /// The file is emptied.
    pub fn truncate(mut self, truncate: bool) -> FileOptions {
        self.truncate = truncate;
        self
    }

    /// The file is created where missing.
    pub fn create(mut self, create: bool) -> FileOptions {
        self.create = create;
        self
    }

    /// The file is created and must not exist before.
    pub fn create_new(mut self, create_new: bool) -> FileOptions {
        self.create_new = create_new;
        self
    }

    /// A symbolic link at the end of the path is followed (it is, by default); otherwise opening it fails with `ELOOP`.
    pub fn follow(mut self, follow: bool) -> FileOptions {
        self.follow = follow;
        self
    }

    /// Permission bits of a created file; 0644 by default.
    pub fn mode(mut self, mode: u32) -> FileOptions {
        self.mode = mode;
        self
    }

    /// Owner and group of a created file; 0 and 0 by default.
    pub fn owner(mut self, uid: u32, gid: u32) -> FileOptions {
        self.uid = uid;
        self.gid = gid;
        self
    }

    pub(crate) fn writes(&self) -> bool {
        self.write || self.append
    }
}

/// An open file: implements [`std::io::Read`], [`std::io::Write`] and [`std::io::Seek`], and operations at offsets.
///
/// An open file of the base view outlives its last name. `flush` does nothing, since nothing is held back; see
/// [`File::sync`].
pub struct File<'view> {
    view: &'view dyn View,
    ino: Ino,
    path: PathBuf,
    options: FileOptions,
    position: u64,
}

impl<'view> File<'view> {
    /// Of a node that the view has been told of by `View::opened`; the file tells it when it is closed.
    pub(crate) fn of_opened(
        view: &'view dyn View,
        ino: Ino,
        path: &Path,
        options: &FileOptions,
    ) -> File<'view> {
        File { view, ino, path: path.to_path_buf(), options: options.clone(), position: 0 }
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Attributes.
    pub fn attributes(&self) -> Result<Attributes> {
        self.named("stat", self.view.attributes(self.ino))
    }

    /// Fills `out` from `offset` as far as the file goes; returns the number of bytes.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        if !self.options.read {
            return self.named("read", Err(Error::NotOpenFor("reading")));
        }
        self.named("read", self.view.read_into(self.ino, offset, out))
    }

    /// Writes all of `data` at `offset`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writes("write")?;
        self.named("write", self.view.write(self.ino, offset, data).map(drop))
    }

    /// Writes all of `data` at the end of the file, in one step; returns the offset where it went.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.check_writes("append to")?;
        self.named("append to", self.view.append(self.ino, data))
    }

    /// Cuts the file or grows it with zeros.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.check_writes("truncate")?;
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.named("truncate", self.view.set_attributes(self.ino, &set).map(drop))
    }

    /// `fallocate`.
    pub fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        self.check_writes("allocate in")?;
        self.named("allocate in", self.view.allocate(self.ino, mode, offset, len))
    }

    /// Makes what has been committed so far durable; in a transaction there is nothing to do before its commit.
    pub fn sync(&self) -> Result<()> {
        self.named("sync", self.view.sync(self.ino))
    }

    fn check_writes(&self, doing: &'static str) -> Result<()> {
        match self.options.writes() {
            true => Ok(()),
            false => self.named(doing, Err(Error::NotOpenFor("writing"))),
        }
    }

    fn named<T>(&self, doing: &'static str, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.at(doing, &self.path))
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        self.view.closed(self.ino);
    }
}

impl io::Read for File<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, out)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl io::Write for File<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.options.append {
            self.position = self.append(data)?;
        } else {
            self.write_at(self.position, data)?;
        }
        self.position += data.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.attributes()?.size.checked_add_signed(offset),
        };
        self.position = position
            .ok_or(Error::Invalid("a position before the start of the file").at("seek in", &self.path))?;
        Ok(self.position)
    }
}

impl fmt::Debug for File<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("File")
            .field("path", &self.path)
            .field("ino", &self.ino)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
