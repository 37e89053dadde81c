//! Where a path leads: into the transaction's volume or not, exactly, whatever symbolic links, `..` and mounts are on the way.
//!
//! A path that the kernel can follow without symbolic links lies where it says; one call of `openat2` proves that. All
//! others are walked component by component, and the walk knows at each step whether it is outside or in the view.

use super::descriptors::{self, Class};
use super::mounts::{Table, below};
use super::scope;
use super::system::{self, Fd, Status, c_text, openat, openat2, readlink, status, status_of};
use crate::kernel::Errno;
use crate::transaction::{Binding, View};
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::sync::Arc;

pub const PLACE: i32 = libc::O_PATH | libc::O_CLOEXEC;
const DIRECTORY: i32 = PLACE | libc::O_DIRECTORY;
const WITHIN: u64 = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS;
/// As many symbolic links as the kernel follows.
const SYMLINKS_MAX: u32 = 40;

/// What becomes of a path.
#[derive(Debug)]
pub enum Resolved {
    /// It never touches a volume: the call is made as it stands.
    Unchanged,
    /// The call is carried out here.
    At(Place),
}

/// A directory, and a name in it.
#[derive(Debug)]
pub struct Place {
    pub directory: Directory,
    /// `.` for the directory itself, and empty where it is no directory but the very file. With the path's trailing slash.
    pub name: CString,
    /// The mount through which the view was entered; none outside.
    pub inside: Option<usize>,
    /// What is there; none where nothing is.
    pub status: Option<Status>,
}

/// A descriptor to start from.
#[derive(Debug)]
pub enum Directory {
    /// Somebody else's.
    Borrowed(RawFd),
    /// Opened on the way.
    Owned(Fd),
}

impl Directory {
    pub fn number(&self) -> RawFd {
        match self {
            Directory::Borrowed(number) => *number,
            Directory::Owned(fd) => fd.number(),
        }
    }
}

impl Place {
    pub fn fd(&self) -> usize {
        self.directory.number() as usize
    }

    pub fn name(&self) -> usize {
        self.name.as_ptr() as usize
    }

    /// A path that leads here, for calls that take no directory.
    pub fn path(&self) -> CString {
        system::proc_path(self.directory.number(), self.name.to_bytes())
    }
}

/// Follows a path. `follow`: a symbolic link at its end too. What a file group's transaction is not about is nothing to
/// it.
pub fn resolve(
    binding: &mut Binding,
    directory: RawFd,
    path: &CStr,
    follow: bool,
) -> Result<Resolved, Errno> {
    if !scope::concerns(binding, directory, path, follow)? {
        return Ok(Resolved::Unchanged);
    }
    locate(binding, directory, path, follow)
}

/// The same for a transaction of the whole volume.
pub fn locate(binding: &mut Binding, directory: RawFd, path: &CStr, follow: bool) -> Result<Resolved, Errno> {
    let table = binding.table()?;
    if table.is_empty() {
        return Ok(Resolved::Unchanged);
    }
    let bytes = path.to_bytes();
    if bytes.is_empty() {
        return Err(Errno(libc::ENOENT));
    }
    let nofollow = if follow { 0 } else { libc::O_NOFOLLOW };
    if bytes[0] == b'/' {
        if !has_parent_steps(bytes) {
            match table.holding(&without_empty_steps(bytes)) {
                Some((index, rest)) => {
                    let view = binding.view(table.entry(index).mount.device)?;
                    let rest = joined(table.entry(index).root(), rest);
                    if is_control(&rest) {
                        return Ok(Resolved::Unchanged);
                    }
                    let start = Directory::Borrowed(view.root());
                    if let Some(place) = straight(start, index, &rest, follow)? {
                        return Ok(Resolved::At(place));
                    }
                }
                None => match openat2(libc::AT_FDCWD, path, PLACE | nofollow, libc::RESOLVE_NO_SYMLINKS) {
                    Err(Errno(libc::ELOOP)) => {}
                    // A file, or the error that the call itself will meet.
                    _ => return Ok(Resolved::Unchanged),
                },
            }
        }
        let here = Here { directory: open_root()?, inside: None };
        return Walk::new(binding, table, bytes, follow).run(here);
    }
    let start = match directory {
        libc::AT_FDCWD => current_directory(binding, &table)?,
        number => match descriptors::class(binding, number)? {
            Class::Foreign => Here::outside(number),
            Class::Inside(number, mount) => Here::inside(Directory::Borrowed(number), mount),
            Class::Twin(twin) => Here::inside(Directory::Borrowed(twin.number()), twin.mount()),
        },
    };
    match start.inside {
        Some(mount) if !table.has_mounts_on(mount) => {
            if let Some(place) = straight(Directory::Borrowed(start.number()), mount, bytes, follow)? {
                return Ok(Resolved::At(Place { directory: kept(place.directory, start), ..place }));
            }
        }
        Some(_) => {}
        None => {
            let resolve = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;
            match openat2(start.number(), path, PLACE | nofollow, resolve) {
                Err(Errno(libc::ELOOP | libc::EXDEV)) => {}
                _ => return Ok(Resolved::Unchanged),
            }
        }
    }
    Walk::new(binding, table, bytes, follow).run(start)
}

/// Whether a path has a component `..`.
fn has_parent_steps(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b"..")
}

/// The path with single slashes and no component `.`, but at its end.
fn without_empty_steps(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.windows(2).any(|two| two == b"//" || two == b"/.") {
        return Cow::Borrowed(path);
    }
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        if name != b"." {
            names.push(name);
        }
    }
    let end: &[u8] = match path.rsplit(|byte| *byte == b'/').next() {
        Some(b"") => b"/",
        Some(b".") => b"/.",
        _ => b"",
    };
    Cow::Owned([b"/", &names.join(&b'/')[..], end].concat())
}

/// Whether a path below a volume's root leads to what only the mount has.
fn is_control(rest: &[u8]) -> bool {
    below(rest, b".txfs").is_some()
}

fn joined(directory: &[u8], rest: &[u8]) -> Vec<u8> {
    match (directory.is_empty(), rest.is_empty()) {
        (true, _) => rest.to_vec(),
        (_, true) => directory.to_vec(),
        _ => [directory, b"/", rest].concat(),
    }
}

/// A directory that the start owned stays open with the place.
fn kept(found: Directory, start: Here) -> Directory {
    match found {
        Directory::Borrowed(number) if number == start.number() => start.directory,
        found => found,
    }
}

/// Splits a path into all but the last component, the last one, and whether slashes follow.
pub fn split(path: &[u8]) -> (&[u8], &[u8], bool) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let slash = end < path.len() && end > 0;
    let path = &path[..end];
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |last| last + 1);
    let name = &path[start..];
    if name == b"." || name == b".." {
        return (path, b"", slash);
    }
    (&path[..start], name, slash)
}

fn with_slash(name: &[u8], slash: bool) -> CString {
    let mut name = name.to_vec();
    if slash {
        name.push(b'/');
    }
    c_text(name)
}

/// Below a directory in the view, as long as the way has no symbolic links and does not leave it; none if it has.
fn straight(start: Directory, mount: usize, path: &[u8], follow: bool) -> Result<Option<Place>, Errno> {
    let (parent, name, slash) = split(path);
    let directory = if parent.is_empty() {
        start
    } else {
        match openat2(start.number(), &c_text(parent.to_vec()), DIRECTORY, WITHIN) {
            Ok(fd) => Directory::Owned(fd),
            Err(Errno(libc::ELOOP | libc::EXDEV)) => return Ok(None),
            Err(error) => return Err(error),
        }
    };
    if name.is_empty() {
        let status = status_of(directory.number())?;
        return Ok(Some(Place { directory, name: c".".into(), inside: Some(mount), status: Some(status) }));
    }
    let found = entry_status(directory.number(), &c_text(name.to_vec()))?;
    if found.is_some_and(|found| found.is_symlink()) && (follow || slash) {
        return Ok(None);
    }
    Ok(Some(Place { directory, name: with_slash(name, slash), inside: Some(mount), status: found }))
}

/// What a name stands for; none where there is nothing of that name.
pub fn entry_status(directory: RawFd, name: &CStr) -> Result<Option<Status>, Errno> {
    match status(directory, name, libc::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno(libc::ENOENT)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_root() -> Result<Directory, Errno> {
    openat(libc::AT_FDCWD, c"/", DIRECTORY, 0).map(Directory::Owned)
}

/// A step of the walk: a directory, and through which mount the view was entered, if it is in the view.
#[derive(Debug)]
pub struct Here {
    directory: Directory,
    inside: Option<usize>,
}

impl Here {
    fn outside(number: RawFd) -> Here {
        Here { directory: Directory::Borrowed(number), inside: None }
    }

    fn inside(directory: Directory, mount: usize) -> Here {
        Here { directory, inside: Some(mount) }
    }

    pub fn number(&self) -> RawFd {
        self.directory.number()
    }

    /// The mount through which the view was entered; none outside.
    pub fn mount(&self) -> Option<usize> {
        self.inside
    }
}

/// Where relative paths start.
pub fn current_directory(binding: &mut Binding, table: &Arc<Table>) -> Result<Here, Errno> {
    if let Some((number, mount)) = binding.virtual_directory() {
        return Ok(Here::inside(Directory::Borrowed(number), mount));
    }
    let found = status(libc::AT_FDCWD, c"", libc::AT_EMPTY_PATH)?;
    let Some(mount) = table.reached(&found) else { return Ok(Here::outside(libc::AT_FDCWD)) };
    if let Some(number) = binding.known_directory(found.node) {
        return Ok(Here::inside(Directory::Borrowed(number), mount));
    }
    let real = openat(libc::AT_FDCWD, c".", DIRECTORY, 0)?;
    let here = enter(binding, table, real)?;
    if let Some(mount) = here.inside {
        let Directory::Owned(fd) = here.directory else { return Err(Errno(libc::ENOENT)) };
        let number = binding.remember_directory(found.node, fd)?;
        return Ok(Here::inside(Directory::Borrowed(number), mount));
    }
    Ok(Here::outside(libc::AT_FDCWD))
}

/// From a descriptor opened outside to the same node in the view, if it lies on a volume.
pub fn enter(binding: &mut Binding, table: &Arc<Table>, fd: Fd) -> Result<Here, Errno> {
    let found = status_of(fd.number())?;
    let Some(mount) = table.reached(&found) else {
        return Ok(Here { directory: Directory::Owned(fd), inside: None });
    };
    let path = system::path_of(fd.number())?;
    let Some(rest) = below(&path, table.entry(mount).point()) else { return Err(Errno(libc::ENOENT)) };
    let rest = joined(table.entry(mount).root(), rest);
    if is_control(&rest) {
        return Ok(Here { directory: Directory::Owned(fd), inside: None });
    }
    let view = binding.view(found.node.device)?;
    let fd = open_in_view(&view, &rest, PLACE)?;
    if status_of(fd.number())?.node != found.node {
        // In the view another directory has this name.
        return Err(Errno(libc::ESTALE));
    }
    Ok(Here { directory: Directory::Owned(fd), inside: Some(mount) })
}

/// Opens a path without symbolic links below the view's root.
pub fn open_in_view(view: &View, rest: &[u8], flags: i32) -> Result<Fd, Errno> {
    let name = if rest.is_empty() { c".".into() } else { c_text(rest.to_vec()) };
    openat2(view.root(), &name, flags, WITHIN)
}

struct Walk<'a> {
    binding: &'a mut Binding,
    table: Arc<Table>,
    /// Components still to go, the next one last.
    left: Vec<Vec<u8>>,
    follow: bool,
    slash: bool,
    symlinks: u32,
    /// It has been in the view.
    touched: bool,
}

impl<'a> Walk<'a> {
    fn new(binding: &'a mut Binding, table: Arc<Table>, path: &[u8], follow: bool) -> Walk<'a> {
        let slash = split(path).2;
        let mut walk = Walk { binding, table, left: Vec::new(), follow, slash, symlinks: 0, touched: false };
        walk.push(path);
        walk
    }

    fn push(&mut self, path: &[u8]) {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        self.left.extend(names.rev().map(<[u8]>::to_vec));
    }

    fn run(mut self, mut here: Here) -> Result<Resolved, Errno> {
        while let Some(name) = self.left.pop() {
            self.touched |= here.inside.is_some();
            if name == b"." {
                continue;
            }
            if name == b".." {
                here = self.parent(here)?;
                continue;
            }
            if self.left.is_empty() {
                match self.last(here, &name)? {
                    Last::Found(resolved) => return Ok(resolved),
                    Last::Further(next) => here = next,
                }
            } else {
                here = self.step(here, &name)?;
            }
        }
        self.touched |= here.inside.is_some();
        let status = status_of(here.number())?;
        let name = if status.is_directory() { c"." } else { c"" };
        self.done(here, name.into(), Some(status))
    }

    fn done(&self, here: Here, name: CString, status: Option<Status>) -> Result<Resolved, Errno> {
        if !self.touched {
            return Ok(Resolved::Unchanged);
        }
        Ok(Resolved::At(Place { directory: here.directory, name, inside: here.inside, status }))
    }

    /// The last name of the path, which need not exist.
    fn last(&mut self, here: Here, name: &[u8]) -> Result<Last, Errno> {
        let text = c_text(name.to_vec());
        if let Some(beyond) = self.mounted_at(&here, name)? {
            return Ok(Last::Further(beyond));
        }
        let found = entry_status(here.number(), &text)?;
        match found {
            Some(found) if found.is_symlink() && (self.follow || self.slash) => {
                Ok(Last::Further(self.link(here, &text, &found)?))
            }
            // A mount point: what is mounted there is not the entry, but its own root.
            Some(found) if here.inside.is_none() && self.table.reached(&found).is_some() => {
                let fd = openat(here.number(), &text, PLACE | libc::O_NOFOLLOW, 0)?;
                let next = enter(self.binding, &self.table, fd)?;
                // Outside and yet on the volume: a name in what the transaction does not cover.
                if next.inside.is_some() && found.is_directory() {
                    return Ok(Last::Further(next));
                }
                self.done(here, with_slash(name, self.slash), Some(found)).map(Last::Found)
            }
            found => self.done(here, with_slash(name, self.slash), found).map(Last::Found),
        }
    }

    /// A name that something follows: a directory, or a symbolic link to one.
    fn step(&mut self, here: Here, name: &[u8]) -> Result<Here, Errno> {
        if let Some(beyond) = self.mounted_at(&here, name)? {
            return Ok(beyond);
        }
        let text = c_text(name.to_vec());
        let fd = openat(here.number(), &text, PLACE | libc::O_NOFOLLOW, 0)?;
        let found = status_of(fd.number())?;
        if found.is_symlink() {
            return self.link(here, &text, &found);
        }
        if !found.is_directory() {
            return Err(Errno(libc::ENOTDIR));
        }
        match here.inside {
            Some(mount) => Ok(Here::inside(Directory::Owned(fd), mount)),
            None if self.table.reached(&found).is_some() => enter(self.binding, &self.table, fd),
            None => Ok(Here { directory: Directory::Owned(fd), inside: None }),
        }
    }

    /// The root of what is mounted on a name in the view: mounts lie on the base view only.
    fn mounted_at(&mut self, here: &Here, name: &[u8]) -> Result<Option<Here>, Errno> {
        let Some(mount) = here.inside.filter(|mount| self.table.has_mounts_on(*mount)) else {
            return Ok(None);
        };
        let Some(view) = self.binding.known_view() else { return Ok(None) };
        let path = system::path_of(here.number())?;
        let Some(rest) = view.relative(&path) else { return Ok(None) };
        let entry = self.table.entry(mount);
        let Some(rest) =
            below(rest, entry.root()).or(if entry.root().is_empty() { Some(rest) } else { None })
        else {
            return Ok(None);
        };
        let point = [entry.point(), b"/", &joined(rest, name)[..]].concat();
        if !self.table.is_mount_point(&point) {
            return Ok(None);
        }
        let fd = openat(libc::AT_FDCWD, &c_text(point), PLACE | libc::O_NOFOLLOW, 0)?;
        enter(self.binding, &self.table, fd).map(Some)
    }

    /// Goes on with what a symbolic link says.
    fn link(&mut self, here: Here, name: &CStr, found: &Status) -> Result<Here, Errno> {
        self.symlinks += 1;
        if self.symlinks > SYMLINKS_MAX {
            return Err(Errno(libc::ELOOP));
        }
        if here.inside.is_none() && self.table.is_proc(found) && name != c"self" && name != c"thread-self" {
            return self.magic_link(here, name);
        }
        let target = readlink(here.number(), name)?;
        if target.is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        if self.left.is_empty() && target.last() == Some(&b'/') {
            self.slash = true;
        }
        self.push(&target);
        match target[0] {
            b'/' => Ok(Here { directory: open_root()?, inside: None }),
            _ => Ok(here),
        }
    }

    /// The links in /proc lead to files, not to paths.
    fn magic_link(&mut self, here: Here, name: &CStr) -> Result<Here, Errno> {
        let place = system::path_of(here.number())?;
        let process = system::process().to_string().into_bytes();
        let mut parts = place.strip_prefix(b"/proc/").unwrap_or_default().split(|byte| *byte == b'/');
        let own = parts.next() == Some(&process[..]);
        let parts: Vec<&[u8]> = parts.collect();
        let text = name.to_str().unwrap_or_default();
        if own
            && parts.last() == Some(&&b"fd"[..])
            && let Ok(number) = text.parse::<RawFd>()
        {
            match descriptors::class(self.binding, number)? {
                Class::Foreign => {}
                Class::Inside(number, mount) => return Ok(Here::inside(Directory::Borrowed(number), mount)),
                Class::Twin(twin) => {
                    return Ok(Here::inside(Directory::Borrowed(twin.number()), twin.mount()));
                }
            }
        }
        if own && text == "cwd" && matches!(&parts[..], [] | [b"task", _]) {
            return current_directory(self.binding, &self.table.clone());
        }
        let fd = openat(here.number(), name, PLACE, 0)?;
        enter(self.binding, &self.table, fd)
    }

    fn parent(&mut self, here: Here) -> Result<Here, Errno> {
        let Some(mount) = here.inside else {
            let fd = openat(here.number(), c"..", DIRECTORY, 0)?;
            return enter(self.binding, &self.table, fd);
        };
        let view = self.binding.known_view().ok_or(Errno(libc::ESTALE))?;
        let entry = self.table.entry(mount);
        let top = match entry.root() {
            [] => view.root_node(),
            root => status_of(open_in_view(&view, root, PLACE)?.number())?.node,
        };
        if status_of(here.number())?.node != top {
            let fd = openat(here.number(), c"..", DIRECTORY, 0)?;
            return Ok(Here::inside(Directory::Owned(fd), mount));
        }
        let point = [entry.point(), b"/.."].concat();
        let fd = openat(libc::AT_FDCWD, &c_text(point), DIRECTORY, 0)?;
        enter(self.binding, &self.table, fd)
    }
}

enum Last {
    Found(Resolved),
    Further(Here),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_their_last_name() {
        assert_eq!(split(b"a/b/c"), (&b"a/b/"[..], &b"c"[..], false));
        assert_eq!(split(b"c//"), (&b""[..], &b"c"[..], true));
        assert_eq!(split(b"a/.."), (&b"a/.."[..], &b""[..], false));
        assert_eq!(split(b"."), (&b"."[..], &b""[..], false));
        assert_eq!(split(b""), (&b""[..], &b""[..], false));
        assert_eq!(split(b"a//b"), (&b"a//"[..], &b"b"[..], false));
    }

    #[test]
    fn empty_steps_go() {
        assert_eq!(&without_empty_steps(b"//a/./b//c")[..], b"/a/b/c");
        assert_eq!(&without_empty_steps(b"/a//")[..], b"/a/");
        assert_eq!(&without_empty_steps(b"/a/.")[..], b"/a/.");
        assert_eq!(&without_empty_steps(b"/a/.b")[..], b"/a/.b");
        assert_eq!(&without_empty_steps(b"/a/")[..], b"/a/");
    }

    #[test]
    fn parent_steps_are_seen() {
        assert!(has_parent_steps(b"/a/../b") && has_parent_steps(b"..") && has_parent_steps(b"/a/.."));
        assert!(!has_parent_steps(b"/a/..b/c..") && !has_parent_steps(b"/a/b"));
    }
}
