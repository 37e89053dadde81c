//! The clients of checked histories on a mount: what they do, done by system calls.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use txfs_sim::histories::access::{Access, Failure, Outcome};
use txfs_sim::histories::layout::{Layout, PAGE_BYTES};
use txfs_sim::history::Value;

/// The clock that all processes of the machine share, in nanoseconds.
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A mount, or the view of a transaction.
#[derive(Clone, Debug)]
pub struct Mounted {
    root: PathBuf,
    paths: HashMap<u64, &'static str>,
}

fn outcome<T>(result: io::Result<T>) -> Outcome<T> {
    result.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CANCELED) => Failure::Conflict,
        Some(Errno::NOENT | Errno::EXIST | Errno::NODATA) => Failure::Refused,
        _ => Failure::Wrong(error.to_string()),
    })
}

fn wrong<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Failure::Wrong(what.into()))
}

fn if_any<T>(outcome: Outcome<T>) -> Outcome<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Refused) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn number_of(name: &[u8], prefix: &str) -> Outcome<u64> {
    let number = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(prefix)?.parse().ok());
    number.map_or_else(|| wrong(format!("a name that nobody gave: {name:?}")), Ok)
}

fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut got = 0;
    while got < len {
        match file.read_at(&mut bytes[got..], offset + got as u64)? {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

impl Mounted {
    /// Makes the files in an empty mount, and says what there is.
    pub fn make(root: &Path) -> io::Result<Layout> {
        let mut numbers = Vec::new();
        for path in Layout::PATHS {
            match path.starts_with('d') {
                true => fs::create_dir(root.join(path))?,
                false => drop(File::create(root.join(path))?),
            }
            numbers.push(fs::metadata(root.join(path))?.ino());
        }
        fs::create_dir(root.join("temporary"))?;
        Ok(Layout::from_numbers(&numbers))
    }

    /// What [`Mounted::make`] has made, as another process finds it.
    pub fn find(root: &Path) -> io::Result<Layout> {
        let number = |path: &&str| Ok(fs::metadata(root.join(path))?.ino());
        let numbers: io::Result<Vec<u64>> = Layout::PATHS.iter().map(number).collect();
        Ok(Layout::from_numbers(&numbers?))
    }

    /// Access to the files below `root`.
    pub fn new(root: impl Into<PathBuf>, layout: &Layout) -> Mounted {
        let Layout { files, sized, growing, directories } = layout;
        let numbers = files.iter().chain(sized).chain(growing).chain(directories).copied();
        Mounted { root: root.into(), paths: numbers.zip(Layout::PATHS).collect() }
    }

    fn path(&self, file: u64) -> Outcome<PathBuf> {
        match self.paths.get(&file) {
            Some(path) => Ok(self.root.join(path)),
            None => wrong(format!("{file} is no file of the setup")),
        }
    }

    fn name(&self, directory: u64, name: u64) -> Outcome<PathBuf> {
        Ok(self.path(directory)?.join(format!("name{name}")))
    }

    fn writable(&self, file: u64) -> Outcome<File> {
        outcome(OpenOptions::new().write(true).open(self.path(file)?))
    }

    /// Opens what is under a name, which must be `file`.
    fn named(&self, directory: u64, name: u64, file: u64, options: &OpenOptions) -> Outcome<File> {
        let opened = outcome(options.open(self.name(directory, name)?))?;
        match outcome(opened.metadata())?.ino() {
            found if found == file => Ok(opened),
            found => wrong(format!("name {name} was file {file}, and is {found} in the same transaction")),
        }
    }
}

impl Access for Mounted {
    fn read(&self, file: u64, page: u64) -> Outcome<Vec<u8>> {
        let opened = outcome(File::open(self.path(file)?))?;
        outcome(read_at(&opened, page * PAGE_BYTES, PAGE_BYTES as usize))
    }

    fn write(&self, file: u64, page: u64, data: &[u8]) -> Outcome<()> {
        outcome(self.writable(file)?.write_all_at(data, page * PAGE_BYTES))
    }

    fn owner(&self, file: u64) -> Outcome<u64> {
        Ok(u64::from(outcome(fs::symlink_metadata(self.path(file)?))?.uid()))
    }

    fn set_owner(&self, file: u64, owner: u64) -> Outcome<()> {
        outcome(chown(self.path(file)?, Some(owner as u32), None))
    }

    fn size(&self, file: u64) -> Outcome<u64> {
        Ok(outcome(fs::symlink_metadata(self.path(file)?))?.len())
    }

    fn set_size(&self, file: u64, size: u64) -> Outcome<()> {
        outcome(self.writable(file)?.set_len(size))
    }

    fn end(&self, file: u64) -> Outcome<u64> {
        let opened = outcome(File::open(self.path(file)?))?;
        let from = outcome(opened.metadata())?.len() - 8;
        Ok(from + outcome(read_at(&opened, from, 16))?.len() as u64)
    }

    fn grow(&self, file: u64, offset: u64) -> Outcome<()> {
        outcome(self.writable(file)?.write_all_at(&[1; 8], offset))
    }

    fn append(&self, file: u64) -> Outcome<Option<u64>> {
        let mut opened = outcome(OpenOptions::new().append(true).open(self.path(file)?))?;
        outcome(opened.write_all(&[2; 8]))?;
        Ok(None)
    }

    fn attribute(&self, file: u64, name: u64) -> Outcome<Option<Value>> {
        let mut value = [0; 8];
        let got = getxattr(self.path(file)?, format!("user.a{name}"), &mut value);
        match if_any(outcome(got.map_err(io::Error::from)))? {
            None => Ok(None),
            Some(8) => Ok(Some(Value::from_le_bytes(value))),
            Some(len) => wrong(format!("an attribute of {len} bytes")),
        }
    }

    fn set_attribute(&self, file: u64, name: u64, value: Option<Value>) -> Outcome<()> {
        let (path, name) = (self.path(file)?, format!("user.a{name}"));
        let done = match value {
            Some(value) => setxattr(path, name, &value.to_le_bytes(), XattrFlags::empty()),
            None => removexattr(path, name),
        };
        outcome(done.map_err(io::Error::from))
    }

    fn attributes(&self, file: u64) -> Outcome<Vec<u64>> {
        let mut names = [0u8; 4096];
        let got = outcome(listxattr(self.path(file)?, &mut names).map_err(io::Error::from))?;
        let names = names[..got].split(|&byte| byte == 0).filter(|name| name.starts_with(b"user."));
        names.map(|name| number_of(name, "user.a")).collect()
    }

    fn find(&self, directory: u64, name: u64) -> Outcome<Option<u64>> {
        let found = if_any(outcome(fs::symlink_metadata(self.name(directory, name)?)))?;
        Ok(found.map(|found| found.ino()))
    }

    fn list(&self, directory: u64) -> Outcome<Vec<(u64, u64)>> {
        let entries: io::Result<Vec<fs::DirEntry>> =
            fs::read_dir(self.path(directory)?).and_then(|entries| entries.collect());
        let number = |entry: &fs::DirEntry| {
            Ok((number_of(entry.file_name().as_encoded_bytes(), "name")?, entry.ino()))
        };
        outcome(entries)?.iter().map(number).collect()
    }

    fn create(&self, directory: u64, name: u64) -> Outcome<u64> {
        let new = OpenOptions::new().write(true).create_new(true).open(self.name(directory, name)?);
        Ok(outcome(outcome(new)?.metadata())?.ino())
    }

    fn remove(&self, directory: u64, name: u64) -> Outcome<()> {
        outcome(fs::remove_file(self.name(directory, name)?))
    }

    fn rename(&self, from: (u64, u64), to: (u64, u64)) -> Outcome<()> {
        outcome(fs::rename(self.name(from.0, from.1)?, self.name(to.0, to.1)?))
    }

    fn read_named(&self, directory: u64, name: u64, file: u64) -> Outcome<Vec<u8>> {
        let opened = self.named(directory, name, file, OpenOptions::new().read(true))?;
        outcome(read_at(&opened, 0, PAGE_BYTES as usize))
    }

    fn write_named(&self, directory: u64, name: u64, file: u64, data: &[u8]) -> Outcome<()> {
        let opened = self.named(directory, name, file, OpenOptions::new().write(true))?;
        outcome(opened.write_all_at(data, 0))
    }

    fn replace(&self, directory: u64, name: u64, unique: u64) -> Outcome<u64> {
        let new = self.root.join("temporary").join(unique.to_string());
        let made = outcome(outcome(File::create(&new))?.metadata())?.ino();
        outcome(fs::rename(new, self.name(directory, name)?))?;
        Ok(made)
    }
}
