//! The first committer wins: what two transactions both changed, only one of them may commit.
//!
//! This holds for snapshot isolation as well, which validates no reads; so the footprints that explain a refusal do not
//! help here, and the states do: something that differs from a transaction's snapshot both in the transaction and in what
//! was committed meanwhile would be overwritten, and one of the updates lost.

use super::tree::{Body, Node, Tree};
use crate::operation::PAGE_BYTES;

/// What `mine` and `theirs` both changed since `snapshot`; a committed `mine` would undo theirs.
pub fn changed_by_both(snapshot: &Tree, mine: &Tree, theirs: &Tree) -> Option<String> {
    for (ino, old) in snapshot.nodes() {
        let (Some(mine), Some(theirs)) = (mine.node(ino), theirs.node(ino)) else { continue };
        if [old, mine, theirs].iter().all(|node| node.nlink > 0)
            && let Some(what) = changed_in_node(old, mine, theirs)
        {
            return Some(format!("{what} of inode {ino}"));
        }
    }
    None
}

fn changed_in_node(old: &Node, mine: &Node, theirs: &Node) -> Option<String> {
    if old.mode != mine.mode && old.mode != theirs.mode {
        return Some("the mode".to_owned());
    }
    let owner = |node: &Node| (node.uid, node.gid);
    if owner(old) != owner(mine) && owner(old) != owner(theirs) {
        return Some("the owner".to_owned());
    }
    let xattrs = old.xattrs.keys().chain(mine.xattrs.keys());
    for name in xattrs {
        let value = old.xattrs.get(name);
        if value != mine.xattrs.get(name) && value != theirs.xattrs.get(name) {
            return Some(format!("the attribute {name:?}"));
        }
    }
    match (&old.body, &mine.body, &theirs.body) {
        (Body::File(old), Body::File(mine), Body::File(theirs)) => {
            let page = |bytes: &[u8], index: usize| -> Option<Vec<u8>> {
                let start = index * PAGE_BYTES as usize;
                Some(bytes.get(start..start + PAGE_BYTES as usize)?.to_vec())
            };
            // Only pages that are whole in all three: growing a file is no change of what it held.
            let pages = old.len().min(mine.len()).min(theirs.len()) / PAGE_BYTES as usize;
            let both = (0..pages).find(|index| {
                let before = page(old, *index);
                before != page(mine, *index) && before != page(theirs, *index)
            });
            both.map(|index| format!("page {index}"))
        }
        (
            Body::Directory { entries: old, .. },
            Body::Directory { entries: mine, .. },
            Body::Directory { entries: theirs, .. },
        ) => {
            let mut names = old.keys().chain(mine.keys());
            let both = names.find(|name| {
                let before = old.get(*name);
                before != mine.get(*name) && before != theirs.get(*name)
            });
            both.map(|name| format!("the name {name:?}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Name, Operation, ROOT_INO};

    #[test]
    fn only_what_both_changed_counts() {
        let mut snapshot = Tree::new();
        let file = Operation::MakeFile { parent: ROOT_INO, name: Name::from("a"), mode: 0o644 };
        snapshot.run(&file, Some(2));
        snapshot.run(&Operation::Write { ino: 2, offset: 0, len: 3 * PAGE_BYTES, fill: 1 }, None);
        let write = |page: u64, fill: u64| {
            let mut tree = snapshot.clone();
            tree.run(&Operation::Write { ino: 2, offset: page * PAGE_BYTES + 5, len: 10, fill }, None);
            tree
        };
        assert_eq!(changed_by_both(&snapshot, &write(1, 2), &write(2, 3)), None);
        assert_eq!(changed_by_both(&snapshot, &write(1, 2), &snapshot), None);
        let both = changed_by_both(&snapshot, &write(1, 2), &write(1, 3));
        assert_eq!(both.as_deref(), Some("page 1 of inode 2"));
        let mut renamed = snapshot.clone();
        renamed.run(&Operation::Unlink { parent: ROOT_INO, name: Name::from("a") }, None);
        assert_eq!(changed_by_both(&snapshot, &renamed, &write(1, 2)), None);
        assert!(changed_by_both(&snapshot, &renamed, &renamed).is_some());
    }
}
