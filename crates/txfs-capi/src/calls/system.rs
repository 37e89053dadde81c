//! Typed system calls, made from the range that the trap lets pass.

use crate::kernel::{Errno, call};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// A descriptor of the library's own, closed when dropped.
#[derive(Debug)]
pub struct Fd(RawFd);

impl Fd {
    /// Takes over a descriptor that the kernel has just given.
    pub fn new(number: usize) -> Fd {
        Fd(number as RawFd)
    }

    pub fn number(&self) -> RawFd {
        self.0
    }

    /// Gives it away.
    pub fn into_number(self) -> RawFd {
        let number = self.0;
        std::mem::forget(self);
        number
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// What is compared to know a node again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Major and minor device number.
    pub device: (u32, u32),
    pub ino: u64,
}

/// The part of `statx` that decides what a call goes to.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub node: Node,
    pub mode: u32,
    pub mount: u64,
    pub links: u32,
}

impl Status {
    fn is(&self, kind: u32) -> bool {
        self.mode & libc::S_IFMT == kind
    }

    pub fn is_directory(&self) -> bool {
        self.is(libc::S_IFDIR)
    }

    pub fn is_symlink(&self) -> bool {
        self.is(libc::S_IFLNK)
    }

    pub fn is_regular(&self) -> bool {
        self.is(libc::S_IFREG)
    }
}

fn path(text: &CStr) -> usize {
    text.as_ptr() as usize
}

/// A call that takes numbers only.
pub fn numbers(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the callers of this pass no addresses, or addresses that the program itself has passed to the same call.
    unsafe { call(number, arguments) }
}

pub fn close(fd: RawFd) {
    let _ = numbers(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
}

pub fn openat(directory: RawFd, name: &CStr, flags: i32, mode: u32) -> Result<Fd, Errno> {
    let arguments = [directory as usize, path(name), flags as usize, mode as usize, 0, 0];
    numbers(libc::SYS_openat, arguments).map(Fd::new)
}

/// `openat2`; what races with a rename is tried again.
pub fn openat2(directory: RawFd, name: &CStr, flags: i32, resolve: u64) -> Result<Fd, Errno> {
    // SAFETY: the structure is plain numbers; zero is a value of each.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = flags as u64;
    how.resolve = resolve;
    let arguments =
        [directory as usize, path(name), &raw const how as usize, size_of::<libc::open_how>(), 0, 0];
    for _ in 0..100 {
        match numbers(libc::SYS_openat2, arguments) {
            Err(Errno(libc::EAGAIN)) => {}
            result => return result.map(Fd::new),
        }
    }
    Err(Errno(libc::EAGAIN))
}

/// `statx` without asking the file system for anything that the kernel knows.
pub fn status(directory: RawFd, name: &CStr, flags: i32) -> Result<Status, Errno> {
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    let flags = flags | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let mask = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_NLINK | libc::STATX_MNT_ID;
    let arguments =
        [directory as usize, path(name), flags as usize, mask as usize, buffer.as_mut_ptr() as usize, 0];
    numbers(libc::SYS_statx, arguments)?;
    // SAFETY: it was zeroed, and the kernel has filled it in.
    let found = unsafe { buffer.assume_init() };
    Ok(Status {
        node: Node { device: (found.stx_dev_major, found.stx_dev_minor), ino: found.stx_ino },
        mode: found.stx_mode.into(),
        mount: found.stx_mnt_id,
        links: found.stx_nlink,
    })
}

/// The same of a descriptor.
pub fn status_of(fd: RawFd) -> Result<Status, Errno> {
    status(fd, c"", libc::AT_EMPTY_PATH)
}

pub fn readlink(directory: RawFd, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut text = vec![0u8; libc::PATH_MAX as usize];
    let arguments = [directory as usize, path(name), text.as_mut_ptr() as usize, text.len(), 0, 0];
    let length = numbers(libc::SYS_readlinkat, arguments)?;
    text.truncate(length);
    Ok(text)
}

/// Where a descriptor's file is, as the kernel says it.
pub fn path_of(fd: RawFd) -> Result<Vec<u8>, Errno> {
    readlink(libc::AT_FDCWD, &proc_path(fd, b""))
}

/// `/proc/self/fd/N`, and a name below it where there is one.
pub fn proc_path(fd: RawFd, name: &[u8]) -> std::ffi::CString {
    let mut text = format!("/proc/self/fd/{fd}").into_bytes();
    if !name.is_empty() {
        text.push(b'/');
        text.extend(name);
    }
    c_text(text)
}

/// Bytes up to the first zero as a C string.
pub fn c_text(mut bytes: Vec<u8>) -> std::ffi::CString {
    if let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(zero);
    }
    std::ffi::CString::new(bytes).unwrap_or_default()
}

pub fn fcntl(fd: RawFd, command: i32, argument: usize) -> Result<usize, Errno> {
    numbers(libc::SYS_fcntl, [fd as usize, command as usize, argument, 0, 0, 0])
}

pub fn lseek(fd: RawFd, offset: i64, whence: i32) -> Result<i64, Errno> {
    numbers(libc::SYS_lseek, [fd as usize, offset as usize, whence as usize, 0, 0, 0])
        .map(|offset| offset as i64)
}

pub fn dup3(from: RawFd, to: RawFd, flags: i32) -> Result<usize, Errno> {
    numbers(libc::SYS_dup3, [from as usize, to as usize, flags as usize, 0, 0, 0])
}

pub fn process() -> usize {
    numbers(libc::SYS_getpid, [0; 6]).unwrap_or(0)
}

/// Whether two descriptors are one open file; none where the kernel does not tell.
pub fn same_open_file(left: RawFd, right: RawFd) -> Option<bool> {
    const KCMP_FILE: usize = 0;
    let process = process();
    let arguments = [process, process, KCMP_FILE, left as usize, right as usize, 0];
    numbers(libc::SYS_kcmp, arguments).ok().map(|order| order == 0)
}
