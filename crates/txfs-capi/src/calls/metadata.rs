//! Attributes of files: status, permissions, owners, times, extended attributes.

use super::descriptors;
use super::resolve::Place;
use super::{Action, Call, Decided, at_path, descriptor, is_descriptor_itself, make, on_descriptors};
use crate::kernel::Errno;
use crate::transaction::Binding;
use std::os::fd::RawFd;

const NOFOLLOW: usize = libc::AT_SYMLINK_NOFOLLOW as usize;
const EMPTY: usize = libc::AT_EMPTY_PATH as usize;
/// Calls that libc has no names for yet.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const GETXATTRAT: libc::c_long = 464;
const LISTXATTRAT: libc::c_long = 465;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_GETATTR: libc::c_long = 468;
const FILE_SETATTR: libc::c_long = 469;

pub fn decide(binding: &mut Binding, call: &Call) -> Option<Decided> {
    let number = call.number as libc::c_long;
    let [a, b, c, d, e, f] = call.arguments;
    let cwd = libc::AT_FDCWD;
    Some(match number {
        libc::SYS_stat => status(binding, cwd, a, b, 0),
        libc::SYS_lstat => status(binding, cwd, a, b, NOFOLLOW),
        libc::SYS_newfstatat if is_descriptor_itself(b, d) => itself(binding, call),
        libc::SYS_newfstatat => status(binding, descriptor(a), b, c, d),
        libc::SYS_statx if is_descriptor_itself(b, c) => itself(binding, call),
        libc::SYS_statx => by_flags(binding, a, b, c, |place, flags| {
            make(number, [place.fd(), place.name(), flags, d, e, 0])
        }),
        libc::SYS_access => access(binding, cwd, a, b, 0),
        libc::SYS_faccessat => access(binding, descriptor(a), b, c, 0),
        libc::SYS_faccessat2 if is_descriptor_itself(b, d) => itself(binding, call),
        libc::SYS_faccessat2 => access(binding, descriptor(a), b, c, d),
        libc::SYS_chmod => chmod(binding, cwd, a, b),
        libc::SYS_fchmodat => chmod(binding, descriptor(a), b, c),
        FCHMODAT2 if is_descriptor_itself(b, d) => itself(binding, call),
        FCHMODAT2 => by_flags(binding, a, b, d, |place, flags| {
            make(number, [place.fd(), place.name(), c, flags, 0, 0])
        }),
        libc::SYS_chown => chown(binding, cwd, a, b, c, 0),
        libc::SYS_lchown => chown(binding, cwd, a, b, c, NOFOLLOW),
        libc::SYS_fchownat if is_descriptor_itself(b, e) => itself(binding, call),
        libc::SYS_fchownat => chown(binding, descriptor(a), b, c, d, e),
        libc::SYS_utime | libc::SYS_utimes => {
            by_name(binding, a, true, |path, _| make(number, [path, b, 0, 0, 0, 0]))
        }
        libc::SYS_futimesat | libc::SYS_utimensat if b == 0 => itself(binding, call),
        libc::SYS_futimesat => at_path(binding, descriptor(a), b, true, |_, place| {
            let path = place.path();
            make(libc::SYS_utimes, [path.as_ptr() as usize, c, 0, 0, 0, 0])
        }),
        libc::SYS_utimensat if is_descriptor_itself(b, d) => itself(binding, call),
        libc::SYS_utimensat => by_flags(binding, a, b, d, |place, flags| {
            make(number, [place.fd(), place.name(), c, flags, 0, 0])
        }),
        libc::SYS_setxattr | libc::SYS_getxattr | libc::SYS_listxattr | libc::SYS_removexattr => {
            by_name(binding, a, true, |path, _| make(number, [path, b, c, d, e, f]))
        }
        libc::SYS_lsetxattr | libc::SYS_lgetxattr | libc::SYS_llistxattr | libc::SYS_lremovexattr => {
            by_name(binding, a, false, |path, itself| {
                // Where the path is that of a descriptor, its link has to be followed.
                let number = if itself { followed(number) } else { number };
                make(number, [path, b, c, d, e, f])
            })
        }
        SETXATTRAT | GETXATTRAT | LISTXATTRAT | REMOVEXATTRAT if is_descriptor_itself(b, c) => {
            itself(binding, call)
        }
        SETXATTRAT | GETXATTRAT | LISTXATTRAT | REMOVEXATTRAT => {
            by_flags(binding, a, b, c, |place, flags| {
                make(number, [place.fd(), place.name(), flags, d, e, f])
            })
        }
        FILE_GETATTR | FILE_SETATTR if is_descriptor_itself(b, e) => itself(binding, call),
        FILE_GETATTR | FILE_SETATTR => by_flags(binding, a, b, e, |place, flags| {
            make(number, [place.fd(), place.name(), c, d, flags, 0])
        }),
        libc::SYS_readlink => readlink(binding, cwd, a, b, c),
        libc::SYS_readlinkat => readlink(binding, descriptor(a), b, c, d),
        libc::SYS_fstat
        | libc::SYS_fchmod
        | libc::SYS_fchown
        | libc::SYS_fsetxattr
        | libc::SYS_fgetxattr
        | libc::SYS_flistxattr
        | libc::SYS_fremovexattr => on_descriptors(binding, call, &[0]),
        _ => return None,
    })
}

/// A call on the descriptor that stands first, or on the current directory.
fn itself(binding: &mut Binding, call: &Call) -> Decided {
    if descriptor(call.arguments[0]) != libc::AT_FDCWD {
        return on_descriptors(binding, call, &[0]);
    }
    let table = binding.table()?;
    let here = super::resolve::current_directory(binding, &table)?;
    if here.mount().is_none() {
        return Ok(Action::Make);
    }
    let mut arguments = call.arguments;
    arguments[0] = here.number() as usize;
    Ok(Action::MakeWith(arguments))
}

/// A call with flags of `*at`: the last name is what the call is about, followed as far as it is to be.
fn by_flags(
    binding: &mut Binding,
    directory: usize,
    address: usize,
    flags: usize,
    then: impl FnOnce(&Place, usize) -> Result<usize, Errno>,
) -> Decided {
    at_path(binding, descriptor(directory), address, flags & NOFOLLOW == 0, |_, place| {
        then(place, flags | place_flags(place))
    })
}

/// The last name was followed already.
fn place_flags(place: &Place) -> usize {
    if place.name.is_empty() { EMPTY } else { NOFOLLOW }
}

/// A call without `*at`: it gets a path through /proc. The second argument tells whether that path is a link of /proc.
fn by_name(
    binding: &mut Binding,
    address: usize,
    follow: bool,
    then: impl FnOnce(usize, bool) -> Result<usize, Errno>,
) -> Decided {
    at_path(binding, libc::AT_FDCWD, address, follow, |_, place| {
        let path = place.path();
        then(path.as_ptr() as usize, place.name.is_empty())
    })
}

fn followed(number: libc::c_long) -> libc::c_long {
    match number {
        libc::SYS_lsetxattr => libc::SYS_setxattr,
        libc::SYS_lgetxattr => libc::SYS_getxattr,
        libc::SYS_llistxattr => libc::SYS_listxattr,
        libc::SYS_lremovexattr => libc::SYS_removexattr,
        number => number,
    }
}

fn status(binding: &mut Binding, directory: RawFd, address: usize, buffer: usize, flags: usize) -> Decided {
    by_flags(binding, directory as usize, address, flags, |place, flags| {
        make(libc::SYS_newfstatat, [place.fd(), place.name(), buffer, flags, 0, 0])
    })
}

fn access(binding: &mut Binding, directory: RawFd, address: usize, mode: usize, flags: usize) -> Decided {
    by_flags(binding, directory as usize, address, flags, |place, flags| {
        make(libc::SYS_faccessat2, [place.fd(), place.name(), mode, flags, 0, 0])
    })
}

fn chmod(binding: &mut Binding, directory: RawFd, address: usize, mode: usize) -> Decided {
    at_path(binding, directory, address, true, |_, place| {
        let path = place.path();
        make(libc::SYS_chmod, [path.as_ptr() as usize, mode, 0, 0, 0, 0])
    })
}

fn chown(
    binding: &mut Binding,
    directory: RawFd,
    address: usize,
    user: usize,
    group: usize,
    flags: usize,
) -> Decided {
    by_flags(binding, directory as usize, address, flags, |place, flags| {
        make(libc::SYS_fchownat, [place.fd(), place.name(), user, group, flags, 0])
    })
}

/// A link in /proc to a file in the view, or to one that has a twin, shows the path that the program knows.
fn readlink(binding: &mut Binding, directory: RawFd, address: usize, buffer: usize, size: usize) -> Decided {
    if is_descriptor_itself(address, EMPTY) {
        let number = descriptors::class(binding, directory)?.number().unwrap_or(directory);
        return Ok(Action::Answer(make(
            libc::SYS_readlinkat,
            [number as usize, c"".as_ptr() as usize, buffer, size, 0, 0],
        )? as isize));
    }
    if let Some(text) = super::directory::shown_link(binding, directory, address)? {
        if size as isize <= 0 {
            return Err(Errno(libc::EINVAL));
        }
        let length = text.len().min(size);
        crate::trap::memory::write(buffer, &text[..length])?;
        return Ok(Action::Answer(length as isize));
    }
    at_path(binding, directory, address, false, |_, place| {
        make(libc::SYS_readlinkat, [place.fd(), place.name(), buffer, size, 0, 0])
    })
}
