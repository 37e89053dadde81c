//! Renames: moving, replacing and exchanging names.

use super::names::{LINKS_MAX, check_name, is_dots};
use super::session::Session;
use crate::conflict::{ATTRIBUTE_SPACE, PARENT};
use crate::error::{Error, Result};
use crate::records::Dirent;
use crate::types::{Ino, NodeKind, ROOT_INO, RenameMode, Timestamp};

/// A path that is deeper than this is taken for a cycle.
pub(crate) const DEPTH_MAX: usize = 1 << 20;

impl Session {
    pub(crate) fn rename(
        &mut self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.check_writable()?;
        self.directory(parent)?;
        self.living_directory(new_parent)?;
        if is_dots(name) || is_dots(new_name) {
            return Err(Error::Invalid("`.` and `..` cannot be renamed"));
        }
        check_name(name)?;
        check_name(new_name)?;
        let source = self.find(parent, name)?.ok_or(Error::NotFound)?;
        let target = self.find(new_parent, new_name)?;
        match (mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        if target.as_ref().is_some_and(|target| target.ino == source.ino) {
            return Ok(());
        }
        let source_is_directory = source.kind == NodeKind::Directory;
        let target_is_directory = target.as_ref().is_some_and(|target| target.kind == NodeKind::Directory);
        let across = parent != new_parent;
        if source_is_directory && across {
            self.check_not_below(new_parent, source.ino)?;
        }
        match target {
            Some(target) if mode == RenameMode::Exchange => {
                if target_is_directory && across {
                    self.check_not_below(parent, target.ino)?;
                }
                self.exchange(parent, name, source, new_parent, new_name, target)
            }
            target => {
                if target.is_some() && source_is_directory && !target_is_directory {
                    return Err(Error::NotDirectory);
                }
                if !source_is_directory && target_is_directory {
                    return Err(Error::IsDirectory);
                }
                if source_is_directory && across && self.inode(new_parent)?.nlink >= LINKS_MAX {
                    return Err(Error::TooManyLinks);
                }
                if let Some(target) = target.as_ref().filter(|_| target_is_directory) {
                    self.check_empty(target.ino)?;
                }
                self.replace(parent, name, source, new_parent, new_name, target)
            }
        }
    }

    fn replace(
        &mut self,
        parent: Ino,
        name: &[u8],
        source: Dirent,
        new_parent: Ino,
        new_name: &[u8],
        target: Option<Dirent>,
    ) -> Result<()> {
        self.prepare(&[parent, new_parent, source.ino])?;
        self.prepare(target.as_ref().map(|target| target.ino).as_slice())?;
        let now = self.now();
        let source_is_directory = source.kind == NodeKind::Directory;
        if let Some(target) = target {
            if target.kind == NodeKind::Directory {
                self.drop_directory(target.ino, now)?;
                self.inode_mut(new_parent)?.add_links(-1);
            } else {
                self.drop_link(target.ino, now)?;
            }
        }
        self.put_name(parent, name, None)?;
        self.put_name(new_parent, new_name, Some((source.ino, source.kind)))?;
        self.touch_directory(parent, now)?;
        self.touch_directory(new_parent, now)?;
        if source_is_directory && parent != new_parent {
            self.inode_mut(parent)?.add_links(-1);
            self.inode_mut(new_parent)?.add_links(1);
        }
        self.put_parent(source.ino, new_parent, now)
    }

    fn exchange(
        &mut self,
        parent: Ino,
        name: &[u8],
        source: Dirent,
        new_parent: Ino,
        new_name: &[u8],
        target: Dirent,
    ) -> Result<()> {
        self.prepare(&[parent, new_parent, source.ino, target.ino])?;
        let now = self.now();
        self.put_name(parent, name, Some((target.ino, target.kind)))?;
        self.put_name(new_parent, new_name, Some((source.ino, source.kind)))?;
        self.touch_directory(parent, now)?;
        self.touch_directory(new_parent, now)?;
        let directories = |dirent: &Dirent| i64::from(dirent.kind == NodeKind::Directory);
        let gained = directories(&source) - directories(&target);
        if parent != new_parent && gained != 0 {
            self.inode_mut(parent)?.add_links(-gained);
            self.inode_mut(new_parent)?.add_links(gained);
        }
        self.put_parent(source.ino, new_parent, now)?;
        self.put_parent(target.ino, parent, now)
    }

    fn put_parent(&mut self, ino: Ino, parent: Ino, now: Timestamp) -> Result<()> {
        self.touch(ATTRIBUTE_SPACE, ino, PARENT, PARENT, true);
        let node = self.inode_mut(ino)?;
        node.touch_node(now);
        node.renamed = true;
        if node.record.parent != parent {
            node.record.parent = parent;
            node.moved = true;
        }
        Ok(())
    }

    /// Fails when `directory` is `ancestor` or lies below it. The place of every directory on the way is validated at
    /// commit, so two moves can never make a cycle together.
    fn check_not_below(&mut self, directory: Ino, ancestor: Ino) -> Result<()> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if at == ancestor {
                return Err(Error::Invalid("a directory cannot be moved into itself or below itself"));
            }
            if at == ROOT_INO {
                return Ok(());
            }
            self.note_structural(ATTRIBUTE_SPACE, at, PARENT, PARENT);
            at = self.directory(at)?.parent;
        }
        Err(Error::Corrupt { what: format!("the parents of directory inode {directory} form a cycle") })
    }
}
