//! The functions of `txfs.h` that begin and end transactions.
//!
//! Each first lets a new process notice that it is one, and does its work with signals masked and calls let through.

use crate::bound;
use std::ffi::{c_char, c_int, c_uint};
use std::ptr::{self, NonNull};

use txfs_protocol::{Durability, Isolation, Policy};

use crate::calls::descriptors;
use crate::calls::system::openat;
use crate::kernel::Errno;
use crate::transaction::{Binding, End, Options};
use crate::trap;

/// Flags of `fs_tx_begin_with`.
const SNAPSHOT: c_uint = 1;
const EAGER: c_uint = 2;
const FIRST_COMMITTER: c_uint = 4;
const RECORDED: c_uint = 8;
const EXPLICIT: c_uint = 16;
const BEGIN_FLAGS: c_uint = SNAPSHOT | EAGER | FIRST_COMMITTER | RECORDED | EXPLICIT;
/// Flags of `fs_tx_commit_with`.
const DURABLE: c_uint = 0;
const ORDERED: c_uint = 1;
const DEFERRED: c_uint = 2;

pub(crate) fn answer(result: Result<i32, Errno>) -> c_int {
    match result {
        Ok(value) => value,
        Err(Errno(number)) => {
            // SAFETY: the address of this thread's errno.
            unsafe { *libc::__errno_location() = number };
            -1
        }
    }
}

/// Binds the calling thread to a transaction.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_begin() -> c_int {
    fs_tx_begin_with(0)
}

/// The same with flags.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_begin_with(flags: c_uint) -> c_int {
    trap::notice_new_process();
    answer(begin(flags))
}

fn begin(flags: c_uint) -> Result<c_int, Errno> {
    let policies = EAGER | FIRST_COMMITTER;
    if flags & !BEGIN_FLAGS != 0 || flags & policies == policies {
        return Err(Errno(libc::EINVAL));
    }
    // Flat: only the outermost counts.
    let inner = trap::uninterrupted(|| bound::binding().map(|binding| binding.depth += 1));
    if inner.is_some() {
        return Ok(0);
    }
    let options = Options {
        isolation: if flags & SNAPSHOT != 0 { Isolation::Snapshot } else { Isolation::Serializable },
        policy: match flags & policies {
            EAGER => Some(Policy::Eager),
            FIRST_COMMITTER => Some(Policy::FirstCommitter),
            _ => None,
        },
        recorded: flags & RECORDED != 0,
    };
    bound::set_report(None);
    let binding = Box::new(Binding::new(options));
    if flags & EXPLICIT != 0 {
        trap::uninterrupted(|| bound::enter_explicitly(binding));
        return Ok(0);
    }
    let binding = Box::into_raw(binding);
    let entered = NonNull::new(binding.cast()).ok_or(Errno(libc::ENOMEM)).and_then(trap::enter);
    if let Err(error) = entered {
        // SAFETY: made above, and not taken over.
        drop(unsafe { Box::from_raw(binding) });
        return Err(error);
    }
    Ok(0)
}

/// Commits, or ends an inner transaction, which then counts as a part of the outer one.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_commit() -> c_int {
    fs_tx_commit_with(DURABLE)
}

/// The same, with when it counts as done.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_commit_with(flags: c_uint) -> c_int {
    trap::notice_new_process();
    let durability = match flags {
        DURABLE => Durability::Durable,
        ORDERED => Durability::Ordered,
        DEFERRED => Durability::Deferred,
        _ => return answer(Err(Errno(libc::EINVAL))),
    };
    answer(end(End::Commit(durability)))
}

/// Aborts, an inner transaction too: what follows until the outermost end fails with ECANCELED.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_abort() -> c_int {
    trap::notice_new_process();
    answer(end(End::Abort))
}

pub(crate) fn end(how: End) -> Result<c_int, Errno> {
    trap::uninterrupted(|| {
        let binding = bound::binding().ok_or(Errno(libc::EINVAL))?;
        if binding.depth > 1 {
            binding.depth -= 1;
            if let End::Abort = how {
                binding.doom();
            } else {
                binding.alive()?;
            }
            return Ok(0);
        }
        finish(binding, |binding| binding.end(how))
    })
}

/// Unbinds the thread, however deep it is.
fn unbind(last: impl FnOnce(&mut Binding) -> Result<(), Errno>) -> Result<c_int, Errno> {
    trap::uninterrupted(|| finish(bound::binding().ok_or(Errno(libc::EINVAL))?, last))
}

fn finish(
    binding: &'static mut Binding,
    last: impl FnOnce(&mut Binding) -> Result<(), Errno>,
) -> Result<c_int, Errno> {
    let result = last(binding);
    let binding = ptr::from_mut(binding);
    if !trap::is_on() {
        drop(bound::leave_explicitly());
        return result.map(|()| 0);
    }
    trap::leave();
    // SAFETY: made by `begin` or `fs_tx_join`; after `leave` nothing has it any more.
    drop(unsafe { Box::from_raw(binding) });
    result.map(|()| 0)
}

/// A descriptor of the root of the transaction's view, for the `*at` calls; the caller closes it.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_dirfd() -> c_int {
    trap::notice_new_process();
    answer(trap::uninterrupted(|| {
        let binding = bound::binding().ok_or(Errno(libc::EINVAL))?;
        let view = binding.forced_view()?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let number = openat(view.root(), c".", flags, 0)?.into_number();
        descriptors::opened(binding, number, view.mount());
        Ok(number)
    }))
}

/// A descriptor by which other threads and processes join the transaction; the caller closes it.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_fd() -> c_int {
    trap::notice_new_process();
    answer(trap::uninterrupted(|| {
        let binding = bound::binding().ok_or(Errno(libc::EINVAL))?;
        let view = binding.forced_view()?;
        // Not noted: at the end it goes on to mean this transaction.
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        Ok(openat(view.root(), c".", flags, 0)?.into_number())
    }))
}

/// Binds the calling thread to a transaction of another one.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_join(fd: c_int) -> c_int {
    trap::notice_new_process();
    let binding = trap::uninterrupted(|| match bound::binding() {
        Some(_) => Err(Errno(libc::EBUSY)),
        None => Binding::joined(fd).map(Box::new),
    });
    answer(binding.and_then(bind))
}

/// Binds the thread to a transaction that has begun already.
pub(crate) fn bind(binding: Box<Binding>) -> Result<c_int, Errno> {
    bound::set_report(None);
    let binding = Box::into_raw(binding);
    let entered = NonNull::new(binding.cast()).ok_or(Errno(libc::ENOMEM)).and_then(trap::enter);
    if let Err(error) = entered {
        // SAFETY: made above, and not taken over.
        let mut binding = unsafe { Box::from_raw(binding) };
        let _ = trap::uninterrupted(|| binding.leave());
        return Err(error);
    }
    Ok(0)
}

/// Unbinds the calling thread; the transaction goes on as long as somebody takes part.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_leave() -> c_int {
    trap::notice_new_process();
    answer(unbind(Binding::leave))
}

/// What the thread's last transaction has met, as JSON, until it begins the next one.
///
/// # Safety
/// `report` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_tx_conflict(report: *mut *const c_char) -> c_int {
    trap::notice_new_process();
    let text = trap::uninterrupted(bound::report);
    if text.is_null() {
        return answer(Err(Errno(libc::ENODATA)));
    }
    if !report.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *report = text };
    }
    0
}

/// How many system calls of this process were caught: all of them inside transactions.
#[unsafe(no_mangle)]
pub extern "C" fn fs_tx_intercepted() -> u64 {
    trap::caught()
}
