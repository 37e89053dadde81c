//! Which mounts are of TxFS, and what is mounted on them: read once, and again when the kernel says that it changed.
//!
//! Locks: `STATE` is only taken with signals masked; `own::NUMBERS` is taken under it.

use super::own::Own;
use super::system::{Status, c_text, numbers, openat, status};
use super::{inherited, locked};
use crate::kernel::Errno;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use txfs_protocol::mounts::{Mount, parse};

static STATE: Mutex<Option<State>> = Mutex::new(None);

struct State {
    /// /proc/self/mountinfo: a poll of it tells of changes.
    file: Own,
    table: Arc<Table>,
}

/// The mounts of TxFS, and those below them.
#[derive(Debug)]
pub struct Table {
    /// In mount order; what is not TxFS is only here if it lies on a mount of TxFS.
    mounts: Vec<Entry>,
    proc_device: Option<(u32, u32)>,
}

#[derive(Debug)]
pub struct Entry {
    pub mount: Mount,
    /// Shows a volume's base view: one that transactions are begun on. (Under `txfs run` the mount shows one already.)
    pub is_base: bool,
}

impl Entry {
    /// The mount point without a trailing slash: empty for the root.
    pub fn point(&self) -> &[u8] {
        let point = self.mount.mountpoint.as_os_str().as_bytes();
        point.strip_suffix(b"/").unwrap_or(point)
    }

    /// The mounted directory within the volume, without slashes at either end: empty for the root.
    pub fn root(&self) -> &[u8] {
        let root = self.mount.root.as_os_str().as_bytes();
        root.strip_prefix(b"/").unwrap_or(root)
    }
}

/// What is left of a path below another one, without a slash in front; none if it is not below.
pub fn below<'a>(path: &'a [u8], point: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(point)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => {
            let start = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
            Some(&rest[start..])
        }
        Some(_) => None,
    }
}

impl Table {
    fn new(mountinfo: &[u8]) -> Table {
        let all = parse(mountinfo);
        let points: Vec<Vec<u8>> = all
            .iter()
            .filter(|mount| mount.is_txfs())
            .map(|mount| Entry { mount: mount.clone(), is_base: false }.point().to_vec())
            .collect();
        let mut mounts = Vec::new();
        for mount in all {
            let is_base = mount.is_txfs() && !mount.root.starts_with("/.txfs");
            let entry = Entry { mount, is_base };
            if entry.mount.is_txfs() || points.iter().any(|point| below(entry.point(), point).is_some()) {
                mounts.push(entry);
            }
        }
        let proc_device = status(libc::AT_FDCWD, c"/proc/self/fd", 0).ok().map(|found| found.node.device);
        Table { mounts, proc_device }
    }

    /// Whether there is any mount that a transaction can be begun on.
    pub fn is_empty(&self) -> bool {
        !self.mounts.iter().any(|entry| entry.is_base)
    }

    pub fn entry(&self, index: usize) -> &Entry {
        &self.mounts[index]
    }

    /// The mount that an absolute path without symbolic links and `..` leads into, if it is a base view's, and what
    /// is left of the path.
    pub fn holding<'a>(&self, path: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let mut best: Option<(usize, &[u8])> = None;
        for (index, entry) in self.mounts.iter().enumerate() {
            // The last one mounted at a place hides what was there.
            if let Some(rest) = below(path, entry.point())
                && best.is_none_or(|(_, least)| rest.len() <= least.len())
            {
                best = Some((index, rest));
            }
        }
        best.filter(|(index, _)| self.mounts[*index].is_base)
    }

    /// The base view's mount that a node was reached through.
    pub fn reached(&self, status: &Status) -> Option<usize> {
        let at = |entry: &Entry| entry.mount.id == status.mount && entry.mount.device == status.node.device;
        self.mounts.iter().position(|entry| entry.is_base && at(entry))
    }

    /// The mount of a volume's whole tree: its views are below.
    pub fn whole(&self, device: (u32, u32)) -> Option<usize> {
        let whole = |entry: &Entry| entry.is_base && entry.root().is_empty() && entry.mount.device == device;
        self.mounts.iter().rposition(whole)
    }

    /// The mounts of base views, one index for each volume.
    pub fn volumes(&self) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for (index, entry) in self.mounts.iter().enumerate() {
            let known = |other: &usize| self.mounts[*other].mount.device == entry.mount.device;
            if entry.is_base && entry.root().is_empty() && !found.iter().any(known) {
                found.push(index);
            }
        }
        found
    }

    /// Whether something else is mounted somewhere on a volume.
    pub fn has_mounts_on(&self, index: usize) -> bool {
        let entry = &self.mounts[index];
        let on = |other: &Entry| {
            other.mount.id != entry.mount.id
                && below(other.point(), entry.point()).is_some_and(|rest| !rest.is_empty())
        };
        self.mounts.iter().any(on)
    }

    /// Whether something is mounted exactly here.
    pub fn is_mount_point(&self, path: &[u8]) -> bool {
        self.mounts.iter().any(|entry| entry.point() == path)
    }

    pub fn is_proc(&self, status: &Status) -> bool {
        self.proc_device == Some(status.node.device)
    }
}

/// The mounts as they are.
pub fn current() -> Result<Arc<Table>, Errno> {
    let mut state = locked(&STATE);
    if let Some(known) = &*state
        && known.file.is_there()
        && !has_changed(&known.file)
    {
        return Ok(known.table.clone());
    }
    // First the descriptor, then the text: a change in between shows at the next poll.
    *state = None;
    let file =
        Own::new(openat(libc::AT_FDCWD, c"/proc/self/mountinfo", libc::O_RDONLY | libc::O_CLOEXEC, 0)?)?;
    let table = Arc::new(Table::new(&read_all(&file)?));
    *state = Some(State { file, table: table.clone() });
    Ok(table)
}

/// The device of the volume that a program means when it names none: that of `TXFS_MOUNT`, of the current directory, or the
/// only one.
pub fn chosen(table: &Table) -> Result<(u32, u32), Errno> {
    if let Some(path) = std::env::var_os("TXFS_MOUNT") {
        let found = status(libc::AT_FDCWD, &c_text(path.into_encoded_bytes()), 0)?;
        return table.reached(&found).map(|_| found.node.device).ok_or(Errno(libc::ENODEV));
    }
    let here = status(libc::AT_FDCWD, c"", libc::AT_EMPTY_PATH)?;
    match (table.reached(&here), &table.volumes()[..]) {
        (Some(_), _) => Ok(here.node.device),
        (None, [only]) => Ok(table.entry(*only).mount.device),
        (None, _) => Err(Errno(libc::ENODEV)),
    }
}

/// In a child, whose descriptors of the parent's are closed.
pub fn forget() {
    if let Some(Some(state)) = inherited(&STATE) {
        // The descriptor is closed already.
        std::mem::forget(state.file);
    }
}

fn has_changed(file: &Own) -> bool {
    let mut poll = libc::pollfd { fd: file.number(), events: libc::POLLPRI, revents: 0 };
    let at = &raw mut poll as usize;
    numbers(libc::SYS_poll, [at, 1, 0, 0, 0, 0]) != Ok(0)
}

fn read_all(file: &Own) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut chunk = vec![0u8; 16 << 10];
    loop {
        let at = chunk.as_mut_ptr() as usize;
        match numbers(libc::SYS_read, [file.number() as usize, at, chunk.len(), 0, 0, 0])? {
            0 => return Ok(text),
            len => text.extend(&chunk[..len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n\
        36 1 0:50 / /mnt/a rw - fuse.txfs /vol/a rw\n\
        37 36 0:7 / /mnt/a/sub rw - tmpfs none rw\n\
        38 1 0:50 /dir /bind rw - fuse.txfs /vol/a rw\n\
        39 1 0:50 /.txfs/tx/3-ab /run rw - fuse.txfs /vol/a rw\n\
        40 1 0:51 / /mnt/b rw - fuse.txfs /vol/b rw\n\
        41 1 0:9 / /other rw - tmpfs none rw\n";

    #[test]
    fn paths_lead_into_base_views() {
        let table = Table::new(LINES);
        let holding = |path: &[u8]| {
            table.holding(path).map(|(index, rest)| (table.entry(index).mount.id, rest.to_vec()))
        };
        assert_eq!(holding(b"/mnt/a"), Some((36, b"".to_vec())));
        assert_eq!(holding(b"/mnt/a//x/y"), Some((36, b"x/y".to_vec())));
        assert_eq!(holding(b"/mnt/a/sub"), None);
        assert_eq!(holding(b"/mnt/a/sub/x"), None);
        assert_eq!(holding(b"/mnt/a/submarine"), Some((36, b"submarine".to_vec())));
        assert_eq!(holding(b"/mnt/ab"), None);
        assert_eq!(holding(b"/bind/x"), Some((38, b"x".to_vec())));
        assert_eq!(holding(b"/run/x"), None);
        assert_eq!(holding(b"/etc"), None);
        assert_eq!(table.whole((0, 50)).map(|index| table.entry(index).mount.id), Some(36));
        assert_eq!(table.volumes().len(), 2);
        assert!(table.has_mounts_on(table.whole((0, 50)).unwrap()));
        assert!(!table.has_mounts_on(table.whole((0, 51)).unwrap()));
    }

    #[test]
    fn without_mounts_there_is_nothing() {
        assert!(Table::new(b"1 0 8:1 / / rw - ext4 /dev/sda rw\n").is_empty());
    }
}
