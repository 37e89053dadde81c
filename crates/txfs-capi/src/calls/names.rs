//! Names: making, removing, renaming, linking.

use super::resolve::{Place, Resolved, locate};
use super::scope;
use super::{Action, Call, Decided, at_path, descriptor, make, path_argument};
use crate::kernel::Errno;
use crate::transaction::Binding;
use std::ffi::CString;
use std::os::fd::RawFd;

pub fn decide(binding: &mut Binding, call: &Call) -> Option<Decided> {
    let [a, b, c, d, e, _] = call.arguments;
    let here = libc::AT_FDCWD as usize;
    Some(match call.number as libc::c_long {
        libc::SYS_mkdir => {
            one(binding, here, a, |place| make(libc::SYS_mkdirat, [place.fd(), place.name(), b, 0, 0, 0]))
        }
        libc::SYS_mkdirat => {
            one(binding, a, b, |place| make(libc::SYS_mkdirat, [place.fd(), place.name(), c, 0, 0, 0]))
        }
        libc::SYS_mknod => {
            one(binding, here, a, |place| make(libc::SYS_mknodat, [place.fd(), place.name(), b, c, 0, 0]))
        }
        libc::SYS_mknodat => {
            one(binding, a, b, |place| make(libc::SYS_mknodat, [place.fd(), place.name(), c, d, 0, 0]))
        }
        libc::SYS_rmdir => unlink(binding, here, a, libc::AT_REMOVEDIR as usize),
        libc::SYS_unlink => unlink(binding, here, a, 0),
        libc::SYS_unlinkat => unlink(binding, a, b, c),
        libc::SYS_symlink => {
            one(binding, here, b, |place| make(libc::SYS_symlinkat, [a, place.fd(), place.name(), 0, 0, 0]))
        }
        libc::SYS_symlinkat => {
            one(binding, b, c, |place| make(libc::SYS_symlinkat, [a, place.fd(), place.name(), 0, 0, 0]))
        }
        libc::SYS_rename => rename(binding, [here, a, here, b], 0),
        libc::SYS_renameat => rename(binding, [a, b, c, d], 0),
        libc::SYS_renameat2 => rename(binding, [a, b, c, d], e),
        libc::SYS_link => link(binding, [here, a, here, b], 0),
        libc::SYS_linkat => link(binding, [a, b, c, d], e),
        _ => return None,
    })
}

fn one(
    binding: &mut Binding,
    directory: usize,
    address: usize,
    then: impl FnOnce(&Place) -> Result<usize, Errno>,
) -> Decided {
    at_path(binding, descriptor(directory), address, false, |_, place| then(place))
}

fn unlink(binding: &mut Binding, directory: usize, address: usize, flags: usize) -> Decided {
    one(binding, directory, address, |place| {
        make(libc::SYS_unlinkat, [place.fd(), place.name(), flags, 0, 0, 0])
    })
}

/// One of two paths: where it leads, and what a call takes for it.
struct End {
    place: Option<Place>,
    /// The transaction is about it.
    concerned: bool,
    directory: usize,
    address: usize,
    /// None where it is a descriptor itself.
    path: Option<(CString, bool)>,
}

impl End {
    fn find(
        binding: &mut Binding,
        directory: usize,
        address: usize,
        follow: bool,
    ) -> Result<Option<End>, Errno> {
        let Some(path) = path_argument(address) else { return Ok(None) };
        let concerned = scope::concerns(binding, descriptor(directory), &path, follow)?;
        Ok(Some(End { place: None, concerned, directory, address, path: Some((path, follow)) }))
    }

    fn locate(&mut self, binding: &mut Binding) -> Result<(), Errno> {
        let Some((path, follow)) = &self.path else { return Ok(()) };
        if let Resolved::At(place) = locate(binding, descriptor(self.directory), path, *follow)? {
            binding.alive()?;
            (self.directory, self.address) = (place.fd(), place.name());
            self.place = Some(place);
        }
        Ok(())
    }

    fn is_inside(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.inside.is_some())
    }
}

/// Finds both places, if the transaction is about one of them at least; whether the call is carried out here.
fn both(binding: &mut Binding, from: &mut End, to: &mut End) -> Result<bool, Errno> {
    if !from.concerned && !to.concerned {
        return Ok(false);
    }
    from.locate(binding)?;
    to.locate(binding)?;
    if from.is_inside() != to.is_inside() {
        return Err(Errno(libc::EXDEV));
    }
    Ok(from.place.is_some() || to.place.is_some())
}

fn rename(binding: &mut Binding, paths: [usize; 4], flags: usize) -> Decided {
    let Some(mut from) = End::find(binding, paths[0], paths[1], false)? else { return Ok(Action::Make) };
    let Some(mut to) = End::find(binding, paths[2], paths[3], false)? else { return Ok(Action::Make) };
    if !both(binding, &mut from, &mut to)? {
        return Ok(Action::Make);
    }
    let arguments = [from.directory, from.address, to.directory, to.address, flags, 0];
    let made = make(libc::SYS_renameat2, arguments)?;
    // With an exchange both names are new.
    [&from.place, &to.place].into_iter().flatten().for_each(|place| scope::named(binding, place));
    Ok(Action::Answer(made as isize))
}

fn link(binding: &mut Binding, paths: [usize; 4], flags: usize) -> Decided {
    let mut from = if super::is_descriptor_itself(paths[1], flags) {
        let number = descriptor(paths[0]);
        let class = super::descriptors::class(binding, number)?;
        let inside = class.number().zip(class.mount()).map(|(number, mount)| Place {
            directory: super::resolve::Directory::Borrowed(number as RawFd),
            name: c"".into(),
            inside: Some(mount),
            status: None,
        });
        let (directory, concerned) = (inside.as_ref().map_or(paths[0], Place::fd), inside.is_some());
        End { directory, address: paths[1], place: inside, concerned, path: None }
    } else {
        let follow = flags & libc::AT_SYMLINK_FOLLOW as usize != 0;
        match End::find(binding, paths[0], paths[1], follow)? {
            Some(end) => end,
            None => return Ok(Action::Make),
        }
    };
    let Some(mut to) = End::find(binding, paths[2], paths[3], false)? else { return Ok(Action::Make) };
    if !both(binding, &mut from, &mut to)? {
        return Ok(Action::Make);
    }
    let made = match &from.place {
        Some(place) if place.name.is_empty() => {
            // Linking a descriptor itself takes a privilege, its link in /proc does not.
            let path = place.path();
            let (here, follow) = (libc::AT_FDCWD as usize, libc::AT_SYMLINK_FOLLOW as usize);
            make(libc::SYS_linkat, [here, path.as_ptr() as usize, to.directory, to.address, follow, 0])
        }
        Some(_) => {
            let flags = flags & !(libc::AT_SYMLINK_FOLLOW as usize);
            make(libc::SYS_linkat, [from.directory, from.address, to.directory, to.address, flags, 0])
        }
        None => make(libc::SYS_linkat, [from.directory, from.address, to.directory, to.address, flags, 0]),
    }?;
    if let Some(place) = &to.place {
        scope::named(binding, place);
    }
    Ok(Action::Answer(made as isize))
}
