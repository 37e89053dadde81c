//! Runs the simulator's operations on a real volume, and dumps a real volume in the canonical form.

use txfs::{
    AllocateMode, CleanOptions, NewNode, NodeKind, RenameMode, SetAttributes, Transaction, View, Volume,
    XattrMode,
};

use crate::dump::{Dump, DumpEntry};
use crate::hash::hash_bytes;
use crate::model::tree::hash_xattrs;
use crate::operation::{
    Allocation, Attributes, Ino, Kind, Name, Operation, Outcome, ROOT_INO, Renaming, XattrSetting, fill_bytes,
};

fn kind(kind: NodeKind) -> Kind {
    match kind {
        NodeKind::File => Kind::File,
        NodeKind::Directory => Kind::Directory,
        NodeKind::Symlink => Kind::Symlink,
        NodeKind::Fifo | NodeKind::Socket | NodeKind::CharacterDevice | NodeKind::BlockDevice => Kind::Fifo,
    }
}

fn attributes(found: &txfs::Attributes) -> Attributes {
    Attributes {
        ino: found.ino,
        kind: kind(found.kind),
        mode: found.mode,
        nlink: found.nlink,
        uid: found.uid,
        gid: found.gid,
        size: found.size,
    }
}

/// Runs one operation; an error becomes its number, and its text goes along for people.
pub fn run(view: &dyn View, operation: &Operation) -> (Outcome, Option<String>) {
    match try_run(view, operation) {
        Ok(outcome) => (outcome, None),
        Err(error) => (Outcome::Failed(error.errno()), Some(error.to_string())),
    }
}

fn make(view: &dyn View, parent: Ino, name: &Name, node: &NewNode) -> txfs::Result<Outcome> {
    Ok(Outcome::Attributes(attributes(&view.make_node(parent, &name.0, node)?)))
}

fn set(view: &dyn View, ino: Ino, set: &SetAttributes) -> txfs::Result<Outcome> {
    Ok(Outcome::Attributes(attributes(&view.set_attributes(ino, set)?)))
}

fn try_run(view: &dyn View, operation: &Operation) -> txfs::Result<Outcome> {
    use Operation as O;
    Ok(match operation {
        O::Lookup { parent, name } => Outcome::Attributes(attributes(&view.lookup(*parent, &name.0)?)),
        O::Attributes { ino } => Outcome::Attributes(attributes(&view.attributes(*ino)?)),
        O::SetMode { ino, mode } => {
            set(view, *ino, &SetAttributes { mode: Some(*mode), ..SetAttributes::default() })?
        }
        O::SetOwner { ino, uid, gid } => {
            let wanted = SetAttributes { uid: Some(*uid), gid: Some(*gid), ..SetAttributes::default() };
            set(view, *ino, &wanted)?
        }
        O::Truncate { ino, size } => {
            set(view, *ino, &SetAttributes { size: Some(*size), ..SetAttributes::default() })?;
            Outcome::Done
        }
        O::MakeFile { parent, name, mode } => make(view, *parent, name, &NewNode::file(*mode, 0, 0))?,
        O::MakeDirectory { parent, name, mode } => {
            make(view, *parent, name, &NewNode::directory(*mode, 0, 0))?
        }
        O::MakeSymlink { parent, name, target } => {
            make(view, *parent, name, &NewNode::symlink(target.clone(), 0, 0))?
        }
        O::MakeFifo { parent, name, mode } => {
            let node = NewNode { kind: NodeKind::Fifo, ..NewNode::file(*mode, 0, 0) };
            make(view, *parent, name, &node)?
        }
        O::ReadLink { ino } => Outcome::Bytes(view.read_link(*ino)?),
        O::Unlink { parent, name } => {
            view.unlink(*parent, &name.0)?;
            Outcome::Done
        }
        O::RemoveDirectory { parent, name } => {
            view.remove_directory(*parent, &name.0)?;
            Outcome::Done
        }
        O::Rename { parent, name, new_parent, new_name, renaming } => {
            let mode = match renaming {
                Renaming::Replace => RenameMode::Replace,
                Renaming::NoReplace => RenameMode::NoReplace,
                Renaming::Exchange => RenameMode::Exchange,
            };
            view.rename(*parent, &name.0, *new_parent, &new_name.0, mode)?;
            Outcome::Done
        }
        O::Link { ino, parent, name } => Outcome::Attributes(attributes(&view.link(*ino, *parent, &name.0)?)),
        O::Read { ino, offset, len } => {
            Outcome::Bytes(view.read(*ino, *offset, usize::try_from(*len).unwrap_or(usize::MAX))?)
        }
        O::Write { ino, offset, len, fill } => {
            Outcome::Number(view.write(*ino, *offset, &fill_bytes(*fill, *len))? as u64)
        }
        O::Append { ino, len, fill } => Outcome::Number(view.append(*ino, &fill_bytes(*fill, *len))?),
        O::Allocate { ino, allocation, offset, len } => {
            let mode = match *allocation {
                Allocation::Reserve { keep_size } => AllocateMode::Reserve { keep_size },
                Allocation::PunchHole => AllocateMode::PunchHole,
                Allocation::ZeroRange { keep_size } => AllocateMode::ZeroRange { keep_size },
            };
            view.allocate(*ino, mode, *offset, *len)?;
            Outcome::Done
        }
        O::SeekData { ino, offset } => Outcome::Number(view.seek_data(*ino, *offset)?),
        O::SeekHole { ino, offset } => Outcome::Number(view.seek_hole(*ino, *offset)?),
        O::ReadDirectory { ino } => {
            let mut entries: Vec<(Name, Ino, Kind)> = view
                .list_directory(*ino)?
                .into_iter()
                .map(|entry| (Name(entry.name), entry.ino, kind(entry.kind)))
                .collect();
            entries.sort();
            Outcome::Entries(entries)
        }
        O::GetXattr { ino, name } => Outcome::Bytes(view.get_xattr(*ino, &name.0)?),
        O::SetXattr { ino, name, len, fill, setting } => {
            let mode = match setting {
                XattrSetting::Any => XattrMode::Set,
                XattrSetting::Create => XattrMode::Create,
                XattrSetting::Replace => XattrMode::Replace,
            };
            view.set_xattr(*ino, &name.0, &fill_bytes(*fill, *len), mode)?;
            Outcome::Done
        }
        O::ListXattrs { ino } => Outcome::Names(view.list_xattrs(*ino)?.into_iter().map(Name).collect()),
        O::RemoveXattr { ino, name } => {
            view.remove_xattr(*ino, &name.0)?;
            Outcome::Done
        }
        O::CopyRange { from, from_offset, to, to_offset, len } => {
            Outcome::Number(view.copy_range(*from, *from_offset, *to, *to_offset, *len)?)
        }
    })
}

/// How to clean so many segments.
pub fn clean_options(segments_max: u64) -> CleanOptions {
    let gentle = segments_max == 2;
    CleanOptions { segments_max, live_percent_max: 99, give_back: segments_max == 1, gentle }
}

/// Runs an operation in a transaction.
pub fn run_inside(transaction: &Transaction, operation: &Operation) -> (Outcome, Option<String>) {
    run(transaction, operation)
}

/// Runs an operation outside transactions.
pub fn run_on_base(volume: &Volume, operation: &Operation) -> (Outcome, Option<String>) {
    run(&volume.base(), operation)
}

/// What could not be read while dumping.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The path whose node, entries or contents could not be read.
    pub path: Vec<u8>,
    /// Error number.
    pub errno: i32,
    /// The error in words.
    pub message: String,
    /// It was not durable, and a failure took it away.
    pub lost: bool,
}

/// Dumps a whole view. Nodes that cannot be read are left out with everything below them and listed.
pub fn dump(view: &dyn View) -> (Dump, Vec<Unreadable>) {
    let mut dumper =
        Dumper { view, entries: Vec::new(), unreadable: Vec::new(), path: Vec::new(), buffer: Vec::new() };
    dumper.node(ROOT_INO);
    (Dump { entries: dumper.entries }, dumper.unreadable)
}

struct Dumper<'a> {
    view: &'a dyn View,
    entries: Vec<DumpEntry>,
    unreadable: Vec<Unreadable>,
    path: Vec<u8>,
    buffer: Vec<u8>,
}

impl Dumper<'_> {
    fn node(&mut self, ino: Ino) {
        if self.path.len() > 16 * 1024 {
            let message = "the directories are nested without end".to_owned();
            self.unreadable.push(Unreadable {
                path: self.path[..100].to_vec(),
                errno: 0,
                message,
                lost: false,
            });
            return;
        }
        match self.entry(ino) {
            Ok(entry) => {
                let directory = entry.kind == Kind::Directory;
                self.entries.push(entry);
                if directory {
                    self.children(ino);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &txfs::Error) {
        let (errno, message) = (error.errno(), error.to_string());
        let lost = matches!(error, txfs::Error::Engine(txfs_engine::EngineError::Lost { .. }));
        self.unreadable.push(Unreadable { path: self.path.clone(), errno, message, lost });
    }

    fn entry(&mut self, ino: Ino) -> txfs::Result<DumpEntry> {
        let found = self.view.attributes(ino)?;
        let kind = kind(found.kind);
        let content_hash = match kind {
            Kind::File => {
                let len = usize::try_from(found.size).unwrap_or(usize::MAX);
                self.buffer.resize(len, 0);
                let count = self.view.read_into(ino, 0, &mut self.buffer)?;
                hash_bytes(&self.buffer[..count])
            }
            Kind::Symlink => hash_bytes(&self.view.read_link(ino)?),
            Kind::Directory | Kind::Fifo => 0,
        };
        let mut xattrs = Vec::new();
        for name in self.view.list_xattrs(ino)? {
            let value = self.view.get_xattr(ino, &name)?;
            xattrs.push((name, value));
        }
        let xattrs_hash = hash_xattrs(xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())));
        Ok(DumpEntry {
            path: self.path.clone(),
            ino,
            kind,
            mode: found.mode,
            nlink: found.nlink,
            uid: found.uid,
            gid: found.gid,
            size: if matches!(kind, Kind::File | Kind::Symlink) { found.size } else { 0 },
            content_hash,
            xattrs_hash,
        })
    }

    fn children(&mut self, ino: Ino) {
        let mut entries = match self.view.list_directory(ino) {
            Ok(entries) => entries,
            Err(error) => return self.fail(&error),
        };
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        for entry in entries {
            let len = self.path.len();
            self.path.push(b'/');
            self.path.extend_from_slice(&entry.name);
            self.node(entry.ino);
            self.path.truncate(len);
        }
    }
}
