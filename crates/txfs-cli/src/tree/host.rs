//! A directory of the host as a tree. A mounted volume, or the view of a transaction on it, is one too.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, SeekFrom, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Kind, Node, Sink, Source, Time, inside};

/// The tree below a directory.
#[derive(Debug)]
pub struct HostTree {
    root: PathBuf,
    /// Only root may give files away; for others they stay the user's own.
    keep_owners: bool,
}

impl HostTree {
    pub fn new(root: &Path) -> HostTree {
        HostTree { root: root.to_path_buf(), keep_owners: rustix::process::geteuid().is_root() }
    }
}

fn node_of(metadata: &fs::Metadata) -> Node {
    let time =
        |seconds, nanoseconds: i64| Time { seconds, nanoseconds: nanoseconds.clamp(0, 999_999_999) as u32 };
    Node {
        kind: Kind::from_mode(metadata.mode()),
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.size(),
        blocks: metadata.blocks(),
        links: metadata.nlink(),
        device: metadata.rdev(),
        accessed: time(metadata.atime(), metadata.atime_nsec()),
        modified: time(metadata.mtime(), metadata.mtime_nsec()),
        identity: (metadata.dev(), metadata.ino()),
    }
}

fn found(result: io::Result<fs::Metadata>) -> io::Result<Option<Node>> {
    match result {
        Ok(metadata) => Ok(Some(node_of(&metadata))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Source for HostTree {
    type Id = PathBuf;
    type File = File;

    fn resolve(&self, path: &Path, follow: bool) -> io::Result<PathBuf> {
        let path = self.root.join(inside(path));
        if follow {
            fs::metadata(&path)?
        } else {
            fs::symlink_metadata(&path)?
        };
        // Resolved for good, so that `node` tells about the target.
        if follow { path.canonicalize() } else { Ok(path) }
    }

    fn node(&self, id: &PathBuf) -> io::Result<Node> {
        Ok(node_of(&fs::symlink_metadata(id)?))
    }

    fn children(&self, id: &PathBuf) -> io::Result<Vec<(OsString, PathBuf)>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(id)? {
            let entry = entry?;
            children.push((entry.file_name(), entry.path()));
        }
        children.sort();
        Ok(children)
    }

    fn link_target(&self, id: &PathBuf) -> io::Result<OsString> {
        Ok(fs::read_link(id)?.into_os_string())
    }

    fn xattrs(&self, id: &PathBuf) -> io::Result<Vec<(OsString, Vec<u8>)>> {
        let mut names = vec![0; 64 << 10];
        let len = match rustix::fs::llistxattr(id, &mut names[..]) {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut found = Vec::new();
        let mut value = vec![0; 64 << 10];
        for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match rustix::fs::lgetxattr(id, name, &mut value[..]) {
                Ok(len) => found.push((OsString::from_vec(name.to_vec()), value[..len].to_vec())),
                // Listed, but not for us; or gone in between.
                Err(Errno::PERM | Errno::ACCESS | Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(found)
    }

    fn open(&self, id: &PathBuf) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(id)
    }

    fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn next_data(&self, file: &File, offset: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A file system without holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, size))),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size);
        Ok(Some((start, end.max(start + 1))))
    }
}

impl Sink for HostTree {
    type Id = PathBuf;
    type File = File;

    fn lookup(&self, path: &Path) -> io::Result<Option<(PathBuf, Node)>> {
        let path = self.root.join(inside(path));
        Ok(found(fs::metadata(&path))?.map(|node| (path, node)))
    }

    fn child(&self, parent: &PathBuf, name: &OsStr) -> io::Result<Option<(PathBuf, Node)>> {
        let path = parent.join(name);
        Ok(found(fs::symlink_metadata(&path))?.map(|node| (path, node)))
    }

    fn remove(&self, parent: &PathBuf, name: &OsStr) -> io::Result<()> {
        fs::remove_file(parent.join(name))
    }

    fn make_directory(&self, parent: &PathBuf, name: &OsStr) -> io::Result<PathBuf> {
        let path = parent.join(name);
        fs::create_dir(&path)?;
        // Nobody else looks in before it has its own permissions.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        Ok(path)
    }

    fn make_file(&self, parent: &PathBuf, name: &OsStr) -> io::Result<(PathBuf, File)> {
        let path = parent.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok((path, file))
    }

    fn make_link(&self, parent: &PathBuf, name: &OsStr, target: &OsStr) -> io::Result<PathBuf> {
        let path = parent.join(name);
        std::os::unix::fs::symlink(target, &path)?;
        Ok(path)
    }

    fn make_special(&self, parent: &PathBuf, name: &OsStr, node: &Node) -> io::Result<PathBuf> {
        let path = parent.join(name);
        let kind = FileType::from_raw_mode(node.mode());
        rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), node.device)?;
        Ok(path)
    }

    fn hard_link(&self, existing: &PathBuf, parent: &PathBuf, name: &OsStr) -> io::Result<()> {
        fs::hard_link(existing, parent.join(name))
    }

    fn write_at(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    fn set_size(&self, file: &File, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn set_xattr(&self, id: &PathBuf, name: &OsStr, value: &[u8]) -> io::Result<()> {
        Ok(rustix::fs::lsetxattr(id, name.as_bytes(), value, XattrFlags::empty())?)
    }

    fn set_attributes(&self, id: &PathBuf, node: &Node) -> io::Result<()> {
        if self.keep_owners {
            let (uid, gid) = (Uid::from_raw(node.uid), Gid::from_raw(node.gid));
            rustix::fs::chownat(CWD, id, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // After the owner, because changing that takes set-user-id away. Links have no permissions.
        if node.kind != Kind::Symlink {
            fs::set_permissions(id, fs::Permissions::from_mode(node.permissions))?;
        }
        let time = |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
        let times = Timestamps { last_access: time(node.accessed), last_modification: time(node.modified) };
        Ok(rustix::fs::utimensat(CWD, id, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}
