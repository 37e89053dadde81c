//! Catches the system calls of a thread (Syscall User Dispatch, Linux 5.11): docs/decisions/0017, "The trap".
//!
//! `enter` and `leave` switch it on and off for the calling thread; between them each call of the thread goes to
//! `calls::handle`, but for those that concern the trap itself (`handler`). Nothing here takes a lock.

mod arena;
mod children;
mod frame;
mod handler;
pub mod memory;
pub(crate) mod section;
mod signals;
mod thread;
mod workspace;

use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::Ordering::Relaxed;

use crate::kernel::{self, Errno};

pub use children::notice_new_process;
pub use thread::{binding, is_on};
pub use workspace::caught;

const PR_SYS_DISPATCH_OFF: usize = 0;
const PR_SYS_DISPATCH_ON: usize = 1;

/// Switches dispatch; ENOTSUP where the kernel does not have it.
fn dispatch(mode: usize, start: usize, len: usize, selector: usize) -> Result<(), Errno> {
    // SAFETY: the kernel reads the selector at each call of this thread, and it lives as long as the thread.
    let result = unsafe {
        kernel::call(libc::SYS_prctl, [handler::PR_SET_SYSCALL_USER_DISPATCH, mode, start, len, selector, 0])
    };
    match result {
        Ok(_) => Ok(()),
        Err(Errno(libc::EINVAL)) => Err(Errno(libc::ENOTSUP)),
        Err(errno) => Err(errno),
    }
}

/// From the return of this function on, the calls of this thread are caught. `binding` is what `binding()` answers.
/// The thread must not be in.
pub fn enter(binding: NonNull<()>) -> Result<(), Errno> {
    debug_assert!(!is_on());
    notice_new_process();
    static PANICS: Once = Once::new();
    PANICS.call_once(abort_when_the_handler_panics);
    if !arena::reserve() {
        return Err(Errno(libc::ENOMEM));
    }
    arena::free_put_off();
    thread::touch_variables();
    children::watch()?;
    children::notice_thread_exit()?;
    signals::install()?;
    let state = thread::state();
    let workspace = workspace::take().ok_or(Errno(libc::ENOMEM))?;
    state.workspace.store(ptr::from_ref(workspace).cast_mut(), Relaxed);
    state.stack.store(workspace.stack_top, Relaxed);
    state.binding.store(binding.as_ptr(), Relaxed);
    state.selector.store(thread::ALLOW, Relaxed);
    signals::unblock();
    state.on.store(1, Relaxed);
    let (start, len) = section::range();
    if let Err(errno) = dispatch(PR_SYS_DISPATCH_ON, start, len, state.selector.as_ptr() as usize) {
        state.on.store(0, Relaxed);
        signals::restore_mask(signals::set_mask(libc::SIG_BLOCK, 0));
        release_workspace();
        return Err(errno);
    }
    state.selector.store(thread::BLOCK, Relaxed);
    Ok(())
}

/// The calls of this thread are its own again. It must be in, and inside of `uninterrupted`.
pub fn leave() {
    switch_off();
    release_workspace();
    arena::free_put_off();
}

/// Runs `work` of the library outside of the handler, for a thread that is in or out, or that `work` takes in or out:
/// its calls are not caught, and no handler of the program runs meanwhile.
pub fn uninterrupted<T>(work: impl FnOnce() -> T) -> T {
    let state = thread::state();
    let mask = signals::set_mask(libc::SIG_BLOCK, signals::ALL);
    state.selector.store(thread::ALLOW, Relaxed);
    let result = work();
    if is_on() {
        state.selector.store(thread::BLOCK, Relaxed);
    }
    signals::restore_mask(mask);
    result
}

/// Switches dispatch off. The workspace stays until `release_workspace`, since this may run on its stack.
fn switch_off() {
    let state = thread::state();
    state.selector.store(thread::ALLOW, Relaxed);
    // It can only fail where it never went on.
    let _ = dispatch(PR_SYS_DISPATCH_OFF, 0, 0, 0);
    state.on.store(0, Relaxed);
    state.binding.store(ptr::null_mut(), Relaxed);
}

fn release_workspace() {
    let workspace = thread::state().workspace.swap(ptr::null_mut(), Relaxed);
    // SAFETY: workspaces are never freed, and this thread had it.
    if let Some(workspace) = unsafe { workspace.as_ref() } {
        workspace::give_back(workspace);
    }
}

fn abort_when_the_handler_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if thread::in_handler() {
            handler::panicked(panic);
        }
        before(panic);
    }));
}
