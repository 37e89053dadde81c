//! SIGSYS must never be blocked in a thread whose calls are caught: the kernel would kill the process at its next call.
//!
//! The program does not see that. `rt_sigprocmask` is answered here, by changing the mask that the handler returns to,
//! and remembers whether the program believes SIGSYS to be blocked; every other set that would block it is replaced by
//! a copy without. Handlers that were installed with SIGSYS in their mask are mended at each begin. Between a begin and
//! its end, another thread that is outside can still install one: that is the one gap (SEMANTICS).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::frame::Interrupted;
use super::handler::{Plan, SignalInfo};
use super::{memory, section, thread};
use crate::calls::Call;
use crate::kernel::{self, Errno};

pub(super) const SIGSYS_BIT: u64 = 1 << (libc::SIGSYS - 1);
const NEVER_BLOCKED: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
const SIGNALS: i32 = 64;
/// Bytes of the kernel's set of signals.
const SET_LEN: usize = 8;
const SYS_IO_PGETEVENTS: libc::c_long = 333;
const SA_RESTORER: u64 = 0x0400_0000;

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

const ACTION_LEN: usize = size_of::<KernelAction>();

/// The program's own action for SIGSYS.
static PROGRAM_HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static PROGRAM_FLAGS: AtomicU64 = AtomicU64::new(0);
static PROGRAM_MASK: AtomicU64 = AtomicU64::new(0);

fn get_action(signal: i32) -> Result<KernelAction, Errno> {
    let mut action = KernelAction::default();
    let address = &raw mut action as usize;
    // SAFETY: the kernel writes one action.
    unsafe { kernel::call(libc::SYS_rt_sigaction, [signal as usize, 0, address, SET_LEN, 0, 0])? };
    Ok(action)
}

fn set_action(signal: i32, action: &KernelAction) -> Result<(), Errno> {
    let address = &raw const *action as usize;
    // SAFETY: handlers are the program's own with a smaller mask, ours, or the default.
    unsafe { kernel::call(libc::SYS_rt_sigaction, [signal as usize, address, 0, SET_LEN, 0, 0])? };
    Ok(())
}

/// Changes the thread's own mask; answers the old one. Not for the handler, whose mask is not the program's.
pub(super) fn set_mask(how: i32, set: u64) -> u64 {
    let mut old = 0_u64;
    let (set, old_address) = (&raw const set as usize, &raw mut old as usize);
    // SAFETY: both are sets of the kernel's size.
    unsafe {
        kernel::raw(libc::SYS_rt_sigprocmask as usize, [how as usize, set, old_address, SET_LEN, 0, 0])
    };
    old
}

/// All signals but SIGSYS.
pub(super) const ALL: u64 = !SIGSYS_BIT;

/// Lets SIGSYS through before a thread goes in.
pub(super) fn unblock() {
    let old = set_mask(libc::SIG_UNBLOCK, SIGSYS_BIT);
    thread::state().sigsys_blocked.store(old & SIGSYS_BIT != 0, Relaxed);
}

/// Sets the thread's mask again. In: without SIGSYS. Out: if it came out just now, SIGSYS as the program believes it.
pub(super) fn restore_mask(mask: u64) {
    let state = thread::state();
    if thread::is_on() {
        set_mask(libc::SIG_SETMASK, mask & !SIGSYS_BIT);
    } else {
        let blocked = state.sigsys_blocked.swap(false, Relaxed);
        set_mask(libc::SIG_SETMASK, mask | if blocked { SIGSYS_BIT } else { 0 });
    }
}

/// Installs the handler, and mends the masks of all others.
pub(super) fn install() -> Result<(), Errno> {
    let ours = KernelAction {
        handler: section::txfs_trap_entry as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART) as u64 | SA_RESTORER,
        restorer: section::txfs_restorer as *const () as usize,
        mask: ALL,
    };
    for signal in (1..=SIGNALS).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        let action = get_action(signal)?;
        if signal == libc::SIGSYS {
            if action.handler != ours.handler {
                PROGRAM_FLAGS.store(action.flags, Relaxed);
                PROGRAM_MASK.store(action.mask, Relaxed);
                PROGRAM_HANDLER.store(action.handler, Release);
                set_action(signal, &ours)?;
            }
        } else if action.mask & SIGSYS_BIT != 0 && action.handler > libc::SIG_IGN {
            set_action(signal, &KernelAction { mask: action.mask & !SIGSYS_BIT, ..action })?;
        }
    }
    Ok(())
}

/// A SIGSYS that is not from dispatch.
pub(super) fn pass_on(signal: i32, info: *mut SignalInfo, context: *mut libc::ucontext_t) {
    let state = thread::state();
    let handler = PROGRAM_HANDLER.load(Acquire);
    if handler == libc::SIG_IGN {
        return;
    }
    let selector = state.selector.swap(thread::ALLOW, Relaxed);
    if handler == libc::SIG_DFL {
        // It comes again when the handler has returned, and does what it does by default.
        let _ = set_action(signal, &KernelAction::default());
        raise(signal);
        state.selector.store(selector, Relaxed);
        return;
    }
    // SAFETY: the kernel's context, which nobody else looks at.
    let before = unsafe { *(&raw const (*context).uc_sigmask).cast::<u64>() };
    let during = (before | PROGRAM_MASK.load(Relaxed)) & !SIGSYS_BIT;
    let with_all = set_mask(libc::SIG_SETMASK, during);
    state.selector.store(selector, Relaxed);
    if PROGRAM_FLAGS.load(Relaxed) & libc::SA_SIGINFO as u64 != 0 {
        // SAFETY: the program installed it as a function of this type.
        let handler: extern "C" fn(i32, *mut SignalInfo, *mut libc::ucontext_t) =
            unsafe { std::mem::transmute(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the same.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
    set_mask(libc::SIG_SETMASK, with_all);
}

fn raise(signal: i32) {
    // SAFETY: these calls take no addresses.
    unsafe {
        let process = kernel::raw(libc::SYS_getpid as usize, [0; 6]) as usize;
        let thread = kernel::raw(libc::SYS_gettid as usize, [0; 6]) as usize;
        kernel::raw(libc::SYS_tgkill as usize, [process, thread, signal as usize, 0, 0, 0]);
    }
}

/// Ends the process by SIGABRT, whatever the program made of that.
pub(super) fn abort() -> ! {
    let _ = set_action(libc::SIGABRT, &KernelAction::default());
    raise(libc::SIGABRT);
    set_mask(libc::SIG_SETMASK, 0);
    loop {
        // SAFETY: takes no addresses, and does not return.
        unsafe { kernel::raw(libc::SYS_exit_group as usize, [134, 0, 0, 0, 0, 0]) };
    }
}

/// A handler of the program returns; the mask that comes back with it must not block SIGSYS.
pub(super) fn handler_returns(interrupted: &mut Interrupted) -> Plan {
    let offset = std::mem::offset_of!(libc::ucontext_t, uc_sigmask);
    let mask = interrupted.stack_pointer() + offset;
    if memory::is_writable(mask, SET_LEN) {
        // SAFETY: it is the program's own signal frame and can be written.
        unsafe { (mask as *mut u64).write_unaligned((mask as *const u64).read_unaligned() & !SIGSYS_BIT) };
    }
    interrupted.return_from_handler();
    Plan::Done
}

/// `rt_sigprocmask(how, set, old, len)`.
pub(super) fn change_mask(call: Call, interrupted: &mut Interrupted) -> Plan {
    let [how, set, old, len, ..] = call.arguments;
    let mut change = || -> Result<(), Errno> {
        if len != SET_LEN {
            return Err(Errno(libc::EINVAL));
        }
        let blocked = &thread::state().sigsys_blocked;
        let before = *interrupted.signal_mask() | if blocked.load(Relaxed) { SIGSYS_BIT } else { 0 };
        if set != 0 {
            let set = memory::read_word(set)?;
            let after = match how as i32 {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                libc::SIG_SETMASK => set,
                _ => return Err(Errno(libc::EINVAL)),
            };
            blocked.store(after & SIGSYS_BIT != 0, Relaxed);
            *interrupted.signal_mask() = after & !(SIGSYS_BIT | NEVER_BLOCKED);
        }
        if old != 0 {
            memory::write(old, &before.to_ne_bytes())?;
        }
        Ok(())
    };
    Plan::Answer(change().map_or_else(|Errno(number)| -number as isize, |()| 0))
}

/// `rt_sigaction(signal, new, old, len)`.
pub(super) fn change_action(call: Call) -> Plan {
    let [signal, new, _, len, ..] = call.arguments;
    if new == 0 || len != SET_LEN {
        return Plan::Make(call.arguments);
    }
    if signal as i32 == libc::SIGSYS {
        return Plan::Answer(-libc::EINVAL as isize);
    }
    let mut bytes = [0; ACTION_LEN];
    if let Err(Errno(number)) = memory::read(new, &mut bytes) {
        return Plan::Answer(-number as isize);
    }
    let mask = &mut bytes[std::mem::offset_of!(KernelAction, mask)..];
    let set = u64::from_ne_bytes(std::array::from_fn(|at| mask[at])) & !SIGSYS_BIT;
    mask.copy_from_slice(&set.to_ne_bytes());
    let mut arguments = call.arguments;
    arguments[1] = bytes.as_ptr() as usize;
    // SAFETY: the program's own call, with a set of its own that has one signal less.
    Plan::Answer(unsafe { kernel::raw(call.number, arguments) })
}

/// Calls that have a mask while they wait get a copy of it without SIGSYS.
pub(super) fn with_temporary_mask(call: Call, interrupted: &mut Interrupted) -> Plan {
    let mut arguments = call.arguments;
    let set = match call.number as libc::c_long {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        // These two take the address of (address of the set, its length).
        libc::SYS_pselect6 | SYS_IO_PGETEVENTS if arguments[5] != 0 => {
            let mut pair = [0; 16];
            // Wrong addresses go on to the kernel, for its own answer.
            if memory::read(arguments[5], &mut pair).is_err() {
                return Plan::Make(arguments);
            }
            let address = usize::from_ne_bytes(std::array::from_fn(|at| pair[at]));
            if let Some(copy) = copy_of_set(address, interrupted) {
                pair[..8].copy_from_slice(&copy.to_ne_bytes());
                arguments[5] = interrupted.keep(&pair);
            }
            return Plan::Make(arguments);
        }
        _ => return Plan::Make(arguments),
    };
    if let Some(copy) = copy_of_set(arguments[set], interrupted) {
        arguments[set] = copy;
    }
    Plan::Make(arguments)
}

fn copy_of_set(address: usize, interrupted: &mut Interrupted) -> Option<usize> {
    if address == 0 {
        return None;
    }
    let set = memory::read_word(address).ok()?;
    (set & SIGSYS_BIT != 0).then(|| interrupted.keep(&(set & !SIGSYS_BIT).to_ne_bytes()))
}
