//! Reads and writes what the program's arguments point to, with EFAULT instead of a signal.
//!
//! Nothing is prevented from going away between the look and the use: a program that unmaps memory under a call of
//! another thread dies, as it might have anyway.

use crate::kernel::{self, Errno};

const PAGE_LEN: usize = 4096;

/// Whether all bytes can be read.
pub fn is_readable(address: usize, len: usize) -> bool {
    pages(address, len).is_some_and(|mut pages| pages.all(is_readable_page))
}

/// Copies from the program.
pub fn read(address: usize, bytes: &mut [u8]) -> Result<(), Errno> {
    if !is_readable(address, bytes.len()) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: it was readable just now, and the kernel's own copy would race with changes in the same way.
    unsafe { std::ptr::copy(address as *const u8, bytes.as_mut_ptr(), bytes.len()) };
    Ok(())
}

/// Copies a word from the program.
pub fn read_word(address: usize) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    read(address, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Copies a string without its end; ENAMETOOLONG if the end is not within what `bytes` holds.
pub fn read_string(address: usize, bytes: &mut [u8]) -> Result<usize, Errno> {
    let mut len = 0;
    while len < bytes.len() {
        let here = address.wrapping_add(len);
        if !is_readable_page(here & !(PAGE_LEN - 1)) {
            return Err(Errno(libc::EFAULT));
        }
        let part_len = (PAGE_LEN - here % PAGE_LEN).min(bytes.len() - len);
        for offset in 0..part_len {
            // SAFETY: within a page that was readable just now.
            let byte = unsafe { ((here + offset) as *const u8).read_volatile() };
            if byte == 0 {
                return Ok(len + offset);
            }
            bytes[len + offset] = byte;
        }
        len += part_len;
    }
    Err(Errno(libc::ENAMETOOLONG))
}

/// Copies to the program.
pub fn write(address: usize, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    if !is_writable(address, bytes.len()) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: it could be written just now, and where is the program's choice.
    unsafe { std::ptr::copy(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    Ok(())
}

/// Whether all bytes can be written.
pub fn is_writable(address: usize, len: usize) -> bool {
    pages(address, len).is_some_and(|mut pages| pages.all(is_writable_page))
}

fn pages(address: usize, len: usize) -> Option<impl Iterator<Item = usize>> {
    let end = address.checked_add(len)?;
    let first = address & !(PAGE_LEN - 1);
    Some((first..if len == 0 { first } else { end }).step_by(PAGE_LEN))
}

/// The kernel reads a new action for SIGKILL before it refuses it; at address 0 it would see none.
fn is_readable_page(page: usize) -> bool {
    let address = page + 8;
    // SAFETY: SIGKILL has no action to set: nothing is changed.
    let result =
        unsafe { kernel::call(libc::SYS_rt_sigaction, [libc::SIGKILL as usize, address, 0, 8, 0, 0]) };
    result != Err(Errno(libc::EFAULT))
}

/// The kernel does an atomic operation on the word that changes nothing.
fn is_writable_page(page: usize) -> bool {
    static NOBODY_WAITS: u32 = 0;
    // FUTEX_WAKE_OP with "or 0". Should somebody wait for just this word, and it be negative, a waiter may wake early,
    // which waiters always must expect.
    let operation = (libc::FUTEX_OP_OR << 28) | (libc::FUTEX_OP_CMP_LT << 24);
    let command = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
    let first = &raw const NOBODY_WAITS as usize;
    // SAFETY: the word keeps its value.
    let result = unsafe { kernel::call(libc::SYS_futex, [first, command, 0, 0, page, operation as usize]) };
    result != Err(Errno(libc::EFAULT))
}
