//! Names: lookup, make, link, unlink, rename. The order of the checks is that of Linux.

use super::tree::{Body, Node, Tree};
use crate::operation::{Ino, Kind, NAME_BYTES_MAX, Name, Operation, Outcome, ROOT_INO, Renaming};

type Result<T> = std::result::Result<T, i32>;

impl Tree {
    fn check_name(name: &Name) -> Result<()> {
        if name.0.len() > NAME_BYTES_MAX { Err(libc::ENAMETOOLONG) } else { Ok(()) }
    }

    /// The inode that `name` names in `parent`.
    pub(super) fn child(&self, parent: Ino, name: &Name) -> Result<Ino> {
        let entries = self.entries(parent)?;
        Self::check_name(name)?;
        entries.get(name).copied().ok_or(libc::ENOENT)
    }

    fn kind_of(&self, ino: Ino) -> Kind {
        self.node(ino).map_or(Kind::File, Node::kind)
    }

    /// A directory that takes new names: one that still has a name itself.
    fn check_open_for_names(&self, parent: Ino) -> Result<()> {
        self.entries(parent)?;
        if self.get(parent)?.nlink == 0 { Err(libc::ENOENT) } else { Ok(()) }
    }

    fn count_links(&mut self, ino: Ino, change: i32) {
        if let Some(node) = self.node_mut(ino) {
            node.nlink = node.nlink.checked_add_signed(change).expect("the model counts links right");
        }
    }

    /// Takes the name away from an inode; a directory loses `.` too.
    fn drop_link(&mut self, ino: Ino) {
        if self.kind_of(ino) == Kind::Directory {
            self.count_links(ino, -2);
        } else {
            self.count_links(ino, -1);
        }
    }

    pub(super) fn lookup(&self, parent: Ino, name: &Name) -> Result<Outcome> {
        let ino = self.child(parent, name)?;
        Ok(Outcome::Attributes(self.attributes(ino)?))
    }

    pub(super) fn make(
        &mut self,
        parent: Ino,
        name: &Name,
        new_ino: Option<Ino>,
        node: Node,
    ) -> Result<Outcome> {
        self.check_open_for_names(parent)?;
        Self::check_name(name)?;
        if self.entries(parent)?.contains_key(name) {
            return Err(libc::EEXIST);
        }
        // Where the volume failed and the model does not, any unused number will do: the outcomes differ anyway.
        let ino = new_ino.unwrap_or(Ino::MAX);
        if node.kind() == Kind::Directory {
            self.count_links(parent, 1);
        }
        self.add(ino, node);
        self.entries_mut(parent).insert(name.clone(), ino);
        Ok(Outcome::Attributes(self.attributes(ino)?))
    }

    pub(super) fn link(&mut self, ino: Ino, parent: Ino, name: &Name) -> Result<Outcome> {
        let node = self.get(ino)?;
        let (kind, nlink) = (node.kind(), node.nlink);
        self.check_open_for_names(parent)?;
        Self::check_name(name)?;
        if self.entries(parent)?.contains_key(name) {
            return Err(libc::EEXIST);
        }
        if kind == Kind::Directory {
            return Err(libc::EPERM);
        }
        if nlink == 0 {
            return Err(libc::ENOENT);
        }
        self.count_links(ino, 1);
        self.entries_mut(parent).insert(name.clone(), ino);
        Ok(Outcome::Attributes(self.attributes(ino)?))
    }

    pub(super) fn unlink(&mut self, parent: Ino, name: &Name) -> Result<Outcome> {
        let ino = self.child(parent, name)?;
        if self.kind_of(ino) == Kind::Directory {
            return Err(libc::EISDIR);
        }
        self.entries_mut(parent).remove(name);
        self.drop_link(ino);
        Ok(Outcome::Done)
    }

    pub(super) fn remove_directory(&mut self, parent: Ino, name: &Name) -> Result<Outcome> {
        let ino = self.child(parent, name)?;
        if !self.entries(ino)?.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.entries_mut(parent).remove(name);
        self.count_links(parent, -1);
        self.drop_link(ino);
        Ok(Outcome::Done)
    }

    /// True when `ino` is `ancestor` or lies below it.
    fn lies_in(&self, mut ino: Ino, ancestor: Ino) -> bool {
        loop {
            if ino == ancestor {
                return true;
            }
            match self.parent_of(ino) {
                Some(parent) if ino != ROOT_INO => ino = parent,
                _ => return false,
            }
        }
    }

    fn set_parent(&mut self, ino: Ino, new_parent: Ino) {
        let Some(old_parent) = self.parent_of(ino) else { return };
        self.count_links(old_parent, -1);
        self.count_links(new_parent, 1);
        if let Some(Body::Directory { parent, .. }) = self.node_mut(ino).map(|node| &mut node.body) {
            *parent = new_parent;
        }
    }

    pub(super) fn rename(
        &mut self,
        from: (Ino, &Name),
        to: (Ino, &Name),
        renaming: Renaming,
    ) -> Result<Outcome> {
        let moved = self.child(from.0, from.1)?;
        self.check_open_for_names(to.0)?;
        Self::check_name(to.1)?;
        let target = self.entries(to.0)?.get(to.1).copied();
        match (renaming, target) {
            (Renaming::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (Renaming::Exchange, None) => return Err(libc::ENOENT),
            _ => {}
        }
        if self.kind_of(moved) == Kind::Directory && self.lies_in(to.0, moved) {
            return Err(libc::EINVAL);
        }
        match (renaming, target) {
            (_, Some(target)) if target == moved => return Ok(Outcome::Done),
            (Renaming::Exchange, Some(target)) => {
                if self.kind_of(target) == Kind::Directory && self.lies_in(from.0, target) {
                    return Err(libc::EINVAL);
                }
                self.entries_mut(from.0).insert(from.1.clone(), target);
                self.set_parent(target, from.0);
            }
            (_, Some(target)) => {
                match (self.kind_of(moved), self.kind_of(target)) {
                    // A directory above the moved one holds at least that one.
                    (_, Kind::Directory) if self.lies_in(from.0, target) => return Err(libc::ENOTEMPTY),
                    (Kind::Directory, Kind::Directory) => {
                        if !self.entries(target)?.is_empty() {
                            return Err(libc::ENOTEMPTY);
                        }
                        self.count_links(to.0, -1);
                    }
                    (Kind::Directory, _) => return Err(libc::ENOTDIR),
                    (_, Kind::Directory) => return Err(libc::EISDIR),
                    _ => {}
                }
                self.drop_link(target);
                self.entries_mut(from.0).remove(from.1);
            }
            (_, None) => {
                self.entries_mut(from.0).remove(from.1);
            }
        }
        self.entries_mut(to.0).insert(to.1.clone(), moved);
        self.set_parent(moved, to.0);
        Ok(Outcome::Done)
    }

    /// True for a rename between two names of one inode, which succeeds and does nothing.
    pub(super) fn renames_nothing(&self, operation: &Operation) -> bool {
        let Operation::Rename { parent, name, new_parent, new_name, renaming } = operation else {
            return false;
        };
        let source = self.child(*parent, name);
        *renaming != Renaming::NoReplace && source.is_ok() && source == self.child(*new_parent, new_name)
    }

    pub(super) fn read_directory(&self, ino: Ino) -> Result<Outcome> {
        let entries = self.entries(ino)?;
        Ok(Outcome::Entries(
            entries.iter().map(|(name, child)| (name.clone(), *child, self.kind_of(*child))).collect(),
        ))
    }

    pub(super) fn read_link(&self, ino: Ino) -> Result<Outcome> {
        match &self.get(ino)?.body {
            Body::Symlink(target) => Ok(Outcome::Bytes(target.clone())),
            _ => Err(libc::EINVAL),
        }
    }
}
