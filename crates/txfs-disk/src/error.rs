//! Errors of the host disk that say what was being done, and to which file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A failed operation on a host file. It travels inside an [`io::Error`] of the same kind.
#[derive(Debug)]
pub struct HostError {
    /// What failed, as `cannot ...` continues it: `write`, `open` ...
    pub doing: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for HostError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot {} {}: {}", self.doing, self.path.display(), self.source)
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The system's error number in `error`, also where it is wrapped in a [`HostError`].
pub fn errno(error: &io::Error) -> Option<i32> {
    if let Some(number) = error.raw_os_error() {
        return Some(number);
    }
    let inner = error.get_ref()?.downcast_ref::<HostError>()?;
    errno(&inner.source)
}

/// Adds what was being done, and to which file.
pub(crate) fn at(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> io::Error {
    let source = source.into();
    io::Error::new(source.kind(), HostError { doing, path: path.to_owned(), source })
}
