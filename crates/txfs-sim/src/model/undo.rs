//! Undoing a commit, on plain trees: what differs between the states before and after it is put back, in the present state.
//!
//! The differences say what must be in the way: something that the commit changed and that now is neither as it left it. The
//! volume may find more in the way, since it compares what was written and not what it was; then what was committed since must
//! have touched the same things.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::footprint::{Footprint, Group, Touch};
use super::tree::{Body, Node, Tree};
use crate::operation::{Ino, Kind, Name, PAGE_BYTES, ROOT_INO};

/// The present state without what a commit changed, or what must be in the way.
pub fn undo(before: &Tree, after: &Tree, present: &Tree) -> Result<Tree, String> {
    put(before, after, present, true)
}

/// The present state with what has changed between two others, or what must be in the way. What goes may have other
/// content by then.
pub fn redo(before: &Tree, after: &Tree, present: &Tree) -> Result<Tree, String> {
    put(after, before, present, false)
}

/// Makes of what is as in `after` what is in `before`. Unless `exact`, nodes that go may have changed.
fn put(before: &Tree, after: &Tree, present: &Tree, exact: bool) -> Result<Tree, String> {
    let mut tree = present.clone();
    let inos: BTreeSet<Ino> = before.nodes().chain(after.nodes()).map(|(ino, _)| ino).collect();
    let linked = |tree: &Tree, ino: Ino| tree.node(ino).is_some_and(|node| node.nlink > 0);
    // What the commit removed is there again, if only somebody who has it open kept it.
    for &ino in inos.iter().filter(|ino| linked(before, **ino) && !linked(after, **ino)) {
        match (after.node(ino), present.node(ino)) {
            (_, Some(node)) if node.nlink > 0 => {}
            (Some(left), Some(found)) if exact && !same(left, found) => {
                return Err(format!("inode {ino}, which it removed, was changed since"));
            }
            _ => {
                let Some(node) = before.node(ino) else { continue };
                let mut node = node.clone();
                if let Body::Directory { entries, .. } = &mut node.body {
                    entries.clear();
                }
                tree.put_node(ino, node);
            }
        }
    }
    for &ino in &inos {
        let (Some(old), Some(new)) = (before.node(ino), after.node(ino)) else { continue };
        if old.nlink > 0 && new.nlink > 0 {
            put_node_back(ino, old, new, &mut tree)?;
        }
    }
    for &ino in &inos {
        put_names_back(ino, before, after, present, &mut tree)?;
    }
    tree.count_names();
    // What the commit made goes, unless it has got another name.
    for &ino in inos.iter().filter(|ino| !linked(before, **ino) && linked(after, **ino)) {
        let (Some(left), Some(found)) = (after.node(ino), tree.node(ino)) else { continue };
        if found.nlink > 0 {
            continue;
        }
        if let Body::Directory { entries, .. } = &found.body
            && !entries.is_empty()
        {
            return Err(format!("directory {ino}, which it made, is not empty"));
        }
        if exact && !same(left, found) {
            return Err(format!("inode {ino}, which it made, was changed since"));
        }
    }
    check_names(&tree)?;
    Ok(tree)
}

/// Equal but for names, and for what a directory holds.
fn same(left: &Node, right: &Node) -> bool {
    let owner = |node: &Node| (node.mode, node.uid, node.gid);
    let body = match (&left.body, &right.body) {
        (Body::File(left), Body::File(right)) => left == right,
        (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
    };
    body && owner(left) == owner(right) && left.xattrs == right.xattrs
}

/// Attributes and content of a node that was there before and after.
fn put_node_back(ino: Ino, old: &Node, new: &Node, tree: &mut Tree) -> Result<(), String> {
    let owner = |node: &Node| (node.mode, node.uid, node.gid);
    let names: BTreeSet<&Name> = old.xattrs.keys().chain(new.xattrs.keys()).collect();
    let xattrs: Vec<&Name> =
        names.into_iter().filter(|name| old.xattrs.get(name) != new.xattrs.get(name)).collect();
    let content = match (&old.body, &new.body) {
        (Body::File(old), Body::File(new)) if old != new => Some((old, new)),
        _ => None,
    };
    if owner(old) == owner(new) && xattrs.is_empty() && content.is_none() {
        return Ok(());
    }
    let Some(node) = tree.node_mut(ino).filter(|node| node.nlink > 0) else {
        return Err(format!("inode {ino}, which it changed, is gone"));
    };
    if owner(old) != owner(new) {
        if owner(node) != owner(new) {
            return Err(format!("mode or owner of inode {ino} was changed since"));
        }
        (node.mode, node.uid, node.gid) = owner(old);
    }
    for name in xattrs {
        if node.xattrs.get(name) != new.xattrs.get(name) {
            return Err(format!("attribute {name:?} of inode {ino} was changed since"));
        }
        match old.xattrs.get(name) {
            Some(value) => node.xattrs.insert(name.clone(), value.clone()),
            None => node.xattrs.remove(name),
        };
    }
    let (Some((old, new)), Body::File(bytes)) = (content, &mut node.body) else { return Ok(()) };
    let bytes = Arc::make_mut(bytes);
    if old.len() != new.len() {
        if bytes.len() != new.len() {
            return Err(format!("the size of inode {ino} was changed since"));
        }
        bytes.resize(old.len(), 0);
    }
    let present = bytes.clone();
    let pages = old.len().max(new.len()).div_ceil(PAGE_BYTES as usize);
    for page in 0..pages {
        let (was, left) = (page_of(old, page), page_of(new, page));
        if was == left {
            continue;
        }
        // What the present size has cut off is zeros on both sides.
        let mut left = left;
        let start = page * PAGE_BYTES as usize;
        let cut = bytes.len().saturating_sub(start).min(left.len());
        left[cut..].fill(0);
        if page_of(&present, page) != left {
            return Err(format!("page {page} of inode {ino} was changed since"));
        }
        let end = bytes.len().min(start + PAGE_BYTES as usize);
        if start < end {
            bytes[start..end].copy_from_slice(&was[..end - start]);
        }
    }
    Ok(())
}

/// A page, with zeros where the file has ended.
fn page_of(bytes: &[u8], page: usize) -> Vec<u8> {
    let start = (page * PAGE_BYTES as usize).min(bytes.len());
    let end = (start + PAGE_BYTES as usize).min(bytes.len());
    let mut content = bytes[start..end].to_vec();
    content.resize(PAGE_BYTES as usize, 0);
    content
}

fn put_names_back(
    directory: Ino,
    before: &Tree,
    after: &Tree,
    present: &Tree,
    tree: &mut Tree,
) -> Result<(), String> {
    let entries = |tree: &Tree| tree.entries(directory).cloned().unwrap_or_default();
    let (old, new, found) = (entries(before), entries(after), entries(present));
    let names: BTreeSet<&Name> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (was, left) = (old.get(name), new.get(name));
        if was == left {
            continue;
        }
        if found.get(name) != left {
            return Err(format!("the name {name:?} in directory {directory} was changed since"));
        }
        if tree.node(directory).is_none() {
            return Err(format!("directory {directory} is gone"));
        }
        let entries = tree.entries_mut(directory);
        match was {
            Some(ino) => {
                entries.insert(name.clone(), *ino);
                if tree.kind(*ino) == Some(Kind::Directory) {
                    tree.put_parent(*ino, directory);
                }
            }
            None => {
                entries.remove(name);
            }
        }
    }
    Ok(())
}

/// Every name stands for something, lies in a directory that has a name, and there is no cycle.
fn check_names(tree: &Tree) -> Result<(), String> {
    let mut met = BTreeSet::from([ROOT_INO]);
    let mut pending = vec![ROOT_INO];
    while let Some(directory) = pending.pop() {
        for ino in tree.entries(directory).map_err(|_| "a directory is none".to_owned())?.values() {
            if tree.node(*ino).is_none() {
                return Err(format!("inode {ino} is gone"));
            }
            if tree.kind(*ino) == Some(Kind::Directory) {
                if !met.insert(*ino) {
                    return Err(format!("directory {ino} would have two names"));
                }
                pending.push(*ino);
            }
        }
    }
    for (ino, node) in tree.nodes() {
        let Body::Directory { entries, .. } = &node.body else { continue };
        if !met.contains(&ino) && (node.nlink > 0 || !entries.is_empty()) {
            return Err(format!("no path leads to directory {ino}"));
        }
    }
    Ok(())
}

/// What undoing a commit may touch, at most.
pub fn footprint(of: &Footprint) -> Footprint {
    let mut touched = of.clone();
    touched.writes.extend(of.reads.iter().cloned());
    let ino = |touch: &Touch| match touch {
        Touch::Pages { ino, .. } | Touch::Attribute { ino, .. } => *ino,
        Touch::Name { parent, .. } | Touch::AllNames { parent } => *parent,
    };
    let inos: BTreeSet<Ino> = touched.writes.iter().map(ino).collect();
    for ino in inos {
        touched.writes.push(Touch::Pages { ino, first: 0, last: u64::MAX });
        let groups = [Group::Exists, Group::Permissions, Group::Size, Group::Parent, Group::Links];
        touched.writes.extend(groups.into_iter().map(|group| Touch::Attribute { ino, group }));
    }
    touched
}

/// True when one of the two has touched what the other one has changed.
pub fn meet(one: &Footprint, other: &Footprint) -> bool {
    one.may_conflict_with(other) || other.may_conflict_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Operation, Renaming};

    fn name(text: &str) -> Name {
        Name::from(text)
    }

    #[test]
    fn what_a_commit_did_is_undone_and_nothing_else() {
        let mut before = Tree::new();
        before.run(&Operation::MakeFile { parent: 1, name: name("a"), mode: 0o644 }, Some(2));
        before.run(&Operation::Write { ino: 2, offset: 0, len: 3 * PAGE_BYTES, fill: 1 }, None);
        let mut after = before.clone();
        after.run(&Operation::Write { ino: 2, offset: 10, len: 10, fill: 2 }, None);
        after.run(&Operation::MakeDirectory { parent: 1, name: name("d"), mode: 0o755 }, Some(3));
        let rename = Operation::Rename {
            parent: 1,
            name: name("a"),
            new_parent: 3,
            new_name: name("b"),
            renaming: Renaming::Replace,
        };
        after.run(&rename, None);
        assert_eq!(undo(&before, &after, &after).expect("undone").dump().digest(), before.dump().digest());
        let mut present = after.clone();
        present.run(&Operation::Write { ino: 2, offset: PAGE_BYTES, len: 10, fill: 3 }, None);
        let undone = undo(&before, &after, &present).expect("undone");
        let mut expected = before.clone();
        expected.run(&Operation::Write { ino: 2, offset: PAGE_BYTES, len: 10, fill: 3 }, None);
        assert_eq!(undone.dump().digest(), expected.dump().digest());
        present.run(&Operation::MakeFile { parent: 3, name: name("new"), mode: 0o644 }, Some(4));
        assert!(undo(&before, &after, &present).is_err());
    }

    #[test]
    fn what_was_removed_comes_back() {
        let mut before = Tree::new();
        before.run(&Operation::MakeDirectory { parent: 1, name: name("d"), mode: 0o755 }, Some(2));
        before.run(&Operation::MakeFile { parent: 2, name: name("f"), mode: 0o644 }, Some(3));
        let mut after = before.clone();
        after.run(&Operation::Unlink { parent: 2, name: name("f") }, None);
        after.run(&Operation::RemoveDirectory { parent: 1, name: name("d") }, None);
        after.reclaim(&BTreeSet::new());
        assert_eq!(undo(&before, &after, &after).expect("undone").dump().digest(), before.dump().digest());
        let mut present = after.clone();
        present.run(&Operation::MakeFile { parent: 1, name: name("d"), mode: 0o644 }, Some(4));
        assert!(undo(&before, &after, &present).is_err());
    }
}
