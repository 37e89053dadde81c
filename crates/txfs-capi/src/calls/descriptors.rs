//! What each of the program's descriptors is to the transaction.
//!
//! *Foreign*: not on the volume. *Inside*: opened in the view. *Twin*: opened before, on the base view; the calls of
//! the transaction go to a descriptor of the library's that is open in the view. Other threads may close a number and
//! open something else under it, so what the number leads to is compared before each use.
//! Locks: `Shared::descriptors` is taken for a moment at a time and never across a call that may block.

use super::mounts::below;
use super::own::{self, Own};
use super::resolve::open_in_view;
use super::system::{self, Fd, Node, Status, fcntl, lseek, status_of};
use super::{locked, nodes};
use crate::kernel::Errno;
use crate::transaction::{Binding, Shared, View};
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

/// What a descriptor is.
#[derive(Debug)]
pub enum Class {
    Foreign,
    /// In the view itself, entered through this mount.
    Inside(RawFd, usize),
    Twin(Arc<Twin>),
}

impl Class {
    /// The descriptor to use in the view; none for a foreign one.
    pub fn number(&self) -> Option<RawFd> {
        match self {
            Class::Foreign => None,
            Class::Inside(number, _) => Some(*number),
            Class::Twin(twin) => Some(twin.number()),
        }
    }

    /// The mount through which the view was entered.
    pub fn mount(&self) -> Option<usize> {
        match self {
            Class::Foreign => None,
            Class::Inside(_, mount) => Some(*mount),
            Class::Twin(twin) => Some(twin.mount()),
        }
    }
}

/// A descriptor in the view that stands for one on the base view.
#[derive(Debug)]
pub struct Twin {
    own: Own,
    mount: usize,
}

impl Twin {
    pub fn number(&self) -> RawFd {
        self.own.number()
    }

    pub fn mount(&self) -> usize {
        self.mount
    }
}

/// The program's descriptors that the transaction has met.
#[derive(Debug, Default)]
pub struct Descriptors {
    known: HashMap<RawFd, Entry>,
    groups: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    node: Node,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// Descriptors of one group are duplicates of each other.
    Inside {
        group: u64,
        mount: usize,
    },
    Twin(Arc<Twin>),
}

impl Descriptors {
    fn get(&self, number: RawFd, node: Node) -> Option<Class> {
        let entry = self.known.get(&number).filter(|entry| entry.node == node)?;
        Some(match &entry.what {
            What::Inside { mount, .. } => Class::Inside(number, *mount),
            What::Twin(twin) => Class::Twin(twin.clone()),
        })
    }

    fn add_inside(&mut self, number: RawFd, node: Node, mount: usize) {
        self.groups += 1;
        self.known.insert(number, Entry { node, what: What::Inside { group: self.groups, mount } });
    }

    /// The program has closed a number. What is returned is to be dropped without the lock: it may close a twin.
    pub fn forget(&mut self, number: RawFd) -> impl Drop + use<> {
        Released(self.known.remove(&number))
    }

    /// A number has become a duplicate of another one.
    pub fn duplicate(&mut self, from: RawFd, to: RawFd) -> impl Drop + use<> {
        Released(match self.known.get(&from).cloned() {
            Some(entry) => self.known.insert(to, entry),
            None => self.known.remove(&to),
        })
    }

    /// The numbers in a range.
    pub fn numbers(&self, first: u32, last: u32) -> Vec<RawFd> {
        self.known.keys().copied().filter(|number| (first..=last).contains(&(*number as u32))).collect()
    }
}

struct Released(Option<Entry>);

impl Drop for Released {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// What a descriptor is; the transaction begins here if it is on a volume.
pub fn class(binding: &mut Binding, number: RawFd) -> Result<Class, Errno> {
    // A number that is not open is the kernel's to refuse.
    let Ok(status) = status_of(number) else { return Ok(Class::Foreign) };
    if own::is_own(number) {
        return Err(Errno(libc::EBADF));
    }
    let table = binding.table()?;
    let Some(mount) = table.reached(&status) else { return Ok(Class::Foreign) };
    if !(status.is_regular() || status.is_directory() || status.is_symlink()) {
        return Ok(Class::Foreign);
    }
    if let Some(shared) = binding.known()
        && let Some(class) = locked(&shared.descriptors).get(number, status.node)
    {
        binding.alive()?;
        return Ok(class);
    }
    let path = system::path_of(number)?;
    let rest = below(&path, table.entry(mount).point()).unwrap_or_default();
    if let Some(shared) = binding.known()
        && shared.view.relative(&path).is_some()
    {
        binding.alive()?;
        locked(&shared.descriptors).add_inside(number, status.node, mount);
        return Ok(Class::Inside(number, mount));
    }
    if below(rest, b".txfs").is_some() && !nodes::is_name(rest) {
        return Ok(Class::Foreign);
    }
    if let Some(shared) = binding.scope()
        && shared.scope.as_ref().is_some_and(|scope| !scope.has(status.node.ino))
    {
        return Ok(Class::Foreign);
    }
    let view = binding.view(status.node.device)?;
    let shared = binding.known().ok_or(Errno(libc::ESTALE))?;
    let root = table.entry(mount).root();
    let rest = if root.is_empty() { rest.to_vec() } else { [root, b"/", rest].concat() };
    let twin = match duplicate_of(&shared, number, status.node) {
        Some(twin) => twin,
        None => Arc::new(Twin { own: open_twin(&view, number, &status, &rest)?, mount }),
    };
    let entry = Entry { node: status.node, what: What::Twin(twin.clone()) };
    locked(&shared.descriptors).known.insert(number, entry);
    Ok(Class::Twin(twin))
}

/// The twin of another descriptor that is the same open file: they have one offset.
fn duplicate_of(shared: &Shared, number: RawFd, node: Node) -> Option<Arc<Twin>> {
    let descriptors = locked(&shared.descriptors);
    descriptors.known.iter().find_map(|(other, entry)| match &entry.what {
        What::Twin(twin) if entry.node == node => {
            (system::same_open_file(number, *other) == Some(true)).then(|| twin.clone())
        }
        _ => None,
    })
}

/// The flags that an open file keeps and that can be given again.
fn flags_again(fd: RawFd) -> Result<i32, Errno> {
    let kept = libc::O_ACCMODE
        | libc::O_APPEND
        | libc::O_NONBLOCK
        | libc::O_DIRECT
        | libc::O_NOATIME
        | libc::O_SYNC
        | libc::O_PATH;
    Ok(fcntl(fd, libc::F_GETFL, 0)? as i32 & kept)
}

/// Opens the node of a descriptor in the view, with the same mode, flags and offset.
fn open_twin(view: &View, number: RawFd, status: &Status, rest: &[u8]) -> Result<Own, Errno> {
    let mut flags = flags_again(number)? | libc::O_CLOEXEC;
    if flags & libc::O_PATH != 0 {
        flags |= libc::O_NOFOLLOW;
    }
    let named = if nodes::is_name(rest) { Err(Errno(libc::ENOENT)) } else { open_in_view(view, rest, flags) };
    let fd = match named {
        Ok(fd) if status_of(fd.number())?.node == status.node => fd,
        Ok(_) | Err(Errno(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)) => {
            // It has another name in the view, or none.
            nodes::open(view, number, flags, nodes::Side::View)?
        }
        Err(error) => return Err(error),
    };
    if flags & libc::O_PATH == 0 {
        let offset = lseek(number, 0, libc::SEEK_CUR)?;
        lseek(fd.number(), offset, libc::SEEK_SET)?;
    }
    Own::new(fd)
}

/// Notes what the program has opened in the view.
pub fn opened(binding: &Binding, number: RawFd, mount: usize) {
    if let (Some(shared), Ok(status)) = (binding.known(), status_of(number)) {
        locked(&shared.descriptors).add_inside(number, status.node, mount);
    }
}

/// A descriptor that was opened inside, and what it will be after the end.
#[derive(Debug)]
pub struct Leaving {
    numbers: Vec<RawFd>,
    node: Node,
    /// Below the volume's root.
    rest: Vec<u8>,
    flags: i32,
    offset: Option<i64>,
    directory: bool,
}

/// All that is needed of the descriptors that were opened inside, as long as the view knows names.
pub fn leaving(shared: &Shared) -> Vec<Leaving> {
    let mut groups: HashMap<u64, Leaving> = HashMap::new();
    let entries: Vec<(RawFd, Entry)> =
        locked(&shared.descriptors).known.iter().map(|(number, entry)| (*number, entry.clone())).collect();
    for (number, entry) in entries {
        let What::Inside { group, .. } = entry.what else { continue };
        let Some(status) = status_of(number).ok().filter(|status| status.node == entry.node) else {
            continue;
        };
        if let Some(known) = groups.get_mut(&group) {
            known.numbers.push(number);
            continue;
        }
        let Ok(path) = system::path_of(number) else { continue };
        let (Some(rest), Ok(flags)) = (shared.view.relative(&path), flags_again(number)) else { continue };
        let offset = lseek(number, 0, libc::SEEK_CUR).ok();
        let leaving = Leaving {
            numbers: vec![number],
            node: entry.node,
            rest: rest.to_vec(),
            flags,
            offset,
            directory: status.is_directory(),
        };
        groups.insert(group, leaving);
    }
    groups.into_values().collect()
}

/// Puts a descriptor of the base view in the place of each that was opened inside. What does not exist there stays.
pub fn replace(view: &View, all: Vec<Leaving>) {
    for leaving in all {
        let mut flags = leaving.flags | libc::O_CLOEXEC;
        if leaving.directory {
            flags |= libc::O_DIRECTORY;
        }
        if flags & libc::O_PATH != 0 {
            flags |= libc::O_NOFOLLOW;
        }
        let found = view.open_base(&leaving.rest, flags);
        let same = |fd: &Fd| status_of(fd.number()).is_ok_and(|status| status.node == leaving.node);
        let fd = match found {
            Ok(fd) if same(&fd) => fd,
            _ => match nodes::open(view, leaving.numbers[0], flags, nodes::Side::Base) {
                Ok(fd) if same(&fd) => fd,
                _ => continue,
            },
        };
        if let Some(offset) = leaving.offset {
            let _ = lseek(fd.number(), offset, libc::SEEK_SET);
        }
        for number in leaving.numbers {
            let cloexec =
                fcntl(number, libc::F_GETFD, 0).is_ok_and(|flags| flags as i32 & libc::FD_CLOEXEC != 0);
            let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
            let _ = system::dup3(fd.number(), number, flags);
        }
    }
}

/// After a commit: offsets and flags of twins go to the program's descriptors.
pub fn settle_twins(shared: &Shared) {
    let descriptors = locked(&shared.descriptors);
    for (number, entry) in &descriptors.known {
        let What::Twin(twin) = &entry.what else { continue };
        if status_of(*number).is_ok_and(|status| status.node == entry.node) {
            if let Ok(offset) = lseek(twin.number(), 0, libc::SEEK_CUR) {
                let _ = lseek(*number, offset, libc::SEEK_SET);
            }
            let flags = (fcntl(twin.number(), libc::F_GETFL, 0), fcntl(*number, libc::F_GETFL, 0));
            if let (Ok(ours), Ok(theirs)) = flags
                && ours != theirs
            {
                let _ = fcntl(*number, libc::F_SETFL, ours);
            }
        }
    }
}
