//! The calls that are stood in front of. Each makes the system call itself, then prolongs it where it was a flush that
//! succeeded. errno is the system call's own.
//!
//! Offsets go to the kernel in one register: the library is for 64-bit machines, as TxFS is.

use libc::{c_int, c_long, c_uint, c_void, iovec, off_t, size_t, ssize_t};

use crate::fuse::is_on_fuse;
use crate::layout::Call;
use crate::pause::after;

/// With or without an error in errno.
fn flushed(descriptor: c_int, call: Call, result: c_long) -> c_long {
    if result >= 0 && !is_on_fuse(descriptor) {
        after(call);
    }
    result
}

/// A write through a descriptor that may have been opened for synchronous writes.
fn written(descriptor: c_int, result: c_long) -> ssize_t {
    if result >= 0 {
        // SAFETY: takes numbers only.
        let flags = unsafe { libc::syscall(libc::SYS_fcntl, descriptor, libc::F_GETFL) };
        // O_SYNC holds the bit of O_DSYNC
        if flags >= 0 && flags & c_long::from(libc::O_DSYNC) != 0 {
            flushed(descriptor, Call::SynchronousWrite, result);
        }
    }
    result as ssize_t
}

/// The other name of a call, for programs that ask for offsets of 64 bits: here they always have so many.
macro_rules! also_with_64_bits {
    ($name_64:ident = $name:ident($($argument:ident: $kind:ty),*)) => {
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name_64($($argument: $kind),*) -> ssize_t {
            // SAFETY: the caller's promise.
            unsafe { $name($($argument),*) }
        }
    };
}

#[unsafe(no_mangle)]
extern "C" fn fsync(descriptor: c_int) -> c_int {
    // SAFETY: takes numbers only.
    flushed(descriptor, Call::Fsync, unsafe { libc::syscall(libc::SYS_fsync, descriptor) }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    // SAFETY: takes numbers only.
    flushed(descriptor, Call::Fdatasync, unsafe { libc::syscall(libc::SYS_fdatasync, descriptor) }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn syncfs(descriptor: c_int) -> c_int {
    // SAFETY: takes numbers only.
    flushed(descriptor, Call::Sync, unsafe { libc::syscall(libc::SYS_syncfs, descriptor) }) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn sync() {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_sync) };
    after(Call::Sync);
}

#[unsafe(no_mangle)]
extern "C" fn sync_file_range(descriptor: c_int, offset: off_t, count: off_t, flags: c_uint) -> c_int {
    // SAFETY: takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_sync_file_range, descriptor, offset, count, flags) };
    let waits = flags & (libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER) != 0;
    if waits { flushed(descriptor, Call::SyncFileRange, result) as c_int } else { result as c_int }
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn msync(address: *mut c_void, len: size_t, flags: c_int) -> c_int {
    // SAFETY: the caller's promise; the kernel checks the range.
    let result = unsafe { libc::syscall(libc::SYS_msync, address, len, flags) };
    if result >= 0 && flags & libc::MS_SYNC != 0 {
        after(Call::Msync);
    }
    result as c_int
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(descriptor: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's promise; the kernel checks the range.
    written(descriptor, unsafe { libc::syscall(libc::SYS_write, descriptor, buffer, len) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(descriptor: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller's promise; the kernel checks the range.
    written(descriptor, unsafe { libc::syscall(libc::SYS_pwrite64, descriptor, buffer, len, offset) })
}

also_with_64_bits!(pwrite64 = pwrite(descriptor: c_int, buffer: *const c_void, len: size_t, offset: off_t));

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(descriptor: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise; the kernel checks the ranges.
    written(descriptor, unsafe { libc::syscall(libc::SYS_writev, descriptor, pieces, count) })
}

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(
    descriptor: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise; the kernel checks the ranges.
    written(descriptor, unsafe { libc::syscall(libc::SYS_pwritev, descriptor, pieces, count, offset, 0) })
}

also_with_64_bits!(pwritev64 = pwritev(descriptor: c_int, pieces: *const iovec, count: c_int, offset: off_t));

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(
    descriptor: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise; the kernel checks the ranges.
    let result = unsafe { libc::syscall(libc::SYS_pwritev2, descriptor, pieces, count, offset, 0, flags) };
    if flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0 {
        flushed(descriptor, Call::SynchronousWrite, result) as ssize_t
    } else {
        written(descriptor, result)
    }
}

also_with_64_bits!(pwritev64v2 = pwritev2(descriptor: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int));
