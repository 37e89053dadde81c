//! Finds TxFS mounts in /proc/self/mountinfo.
//!
//! A TxFS mount has the type `fuse.txfs`, and its source is the absolute path of the volume's directory. A mount can
//! be found by any path inside it; bind mounts of a transaction's view are found as well, and say so.

use crate::{MOUNT_SUBTYPE, VIEWS_DIRECTORY};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number, unique at any one time.
    pub id: u64,
    /// The number of the mount that it lies on.
    pub parent: u64,
    /// Major and minor device number, the same for all mounts of one file system.
    pub device: (u32, u32),
    /// Which directory of the file system is mounted: `/`, or another one with a bind mount.
    pub root: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// Options of this mount, as `rw,nosuid`.
    pub options: String,
    /// The file system's type.
    pub fstype: String,
    /// The mount's source: the volume's directory, for ours.
    pub source: PathBuf,
}

impl Mount {
    /// Whether it is a mount of TxFS.
    pub fn is_txfs(&self) -> bool {
        self.fstype.strip_prefix("fuse.") == Some(MOUNT_SUBTYPE)
    }

    /// The volume's directory, for a mount of TxFS.
    pub fn volume(&self) -> Option<&Path> {
        self.is_txfs().then_some(self.source.as_path())
    }

    /// For a bind mount of a transaction's view (what a command under `txfs run` sees), the view's directory relative
    /// to the root of the whole mount.
    pub fn transaction_view(&self) -> Option<PathBuf> {
        let root = self.root.strip_prefix("/").ok()?;
        let inside = root.strip_prefix(VIEWS_DIRECTORY).ok()?;
        let name = inside.components().next()?;
        self.is_txfs().then(|| Path::new(VIEWS_DIRECTORY).join(name))
    }
}

/// All mounts that this process sees, in mount order.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The TxFS mounts among them.
pub fn txfs_mounts() -> io::Result<Vec<Mount>> {
    Ok(all()?.into_iter().filter(Mount::is_txfs).collect())
}

/// Where a volume is mounted, the views' bind mounts left out.
pub fn of_volume(volume: &Path) -> io::Result<Vec<Mount>> {
    Ok(txfs_mounts()?
        .into_iter()
        .filter(|mount| mount.source == volume && mount.transaction_view().is_none())
        .collect())
}

/// The mount, of whatever type, that holds an existing path.
pub fn holding(path: &Path) -> io::Result<Option<Mount>> {
    let mounts = all()?;
    if let Ok(statx) = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)
        && StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::MNT_ID)
    {
        return Ok(mounts.into_iter().find(|mount| mount.id == statx.stx_mnt_id));
    }
    // Kernels before 5.8 do not tell the mount's number: the longest mount point above the path is it, and of several
    // mounts on one point the last.
    let path = path.canonicalize()?;
    Ok(mounts
        .into_iter()
        .filter(|mount| path.starts_with(&mount.mountpoint))
        .max_by_key(|mount| mount.mountpoint.as_os_str().len()))
}

/// The TxFS mount that holds an existing path; `None` when the path lies elsewhere.
pub fn txfs_holding(path: &Path) -> io::Result<Option<Mount>> {
    Ok(holding(path)?.filter(Mount::is_txfs))
}

/// Parses mountinfo; lines that do not have its form are passed over.
pub fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescape(fields.next()?);
    let mountpoint = unescape(fields.next()?);
    let options = text(fields.next()?);
    // A varying number of optional fields ends with a lone dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let fstype = text(fields.next()?);
    let source = unescape(fields.next()?);
    Some(Mount {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        mountpoint,
        options,
        fstype,
        source,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescape(field).into_os_string().to_string_lossy().into_owned()
}

/// Undoes the kernel's `\ooo` escapes for space, tab, newline, backslash and the hash sign.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) if first == b'\\' && digits[0] <= b'3' => {
                bytes.push((digits[0] - b'0') << 6 | (digits[1] - b'0') << 3 | (digits[2] - b'0'));
                rest = &tail[3..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Whether two paths are byte-for-byte the same after removing a trailing slash; mount points compare so.
pub fn same_point(left: &Path, right: &Path) -> bool {
    let trim = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        bytes.strip_suffix(b"/").filter(|rest| !rest.is_empty()).unwrap_or(bytes).to_vec()
    };
    trim(left) == trim(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let lines = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
            40 36 0:50 / /srv/a\\040b rw,nosuid,nodev shared:7 master:1 - fuse.txfs /vol/x\\134y\\043 rw,user_id=0\n\
            41 36 0:50 /.txfs/tx/3-ab /srv/b rw - fuse.txfs /vol/c rw\n\
            garbage\n\n42 36 0:51 / /x rw master:1\n";
        let mounts = parse(lines);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].fstype, "ext3");
        assert!(!mounts[0].is_txfs() && mounts[0].volume().is_none());
        assert_eq!(mounts[1].mountpoint, Path::new("/srv/a b"));
        assert_eq!(mounts[1].volume(), Some(Path::new("/vol/x\\y#")));
        assert_eq!(mounts[1].device, (0, 50));
        assert_eq!(mounts[1].transaction_view(), None);
        assert_eq!(mounts[2].transaction_view(), Some(PathBuf::from(".txfs/tx/3-ab")));
    }

    #[test]
    fn escapes_at_the_end_do_no_harm() {
        assert_eq!(unescape(b"a\\04"), Path::new("a\\04"));
        assert_eq!(unescape(b"\\"), Path::new("\\"));
        assert_eq!(unescape(b"\\777"), Path::new("\\777"));
        assert_eq!(unescape(b"\\040"), Path::new(" "));
    }

    #[test]
    fn the_root_is_held_by_some_mount() {
        let mount = holding(Path::new("/")).unwrap().unwrap();
        assert_eq!(mount.mountpoint, Path::new("/"));
        assert_eq!(txfs_holding(Path::new("/proc")).unwrap(), None);
        assert!(holding(Path::new("/no/such/path")).is_err());
    }

    #[test]
    fn mount_points_compare_without_trailing_slash() {
        assert!(same_point(Path::new("/a/"), Path::new("/a")));
        assert!(same_point(Path::new("/"), Path::new("/")));
        assert!(!same_point(Path::new("/a"), Path::new("/ab")));
    }
}
