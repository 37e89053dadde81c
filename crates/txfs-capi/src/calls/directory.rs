//! The current directory. It belongs to the process, whose other threads are not in the transaction: in the volume it
//! is one of the transaction's own, which becomes the process's at the end.

use super::open::place_to_stand;
use super::own::Own;
use super::resolve::{Place, current_directory};
use super::system::{self, Fd, numbers, openat};
use super::{Action, Call, Decided, at_path, descriptor, descriptors, make, path_argument};
use crate::kernel::Errno;
use crate::transaction::Binding;
use crate::trap::memory;
use std::os::fd::RawFd;

pub fn decide(binding: &mut Binding, call: &Call) -> Option<Decided> {
    let [first, second, ..] = call.arguments;
    Some(match call.number as libc::c_long {
        libc::SYS_chdir => change(binding, call),
        libc::SYS_fchdir => change_to_descriptor(binding, call),
        libc::SYS_getcwd => tell(binding, first, second),
        _ => return None,
    })
}

fn change(binding: &mut Binding, call: &Call) -> Decided {
    let moved = at_path(binding, libc::AT_FDCWD, call.arguments[0], true, |binding, place: &Place| {
        let fd = place_to_stand(place)?;
        match place.inside {
            Some(mount) => stand_inside(binding, fd, mount),
            None => leave(binding, fd.number()),
        }
    })?;
    match moved {
        Action::Make => {
            // The process's own directory is right again, if it can be left for this one.
            let result = numbers(libc::SYS_chdir, call.arguments)?;
            binding.set_virtual_directory(None);
            Ok(Action::Answer(result as isize))
        }
        moved => Ok(moved),
    }
}

fn change_to_descriptor(binding: &mut Binding, call: &Call) -> Decided {
    let number = descriptor(call.arguments[0]);
    let class = descriptors::class(binding, number)?;
    let answer = match class.number().zip(class.mount()) {
        None => leave(binding, number)?,
        Some((number, mount)) => {
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
            stand_inside(binding, openat(number, c".", flags, 0)?, mount)?
        }
    };
    Ok(Action::Answer(answer as isize))
}

fn stand_inside(binding: &mut Binding, fd: Fd, mount: usize) -> Result<usize, Errno> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    let arguments = [fd.number() as usize, c"".as_ptr() as usize, libc::X_OK as usize, flags as usize, 0, 0];
    make(libc::SYS_faccessat2, arguments)?;
    binding.set_virtual_directory(Some((Own::new(fd)?, mount)));
    Ok(0)
}

fn leave(binding: &mut Binding, number: RawFd) -> Result<usize, Errno> {
    let result = make(libc::SYS_fchdir, [number as usize, 0, 0, 0, 0, 0])?;
    binding.set_virtual_directory(None);
    Ok(result)
}

/// The view's path of the current directory, as the program knows it; none outside.
fn shown_directory(binding: &mut Binding) -> Result<Option<Vec<u8>>, Errno> {
    let table = binding.table()?;
    if table.is_empty() {
        return Ok(None);
    }
    let here = current_directory(binding, &table)?;
    let Some(mount) = here.mount() else { return Ok(None) };
    if system::status_of(here.number())?.links == 0 {
        return Err(Errno(libc::ENOENT));
    }
    shown(binding, here.number(), mount)
}

/// The path of a descriptor's file in the view, as the program knows it.
fn shown(binding: &Binding, number: RawFd, mount: usize) -> Result<Option<Vec<u8>>, Errno> {
    let Some(view) = binding.known_view() else { return Ok(None) };
    let path = system::path_of(number)?;
    Ok(view.relative(&path).map(|rest| view.shown(rest, mount)))
}

fn tell(binding: &mut Binding, buffer: usize, size: usize) -> Decided {
    let Some(mut text) = shown_directory(binding)? else { return Ok(Action::Make) };
    text.push(0);
    if text.len() > size {
        return Err(Errno(libc::ERANGE));
    }
    memory::write(buffer, &text)?;
    Ok(Action::Answer(text.len() as isize))
}

/// What a link in /proc to a descriptor in the view, or to the current directory, is to show; none for any other path.
pub fn shown_link(binding: &mut Binding, directory: RawFd, address: usize) -> Result<Option<Vec<u8>>, Errno> {
    let Some(path) = path_argument(address) else { return Ok(None) };
    let bytes = path.to_bytes();
    let text = match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &bytes[slash + 1..],
        None => bytes,
    };
    // Most paths need no further look.
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    if !is_number && text != b"cwd" {
        return Ok(None);
    }
    let Some(parent) = bytes.strip_suffix(text) else { return Ok(None) };
    let process = system::process();
    let parent = if parent.is_empty() && directory != libc::AT_FDCWD {
        [&system::path_of(directory)?[..], b"/"].concat()
    } else {
        parent.to_vec()
    };
    let of_process = [format!("/proc/{process}/"), "/proc/self/".into(), "/proc/thread-self/".into()];
    let Some(rest) = of_process.iter().find_map(|prefix| parent.strip_prefix(prefix.as_bytes())) else {
        return Ok(if &parent[..] == b"/dev/fd/" { shown_number(binding, text)? } else { None });
    };
    match rest {
        b"" if text == b"cwd" => shown_directory(binding),
        b"fd/" if is_number => shown_number(binding, text),
        _ => Ok(None),
    }
}

fn shown_number(binding: &mut Binding, text: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let Some(number) = std::str::from_utf8(text).ok().and_then(|text| text.parse::<RawFd>().ok()) else {
        return Ok(None);
    };
    let class = descriptors::class(binding, number)?;
    match class.number().zip(class.mount()) {
        Some((number, mount)) => shown(binding, number, mount),
        None => Ok(None),
    }
}
