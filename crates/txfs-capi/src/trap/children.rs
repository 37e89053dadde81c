//! Threads and processes that a thread in a transaction makes start outside of it, and ends of threads are noticed.
//!
//! The kernel never passes dispatch on to a child. What is left: the child begins inside a stub, on its stack, so it
//! needs a frame there; and a child process must not believe its copy of the parent's state.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};

use super::frame::Interrupted;
use super::handler::Plan;
use super::{memory, signals, thread};
use crate::calls::{self, Call};
use crate::kernel::{self, Errno};

const CLONE_VM: usize = libc::CLONE_VM as usize;
const CLONE_VFORK: usize = libc::CLONE_VFORK as usize;
/// The kernel takes no longer arguments of clone3.
const CLONE3_LEN_MAX: usize = 4096;
/// Places of flags, stack and stack_size in them, and the least length.
const CLONE3_FLAGS: usize = 0;
const CLONE3_STACK: usize = 40;
const CLONE3_STACK_LEN: usize = 48;
const CLONE3_LEN_MIN: usize = 64;

/// `fork`, `vfork`, `clone`, `clone3`.
pub(super) fn make(call: Call, interrupted: &mut Interrupted) -> Plan {
    let result = match call.number as libc::c_long {
        libc::SYS_clone => make_clone(call.arguments, interrupted),
        libc::SYS_clone3 => make_clone3(call, interrupted),
        libc::SYS_fork => make_clone([libc::SIGCHLD as usize, 0, 0, 0, 0, 0], interrupted),
        _ => make_clone([CLONE_VM | CLONE_VFORK | libc::SIGCHLD as usize, 0, 0, 0, 0, 0], interrupted),
    };
    result.unwrap_or_else(|Errno(number)| Plan::Answer(-number as isize))
}

/// The byte that says "in"; a child with memory of its own clears its copy.
fn flag() -> usize {
    thread::state().on.as_ptr() as usize
}

/// A child on the parent's own stack would take the frame away from under the parent. So it gets memory of its own:
/// what the two may do with the common memory of vfork is nothing, and the parent still waits.
fn without_common_stack(flags: usize, stack: usize) -> usize {
    if stack == 0 { flags & !CLONE_VM } else { flags }
}

fn make_clone(mut arguments: [usize; 6], interrupted: &mut Interrupted) -> Result<Plan, Errno> {
    let [flags, stack, ..] = arguments;
    // The upper half is no flag of this call.
    let flags = without_common_stack(flags, stack);
    arguments[0] = flags;
    let flag = (flags & CLONE_VM == 0).then(flag);
    if stack != 0 {
        arguments[1] = interrupted.frame_on(stack, flag)?;
    }
    finish(libc::SYS_clone, arguments, flag, interrupted)
}

fn make_clone3(call: Call, interrupted: &mut Interrupted) -> Result<Plan, Errno> {
    let [address, len, ..] = call.arguments;
    if !(CLONE3_LEN_MIN..=CLONE3_LEN_MAX).contains(&len) {
        return Ok(Plan::Make(call.arguments));
    }
    let mut all = [0; CLONE3_LEN_MAX];
    let values = &mut all[..len];
    memory::read(address, values)?;
    let get = |values: &[u8], at: usize| usize::from_ne_bytes(std::array::from_fn(|byte| values[at + byte]));
    let stack = get(values, CLONE3_STACK);
    let flags = without_common_stack(get(values, CLONE3_FLAGS), stack);
    values[CLONE3_FLAGS..][..8].copy_from_slice(&flags.to_ne_bytes());
    let flag = (flags & CLONE_VM == 0).then(flag);
    if stack != 0 {
        let end = stack.wrapping_add(get(values, CLONE3_STACK_LEN));
        let len = interrupted.frame_on(end, flag)?.wrapping_sub(stack);
        values[CLONE3_STACK_LEN..][..8].copy_from_slice(&len.to_ne_bytes());
    }
    let mut arguments = call.arguments;
    arguments[0] = interrupted.keep(values);
    finish(libc::SYS_clone3, arguments, flag, interrupted)
}

fn finish(
    number: libc::c_long,
    arguments: [usize; 6],
    flag: Option<usize>,
    interrupted: &mut Interrupted,
) -> Result<Plan, Errno> {
    match flag {
        Some(flag) => interrupted.make_process(number as usize, arguments, flag),
        None => interrupted.make(number as usize, arguments),
    }
    Ok(Plan::Done)
}

/// A page that the kernel clears in a child process, however that is made. 1: this process was seen.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
static WATCHES: AtomicBool = AtomicBool::new(false);
static EXIT_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// To be called first by every function of the library that has a state: in a new process it starts from nothing.
pub fn notice_new_process() {
    let page = PAGE.load(Acquire);
    if page.is_null() {
        return;
    }
    // SAFETY: the page is never unmapped.
    if unsafe { (*page).swap(1, AcqRel) } == 0 {
        let state = thread::state();
        state.on.store(0, Relaxed);
        if state.sigsys_blocked.swap(false, Relaxed) {
            signals::set_mask(libc::SIG_BLOCK, signals::SIGSYS_BIT);
        }
        calls::forked();
    }
}

/// Prepares the process: children and ends of threads will be noticed.
pub(super) fn watch() -> Result<(), Errno> {
    if WATCHES.load(Acquire) {
        return Ok(());
    }
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a new page, which becomes known when it is ready; functions that live as long as the process.
    unsafe {
        let page = kernel::call(libc::SYS_mmap, [0, 4096, protection, flags, usize::MAX, 0])?;
        kernel::call(libc::SYS_madvise, [page, 4096, libc::MADV_WIPEONFORK as usize, 0, 0, 0])?;
        let page = page as *mut AtomicU32;
        (*page).store(1, Relaxed);
        if PAGE.compare_exchange(ptr::null_mut(), page, AcqRel, Acquire).is_err() {
            // Another thread was first, or an earlier attempt got this far.
            kernel::call(libc::SYS_munmap, [page as usize, 4096, 0, 0, 0, 0])?;
        }
        let mut key = 0;
        let failed = libc::pthread_key_create(&raw mut key, Some(thread_exits));
        if failed != 0 {
            return Err(Errno(failed));
        }
        if EXIT_KEY.compare_exchange(u32::MAX, key, AcqRel, Acquire).is_err() {
            libc::pthread_key_delete(key);
        }
        if !WATCHES.swap(true, AcqRel) {
            libc::pthread_atfork(None, None, Some(in_child));
        }
    }
    Ok(())
}

extern "C" fn in_child() {
    notice_new_process();
}

/// Has `thread_exits` run before this thread ends by returning, pthread_exit or cancellation.
pub(super) fn notice_thread_exit() -> Result<(), Errno> {
    let noticed = &thread::state().exit_noticed;
    if noticed.load(Relaxed) {
        return Ok(());
    }
    // SAFETY: the key exists (`watch`), and its value only says that there is one.
    let failed = unsafe { libc::pthread_setspecific(EXIT_KEY.load(Acquire), ptr::from_ref(noticed).cast()) };
    if failed != 0 {
        return Err(Errno(failed));
    }
    noticed.store(true, Relaxed);
    Ok(())
}

extern "C" fn thread_exits(_value: *mut libc::c_void) {
    thread::state().exit_noticed.store(false, Relaxed);
    if thread::is_on() {
        super::uninterrupted(|| {
            calls::thread_exits();
            super::leave();
        });
    }
}
