//! What functions return when they fail: -1, `errno`, and a message for each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use volume::Error;

use super::arguments::guarded_path;

/// Why a call fails.
#[derive(Debug)]
pub struct Failure {
    errno: c_int,
    message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(errno: c_int, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }

    pub fn errno(&self) -> c_int {
        self.errno
    }

    /// EINVAL: the caller's mistake.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, message)
    }

    /// An error of the library, with what was to be done and where, if it does not say that itself.
    pub fn at(doing: &'static str, path: &[u8], error: Error) -> Failure {
        match error {
            already @ Error::At { .. } => already.into(),
            source => {
                let path = guarded_path(path).to_path_buf();
                Error::At { doing, path, source: Box::new(source) }.into()
            }
        }
    }

    /// An error about a volume, which lies on the host.
    pub fn on_host(doing: &str, path: &Path, error: &Error) -> Failure {
        Failure::new(error.errno(), format!("cannot {doing} {}: {error}", path.display()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { errno: error.errno(), message: error.to_string() }
    }
}

/// What a function returns to say that it failed.
pub trait Answer {
    const FAILED: Self;
}

impl Answer for c_int {
    const FAILED: c_int = -1;
}

impl Answer for isize {
    const FAILED: isize = -1;
}

impl Answer for i64 {
    const FAILED: i64 = -1;
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Carries out a function of the API.
pub fn answer<T: Answer>(work: impl FnOnce() -> Result<T>) -> T {
    // What a panic leaves is only looked at through locks that do not mind, or not at all.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure::new(libc::EIO, format!("a bug in the library: {text}"))
        }
    };
    remember(failure.message);
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = failure.errno };
    T::FAILED
}

/// The same for functions that return nothing worth looking at.
pub fn done(work: impl FnOnce() -> Result<()>) -> c_int {
    answer(|| work().map(|()| 0))
}

fn remember(message: String) {
    let mut bytes = message.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let text = CString::new(bytes).unwrap_or_default();
    // A thread that is being torn down has no message any more.
    let _ = MESSAGE.try_with(|message| message.replace(text));
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_error_message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> (c_int, String) {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap();
        // SAFETY: the message of this thread, which fails nothing meanwhile.
        let message = unsafe { CStr::from_ptr(txfs_error_message()) };
        (errno, message.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let result: c_int = answer(|| panic!("number {}", 7));
        assert_eq!((result, last()), (-1, (libc::EIO, "a bug in the library: number 7".to_owned())));
        let result: isize = answer(|| panic!("plain"));
        assert_eq!((result, last()), (-1, (libc::EIO, "a bug in the library: plain".to_owned())));
    }

    #[test]
    fn messages_have_the_path_once() {
        let result = done(|| Err(Failure::at("open", b"a/\0b", Error::NotFound)));
        assert_eq!(
            (result, last()),
            (-1, (libc::ENOENT, "cannot open a/b: no such file or directory".to_owned()))
        );
        let named = Error::At { doing: "stat", path: "c".into(), source: Box::new(Error::NotDirectory) };
        assert_eq!(done(|| Err(Failure::at("open", b"d", named))), -1);
        assert_eq!(last(), (libc::ENOTDIR, "cannot stat c: not a directory".to_owned()));
    }
}
