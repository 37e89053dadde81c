//! The library's own descriptors: close-on-exec, with high numbers, and known, so that a program in a transaction does not
//! touch them.
//!
//! A program may close descriptors that it does not know. So each is noted with what it leads to, and neither used nor
//! closed when its number has come to lead somewhere else.
//! Locks: `NUMBERS` is a leaf; it is only taken with signals masked.

use super::system::{self, Fd, Node, numbers, status_of};
use super::{inherited, locked};
use crate::kernel::Errno;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static NUMBERS: Mutex<BTreeMap<RawFd, Node>> = Mutex::new(BTreeMap::new());

/// Numbers are at least this where the limit allows it: above what programs count on, and not so high that the
/// process's table of descriptors becomes large.
const BASE_MAX: usize = 8000;

/// A descriptor of the library that lives longer than one call.
#[derive(Debug)]
pub struct Own {
    number: RawFd,
    node: Node,
}

impl Own {
    /// Moves a descriptor to a high number.
    pub fn new(fd: Fd) -> Result<Own, Errno> {
        let high = match system::fcntl(fd.number(), libc::F_DUPFD_CLOEXEC, base()) {
            // The limit has been lowered, or all of them are in use.
            Err(Errno(libc::EINVAL | libc::EMFILE)) => fd,
            high => Fd::new(high?),
        };
        let node = status_of(high.number())?.node;
        let number = high.into_number();
        locked(&NUMBERS).insert(number, node);
        Ok(Own { number, node })
    }

    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Whether the program has left it alone.
    pub fn is_there(&self) -> bool {
        status_of(self.number).is_ok_and(|status| status.node == self.node)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        locked(&NUMBERS).remove(&self.number);
        if self.is_there() {
            system::close(self.number);
        }
    }
}

/// Whether a number is one of the library's.
pub fn is_own(number: RawFd) -> bool {
    let noted = locked(&NUMBERS).get(&number).copied();
    noted.is_some_and(|node| status_of(number).is_ok_and(|status| status.node == node))
}

/// The first of the library's numbers from `first` to `last`, if there is any.
pub fn first_in(first: RawFd, last: RawFd) -> Option<RawFd> {
    if first > last {
        return None;
    }
    locked(&NUMBERS).range(first..=last).next().map(|(number, _)| *number)
}

/// In a child: closes all of them. What they belong to lives on in the parent.
pub fn close_all() {
    // Where another thread was just changing them, they stay open until the child's exec.
    for (number, node) in inherited(&NUMBERS).unwrap_or_default() {
        if status_of(number).is_ok_and(|status| status.node == node) {
            system::close(number);
        }
    }
}

fn base() -> usize {
    static BASE: AtomicUsize = AtomicUsize::new(0);
    match BASE.load(Ordering::Relaxed) {
        0 => {
            let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
            let at = &raw mut limit as usize;
            let _ = numbers(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE as usize, 0, at, 0, 0]);
            let base = (limit.rlim_cur / 4 * 3).clamp(1, BASE_MAX as u64) as usize;
            BASE.store(base, Ordering::Relaxed);
            base
        }
        base => base,
    }
}
