//! Committing a part of a kept transaction, on plain trees: what differs between the tree that it began with and the
//! one that it has made of that, at or below some paths.
//!
//! The volume decides whether a part can do without the rest; the model knows what the part is, and finds out when
//! that makes no tree.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Body, Node, Tree};
use super::undo::redo;
use crate::operation::{Ino, Kind, Name, ROOT_INO};

/// A name in a directory.
type Place = (Ino, Name);

/// A part of the difference between two trees.
pub struct Part {
    /// The first tree with the part.
    pub tree: Tree,
    /// There is a difference.
    pub differs: bool,
}

/// The paths of all names in a tree, and what they stand for.
fn places(tree: &Tree) -> BTreeMap<Place, (Vec<u8>, Ino)> {
    let mut places = BTreeMap::new();
    let mut pending = vec![(ROOT_INO, Vec::new())];
    while let Some((directory, path)) = pending.pop() {
        let Ok(entries) = tree.entries(directory) else { continue };
        for (name, ino) in entries {
            let mut below: Vec<u8> = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&name.0);
            if tree.kind(*ino) == Some(Kind::Directory) {
                pending.push((*ino, below.clone()));
            }
            places.insert((directory, name.clone()), (below, *ino));
        }
    }
    places
}

fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// True when more than names differ.
fn has_changed(old: &Node, new: &Node) -> bool {
    let owner = |node: &Node| (node.mode, node.uid, node.gid);
    let content = match (&old.body, &new.body) {
        (Body::File(old), Body::File(new)) => old != new,
        _ => false,
    };
    owner(old) != owner(new) || old.xattrs != new.xattrs || content
}

/// All paths at which two trees differ, those that go among them.
pub fn changed_paths((base, view): &Sight) -> BTreeSet<Vec<u8>> {
    let (old, new) = (places(base), places(view));
    let mut paths = BTreeSet::new();
    for (place, (path, ino)) in &new {
        let changed = match (base.node(*ino), view.node(*ino)) {
            (Some(old), Some(new)) => has_changed(old, new),
            _ => true,
        };
        if changed || old.get(place).map(|(_, ino)| ino) != Some(ino) {
            paths.insert(path.clone());
        }
    }
    paths.extend(
        old.iter()
            .filter(|(place, (_, ino))| new.get(*place).map(|(_, ino)| ino) != Some(ino))
            .map(|(_, (path, _))| path.clone()),
    );
    paths
}

/// A tree and the same with a transaction's changes.
pub type Sight = (Tree, Tree);

/// The part at or below the paths of what differs between `base` and `view`; the paths are those in `sight`.
pub fn part(sight: &Sight, base: &Tree, view: &Tree, paths: &[Vec<u8>]) -> Part {
    let (old, new) = (places(&sight.0), places(&sight.1));
    let is_in = |path: &[u8]| paths.iter().any(|above| is_at_or_below(path, above));
    let linked = |tree: &Tree, ino: Ino| tree.node(ino).is_some_and(|node| node.nlink > 0);
    let mut chosen: BTreeSet<&Place> = BTreeSet::new();
    // What is there afterwards.
    let mut reached: Vec<&[u8]> = Vec::new();
    for (place, (path, ino)) in &old {
        if is_in(path) && new.get(place).map(|(_, ino)| ino) != Some(ino) {
            chosen.insert(place);
        }
    }
    for (place, (path, ino)) in &new {
        if is_in(path) && old.get(place).map(|(_, ino)| ino) != Some(ino) {
            chosen.insert(place);
            reached.push(path);
        }
    }
    let mut nodes: BTreeSet<Ino> = BTreeSet::new();
    let root = (Vec::new(), ROOT_INO);
    for (path, ino) in new.values().chain([&root]).filter(|(path, _)| is_in(path)) {
        if let (Some(old), Some(new)) = (sight.0.node(*ino), sight.1.node(*ino))
            && linked(&sight.0, *ino)
            && has_changed(old, new)
        {
            nodes.insert(*ino);
            reached.push(path);
        }
    }
    let differs = !chosen.is_empty() || !nodes.is_empty();
    for (place, (path, ino)) in &new {
        let is_new = view.kind(*ino) == Some(Kind::Directory) && !linked(base, *ino);
        if is_new && reached.iter().any(|below| is_at_or_below(below, path)) {
            chosen.insert(place);
        }
    }
    let mut tree = base.clone();
    for ino in chosen.iter().filter_map(|place| new.get(*place)).map(|(_, ino)| *ino) {
        if let Some(node) = view.node(ino).filter(|_| !linked(base, ino)) {
            let mut node = node.clone();
            if let Body::Directory { entries, .. } = &mut node.body {
                entries.clear();
            }
            tree.put_node(ino, node);
        }
    }
    for place in chosen {
        let (directory, name) = place;
        match new.get(place) {
            Some((_, ino)) => {
                if tree.entries(*directory).is_ok() {
                    tree.entries_mut(*directory).insert(name.clone(), *ino);
                }
                tree.put_parent(*ino, *directory);
            }
            None if tree.entries(*directory).is_ok() => drop(tree.entries_mut(*directory).remove(name)),
            None => {}
        }
    }
    for ino in nodes {
        if let (Some(new), Some(node)) = (view.node(ino), tree.node_mut(ino)) {
            (node.mode, node.uid, node.gid) = (new.mode, new.uid, new.gid);
            node.xattrs = new.xattrs.clone();
            if let Body::File(bytes) = &new.body {
                node.body = Body::File(bytes.clone());
            }
        }
    }
    tree.count_names();
    Part { tree, differs }
}

/// What there is to see of a transaction: where nobody has changed what it knows, all else is as it is now. `None`
/// where that takes to know what exactly it has read, or where others have moved directories.
pub fn sight(base: &Tree, view: &Tree, present: &Tree, conflicted: bool) -> Option<Sight> {
    if places(base) == places(present) {
        return Some((base.clone(), view.clone()));
    }
    let is_moved = |ino: Ino| {
        present.node(ino).is_some()
            && base.node(ino).is_some()
            && base.parent_of(ino) != present.parent_of(ino)
    };
    if conflicted || base.nodes().any(|(ino, _)| is_moved(ino)) {
        return None;
    }
    let changed = redo(base, view, present).ok()?;
    Some((present.clone(), changed))
}

/// True when what has become of the sizes of files says what becomes of them with the difference between two trees.
/// Files grow together, so without the operations nobody can tell that of those that have got another size in both.
pub fn is_clear(base: &Tree, view: &Tree, present: &Tree) -> bool {
    view.nodes().all(|(ino, new)| match (base.node(ino), present.node(ino)) {
        (Some(old), Some(now)) => {
            old.size() == new.size() && old.size() <= now.size() || old.size() == now.size()
        }
        _ => true,
    })
}
