//! What recorded commits have changed together, path by path, from what is kept for undoing them.
//!
//! Several commits count as one: what came and went in between is not in the list. Commits that were not recorded are not
//! looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::history::list;
use crate::paths::name_to_path;
use crate::records::InodeRecord;
use crate::records::history::UndoState;
use crate::records::undo::Entry;
use crate::transaction::changes::{Change, ChangeKind};
use crate::transaction::locate::{Locator, SCAN_ENTRIES_CHEAP};
use crate::transaction::session::{Session, load_inode};
use crate::types::{Ino, NodeKind, ROOT_INO};
use crate::undo::{NameChange, UndoData, number_of};
use crate::volume::Volume;

/// A path that is deeper than this is taken for a cycle.
const DEPTH_MAX: usize = 10_000;

/// A directory, and a name in it.
type Place = (Ino, Vec<u8>);

/// What a node went through.
#[derive(Default)]
struct Node {
    /// The record before the first commit and after the last one, where it was there before.
    records: Option<(InodeRecord, InodeRecord)>,
    content: bool,
    xattrs: bool,
    made_size: Option<u64>,
}

/// The commits' changes, taken together.
#[derive(Default)]
struct Together {
    names: BTreeMap<Place, (Entry, Entry)>,
    nodes: BTreeMap<Ino, Node>,
    /// Places of nodes, from names that came or went: the directory and the name.
    places: BTreeMap<Ino, Place>,
}

impl Volume {
    /// What the recorded commits after `after` up to `up_to` have changed, sorted by path; commits that were not recorded are
    /// left out. [`Error::NotUndoable`] when it is not known any more, or there is no such commit.
    pub fn diff(&self, after: u64, up_to: u64) -> Result<Vec<Change>> {
        let snapshot = self.engine_snapshot();
        let mut together = Together::default();
        let mut commits = list(&snapshot, up_to.checked_add(1), usize::MAX)?;
        commits.retain(|commit| commit.sequence > after);
        if commits.is_empty() {
            number_of(&snapshot, up_to)?;
        }
        for commit in commits.iter().rev() {
            let number = match commit.undo {
                UndoState::Kept { number, .. } => number,
                // Says why.
                _ => number_of(&snapshot, commit.sequence)?,
            };
            together.add(UndoData::load(&snapshot, number)?);
        }
        let mut session = Session::read_only(self.shared_state(), snapshot);
        together.changes(&mut session)
    }
}

impl Together {
    fn add(&mut self, data: UndoData) {
        for NameChange { directory, name, before, after } in data.names {
            if let Some((ino, _)) = after.or(before) {
                self.places.insert(ino, (directory, name.clone()));
            }
            self.names
                .entry((directory, name))
                .and_modify(|known| known.1 = after)
                .or_insert((before, after));
        }
        for (ino, made) in data.created {
            self.nodes.entry(ino).or_default().made_size = Some(made.size);
        }
        for (ino, change) in data.nodes {
            let node = self.nodes.entry(ino).or_default();
            let grown = change.records.as_ref().is_some_and(|(before, after)| before.size != after.size);
            node.content |= !change.cleared.is_empty() || grown && node.made_size.is_none();
            node.xattrs |= !change.xattrs.is_empty();
            if let Some((before, after)) = change.records {
                node.records = match node.records.take() {
                    Some((first, _)) => Some((first, after)),
                    None => Some((before, after)),
                };
            }
        }
    }

    fn changes(&self, session: &mut Session) -> Result<Vec<Change>> {
        let mut locator = Locator::new(SCAN_ENTRIES_CHEAP);
        let mut gone: BTreeMap<Ino, Vec<(&Place, NodeKind)>> = BTreeMap::new();
        let mut came = Vec::new();
        for (place, (before, after)) in self.names.iter().filter(|(_, (before, after))| before != after) {
            if let Some((ino, kind)) = before {
                gone.entry(*ino).or_default().push((place, *kind));
            }
            if let Some((ino, kind)) = after {
                came.push((place, *ino, *kind));
            }
        }
        let mut changes = Vec::new();
        let mut named = BTreeSet::new();
        for (place, ino, node) in came {
            named.insert(ino);
            let path = self.path_below(session, &mut locator, place)?;
            let kind = match gone.get_mut(&ino).and_then(Vec::pop) {
                Some((from, _)) => {
                    let from = self.path_below(session, &mut locator, from)?;
                    ChangeKind::Renamed {
                        from,
                        modified: self.nodes.get(&ino).is_some_and(|node| node.content),
                    }
                }
                None => ChangeKind::Created,
            };
            changes.push(self.change(session, path, kind, ino, node)?);
        }
        for (ino, places) in gone {
            for (place, node) in places {
                named.insert(ino);
                let path = self.path_below(session, &mut locator, place)?;
                changes.push(self.change(session, path, ChangeKind::Deleted, ino, node)?);
            }
        }
        for (&ino, node) in self.nodes.iter().filter(|(ino, _)| !named.contains(ino)) {
            let Some((before, after)) = &node.records else { continue };
            let permissions = |record: &InodeRecord| (record.mode, record.uid, record.gid);
            let kind = match () {
                () if node.content && before.kind == NodeKind::File => ChangeKind::Modified,
                () if permissions(before) != permissions(after) || node.xattrs => ChangeKind::Attributes,
                () if before.kind == NodeKind::File && before.mtime != after.mtime => ChangeKind::Attributes,
                () => continue,
            };
            let path = self.path(session, &mut locator, ino, 0)?;
            changes.push(self.change(session, path, kind, ino, before.kind)?);
        }
        changes.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(changes)
    }

    fn change(
        &self,
        session: &Session,
        path: PathBuf,
        kind: ChangeKind,
        ino: Ino,
        node: NodeKind,
    ) -> Result<Change> {
        let now = load_inode(&session.snapshot, ino)?.map(|record| record.size);
        let known = self.nodes.get(&ino);
        let records = known.and_then(|node| node.records.as_ref());
        let made = known.and_then(|node| node.made_size);
        let old_size = match kind {
            ChangeKind::Created => None,
            _ => records.map(|(before, _)| before.size).or(now),
        };
        let new_size = match kind {
            ChangeKind::Deleted => None,
            _ => records.map(|(_, after)| after.size).or(made).or(now),
        };
        Ok(Change { path, kind, ino, node, old_size, new_size })
    }

    fn path_below(
        &self,
        session: &mut Session,
        locator: &mut Locator,
        place: &(Ino, Vec<u8>),
    ) -> Result<PathBuf> {
        Ok(self.path(session, locator, place.0, 0)?.join(name_to_path(&place.1)))
    }

    /// Where the commits left the node; or where it is now; or where it was.
    fn path(&self, session: &mut Session, locator: &mut Locator, ino: Ino, depth: usize) -> Result<PathBuf> {
        if ino == ROOT_INO {
            return Ok(PathBuf::new());
        }
        if let Some((directory, name)) = self.places.get(&ino).filter(|_| depth < DEPTH_MAX) {
            return Ok(self.path(session, locator, *directory, depth + 1)?.join(name_to_path(name)));
        }
        match locator.path(session, ino) {
            Ok(Some(path)) => Ok(path),
            Ok(None) | Err(Error::Stale { .. }) => Ok(PathBuf::from(format!("<inode {ino}>"))),
            Err(error) => Err(error),
        }
    }
}
