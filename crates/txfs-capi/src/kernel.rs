//! System calls that are made from the range that is never caught: what the library itself needs of the kernel.

use crate::trap::section::txfs_raw_syscall;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Makes a system call; an error is its number, negated.
///
/// # Safety
/// The kernel reads and writes what the arguments point to: they must be right for this call.
pub unsafe fn raw(number: usize, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the stub keeps to the calling convention; what the call does is the caller's promise.
    unsafe { txfs_raw_syscall(number, first, second, third, fourth, fifth, sixth) }
}

/// The same for one of libc's numbers, with an error told apart.
///
/// # Safety
/// As for `raw`.
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let result = unsafe { raw(number as usize, arguments) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(result as usize) }
}

impl Errno {
    /// As a system call answers it.
    pub fn answer(self) -> isize {
        -(self.0 as isize)
    }
}

impl From<&txfs_protocol::ProtocolError> for Errno {
    fn from(error: &txfs_protocol::ProtocolError) -> Errno {
        Errno(error.errno())
    }
}
