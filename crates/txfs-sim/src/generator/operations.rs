//! Single operations: mostly sensible, sometimes wrong in each way that has an error number.

use super::{Generator, weighted};
use crate::model::Tree;
use crate::operation::{
    Allocation, Ino, Kind, NAME_BYTES_MAX, Name, Operation, PAGE_BYTES, ROOT_INO, Renaming, XattrSetting,
};

impl Generator {
    /// One operation on `view`; `also` are inodes that may have no name any more but are held open.
    pub(super) fn operation(&mut self, view: &Tree, also: &[Ino]) -> Operation {
        if self.random.u32(0..100) < self.profile.look_percent {
            return self.look(view, also);
        }
        if self.random.u32(0..100) < self.profile.data_percent
            && let Some(operation) = self.data(view, also)
        {
            return operation;
        }
        self.names_and_attributes(view, also)
    }

    fn one_of(&mut self, candidates: Vec<Ino>) -> Option<Ino> {
        self.random.choice(candidates)
    }

    fn file(&mut self, view: &Tree, also: &[Ino]) -> Option<Ino> {
        let mut files = view.linked(Kind::File);
        files.extend(also.iter().filter(|ino| view.kind(**ino) == Some(Kind::File)));
        self.one_of(files)
    }

    fn directory(&mut self, view: &Tree) -> Ino {
        // Half of the time the root, so that names collide.
        if self.random.bool() {
            return ROOT_INO;
        }
        self.one_of(view.linked(Kind::Directory)).unwrap_or(ROOT_INO)
    }

    fn any(&mut self, view: &Tree, also: &[Ino]) -> Ino {
        if self.random.u32(0..40) == 0 {
            // Long gone, or never there.
            return 1_000_000 + self.random.u64(0..4);
        }
        let kind = match weighted(&mut self.random, &[6, 3, 1, 1]) {
            0 => return self.file(view, also).unwrap_or(ROOT_INO),
            1 => Kind::Directory,
            2 => Kind::Symlink,
            _ => Kind::Fifo,
        };
        self.one_of(view.linked(kind)).unwrap_or(ROOT_INO)
    }

    fn name(&mut self) -> Name {
        match self.random.u32(0..150) {
            0 => Name(vec![b'L'; NAME_BYTES_MAX]),
            1 => Name(vec![b'X'; NAME_BYTES_MAX + 1]),
            _ => {
                let letter = self.random.u32(0..self.profile.names) as u8;
                Name(vec![b'a' + letter])
            }
        }
    }

    /// A name that exists, most of the time.
    fn existing(&mut self, view: &Tree) -> (Ino, Name) {
        for _ in 0..8 {
            let parent = self.directory(view);
            let names: Vec<Name> =
                view.entries(parent).map(|entries| entries.keys().cloned().collect()).unwrap_or_default();
            if let Some(name) = self.random.choice(names) {
                return (parent, name);
            }
        }
        (self.directory(view), self.name())
    }

    fn offset(&mut self, size: u64) -> u64 {
        let max = self.profile.file_bytes_max;
        let offset = match weighted(&mut self.random, &[3, 3, 3, 1]) {
            0 => self.random.u64(0..=size),
            1 => self.random.u64(0..=size / PAGE_BYTES) * PAGE_BYTES,
            2 => size,
            _ => self.random.u64(0..max),
        };
        offset.min(max)
    }

    fn len(&mut self, offset: u64) -> u64 {
        let max = self.profile.write_bytes_max;
        let len = match weighted(&mut self.random, &[3, 3, 2]) {
            0 => self.random.u64(1..=max.min(600)),
            1 => self.random.u64(1..=max.div_ceil(PAGE_BYTES)) * PAGE_BYTES,
            _ => self.random.u64(1..=max),
        };
        len.min((self.profile.file_bytes_max + max).saturating_sub(offset)).max(1)
    }

    fn data(&mut self, view: &Tree, also: &[Ino]) -> Option<Operation> {
        let ino = self.file(view, also)?;
        let size = view.node(ino).map_or(0, |node| node.size());
        let offset = self.offset(size);
        let len = self.len(offset);
        let fill = self.random.u64(..);
        Some(match weighted(&mut self.random, &[50, 12, 12, 10, 6]) {
            0 => Operation::Write { ino, offset, len, fill },
            1 => Operation::Append { ino, len: len.min(self.profile.write_bytes_max), fill },
            2 => Operation::Truncate { ino, size: offset },
            3 => {
                let keep_size = self.random.bool();
                let allocation = match self.random.u32(0..3) {
                    0 => Allocation::Reserve { keep_size },
                    1 => Allocation::PunchHole,
                    _ => Allocation::ZeroRange { keep_size },
                };
                Operation::Allocate { ino, allocation, offset, len }
            }
            _ => {
                let from = self.file(view, &[])?;
                if from == ino {
                    return None;
                }
                let from_size = view.node(from).map_or(0, |node| node.size());
                let from_offset = self.offset(from_size);
                Operation::CopyRange { from, from_offset, to: ino, to_offset: offset, len }
            }
        })
    }

    fn names_and_attributes(&mut self, view: &Tree, also: &[Ino]) -> Operation {
        let crowded = view.nodes().count() > self.profile.inodes_max;
        let (make, remove) = if crowded { (2, 40) } else { (24, 8) };
        let weights = [make, make / 3, make / 8, make / 12, remove, remove / 2, 18, 8, 4, 2, 8, 3];
        let mode = [0o600, 0o644, 0o755, 0o1755, 0o1777][self.random.usize(0..5)];
        match weighted(&mut self.random, &weights) {
            0 => Operation::MakeFile { parent: self.directory(view), name: self.name(), mode },
            1 => Operation::MakeDirectory { parent: self.directory(view), name: self.name(), mode },
            2 => {
                let target = self.name().0.repeat(1 + self.random.usize(0..6));
                Operation::MakeSymlink { parent: self.directory(view), name: self.name(), target }
            }
            3 => Operation::MakeFifo { parent: self.directory(view), name: self.name(), mode },
            4 => {
                let (parent, name) = self.existing(view);
                Operation::Unlink { parent, name }
            }
            5 => {
                let (parent, name) = self.existing(view);
                Operation::RemoveDirectory { parent, name }
            }
            6 => {
                let (parent, name) = self.existing(view);
                let (new_parent, new_name) = if self.random.bool() {
                    self.existing(view)
                } else {
                    (self.directory(view), self.name())
                };
                let renaming = match weighted(&mut self.random, &[6, 1, 2]) {
                    0 => Renaming::Replace,
                    1 => Renaming::NoReplace,
                    _ => Renaming::Exchange,
                };
                Operation::Rename { parent, name, new_parent, new_name, renaming }
            }
            7 => {
                Operation::Link { ino: self.any(view, &[]), parent: self.directory(view), name: self.name() }
            }
            8 => Operation::SetMode { ino: self.any(view, also), mode },
            9 => {
                let (uid, gid) = (self.random.u32(0..3), self.random.u32(0..3));
                Operation::SetOwner { ino: self.any(view, also), uid, gid }
            }
            10 => {
                let len = if self.random.u32(0..8) == 0 { 3000 } else { 40 };
                let setting = match weighted(&mut self.random, &[6, 1, 1]) {
                    0 => XattrSetting::Any,
                    1 => XattrSetting::Create,
                    _ => XattrSetting::Replace,
                };
                Operation::SetXattr {
                    ino: self.any(view, also),
                    name: self.xattr_name(),
                    len: self.random.u64(0..len),
                    fill: self.random.u64(..),
                    setting,
                }
            }
            _ => Operation::RemoveXattr { ino: self.any(view, also), name: self.xattr_name() },
        }
    }

    fn xattr_name(&mut self) -> Name {
        Name::from(["user.one", "user.two", "user.three"][self.random.usize(0..3)])
    }

    fn look(&mut self, view: &Tree, also: &[Ino]) -> Operation {
        match weighted(&mut self.random, &[3, 3, 6, 1, 2, 2, 1, 1, 1]) {
            0 => {
                let (parent, name) = self.existing(view);
                Operation::Lookup { parent, name }
            }
            1 => Operation::Attributes { ino: self.any(view, also) },
            2 => match self.file(view, also) {
                Some(ino) => {
                    let offset = self.offset(view.node(ino).map_or(0, |node| node.size()));
                    Operation::Read { ino, offset, len: self.len(offset) }
                }
                None => Operation::Attributes { ino: ROOT_INO },
            },
            3 => match self.one_of(view.linked(Kind::Symlink)) {
                Some(ino) => Operation::ReadLink { ino },
                None => Operation::Lookup { parent: ROOT_INO, name: self.name() },
            },
            4 => Operation::ReadDirectory { ino: self.directory(view) },
            5 => match self.file(view, also) {
                Some(ino) => {
                    let offset = self.offset(view.node(ino).map_or(0, |node| node.size()));
                    if self.random.bool() {
                        Operation::SeekData { ino, offset }
                    } else {
                        Operation::SeekHole { ino, offset }
                    }
                }
                None => Operation::ReadDirectory { ino: ROOT_INO },
            },
            6 => Operation::GetXattr { ino: self.any(view, also), name: self.xattr_name() },
            7 => Operation::ListXattrs { ino: self.any(view, also) },
            _ => Operation::Lookup { parent: self.directory(view), name: self.name() },
        }
    }
}
