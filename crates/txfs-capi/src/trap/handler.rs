//! The handler of SIGSYS: from the trapped call to what becomes of it.
//!
//! `handle` runs on the stack of the thread's workspace, with all signals masked but SIGSYS itself (a seccomp filter of
//! the program may raise it), and with the selector at *allow*. It never unwinds: a panic in it ends the process.

use std::sync::atomic::Ordering::Relaxed;

use super::frame::Interrupted;
use super::{children, signals, thread};
use crate::calls::{self, Action, Call};
use crate::kernel;

/// si_code of a dispatched call; `section` compares with the same number.
const SYS_USER_DISPATCH: i32 = 2;
/// si_arch of a call of the 64-bit interface.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
pub(super) const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

/// The kernel's siginfo for SIGSYS.
#[repr(C)]
pub(super) struct SignalInfo {
    signal: i32,
    errno: i32,
    pub code: i32,
    padding: i32,
    address: usize,
    number: i32,
    architecture: u32,
}

/// What becomes of a call, as far as the trap knows.
pub(super) enum Plan {
    Answer(isize),
    Make([usize; 6]),
    /// The context says already how it goes on.
    Done,
    /// The thread ends; the call is made, and nothing is caught any more.
    ThreadEnds,
}

/// Answers the selector that is right after the handler; 0 is the end of the thread.
pub(super) extern "C" fn handle(_signal: i32, info: *const SignalInfo, context: *mut libc::ucontext_t) -> u8 {
    let state = thread::state();
    state.selector.store(thread::ALLOW, Relaxed);
    state.in_handler.store(true, Relaxed);
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel gave us both, and the machine code in front of us changed to another stack.
    let (info, mut interrupted) = unsafe { (&*info, Interrupted::new(context)) };
    debug_assert_eq!(info.code, SYS_USER_DISPATCH);
    // SAFETY: while the thread is in, it has a workspace, and workspaces are never freed.
    let workspace = unsafe { &*state.workspace.load(Relaxed) };
    workspace.caught.store(workspace.caught.load(Relaxed).wrapping_add(1), Relaxed);

    let call = Call { number: info.number as u32 as usize, arguments: interrupted.arguments() };
    let plan = if info.architecture == AUDIT_ARCH_X86_64 {
        plan(call, &mut interrupted)
    } else {
        // The 32-bit interface from 64-bit code: other numbers, and addresses of 32 bits.
        Plan::Answer(-libc::ENOSYS as isize)
    };
    let mut selector = thread::BLOCK;
    match plan {
        Plan::Answer(result) => interrupted.answer(result),
        Plan::Make(arguments) => interrupted.make(call.number, arguments),
        Plan::Done => {}
        Plan::ThreadEnds => {
            interrupted.make(call.number, call.arguments);
            selector = thread::ALLOW;
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    state.in_handler.store(false, Relaxed);
    selector
}

fn plan(call: Call, interrupted: &mut Interrupted) -> Plan {
    match call.number as libc::c_long {
        libc::SYS_rt_sigreturn => signals::handler_returns(interrupted),
        libc::SYS_rt_sigprocmask => signals::change_mask(call, interrupted),
        libc::SYS_rt_sigaction => signals::change_action(call),
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
            children::make(call, interrupted)
        }
        libc::SYS_exit => {
            calls::thread_exits();
            super::switch_off();
            Plan::ThreadEnds
        }
        libc::SYS_exit_group => Plan::Make(call.arguments),
        libc::SYS_prctl if call.arguments[0] == PR_SET_SYSCALL_USER_DISPATCH => {
            Plan::Answer(-libc::EBUSY as isize)
        }
        // What a ring does cannot be seen; programs that use rings know kernels without.
        libc::SYS_io_uring_setup => Plan::Answer(-libc::ENOSYS as isize),
        _ => match calls::handle(&call) {
            Action::Answer(result) => Plan::Answer(result),
            Action::Make => signals::with_temporary_mask(call, interrupted),
            Action::MakeWith(arguments) => {
                signals::with_temporary_mask(Call { arguments, ..call }, interrupted)
            }
        },
    }
}

/// The thread ends: what it had in the trap is free for others. Runs on the program's stack, still in the handler.
pub(super) extern "C" fn released() {
    super::release_workspace();
}

/// A SIGSYS that no call of ours raised: seccomp, kill(2). It goes to the handler that was there before.
pub(super) extern "C" fn foreign(signal: i32, info: *mut SignalInfo, context: *mut libc::ucontext_t) {
    signals::pass_on(signal, info, context);
}

/// Says what failed and ends the process. For panics in the handler: unwinding would leave the tables in pieces, and
/// the program's code above knows nothing of it.
pub(super) fn panicked(message: &dyn std::fmt::Display) -> ! {
    struct Text {
        bytes: [u8; 512],
        len: usize,
    }
    impl std::fmt::Write for Text {
        fn write_str(&mut self, part: &str) -> std::fmt::Result {
            let rest = &mut self.bytes[self.len..];
            let len = part.len().min(rest.len());
            rest[..len].copy_from_slice(&part.as_bytes()[..len]);
            self.len += len;
            Ok(())
        }
    }
    let mut text = Text { bytes: [0; 512], len: 0 };
    let _ = std::fmt::write(&mut text, format_args!("libtxfs: internal error in a system call: {message}\n"));
    // SAFETY: the text is ours; the rest ends this process, with SIGABRT if that can be.
    unsafe {
        kernel::raw(libc::SYS_write as usize, [2, text.bytes.as_ptr() as usize, text.len, 0, 0, 0]);
        signals::abort();
    }
}
