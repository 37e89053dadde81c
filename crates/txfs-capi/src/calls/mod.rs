//! What a system call of a thread in a transaction goes to.
//!
//! Runs inside the signal handler of `trap`: all signals are masked, the allocator is the arena, and nothing here may
//! call what takes a lock of the C library.

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

/// Decides what becomes of a call.
pub fn handle(_call: &Call) -> Action {
    Action::Make
}

/// The thread ends in its transaction. Runs in the handler, or outside with the calls let through.
pub fn thread_exits() {}

/// This is a new process, a copy of one that may have had transactions: it has none.
pub fn forked() {}
