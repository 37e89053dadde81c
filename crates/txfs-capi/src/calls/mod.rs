//! What a system call of a thread in a transaction goes to.
//!
//! Runs inside the signal handler of `trap`: all signals are masked, the allocator is the arena, and nothing here may
//! call what takes a lock of the C library. Calls by path are carried out here, on a directory in the view and the last
//! name; calls on descriptors are made after the handler, with the descriptor in the view in the place of the
//! program's, so that they can wait and be interrupted as ever.

mod data;
pub mod descriptors;
mod directory;
pub mod maps;
mod metadata;
pub mod mounts;
mod names;
mod nodes;
mod open;
mod other;
pub mod own;
pub mod resolve;
pub mod scope;
pub mod system;

use crate::bound;
use crate::kernel::Errno;
use crate::transaction::Binding;
use crate::trap::memory;
use resolve::{Place, Resolved, resolve};
use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use system::numbers;

/// A system call as the program made it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub number: usize,
    /// rdi, rsi, rdx, r10, r8, r9.
    pub arguments: [usize; 6],
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is answered: a result, or an error number negated.
    Answer(isize),
    /// It is made as it stands, after the handler, with the program's signal mask.
    Make,
    /// The same with other arguments; the program finds its registers unchanged.
    MakeWith([usize; 6]),
}

/// What becomes of a call, or the error that answers it.
type Decided = Result<Action, Errno>;

/// Takes a lock; what a panic has left behind it is whole, since no change is made in steps.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a child process: what a lock of the library guards, and it is left empty. Another thread of the parent may have
/// held it at the fork; then what it guards may be half changed, nobody will ever free the lock, and the answer is none.
pub fn inherited<T: Default>(mutex: &'static Mutex<T>) -> Option<T> {
    match mutex.try_lock() {
        Ok(mut guard) => Some(std::mem::take(&mut *guard)),
        Err(TryLockError::Poisoned(poisoned)) => Some(std::mem::take(&mut *poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => {
            // SAFETY: a new process has this one thread, which does not hold the lock: so nobody looks at it, and all of
            // a mutex is made to change behind a shared reference. The old value is forgotten.
            unsafe { std::ptr::from_ref(mutex).cast_mut().write(Mutex::default()) };
            None
        }
    }
}

/// Decides what becomes of a call.
pub fn handle(call: &Call) -> Action {
    let Some(binding) = bound::binding() else { return Action::Make };
    decide(binding, call).unwrap_or_else(|error| Action::Answer(error.answer()))
}

/// The thread ends in its transaction. Runs in the handler, or outside with the calls let through.
pub fn thread_exits() {
    bound::thread_exits();
}

/// This is a new process, a copy of one that may have had transactions: it has none.
pub fn forked() {
    bound::forked();
}

fn decide(binding: &mut Binding, call: &Call) -> Decided {
    let families =
        [open::decide, metadata::decide, names::decide, data::decide, directory::decide, maps::decide];
    for family in families {
        if let Some(decided) = family(binding, call) {
            return decided;
        }
    }
    other::decide(binding, call)
}

/// A descriptor, as it stands in a register.
fn descriptor(argument: usize) -> RawFd {
    argument as RawFd
}

/// Reads a path of the program. None where the kernel should refuse it itself.
fn path_argument(address: usize) -> Option<CString> {
    let mut bytes = [0; libc::PATH_MAX as usize];
    let length = memory::read_string(address, &mut bytes).ok()?;
    CString::new(&bytes[..length]).ok()
}

/// A call by one path: `then` carries it out, if it is on the volume or got there over it.
fn at_path(
    binding: &mut Binding,
    directory: RawFd,
    address: usize,
    follow: bool,
    then: impl FnOnce(&mut Binding, &Place) -> Result<usize, Errno>,
) -> Decided {
    let Some(path) = path_argument(address) else { return Ok(Action::Make) };
    match resolve(binding, directory, &path, follow)? {
        Resolved::Unchanged => Ok(Action::Make),
        Resolved::At(place) => {
            binding.alive()?;
            let result = then(binding, &place)?;
            scope::made(binding, &place);
            Ok(Action::Answer(result as isize))
        }
    }
}

/// A call on descriptors, at these places of its arguments.
fn on_descriptors(binding: &mut Binding, call: &Call, places: &[usize]) -> Decided {
    let mut arguments = call.arguments;
    for place in places {
        let class = descriptors::class(binding, descriptor(arguments[*place]))?;
        if let Some(number) = class.number() {
            arguments[*place] = number as usize;
        }
    }
    Ok(if arguments == call.arguments { Action::Make } else { Action::MakeWith(arguments) })
}

/// Makes a call on a place: the arguments are those of the `*at` form.
fn make(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    numbers(number, arguments)
}

/// Whether flags say that an empty path means the descriptor itself, and the path is empty.
fn is_descriptor_itself(address: usize, flags: usize) -> bool {
    if flags as i32 & libc::AT_EMPTY_PATH == 0 {
        return false;
    }
    // Since Linux 6.11 no path at all is an empty one.
    address == 0 || path_argument(address).is_some_and(|path| path.is_empty())
}
