//! The functions of `txfs.h` that begin and end.

use std::ptr::NonNull;

use crate::kernel::Errno;
use crate::trap;

fn answer(result: Result<(), Errno>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(Errno(number)) => {
            // SAFETY: the address of this thread's errno.
            unsafe { *libc::__errno_location() = number };
            -1
        }
    }
}

/// Binds the calling thread to a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_begin() -> i32 {
    trap::notice_new_process();
    if trap::is_on() {
        return 0;
    }
    answer(trap::enter(NonNull::dangling()))
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_commit() -> i32 {
    trap::notice_new_process();
    if !trap::is_on() {
        return answer(Err(Errno(libc::EINVAL)));
    }
    trap::uninterrupted(trap::leave);
    0
}

/// Ends it without effect.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_abort() -> i32 {
    fs_tx_commit()
}

/// How many system calls of this process were caught: all of them inside transactions.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_intercepted() -> u64 {
    trap::caught()
}
