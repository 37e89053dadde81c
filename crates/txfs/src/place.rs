//! Paths that start at any directory, for those who keep open directories and files themselves, as the C library does.

use crate::error::{Error, Result};
use crate::file::FileOptions;
use crate::paths::{SYMLINKS_MAX, resolve_from, resolve_parent_from};
use crate::types::{Attributes, Ino, NewNode, NodeKind};
use crate::view::View;

/// A directory of a view, where relative paths start; absolute ones start at the volume's root. Symbolic links on the way
/// are followed. Paths are bytes without NUL.
#[derive(Clone, Copy)]
pub struct Place<'view> {
    view: &'view dyn View,
    directory: Ino,
}

impl<'view> Place<'view> {
    /// The directory `directory` of a view.
    pub fn new(view: &'view dyn View, directory: Ino) -> Place<'view> {
        Place { view, directory }
    }

    /// The node at a path; `follow_last` says whether a symbolic link at its end is followed.
    pub fn find(&self, path: &[u8], follow_last: bool) -> Result<Ino> {
        resolve_from(self.view, self.directory, path, follow_last)
    }

    /// The directory that the last component of a path is in, and that component.
    pub fn parent(&self, path: &[u8]) -> Result<(Ino, Vec<u8>)> {
        resolve_parent_from(self.view, self.directory, path)
    }

    /// Finds or creates what is to be opened, whatever its kind, and tells the view that it is in use: whoever calls
    /// this calls `View::closed` in the end. Nothing is truncated.
    pub fn open(&self, path: &[u8], options: &FileOptions) -> Result<Attributes> {
        loop {
            match self.view.opened(self.find_or_create(path, options)?) {
                // On the base view it may have been removed in between; then its name is gone, too.
                Err(Error::Stale { .. }) => std::thread::yield_now(),
                opened => return opened,
            }
        }
    }

    fn find_or_create(&self, path: &[u8], options: &FileOptions) -> Result<Ino> {
        let view = self.view;
        if !(options.create || options.create_new) {
            let ino = self.find(path, options.follow)?;
            if !options.follow && view.attributes(ino)?.kind == NodeKind::Symlink {
                return Err(Error::TooManySymlinks);
            }
            return Ok(ino);
        }
        let (mut parent, mut name) = self.parent(path)?;
        let mut symlinks = 0;
        loop {
            match view.lookup(parent, &name) {
                Ok(_) if options.create_new => return Err(Error::Exists),
                Ok(found) if found.kind == NodeKind::Symlink => {
                    symlinks += 1;
                    if symlinks > SYMLINKS_MAX || !options.follow {
                        return Err(Error::TooManySymlinks);
                    }
                    (parent, name) = resolve_parent_from(view, parent, &view.read_link(found.ino)?)?;
                    continue;
                }
                Ok(found) => return Ok(found.ino),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
            let node = NewNode::file(options.mode, options.uid, options.gid);
            match view.make_node(parent, &name, &node) {
                Ok(made) => return Ok(made.ino),
                // On the base view somebody else may have been faster.
                Err(Error::Exists) if !options.create_new => {}
                Err(error) => return Err(error),
            }
        }
    }
}
