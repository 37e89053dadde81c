//! What an operation touched, in the units in which conflicts are allowed: pages, names, attribute groups.
//!
//! The volume decides which transactions conflict; the model only judges whether the verdict was fair: a refused
//! transaction must share a unit with a commit since its snapshot, and one of the two must have written it.

use super::tree::Tree;
use crate::operation::{Allocation, Ino, Kind, Name, Operation, Outcome, PAGE_BYTES, Renaming};

/// One of the attribute groups of an inode that change together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// Whether the inode is there at all.
    Exists,
    /// Mode and owner.
    Permissions,
    /// The size as a truncation sets it.
    Size,
    /// Where a directory lies.
    Parent,
    /// That an inode keeps at least one name.
    Links,
    /// That a name of an inode that is no directory went.
    LostName,
    /// One extended attribute; `None` is the list of them.
    Xattr(Option<Name>),
}

/// One unit, or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what they are")]
pub enum Touch {
    Pages { ino: Ino, first: u64, last: u64 },
    Name { parent: Ino, name: Name },
    AllNames { parent: Ino },
    Attribute { ino: Ino, group: Group },
}

impl Touch {
    /// True when both name a common unit.
    pub fn overlaps(&self, other: &Touch) -> bool {
        use Touch as T;
        match (self, other) {
            (T::Pages { ino: a, first, last }, T::Pages { ino: b, first: other_first, last: other_last }) => {
                a == b && first <= other_last && other_first <= last
            }
            (T::Name { parent: a, name }, T::Name { parent: b, name: other }) => a == b && name == other,
            (T::AllNames { parent: a }, T::AllNames { parent: b } | T::Name { parent: b, .. })
            | (T::Name { parent: a, .. }, T::AllNames { parent: b }) => a == b,
            (
                T::Attribute { ino: a, group: Group::Xattr(name) },
                T::Attribute { ino: b, group: Group::Xattr(other) },
            ) => a == b && (name == other || name.is_none() || other.is_none()),
            (T::Attribute { ino: a, group }, T::Attribute { ino: b, group: other }) => {
                a == b && group == other
            }
            _ => false,
        }
    }
}

/// What a transaction read and wrote.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Units whose old state mattered.
    pub reads: Vec<Touch>,
    /// Units that changed.
    pub writes: Vec<Touch>,
}

fn pages(ino: Ino, offset: u64, len: u64) -> Touch {
    Touch::Pages { ino, first: offset / PAGE_BYTES, last: (offset + len.max(1) - 1) / PAGE_BYTES }
}

fn attribute(ino: Ino, group: Group) -> Touch {
    Touch::Attribute { ino, group }
}

impl Footprint {
    /// Adds what another operation touched.
    pub fn add(&mut self, other: Footprint) {
        for (mine, theirs) in [(&mut self.reads, other.reads), (&mut self.writes, other.writes)] {
            for touch in theirs {
                if !mine.contains(&touch) {
                    mine.push(touch);
                }
            }
        }
    }

    /// True when this transaction may be refused because `committed` came after its snapshot.
    pub fn may_conflict_with(&self, committed: &Footprint) -> bool {
        let mine = || self.reads.iter().chain(&self.writes);
        committed.writes.iter().any(|written| mine().any(|touch| touch.overlaps(written)))
    }

    fn reads_inode(&mut self, ino: Ino) {
        self.reads.push(attribute(ino, Group::Exists));
    }

    fn name(&mut self, parent: Ino, name: &Name, changes: bool) {
        self.reads_inode(parent);
        let touch = Touch::Name { parent, name: name.clone() };
        if changes { self.writes.push(touch) } else { self.reads.push(touch) }
    }

    /// An inode lost a name: the last one takes the inode with it, and whatever is in it.
    fn drops_name(&mut self, before: &Tree, ino: Ino) {
        let Some(node) = before.node(ino) else { return };
        let directory = node.kind() == Kind::Directory;
        self.reads_inode(ino);
        if !directory {
            self.writes.push(attribute(ino, Group::LostName));
        }
        if directory || node.nlink <= 1 {
            self.writes.push(attribute(ino, Group::Exists));
            self.reads.push(attribute(ino, Group::Links));
            self.writes.push(Touch::Pages { ino, first: 0, last: u64::MAX });
        }
        if directory {
            self.reads.push(Touch::AllNames { parent: ino });
            self.writes.push(attribute(ino, Group::Parent));
        }
    }

    fn moves(&mut self, before: &Tree, ino: Ino, new_parent: Ino) {
        self.reads_inode(ino);
        if before.kind(ino) != Some(Kind::Directory) {
            return;
        }
        self.writes.push(attribute(ino, Group::Parent));
        // Whether the new place lies below the moved directory depends on every directory above it.
        let mut above = new_parent;
        while let Some(parent) = before.parent_of(above) {
            self.reads.push(attribute(above, Group::Parent));
            if parent == above {
                break;
            }
            above = parent;
        }
    }

    /// What `operation` touches when it runs on `before` and ends with `outcome`.
    pub fn of(operation: &Operation, before: &Tree, outcome: &Outcome) -> Footprint {
        let mut touched = Footprint::default();
        touched.record(operation, before, outcome);
        if outcome.errno().is_some() {
            // A failed operation changed nothing, but its answer depended on what it looked at.
            let Footprint { reads, writes } = &mut touched;
            reads.append(writes);
        }
        touched
    }

    fn record(&mut self, operation: &Operation, before: &Tree, outcome: &Outcome) {
        use Operation as O;
        let child = |parent: Ino, name: &Name| before.child(parent, name).ok();
        match operation {
            O::Lookup { parent, name } => {
                self.name(*parent, name, false);
                if let Some(ino) = child(*parent, name) {
                    self.stats(ino);
                }
            }
            O::Attributes { ino } => self.stats(*ino),
            O::SetMode { ino, .. } | O::SetOwner { ino, .. } => {
                self.stats(*ino);
                self.writes.push(attribute(*ino, Group::Permissions));
            }
            O::MakeFile { parent, name, .. }
            | O::MakeDirectory { parent, name, .. }
            | O::MakeSymlink { parent, name, .. }
            | O::MakeFifo { parent, name, .. } => {
                self.name(*parent, name, true);
                if let Some(ino) = outcome.ino() {
                    self.writes.push(attribute(ino, Group::Exists));
                }
            }
            O::ReadLink { ino } => self.reads_inode(*ino),
            O::Unlink { parent, name } | O::RemoveDirectory { parent, name } => {
                self.name(*parent, name, true);
                if let Some(ino) = child(*parent, name) {
                    self.drops_name(before, ino);
                }
            }
            O::Rename { parent, name, new_parent, new_name, renaming } => {
                self.name(*parent, name, true);
                self.name(*new_parent, new_name, true);
                if let Some(ino) = child(*parent, name) {
                    self.moves(before, ino, *new_parent);
                }
                if let Some(ino) = child(*new_parent, new_name) {
                    if *renaming == Renaming::Exchange {
                        self.moves(before, ino, *parent);
                    } else {
                        self.drops_name(before, ino);
                    }
                }
            }
            O::Link { ino, parent, name } => {
                self.stats(*ino);
                self.writes.push(attribute(*ino, Group::Links));
                self.name(*parent, name, true);
            }
            O::ReadDirectory { ino } => {
                self.reads_inode(*ino);
                self.reads.push(Touch::AllNames { parent: *ino });
            }
            O::GetXattr { ino, name } => {
                self.reads_inode(*ino);
                self.reads.push(attribute(*ino, Group::Xattr(Some(name.clone()))));
            }
            O::SetXattr { ino, name, .. } | O::RemoveXattr { ino, name } => {
                self.reads_inode(*ino);
                self.writes.push(attribute(*ino, Group::Xattr(Some(name.clone()))));
            }
            O::ListXattrs { ino } => {
                self.reads_inode(*ino);
                self.reads.push(attribute(*ino, Group::Xattr(None)));
            }
            _ => self.record_content(operation, before, outcome),
        }
    }

    fn stats(&mut self, ino: Ino) {
        self.reads_inode(ino);
        self.reads.push(attribute(ino, Group::Permissions));
        self.reads.push(attribute(ino, Group::Size));
    }

    fn writes_range(&mut self, before: &Tree, ino: Ino, offset: u64, len: u64) {
        self.reads_inode(ino);
        if len == 0 {
            return;
        }
        self.writes.push(pages(ino, offset, len));
        let size = before.node(ino).map_or(0, |node| node.size());
        if offset + len > size {
            // Whoever gets less than asked for has learned where the file ends.
            self.reads.push(attribute(ino, Group::Size));
            self.reads.push(Touch::Pages { ino, first: offset / PAGE_BYTES, last: u64::MAX });
        }
    }

    fn reads_range(&mut self, before: &Tree, ino: Ino, offset: u64, len: u64) {
        self.reads_inode(ino);
        self.reads.push(pages(ino, offset, len));
        let size = before.node(ino).map_or(0, |node| node.size());
        if offset + len > size {
            // Whoever gets less than asked for has learned where the file ends.
            self.reads.push(attribute(ino, Group::Size));
            self.reads.push(Touch::Pages { ino, first: offset / PAGE_BYTES, last: u64::MAX });
        }
    }

    fn record_content(&mut self, operation: &Operation, before: &Tree, outcome: &Outcome) {
        use Operation as O;
        let size_of = |ino: Ino| before.node(ino).map_or(0, |node| node.size());
        match operation {
            O::Truncate { ino, size } => {
                self.stats(*ino);
                self.writes.push(attribute(*ino, Group::Size));
                let first = size_of(*ino).min(*size) / PAGE_BYTES;
                self.writes.push(Touch::Pages { ino: *ino, first, last: u64::MAX });
            }
            O::Read { ino, offset, len } => self.reads_range(before, *ino, *offset, *len),
            O::Write { ino, offset, len, .. } => self.writes_range(before, *ino, *offset, *len),
            O::Append { ino, len, .. } => {
                let offset = size_of(*ino);
                // Where the end is depends on whoever writes behind it.
                self.reads.push(attribute(*ino, Group::Size));
                self.reads.push(Touch::Pages { ino: *ino, first: offset / PAGE_BYTES, last: u64::MAX });
                self.writes_range(before, *ino, offset, *len);
            }
            O::Allocate { ino, allocation, offset, len } => {
                let grows = matches!(
                    allocation,
                    Allocation::Reserve { keep_size: false } | Allocation::ZeroRange { keep_size: false }
                );
                self.stats(*ino);
                self.writes_range(before, *ino, *offset, *len);
                if grows && offset + len > size_of(*ino) {
                    self.writes.push(attribute(*ino, Group::Size));
                }
            }
            O::SeekData { ino, offset } | O::SeekHole { ino, offset } => {
                self.stats(*ino);
                self.reads.push(Touch::Pages { ino: *ino, first: offset / PAGE_BYTES, last: u64::MAX });
            }
            O::CopyRange { from, from_offset, to, to_offset, len } => {
                self.reads_range(before, *from, *from_offset, *len);
                let copied = if let Outcome::Number(copied) = outcome { *copied } else { *len };
                self.writes_range(before, *to, *to_offset, copied);
            }
            _ => unreachable!("record() takes all others"),
        }
    }
}
