//! Operations on paths, for every view.
//!
//! In a transaction they are part of it. On the base view every step (creating a file, writing into it ...) is a
//! small transaction of its own: use a transaction for what has to happen as a whole.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file::{File, FileOptions};
use crate::place::Place;
use crate::types::{Attributes, DirectoryEntry, Ino, NewNode, NodeKind, ROOT_INO, RenameMode, SetAttributes};
use crate::view::View;

/// Symbolic links followed on one path, as Linux has it.
pub(crate) const SYMLINKS_MAX: usize = 40;
/// The longest piece that is read at a time.
const READ_BYTES: usize = 1 << 20;

/// One node met by [`Paths::walk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    /// Path from the volume's root, without a leading slash.
    pub path: PathBuf,
    /// Its attributes.
    pub attributes: Attributes,
}

/// A name of a directory entry as a path of one component.
pub(crate) fn name_to_path(name: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}

/// Components of a path, last first.
pub(crate) fn components_reversed(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .filter(|component| !component.is_empty() && *component != b".")
        .rev()
        .map(<[u8]>::to_vec)
        .collect()
}

/// Follows a path from a directory on. The pending components are in reverse order.
fn follow(view: &dyn View, start: Ino, mut pending: Vec<Vec<u8>>, follow_last: bool) -> Result<Ino> {
    let mut at = start;
    let mut symlinks = 0;
    while let Some(name) = pending.pop() {
        let found = view.lookup(at, &name)?;
        if found.kind != NodeKind::Symlink || (pending.is_empty() && !follow_last) {
            at = found.ino;
            continue;
        }
        symlinks += 1;
        if symlinks > SYMLINKS_MAX {
            return Err(Error::TooManySymlinks);
        }
        let target = view.read_link(found.ino)?;
        if target.starts_with(b"/") {
            at = ROOT_INO;
        }
        pending.extend(components_reversed(&target));
    }
    Ok(at)
}

pub(crate) fn resolve_from(view: &dyn View, start: Ino, path: &[u8], follow_last: bool) -> Result<Ino> {
    // Absolute ones start at the root, wherever one is.
    let start = if path.starts_with(b"/") { ROOT_INO } else { start };
    follow(view, start, components_reversed(path), follow_last)
}

fn resolve(view: &dyn View, path: &Path, follow_last: bool) -> Result<Ino> {
    resolve_from(view, ROOT_INO, path.as_os_str().as_bytes(), follow_last)
}

/// The directory that the last component of a path is in, and that component.
fn resolve_parent(view: &dyn View, path: &Path) -> Result<(Ino, Vec<u8>)> {
    resolve_parent_from(view, ROOT_INO, path.as_os_str().as_bytes())
}

pub(crate) fn resolve_parent_from(view: &dyn View, start: Ino, path: &[u8]) -> Result<(Ino, Vec<u8>)> {
    let start = if path.starts_with(b"/") { ROOT_INO } else { start };
    let mut components = components_reversed(path);
    if components.is_empty() {
        return Err(Error::Invalid("the root directory has no name"));
    }
    let name = components.remove(0);
    if name == b".." {
        return Err(Error::Invalid("the last component must be a name"));
    }
    Ok((follow(view, start, components, true)?, name))
}

/// Operations on paths. All paths start at the volume's root, with or without a leading slash; symbolic links on the
/// way are followed (absolute targets start at the volume's root too).
pub trait Paths: View {
    /// The node at a path; a symlink at its end is followed.
    fn stat(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        let (view, path) = (self.as_view(), path.as_ref());
        resolve(view, path, true).and_then(|ino| view.attributes(ino)).map_err(|error| error.at("stat", path))
    }

    /// The node at a path; a symlink at its end is not followed.
    fn symlink_stat(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        let (view, path) = (self.as_view(), path.as_ref());
        resolve(view, path, false)
            .and_then(|ino| view.attributes(ino))
            .map_err(|error| error.at("stat", path))
    }

    /// The inode number at a path; a symlink at its end is followed.
    fn resolve(&self, path: impl AsRef<Path>) -> Result<Ino> {
        let path = path.as_ref();
        resolve(self.as_view(), path, true).map_err(|error| error.at("find", path))
    }

    /// True when something is at the path.
    fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        let path = path.as_ref();
        match resolve(self.as_view(), path, true) {
            Ok(_) => Ok(true),
            Err(Error::NotFound | Error::NotDirectory) => Ok(false),
            Err(error) => Err(error.at("find", path)),
        }
    }

    /// Opens a file.
    fn open(&self, path: impl AsRef<Path>, options: &FileOptions) -> Result<File<'_>> {
        let (view, path) = (self.as_view(), path.as_ref());
        let open = || {
            let found = Place::new(view, ROOT_INO).open(path.as_os_str().as_bytes(), options)?;
            let ino = found.ino;
            let file = File::of_opened(view, ino, path, options);
            match found.kind {
                NodeKind::Directory => return Err(Error::IsDirectory),
                NodeKind::File => {}
                _ => return Err(Error::NotSupported("only regular files can be opened")),
            }
            if options.truncate && options.writes() {
                let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
                view.set_attributes(ino, &set)?;
            }
            Ok(file)
        };
        open().map_err(|error: Error| error.at("open", path))
    }

    /// The whole content of a file.
    fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let (view, path) = (self.as_view(), path.as_ref());
        let read = || {
            let ino = resolve(view, path, true)?;
            let mut content = Vec::new();
            loop {
                let piece = view.read(ino, content.len() as u64, READ_BYTES)?;
                let is_last = piece.len() < READ_BYTES;
                if content.is_empty() {
                    content = piece;
                } else {
                    content.extend_from_slice(&piece);
                }
                if is_last {
                    return Ok(content);
                }
            }
        };
        read().map_err(|error: Error| error.at("read", path))
    }

    /// Makes `content` the whole content of a file, which is created where missing.
    fn write_file(&self, path: impl AsRef<Path>, content: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let options = FileOptions::new().write(true).create(true).truncate(true);
        let file = self.open(path, &options).map_err(|error| error.at("write", path))?;
        file.write_at(0, content)
    }

    /// Creates a directory with mode 0755.
    fn create_dir(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        let (view, path) = (self.as_view(), path.as_ref());
        resolve_parent(view, path)
            .and_then(|(parent, name)| view.make_node(parent, &name, &NewNode::directory(0o755, 0, 0)))
            .map_err(|error| error.at("create the directory", path))
    }

    /// Creates a directory and its parents where missing; returns the directory's inode number.
    fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<Ino> {
        let (view, path) = (self.as_view(), path.as_ref());
        let mut at = PathBuf::new();
        let mut ino = ROOT_INO;
        for component in path.components() {
            at.push(component);
            let made = match resolve(view, &at, true) {
                Err(Error::NotFound) => resolve_parent(view, &at).and_then(|(parent, name)| {
                    match view.make_node(parent, &name, &NewNode::directory(0o755, 0, 0)) {
                        Err(Error::Exists) => resolve(view, &at, true),
                        made => made.map(|made| made.ino),
                    }
                }),
                found => found,
            };
            ino = made.map_err(|error| error.at("create the directory", &at))?;
        }
        match view.attributes(ino) {
            Ok(found) if !found.is_directory() => Err(Error::NotDirectory.at("create the directory", path)),
            Ok(_) => Ok(ino),
            Err(error) => Err(error.at("create the directory", path)),
        }
    }

    /// Entries of a directory but `.` and `..`, sorted by name.
    fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirectoryEntry>> {
        let (view, path) = (self.as_view(), path.as_ref());
        let mut entries = resolve(view, path, true)
            .and_then(|ino| view.list_directory(ino))
            .map_err(|error| error.at("list", path))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Renames; replaces what is at `to`.
    fn rename_path(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_path_with(from, to, RenameMode::Replace)
    }

    /// Renames, with a say about an existing target.
    fn rename_path_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, mode: RenameMode) -> Result<()> {
        let view = self.as_view();
        let rename = || {
            let (parent, name) = resolve_parent(view, from.as_ref())?;
            let (new_parent, new_name) = resolve_parent(view, to.as_ref())?;
            view.rename(parent, &name, new_parent, &new_name, mode)
        };
        rename().map_err(|error: Error| error.at("rename", from.as_ref()))
    }

    /// Gives the node at `from` another name; a symlink there is not followed.
    fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (view, to) = (self.as_view(), to.as_ref());
        let link = || {
            let ino = resolve(view, from.as_ref(), false)?;
            let (parent, name) = resolve_parent(view, to)?;
            view.link(ino, parent, &name).map(drop)
        };
        link().map_err(|error: Error| error.at("create the link", to))
    }

    /// Creates a symbolic link at `path`.
    fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (view, path) = (self.as_view(), path.as_ref());
        let node = NewNode::symlink(target.as_ref().as_os_str().as_bytes(), 0, 0);
        resolve_parent(view, path)
            .and_then(|(parent, name)| view.make_node(parent, &name, &node).map(drop))
            .map_err(|error| error.at("create the symbolic link", path))
    }

    /// Target of a symbolic link.
    fn read_symlink(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let (view, path) = (self.as_view(), path.as_ref());
        resolve(view, path, false)
            .and_then(|ino| view.read_link(ino))
            .map(|target| name_to_path(&target))
            .map_err(|error| error.at("read the symbolic link", path))
    }

    /// Removes a file or an empty directory.
    fn remove(&self, path: impl AsRef<Path>) -> Result<()> {
        let (view, path) = (self.as_view(), path.as_ref());
        let remove = || {
            let (parent, name) = resolve_parent(view, path)?;
            match view.lookup(parent, &name)?.kind {
                NodeKind::Directory => view.remove_directory(parent, &name),
                _ => view.unlink(parent, &name),
            }
        };
        remove().map_err(|error: Error| error.at("remove", path))
    }

    /// Removes whatever is at the path, with everything in it.
    fn remove_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let (view, path) = (self.as_view(), path.as_ref());
        let remove = || {
            let (parent, name) = resolve_parent(view, path)?;
            let found = view.lookup(parent, &name)?;
            if found.kind != NodeKind::Directory {
                return view.unlink(parent, &name);
            }
            // Directories still to be removed, each with its parent and name; an empty one goes when seen again.
            let mut pending = vec![(parent, name, found.ino)];
            while let Some((parent, name, ino)) = pending.last().cloned() {
                let mut emptied = true;
                for entry in view.list_directory(ino)? {
                    match entry.kind {
                        NodeKind::Directory => {
                            pending.push((ino, entry.name, entry.ino));
                            emptied = false;
                        }
                        _ => view.unlink(ino, &entry.name)?,
                    }
                }
                if emptied {
                    view.remove_directory(parent, &name)?;
                    pending.pop();
                }
            }
            Ok(())
        };
        remove().map_err(|error: Error| error.at("remove", path))
    }

    /// Cuts or grows a file.
    fn truncate(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        let (view, path) = (self.as_view(), path.as_ref());
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        resolve(view, path, true)
            .and_then(|ino| view.set_attributes(ino, &set).map(drop))
            .map_err(|error| error.at("truncate", path))
    }

    /// Sets the permission bits.
    fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let (view, path) = (self.as_view(), path.as_ref());
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        resolve(view, path, true)
            .and_then(|ino| view.set_attributes(ino, &set).map(drop))
            .map_err(|error| error.at("change the mode of", path))
    }

    /// Visits everything at and below a path, directories before what they hold, names in order; symlinks are not
    /// followed.
    fn walk(
        &self,
        path: impl AsRef<Path>,
        visit: &mut dyn FnMut(WalkEntry) -> ControlFlow<()>,
    ) -> Result<()> {
        let (view, path) = (self.as_view(), path.as_ref());
        let start = path.strip_prefix("/").unwrap_or(path).to_path_buf();
        let ino = resolve(view, path, false).map_err(|error| error.at("walk", path))?;
        let mut pending = vec![(start, ino)];
        while let Some((path, ino)) = pending.pop() {
            let attributes = view.attributes(ino).map_err(|error| error.at("walk", &path))?;
            let is_directory = attributes.is_directory();
            if visit(WalkEntry { path: path.clone(), attributes }).is_break() {
                return Ok(());
            }
            if is_directory {
                let mut entries = view.list_directory(ino).map_err(|error| error.at("walk", &path))?;
                entries.sort_by(|a, b| b.name.cmp(&a.name));
                pending.extend(
                    entries.into_iter().map(|entry| (path.join(name_to_path(&entry.name)), entry.ino)),
                );
            }
        }
        Ok(())
    }
}

impl<V: View + ?Sized> Paths for V {}
