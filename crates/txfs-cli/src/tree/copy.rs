//! Copies a tree as `cp -a` does: content with its holes, modes, times, links of both kinds, extended attributes.
//!
//! No recursion: a tree may be deeper than any stack.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::{Kind, Node, Sink, Source};
use crate::error::{Error, errno};

/// Read and written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What the caller is told while it goes on.
pub trait Watch {
    /// So many bytes more.
    fn advance(&mut self, bytes: u64);
    /// Something could not be copied with all that belongs to it.
    fn warn(&mut self, message: String);
}

/// Copies from one tree to another; hard links are kept among everything that one copier copies.
pub struct Copier<'a, S: Source, D: Sink> {
    source: &'a S,
    sink: &'a D,
    watch: &'a mut dyn Watch,
    /// Where files with several names have gone.
    linked: HashMap<(u64, u64), D::Id>,
    buffer: Vec<u8>,
}

/// One thing to do.
enum Task<S: Source, D: Sink> {
    Copy {
        from: S::Id,
        into: D::Id,
        name: OsString,
        path: PathBuf,
    },
    /// All is in the directory; now its attributes, which would have forbidden or changed with that.
    Finish {
        to: D::Id,
        node: Node,
        path: PathBuf,
    },
}

impl<'a, S: Source, D: Sink> Copier<'a, S, D> {
    pub fn new(source: &'a S, sink: &'a D, watch: &'a mut dyn Watch) -> Copier<'a, S, D> {
        Copier { source, sink, watch, linked: HashMap::new(), buffer: vec![0; BUFFER_BYTES] }
    }

    /// Copies `from` to the name `name` in the directory `into`. `path` is for messages.
    pub fn copy(&mut self, from: S::Id, into: &D::Id, name: &OsStr, path: &Path) -> Result<(), Error> {
        let mut tasks =
            vec![Task::<S, D>::Copy { from, into: into.clone(), name: name.into(), path: path.into() }];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Copy { from, into, name, path } => {
                    self.copy_one(from, &into, &name, path, &mut tasks)?
                }
                Task::Finish { to, node, path } => {
                    at("set the attributes of", &path, self.sink.set_attributes(&to, &node))?
                }
            }
        }
        Ok(())
    }

    /// Copies what is in the directory `from` into the directory `into`, which gets its attributes too.
    pub fn copy_contents(&mut self, from: S::Id, into: &D::Id, path: &Path) -> Result<(), Error> {
        let node = at("read", path, self.source.node(&from))?;
        for (name, child) in at("list", path, self.source.children(&from))? {
            self.copy(child, into, &name, &path.join(&name))?;
        }
        self.copy_xattrs(&from, into, path)?;
        at("set the attributes of", path, self.sink.set_attributes(into, &node))
    }

    fn copy_one(
        &mut self,
        from: S::Id,
        into: &D::Id,
        name: &OsStr,
        path: PathBuf,
        tasks: &mut Vec<Task<S, D>>,
    ) -> Result<(), Error> {
        let node = at("read", &path, self.source.node(&from))?;
        let existing = at("look for", &path, self.sink.child(into, name))?;
        if node.is_directory() {
            let to = match existing {
                Some((to, existing)) if existing.is_directory() => to,
                Some(_) => {
                    return Err(Error::io(
                        "replace with a directory:",
                        &path,
                        io::ErrorKind::NotADirectory.into(),
                    ));
                }
                None => at("make the directory", &path, self.sink.make_directory(into, name))?,
            };
            self.copy_xattrs(&from, &to, &path)?;
            let children = at("list", &path, self.source.children(&from))?;
            tasks.push(Task::Finish { to: to.clone(), node, path: path.clone() });
            // The last one is done first.
            for (name, child) in children.into_iter().rev() {
                let path = path.join(&name);
                tasks.push(Task::Copy { from: child, into: to.clone(), name, path });
            }
            return Ok(());
        }
        if let Some((_, existing)) = existing {
            if existing.is_directory() {
                return Err(Error::io("replace a directory:", &path, io::ErrorKind::IsADirectory.into()));
            }
            at("replace", &path, self.sink.remove(into, name))?;
        }
        if let Some(to) = self.linked.get(&node.identity) {
            at("link", &path, self.sink.hard_link(to, into, name))?;
            self.watch.advance(node.size);
            return Ok(());
        }
        let to = match node.kind {
            Kind::File => self.copy_file(&from, into, name, &node, &path)?,
            Kind::Symlink => {
                let target = at("read the link", &path, self.source.link_target(&from))?;
                at("make the link", &path, self.sink.make_link(into, name, &target))?
            }
            _ => match self.sink.make_special(into, name, &node) {
                Ok(to) => to,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let what = node.kind.word();
                    self.watch.warn(format!("{} is left out: only root can make a {what}", path.display()));
                    return Ok(());
                }
                Err(error) => return Err(Error::io("make", &path, error)),
            },
        };
        self.copy_xattrs(&from, &to, &path)?;
        at("set the attributes of", &path, self.sink.set_attributes(&to, &node))?;
        if node.links > 1 {
            self.linked.insert(node.identity, to);
        }
        Ok(())
    }

    fn copy_file(
        &mut self,
        from: &S::Id,
        into: &D::Id,
        name: &OsStr,
        node: &Node,
        path: &Path,
    ) -> Result<D::Id, Error> {
        let input = at("open", path, self.source.open(from))?;
        let (to, output) = at("create", path, self.sink.make_file(into, name))?;
        // Only a file with fewer blocks than bytes has holes worth looking for.
        let sparse = node.blocks.saturating_mul(512) < node.size;
        let mut offset = 0;
        let mut written_to = 0;
        while offset < node.size {
            let range = if sparse {
                at("read", path, self.source.next_data(&input, offset, node.size))?
            } else {
                Some((offset, node.size))
            };
            let Some((start, end)) = range else { break };
            let end = end.min(node.size);
            let mut position = start;
            while position < end {
                let wanted = (end - position).min(BUFFER_BYTES as u64) as usize;
                let count =
                    at("read", path, self.source.read_at(&input, position, &mut self.buffer[..wanted]))?;
                if count == 0 {
                    break;
                }
                at("write", path, self.sink.write_at(&output, position, &self.buffer[..count]))?;
                position += count as u64;
                written_to = position;
                self.watch.advance(count as u64);
            }
            if position < end {
                self.watch.warn(format!("{} became shorter while it was read", path.display()));
                return Ok(to);
            }
            offset = end;
        }
        if written_to < node.size {
            at("grow", path, self.sink.set_size(&output, node.size))?;
        }
        Ok(to)
    }

    fn copy_xattrs(&mut self, from: &S::Id, to: &D::Id, path: &Path) -> Result<(), Error> {
        for (name, value) in at("read the extended attributes of", path, self.source.xattrs(from))? {
            if let Err(error) = self.sink.set_xattr(to, &name, &value) {
                match errno(&error) {
                    // Only root may set some, and not every file system takes all of them.
                    Some(libc::EPERM | libc::EACCES | libc::EOPNOTSUPP) => self.watch.warn(format!(
                        "{}: extended attribute {} is left out: {error}",
                        path.display(),
                        name.display()
                    )),
                    _ => return Err(Error::io("set an extended attribute of", path, error)),
                }
            }
        }
        Ok(())
    }
}

/// How many bytes a copy will move, for the progress bar. What cannot be read now will be complained about later.
pub fn total_bytes<S: Source>(source: &S, from: &S::Id) -> u64 {
    let mut total = 0u64;
    let mut queue = vec![from.clone()];
    while let Some(id) = queue.pop() {
        let Ok(node) = source.node(&id) else { continue };
        match node.kind {
            Kind::Directory => {
                queue.extend(source.children(&id).unwrap_or_default().into_iter().map(|(_, child)| child));
            }
            Kind::File => total = total.saturating_add(node.size.min(node.blocks.saturating_mul(512))),
            _ => {}
        }
    }
    total
}

fn at<T>(doing: &'static str, path: &Path, result: io::Result<T>) -> Result<T, Error> {
    result.map_err(|source| Error::io(doing, path, source))
}
