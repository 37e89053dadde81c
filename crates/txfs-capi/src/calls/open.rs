//! Opening: `open`, `creat`, `openat`, `openat2`.

use super::descriptors::{self, Class};
use super::resolve::Place;
use super::system::{c_text, openat, openat2};
use super::{Action, Call, Decided, at_path, descriptor, path_argument};
use crate::kernel::Errno;
use crate::transaction::Binding;
use crate::trap::memory;
use std::os::fd::RawFd;

pub fn decide(binding: &mut Binding, call: &Call) -> Option<Decided> {
    let [first, second, third, fourth, ..] = call.arguments;
    let creat = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
    let decided = match call.number as libc::c_long {
        libc::SYS_open => open(binding, libc::AT_FDCWD, first, second as i32, third as u32),
        libc::SYS_creat => open(binding, libc::AT_FDCWD, first, creat, second as u32),
        libc::SYS_openat => open(binding, descriptor(first), second, third as i32, fourth as u32),
        libc::SYS_openat2 => open_how(binding, descriptor(first), second, third, fourth),
        _ => return None,
    };
    Some(decided.map(|action| waiting(binding, call, action)))
}

/// Opening a FIFO or a device may wait, which only the program's own call may: it gets another path to the same file.
fn waiting(binding: &mut Binding, call: &Call, action: Action) -> Action {
    let Some(path) = binding.take_waiting() else { return action };
    let mut arguments = call.arguments;
    match call.number as libc::c_long {
        libc::SYS_open | libc::SYS_creat => arguments[0] = path,
        _ => arguments[..2].copy_from_slice(&[libc::AT_FDCWD as usize, path]),
    }
    Action::MakeWith(arguments)
}

/// Whether the open of a file may wait for somebody.
fn may_wait(place: &Place, flags: i32) -> bool {
    let special = place.status.is_some_and(|status| !(status.is_regular() || status.is_directory()));
    special && flags & (libc::O_PATH | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_EXCL) == 0
}

fn follows(flags: i32) -> bool {
    flags & libc::O_NOFOLLOW == 0 && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL
}

fn open(binding: &mut Binding, directory: RawFd, address: usize, flags: i32, mode: u32) -> Decided {
    at_path(binding, directory, address, follows(flags), |binding, place| {
        if may_wait(place, flags) {
            let fd = openat(place.directory.number(), &place.name, libc::O_PATH | libc::O_CLOEXEC, 0)?;
            return binding.wait_for(fd);
        }
        let fd = if place.name.is_empty() {
            // The file itself: its descriptor's link in /proc is followed.
            openat(libc::AT_FDCWD, &place.path(), flags & !libc::O_NOFOLLOW, mode)?
        } else {
            openat(place.directory.number(), &place.name, flags, mode)?
        };
        let number = fd.into_number();
        if let Some(mount) = place.inside {
            descriptors::opened(binding, number, mount);
        }
        Ok(number as usize)
    })
}

/// With conditions on the way. What must stay beneath a directory is followed by the kernel alone, from that directory
/// in the view; other conditions hold for the last name.
fn open_how(binding: &mut Binding, directory: RawFd, address: usize, how: usize, len: usize) -> Decided {
    let mut bytes = [0u8; size_of::<libc::open_how>()];
    if len < bytes.len() || memory::read(how, &mut bytes).is_err() {
        return Ok(Action::Make);
    }
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    let (flags, mode, resolve) = (word(0), word(8), word(16));
    if resolve & (libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT) != 0 {
        return beneath(binding, directory, address, how, len);
    }
    if resolve == 0 {
        return open(binding, directory, address, flags as i32, mode as u32);
    }
    at_path(binding, directory, address, follows(flags as i32), |binding, place| {
        let arguments = [place.fd(), place.name(), how, len, 0, 0];
        let number = super::make(libc::SYS_openat2, arguments)?;
        if let Some(mount) = place.inside {
            descriptors::opened(binding, number as RawFd, mount);
        }
        Ok(number)
    })
}

fn beneath(binding: &mut Binding, directory: RawFd, address: usize, how: usize, len: usize) -> Decided {
    let Some(path) = path_argument(address) else { return Ok(Action::Make) };
    let (number, mount) = if directory == libc::AT_FDCWD {
        let table = binding.table()?;
        let here = super::resolve::current_directory(binding, &table)?;
        match here.mount() {
            None => return Ok(Action::Make),
            Some(mount) => (here.number(), mount),
        }
    } else {
        match descriptors::class(binding, directory)? {
            Class::Foreign => return Ok(Action::Make),
            Class::Inside(number, mount) => (number, mount),
            Class::Twin(twin) => (twin.number(), twin.mount()),
        }
    };
    let arguments = [number as usize, path.as_ptr() as usize, how, len, 0, 0];
    let opened = super::make(libc::SYS_openat2, arguments)?;
    descriptors::opened(binding, opened as RawFd, mount);
    Ok(Action::Answer(opened as isize))
}

/// Opens a directory in the view to stand in it.
pub fn place_to_stand(place: &Place) -> Result<super::system::Fd, Errno> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    if place.name.is_empty() {
        return Err(Errno(libc::ENOTDIR));
    }
    openat2(
        place.directory.number(),
        &c_text(place.name.to_bytes().to_vec()),
        flags,
        libc::RESOLVE_NO_SYMLINKS,
    )
}
