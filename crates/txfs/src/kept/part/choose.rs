//! Which changes of a kept transaction lie at or below some paths, and whether they can do without the others.
//!
//! There are two kinds of changes: *names*, each with whatever it stands for before and after, and a *node's own* content and
//! attributes (of a new node: all of it). A name that comes is found by its path with the transaction's changes, one
//! that goes by its path before them, a node by any of its names. Link counts and the times that go with names follow
//! the names.
//!
//! What is chosen must make sense without the rest, and the rest on top of what is chosen. Since nothing else can be
//! in the way of that, these rules are all that it takes:
//! * Whatever is chosen lies in directories that are there then: those that the transaction has made come along, and a renamed one must
//!   be chosen too, or the path would be another one.
//! * A node that gets and loses names, or that is new, has all of them on one side; so it is never without a name in between.
//!   Therefore directories are moved as a whole, and no cycle can come about.
//! * A node's own change has all names of the node on its side: it would be seen through the others.
//! * With a directory that goes, all that was in it goes too.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::paths::{components_reversed, name_to_path};
use crate::records::Dirent;
use crate::transaction::locate::Locator;
use crate::transaction::overlay::{InodeState, Overlay};
use crate::transaction::rename::DEPTH_MAX;
use crate::transaction::session::Session;
use crate::types::{Ino, NodeKind, ROOT_INO};

const RENAMED: &str = "it is the other name of the same change";
const LINKED: &str = "that is another name of what it changes";
const INSIDE: &str = "it lies in that directory, which the transaction has renamed";
const EMPTIED: &str = "that was in the directory, which would not be empty";

/// A changed entry: its directory and hash.
pub(super) type Place = (Ino, u64);

/// What is chosen.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) names: BTreeSet<Place>,
    /// Nodes of which the content and the attributes are chosen, and new nodes.
    pub(super) nodes: BTreeSet<Ino>,
    /// New directories that come along.
    pub(super) along: Vec<PathBuf>,
}

/// A view of the tree, and where the paths lead in it.
struct Side<'s> {
    session: &'s mut Session,
    /// What a path leads to, and which one.
    nodes: BTreeMap<Ino, usize>,
    /// The names at the ends of the paths, whether they exist or not.
    names: BTreeMap<Place, usize>,
    /// Directories: the path at or above.
    known: BTreeMap<Ino, Option<usize>>,
}

/// A name of a node that changes.
struct Change {
    place: Place,
    name: Vec<u8>,
    came: bool,
}

/// `ours` has the transaction's changes, `base` does not.
pub(super) fn choose(
    name: &str,
    ours: &mut Session,
    base: &mut Session,
    paths: &[PathBuf],
) -> Result<Choice> {
    let mut chooser = Chooser {
        changes: changed_names(&ours.overlay),
        ours: Side::new(ours, paths)?,
        base: Side::new(base, paths)?,
        choice: Choice::default(),
        used: BTreeSet::new(),
        used_after: BTreeSet::new(),
    };
    chooser.choose_names()?;
    chooser.choose_nodes()?;
    chooser.take_along(paths)?;
    chooser.follow_names();
    chooser.check()?;
    for (index, path) in paths.iter().enumerate() {
        // What lies below two of them counts for both.
        let used = |other: &usize| *other == index || inside(&paths[*other], path);
        if !chooser.used.iter().any(used) {
            return Err(Error::NotInKept { name: name.to_owned(), path: path.clone() });
        }
    }
    chooser.choice.along.sort();
    Ok(chooser.choice)
}

/// A path from the root, by its names.
fn names(path: &Path) -> Vec<Vec<u8>> {
    let mut names = components_reversed(path.as_os_str().as_bytes());
    names.reverse();
    names
}

fn inside(path: &Path, directory: &Path) -> bool {
    names(path).starts_with(&names(directory))
}

/// The names that change, by the nodes that they stand for.
fn changed_names(overlay: &Overlay) -> BTreeMap<Ino, Vec<Change>> {
    let mut changes: BTreeMap<Ino, Vec<Change>> = BTreeMap::new();
    for (&place, state) in &overlay.names {
        let (old, new) = (&state.original.0, &state.current.0);
        let mut add = |dirent: &Dirent, came| {
            changes.entry(dirent.ino).or_default().push(Change { place, name: dirent.name.clone(), came });
        };
        old.iter().filter(|dirent| !new.contains(dirent)).for_each(|dirent| add(dirent, false));
        new.iter().filter(|dirent| !old.contains(dirent)).for_each(|dirent| add(dirent, true));
    }
    changes
}

/// More has happened to a node than that names of it, or in it, came and went.
pub(super) fn has_own_changes(state: &InodeState) -> bool {
    use crate::transaction::overlay::TimeIntent::{Keep, Set};
    let Some(original) = &state.original else { return true };
    let times = [state.atime, state.mtime, state.ctime];
    state.permissions
        || state.cut.is_some()
        || !state.xattrs.is_empty()
        || !state.data.is_empty()
        || times.contains(&Set)
        || state.record.kind != NodeKind::Directory
            && (state.mtime != Keep || state.atime != Keep || state.record.size != original.size)
}

impl<'s> Side<'s> {
    fn new(session: &'s mut Session, paths: &[PathBuf]) -> Result<Side<'s>> {
        let mut side =
            Side { session, nodes: BTreeMap::new(), names: BTreeMap::new(), known: BTreeMap::new() };
        for (index, path) in paths.iter().enumerate() {
            let names = names(path);
            let Some((last, above)) = names.split_last() else {
                side.nodes.insert(ROOT_INO, index);
                continue;
            };
            let mut at = Some(ROOT_INO);
            for name in above {
                at = side.find(at, name)?;
            }
            let Some(directory) = at else { continue };
            side.names.insert((directory, side.session.shared.hasher.hash(last)), index);
            if let Some(ino) = side.find(at, last)? {
                side.nodes.insert(ino, index);
            }
        }
        Ok(side)
    }

    fn find(&mut self, directory: Option<Ino>, name: &[u8]) -> Result<Option<Ino>> {
        let Some(directory) = directory else { return Ok(None) };
        if name == b".." {
            return Err(Error::Invalid(
                "a path that names a part of a kept transaction must not contain `..`",
            ));
        }
        match self.session.directory(directory) {
            Err(Error::NotDirectory | Error::Stale { .. }) => return Ok(None),
            other => other?,
        };
        Ok(self.session.find(directory, name)?.map(|dirent| dirent.ino))
    }

    /// The path that leads to a directory, or to one above it.
    fn above(&mut self, directory: Ino) -> Result<Option<usize>> {
        let (mut at, mut passed) = (directory, Vec::new());
        let found = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            if let Some(index) = self.nodes.get(&at) {
                break Some(*index);
            }
            if at == ROOT_INO || passed.len() > DEPTH_MAX {
                break None;
            }
            passed.push(at);
            at = self.session.inode(at)?.parent;
        };
        passed.push(at);
        self.known.extend(passed.into_iter().map(|directory| (directory, found)));
        Ok(found)
    }

    /// The path at or above a name.
    fn of_name(&mut self, place: Place) -> Result<Option<usize>> {
        match self.names.get(&place) {
            Some(index) => Ok(Some(*index)),
            None => self.above(place.0),
        }
    }

    fn path(&mut self, place: Place, name: &[u8]) -> Result<PathBuf> {
        let directory = Locator::new(usize::MAX).path(self.session, place.0)?;
        Ok(directory.unwrap_or_default().join(name_to_path(name)))
    }
}

struct Chooser<'s> {
    changes: BTreeMap<Ino, Vec<Change>>,
    ours: Side<'s>,
    base: Side<'s>,
    choice: Choice,
    /// Paths that something was chosen for.
    used: BTreeSet<usize>,
    /// Those of them at or below which something is afterwards.
    used_after: BTreeSet<usize>,
}

impl Chooser<'_> {
    fn overlay(&self) -> &Overlay {
        &self.ours.session.overlay
    }

    fn choose_names(&mut self) -> Result<()> {
        for change in self.changes.values().flatten() {
            let index = match change.came {
                true => self.ours.of_name(change.place)?,
                false => self.base.of_name(change.place)?,
            };
            let Some(index) = index else { continue };
            self.used.insert(index);
            if change.came {
                self.used_after.insert(index);
            }
            self.choice.names.insert(change.place);
        }
        Ok(())
    }

    fn choose_node(&mut self, ino: Ino, index: usize) {
        self.used.insert(index);
        self.used_after.insert(index);
        self.choice.nodes.insert(ino);
    }

    /// The changes of nodes that were there and still have a name.
    fn choose_nodes(&mut self) -> Result<()> {
        let changed = self
            .overlay()
            .inodes
            .iter()
            .filter(|(_, state)| !state.is_created() && state.record.nlink > 0 && has_own_changes(state));
        let changed: Vec<(Ino, NodeKind, u32, Ino)> = changed
            .map(|(&ino, state)| (ino, state.record.kind, state.record.nlink, state.record.parent))
            .collect();
        let mut locator = Locator::new(usize::MAX);
        let mut unknown = BTreeMap::new();
        for (ino, kind, links, parent) in changed {
            if kind == NodeKind::Directory {
                if let Some(index) = self.ours.above(ino)? {
                    self.choose_node(ino, index);
                }
                continue;
            }
            let came = self.changes.get(&ino).and_then(|all| all.iter().find(|change| change.came));
            let index = match came.map(|change| change.place) {
                _ if links > 1 => None,
                Some(place) => Some(self.ours.of_name(place)?),
                None if self.ours.nodes.contains_key(&ino) => Some(self.ours.nodes.get(&ino).copied()),
                // Where one of its names is, or was.
                None => match locator.path(self.ours.session, ino)? {
                    Some(_) => Some(self.ours.above(parent)?),
                    None => None,
                },
            };
            match index {
                Some(Some(index)) => self.choose_node(ino, index),
                Some(None) => {}
                None => {
                    unknown.insert(ino, links);
                }
            }
        }
        self.search(&unknown)
    }

    /// Looks through the tree for the names of nodes, whose changes are chosen if all of their names are.
    fn search(&mut self, unknown: &BTreeMap<Ino, u32>) -> Result<()> {
        let mut left: u64 = unknown.values().map(|links| u64::from(*links)).sum();
        let mut chosen: BTreeMap<Ino, PathBuf> = BTreeMap::new();
        let mut others: BTreeMap<Ino, PathBuf> = BTreeMap::new();
        let mut pending = vec![(ROOT_INO, PathBuf::new())];
        while let Some((directory, path)) = pending.pop().filter(|_| left > 0) {
            let mut cookie = 2;
            loop {
                let batch = self.ours.session.list_batch(directory, cookie)?;
                let Some(last) = batch.last() else { break };
                cookie = last.cookie;
                for entry in batch {
                    let below = path.join(name_to_path(&entry.name));
                    if entry.kind == NodeKind::Directory {
                        pending.push((entry.ino, below));
                    } else if unknown.contains_key(&entry.ino) {
                        left = left.saturating_sub(1);
                        let hash = self.ours.session.shared.hasher.hash(&entry.name);
                        match self.ours.of_name((directory, hash))? {
                            Some(index) => {
                                self.choose_node(entry.ino, index);
                                chosen.insert(entry.ino, below);
                            }
                            None => {
                                others.insert(entry.ino, below);
                            }
                        }
                    }
                }
            }
        }
        for (ino, path) in chosen {
            if let Some(other) = others.remove(&ino) {
                return Err(Error::NotSeparable { path, other, why: LINKED });
            }
        }
        Ok(())
    }

    /// The new directories on the way to what is chosen.
    fn take_along(&mut self, paths: &[PathBuf]) -> Result<()> {
        for index in self.used_after.clone() {
            let names = names(&paths[index]);
            let (mut at, mut path) = (ROOT_INO, PathBuf::new());
            for name in names.iter().take(names.len().saturating_sub(1)) {
                let Some(next) = self.ours.find(Some(at), name)? else { break };
                (at, path) = (next, path.join(name_to_path(name)));
                let came = self.changes.get(&at).and_then(|all| all.iter().find(|change| change.came));
                let Some(place) = came.map(|change| change.place) else { continue };
                if !self.overlay().is_created(at) {
                    if self.choice.names.contains(&place) {
                        continue;
                    }
                    return Err(Error::NotSeparable { path: paths[index].clone(), other: path, why: INSIDE });
                }
                if self.choice.names.insert(place) {
                    self.choice.along.push(path.clone());
                }
            }
        }
        Ok(())
    }

    /// New nodes, and those that go: as their names.
    fn follow_names(&mut self) {
        let Chooser { changes, choice, ours, .. } = self;
        for (&ino, state) in &ours.session.overlay.inodes {
            if (state.is_created() || state.record.nlink == 0)
                && let Some(all) = changes.get(&ino)
                && all.iter().any(|change| choice.names.contains(&change.place))
            {
                choice.nodes.insert(ino);
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        let changes = std::mem::take(&mut self.changes);
        for (&ino, all) in &changes {
            let (chosen, others): (Vec<_>, Vec<_>) =
                all.iter().partition(|change| self.choice.names.contains(&change.place));
            let (Some(chosen), Some(other)) = (chosen.first(), others.first()) else { continue };
            let moved = all.iter().any(|change| change.came) && all.iter().any(|change| !change.came);
            let own = self.overlay().inodes.get(&ino).is_some_and(has_own_changes);
            if moved || own {
                let why = if moved { RENAMED } else { LINKED };
                return Err(Error::NotSeparable { path: self.path(chosen)?, other: self.path(other)?, why });
            }
        }
        let gone = self.overlay().inodes.iter().filter(|(_, state)| {
            state.record.kind == NodeKind::Directory && state.record.nlink == 0 && !state.is_created()
        });
        let gone: Vec<Ino> = gone.map(|(&ino, _)| ino).collect();
        for ino in gone {
            let name = changes.get(&ino).and_then(|all| all.first());
            let Some(name) = name.filter(|change| self.choice.names.contains(&change.place)) else {
                continue;
            };
            let inside = self.overlay().names.range((ino, 0)..=(ino, u64::MAX));
            let mut left = inside
                .filter(|(place, state)| !state.original.0.is_empty() && !self.choice.names.contains(place));
            if let Some((&place, state)) = left.next() {
                let name_inside = state.original.0[0].name.clone();
                let path = self.path(name)?;
                return Err(Error::NotSeparable {
                    path,
                    other: self.base.path(place, &name_inside)?,
                    why: EMPTIED,
                });
            }
        }
        Ok(())
    }

    fn path(&mut self, change: &Change) -> Result<PathBuf> {
        match change.came {
            true => self.ours.path(change.place, &change.name),
            false => self.base.path(change.place, &change.name),
        }
    }
}
