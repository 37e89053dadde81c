//! A volume that is not mounted as a tree: any view of it (a transaction, a snapshot).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use txfs::{Attributes, Ino, NewNode, NodeKind, Paths, SetAttributes, SetTime, Timestamp, View, XattrMode};

use super::{Kind, Node, Sink, Source, Time, inside};

/// The tree that a view shows.
pub struct VolumeTree<'view, V: View> {
    view: &'view V,
}

impl<'view, V: View> VolumeTree<'view, V> {
    pub fn new(view: &'view V) -> VolumeTree<'view, V> {
        VolumeTree { view }
    }
}

fn kind_of(kind: NodeKind) -> Kind {
    match kind {
        NodeKind::File => Kind::File,
        NodeKind::Directory => Kind::Directory,
        NodeKind::Symlink => Kind::Symlink,
        NodeKind::Fifo => Kind::Fifo,
        NodeKind::Socket => Kind::Socket,
        NodeKind::CharacterDevice => Kind::CharacterDevice,
        NodeKind::BlockDevice => Kind::BlockDevice,
    }
}

fn kind_for(kind: Kind) -> NodeKind {
    match kind {
        Kind::File => NodeKind::File,
        Kind::Directory => NodeKind::Directory,
        Kind::Symlink => NodeKind::Symlink,
        Kind::Fifo => NodeKind::Fifo,
        Kind::Socket => NodeKind::Socket,
        Kind::CharacterDevice => NodeKind::CharacterDevice,
        Kind::BlockDevice => NodeKind::BlockDevice,
    }
}

fn node_of(attributes: &Attributes) -> Node {
    let time = |time: Timestamp| Time { seconds: time.seconds, nanoseconds: time.nanoseconds };
    Node {
        kind: kind_of(attributes.kind),
        permissions: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        blocks: attributes.blocks,
        links: attributes.nlink.into(),
        device: attributes.rdev.into(),
        accessed: time(attributes.atime),
        modified: time(attributes.mtime),
        identity: (0, attributes.ino),
    }
}

fn found(result: txfs::Result<Attributes>) -> io::Result<Option<(Ino, Node)>> {
    match result {
        Ok(attributes) => Ok(Some((attributes.ino, node_of(&attributes)))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl<V: View> Source for VolumeTree<'_, V> {
    type Id = Ino;
    type File = Ino;

    fn resolve(&self, path: &Path, follow: bool) -> io::Result<Ino> {
        let path = inside(path);
        let attributes = if follow { self.view.stat(path) } else { self.view.symlink_stat(path) };
        Ok(attributes?.ino)
    }

    fn node(&self, id: &Ino) -> io::Result<Node> {
        Ok(node_of(&self.view.attributes(*id)?))
    }

    fn children(&self, id: &Ino) -> io::Result<Vec<(OsString, Ino)>> {
        let mut children: Vec<_> = self
            .view
            .list_directory(*id)?
            .into_iter()
            .map(|entry| (OsString::from_vec(entry.name), entry.ino))
            .collect();
        children.sort();
        Ok(children)
    }

    fn link_target(&self, id: &Ino) -> io::Result<OsString> {
        Ok(OsString::from_vec(self.view.read_link(*id)?))
    }

    fn xattrs(&self, id: &Ino) -> io::Result<Vec<(OsString, Vec<u8>)>> {
        let mut found = Vec::new();
        for name in self.view.list_xattrs(*id)? {
            let value = self.view.get_xattr(*id, &name)?;
            found.push((OsString::from_vec(name), value));
        }
        Ok(found)
    }

    fn open(&self, id: &Ino) -> io::Result<Ino> {
        Ok(*id)
    }

    fn read_at(&self, file: &Ino, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.view.read_into(*file, offset, buffer)?)
    }

    fn next_data(&self, file: &Ino, offset: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        match self.view.seek_data(*file, offset) {
            Ok(start) => Ok(Some((start, self.view.seek_hole(*file, start)?.max(start + 1)))),
            Err(txfs::Error::NoSuchPlace) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl<V: View> Sink for VolumeTree<'_, V> {
    type Id = Ino;
    type File = Ino;

    fn lookup(&self, path: &Path) -> io::Result<Option<(Ino, Node)>> {
        found(self.view.stat(inside(path)))
    }

    fn child(&self, parent: &Ino, name: &OsStr) -> io::Result<Option<(Ino, Node)>> {
        found(self.view.lookup(*parent, name.as_bytes()))
    }

    fn remove(&self, parent: &Ino, name: &OsStr) -> io::Result<()> {
        Ok(self.view.unlink(*parent, name.as_bytes())?)
    }

    fn make_directory(&self, parent: &Ino, name: &OsStr) -> io::Result<Ino> {
        Ok(self.view.make_directory(*parent, name.as_bytes(), 0o700, 0, 0)?.ino)
    }

    fn make_file(&self, parent: &Ino, name: &OsStr) -> io::Result<(Ino, Ino)> {
        let ino = self.view.make_file(*parent, name.as_bytes(), 0o600, 0, 0)?.ino;
        Ok((ino, ino))
    }

    fn make_link(&self, parent: &Ino, name: &OsStr, target: &OsStr) -> io::Result<Ino> {
        Ok(self.view.make_symlink(*parent, name.as_bytes(), target.as_bytes(), 0, 0)?.ino)
    }

    fn make_special(&self, parent: &Ino, name: &OsStr, node: &Node) -> io::Result<Ino> {
        let new = NewNode {
            kind: kind_for(node.kind),
            mode: node.permissions,
            uid: node.uid,
            gid: node.gid,
            // Linux device numbers fit into 32 bits.
            rdev: node.device as u32,
            target: None,
        };
        Ok(self.view.make_node(*parent, name.as_bytes(), &new)?.ino)
    }

    fn hard_link(&self, existing: &Ino, parent: &Ino, name: &OsStr) -> io::Result<()> {
        self.view.link(*existing, *parent, name.as_bytes())?;
        Ok(())
    }

    fn write_at(&self, file: &Ino, offset: u64, data: &[u8]) -> io::Result<()> {
        self.view.write(*file, offset, data)?;
        Ok(())
    }

    fn set_size(&self, file: &Ino, size: u64) -> io::Result<()> {
        self.view.set_attributes(*file, &SetAttributes { size: Some(size), ..SetAttributes::default() })?;
        Ok(())
    }

    fn set_xattr(&self, id: &Ino, name: &OsStr, value: &[u8]) -> io::Result<()> {
        Ok(self.view.set_xattr(*id, name.as_bytes(), value, XattrMode::Set)?)
    }

    fn set_attributes(&self, id: &Ino, node: &Node) -> io::Result<()> {
        let time = |time: Time| Some(SetTime::At(Timestamp::new(time.seconds, time.nanoseconds)));
        let set = SetAttributes {
            mode: (node.kind != Kind::Symlink).then_some(node.permissions),
            uid: Some(node.uid),
            gid: Some(node.gid),
            atime: time(node.accessed),
            mtime: time(node.modified),
            ..SetAttributes::default()
        };
        self.view.set_attributes(*id, &set)?;
        Ok(())
    }
}
