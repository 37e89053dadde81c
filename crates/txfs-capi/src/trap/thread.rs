//! What the trap knows of a thread: a block of static thread-local memory that the machine code of `section` defines.
//!
//! Only the thread itself and its signal handlers look at it, so all accesses are relaxed; they are atomic because a
//! handler may run between any two instructions.

use std::arch::asm;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering::Relaxed};

use super::workspace::Workspace;

/// The kernel lets a call pass.
pub(super) const ALLOW: u8 = 0;
/// The kernel raises SIGSYS instead of a call.
pub(super) const BLOCK: u8 = 1;

/// The block. All zero is a thread that never began anything.
#[repr(C, align(16))]
pub(super) struct State {
    /// The byte that the kernel reads at each call while dispatch is on: `ALLOW` or `BLOCK`.
    pub selector: AtomicU8,
    /// 1 while dispatch is on. A stub clears it in a new process, where dispatch is off.
    pub on: AtomicU8,
    /// The handler is running: no `malloc`.
    pub in_handler: AtomicBool,
    /// The thread's end is noticed (`children::notice_thread_exit`).
    pub exit_noticed: AtomicBool,
    /// The program believes that SIGSYS is blocked.
    pub sigsys_blocked: AtomicBool,
    /// Top of the stack on which the handler runs.
    pub stack: AtomicPtr<u8>,
    /// Memory of the handler.
    pub workspace: AtomicPtr<Workspace>,
    /// What `enter` was given.
    pub binding: AtomicPtr<()>,
}

/// This thread's block.
#[inline(always)]
pub(super) fn state() -> &'static State {
    let address: *const State;
    // SAFETY: the word at fs:0 is the thread pointer in every x86-64 program, and the block lies at its fixed distance
    // from it. The block lives as long as the thread, and a reference to it cannot leave the thread: State is only
    // handed out here, and its users keep it within one function.
    unsafe {
        asm!(
            "mov {address}, qword ptr [rip + txfs_thread@GOTTPOFF]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            options(nostack, readonly),
        );
        &*address
    }
}

/// Has libc make room for the library's ordinary thread-local variables, should it still have to: it would do so with
/// `malloc` when the handler first touches one.
pub(super) fn touch_variables() {
    thread_local!(static TOUCHED: Cell<bool> = const { Cell::new(false) });
    TOUCHED.with(|touched| std::hint::black_box(touched).set(true));
}

/// Whether this thread's calls are caught.
pub fn is_on() -> bool {
    state().on.load(Relaxed) != 0
}

/// What `enter` was given, while the thread is in.
pub fn binding() -> Option<std::ptr::NonNull<()>> {
    if is_on() { std::ptr::NonNull::new(state().binding.load(Relaxed)) } else { None }
}

/// Whether this code runs in the handler.
#[inline(always)]
pub(super) fn in_handler() -> bool {
    state().in_handler.load(Relaxed)
}
