//! Descriptors themselves (duplicates, flags, closing), and calls of other kinds that take a path or a descriptor.

use super::system::numbers;
use super::{Action, Call, Decided, at_path, descriptor, locked, make, on_descriptors, own};
use crate::kernel::Errno;
use crate::transaction::Binding;
use std::os::fd::RawFd;

const FICLONE: usize = 0x4004_9409;
const FIOCLEX: usize = 0x5451;
const FIONCLEX: usize = 0x5450;

pub fn decide(binding: &mut Binding, call: &Call) -> Decided {
    let [first, second, third, fourth, fifth, _] = call.arguments;
    match call.number as libc::c_long {
        libc::SYS_close => close(binding, descriptor(first)),
        libc::SYS_close_range => close_range(binding, first as u32, second as u32, third),
        libc::SYS_dup => duplicate(binding, call, None),
        libc::SYS_dup2 | libc::SYS_dup3 => duplicate(binding, call, Some(descriptor(second))),
        libc::SYS_fcntl => control(binding, call),
        libc::SYS_ioctl => control_device(binding, call),
        // Locks are between programs: on the program's own descriptor.
        libc::SYS_flock => on_program(call),
        libc::SYS_statfs => at_path(binding, libc::AT_FDCWD, first, true, |_, place| {
            let path = place.path();
            make(libc::SYS_statfs, [path.as_ptr() as usize, second, 0, 0, 0, 0])
        }),
        libc::SYS_fstatfs => on_descriptors(binding, call, &[0]),
        libc::SYS_name_to_handle_at => {
            let follow = fifth as i32 & libc::AT_SYMLINK_FOLLOW != 0;
            if super::is_descriptor_itself(second, fifth) {
                return on_descriptors(binding, call, &[0]);
            }
            at_path(binding, descriptor(first), second, follow, |_, place| {
                make(libc::SYS_name_to_handle_at, [place.fd(), place.name(), third, fourth, 0, 0])
            })
        }
        _ => Ok(Action::Make),
    }
}

/// A call on the program's own descriptor, whatever it is in the view; the library's are not there for it.
fn on_program(call: &Call) -> Decided {
    if own::is_own(descriptor(call.arguments[0])) {
        return Err(Errno(libc::EBADF));
    }
    Ok(Action::Make)
}

fn forget(binding: &Binding, number: RawFd) {
    if let Some(shared) = binding.known() {
        // What is dropped closes a descriptor: after the lock.
        let dropped = locked(&shared.descriptors).forget(number);
        drop(dropped);
    }
}

fn close(binding: &mut Binding, number: RawFd) -> Decided {
    if own::is_own(number) {
        return Err(Errno(libc::EBADF));
    }
    forget(binding, number);
    Ok(Action::Make)
}

/// The range in pieces, between the library's own.
fn close_range(binding: &mut Binding, first: u32, last: u32, flags: usize) -> Decided {
    if first > last {
        return Ok(Action::Make);
    }
    let mut start = first;
    loop {
        let own = own::first_in(start.min(i32::MAX as u32) as RawFd, last.min(i32::MAX as u32) as RawFd);
        let end = own.map_or(last, |own| (own as u32).wrapping_sub(1));
        if own.is_none_or(|own| own as u32 > start) {
            numbers(libc::SYS_close_range, [start as usize, end as usize, flags, 0, 0, 0])?;
        }
        match own {
            Some(own) if (own as u32) < last => start = own as u32 + 1,
            _ => break,
        }
    }
    if flags as u32 & libc::CLOSE_RANGE_CLOEXEC == 0
        && let Some(shared) = binding.known()
    {
        let closed = locked(&shared.descriptors).numbers(first, last);
        for number in closed {
            forget(binding, number);
        }
    }
    Ok(Action::Answer(0))
}

/// `dup`, `dup2`, `dup3`, `fcntl(F_DUPFD)`: the duplicate is what its origin is, and shares its offset.
fn duplicate(binding: &mut Binding, call: &Call, onto: Option<RawFd>) -> Decided {
    let from = descriptor(call.arguments[0]);
    if own::is_own(from) || onto.is_some_and(own::is_own) {
        return Err(Errno(libc::EBADF));
    }
    let Some(shared) = binding.known() else { return Ok(Action::Make) };
    let result = numbers(call.number as libc::c_long, call.arguments)?;
    let to = descriptor(result);
    if to != from {
        let dropped = locked(&shared.descriptors).duplicate(from, to);
        drop(dropped);
    }
    Ok(Action::Answer(result as isize))
}

fn control(binding: &mut Binding, call: &Call) -> Decided {
    match call.arguments[1] as i32 {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(binding, call, None),
        libc::F_GETFL | libc::F_SETFL => on_descriptors(binding, call, &[0]),
        _ => on_program(call),
    }
}

fn control_device(binding: &mut Binding, call: &Call) -> Decided {
    match call.arguments[1] {
        FIOCLEX | FIONCLEX => on_program(call),
        FICLONE => on_descriptors(binding, call, &[0, 2]),
        _ => on_descriptors(binding, call, &[0]),
    }
}
