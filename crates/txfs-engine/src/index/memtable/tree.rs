//! A B-tree whose nodes are shared between versions: changing one copies the nodes on one path, and only those that
//! an older version still holds.
//!
//! Entries are never removed (a deletion is an entry too), so nodes only split, and no node but an empty root is empty.

use std::sync::Arc;

use super::block::{Block, ENTRIES_MAX};
use crate::index::keys::shortest_between;

/// A leaf splits when it holds more bytes than this (or is full): small enough to copy in a fraction of a microsecond.
const LEAF_BYTES_MAX: usize = 4096;
/// A branch splits when it has more children: copying it counts a reference for each child.
const BRANCH_CHILDREN_MAX: usize = 32;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Leaf(Block),
    Branch(Branch),
}

/// Child `i` holds the keys from separator `i - 1` (inclusive) to separator `i` (exclusive).
#[derive(Clone, Debug)]
pub(super) struct Branch {
    separators: Block,
    children: Vec<Arc<Node>>,
}

/// What a node that became too large leaves to its parent.
struct Split {
    separator: Vec<u8>,
    right: Arc<Node>,
}

/// What [`put`] replaced.
pub(super) enum Replaced {
    /// The key is new.
    Nothing,
    /// The key had a value of so many bytes, or was deleted (0).
    ValueBytes(usize),
}

impl Default for Node {
    fn default() -> Node {
        Node::Leaf(Block::default())
    }
}

impl Node {
    /// The leaf that holds `key` if any does.
    pub(super) fn leaf(&self, key: &[u8]) -> &Block {
        let mut node = self;
        loop {
            match node {
                Node::Leaf(block) => return block,
                Node::Branch(branch) => node = &branch.children[branch.separators.count_up_to(key)],
            }
        }
    }

    /// The leaf that holds `key` if any does, and the separator where the next leaf starts.
    pub(super) fn leaf_and_next(&self, key: &[u8]) -> (&Block, Option<&[u8]>) {
        let mut node = self;
        let mut next = None;
        loop {
            match node {
                Node::Leaf(block) => return (block, next),
                Node::Branch(branch) => {
                    let index = branch.separators.count_up_to(key);
                    if index < branch.separators.len() {
                        next = Some(branch.separators.key(index));
                    }
                    node = &branch.children[index];
                }
            }
        }
    }

    /// The leaf that holds the greatest key below `key`, unless that leaf starts above it, and the separator
    /// where that leaf starts.
    pub(super) fn leaf_below(&self, key: &[u8]) -> (&Block, Option<&[u8]>) {
        let mut node = self;
        let mut start = None;
        loop {
            match node {
                Node::Leaf(block) => return (block, start),
                Node::Branch(branch) => {
                    let separators = &branch.separators;
                    let index = separators.count_below(key);
                    if index > 0 {
                        start = Some(separators.key(index - 1));
                    }
                    node = &branch.children[index];
                }
            }
        }
    }
}

/// Puts an entry into the tree under `root`.
pub(super) fn put(root: &mut Arc<Node>, key: &[u8], value: Option<&[u8]>) -> Replaced {
    let (replaced, split) = put_below(root, key, value);
    if let Some(Split { separator, right }) = split {
        let left = std::mem::take(root);
        let mut separators = Block::default();
        separators.insert(0, &separator, None);
        *root = Arc::new(Node::Branch(Branch { separators, children: vec![left, right] }));
    }
    replaced
}

fn put_below(node: &mut Arc<Node>, key: &[u8], value: Option<&[u8]>) -> (Replaced, Option<Split>) {
    match Arc::make_mut(node) {
        Node::Leaf(block) => match block.find(key) {
            Ok(index) => {
                let old = block.replace(index, value);
                (Replaced::ValueBytes(old), split_leaf(block, index))
            }
            Err(index) => {
                block.insert(index, key, value);
                (Replaced::Nothing, split_leaf(block, index))
            }
        },
        Node::Branch(branch) => {
            let index = branch.separators.count_up_to(key);
            let (replaced, split) = put_below(&mut branch.children[index], key, value);
            let Some(Split { separator, right }) = split else { return (replaced, None) };
            branch.separators.insert(index, &separator, None);
            branch.children.insert(index + 1, right);
            (replaced, split_branch(branch))
        }
    }
}

/// Splits a leaf that has become too large by a change of the entry at `changed`.
fn split_leaf(block: &mut Block, changed: usize) -> Option<Split> {
    let len = block.len();
    if len < 2 || (len < ENTRIES_MAX && block.bytes() <= LEAF_BYTES_MAX) {
        return None;
    }
    let (right, separator) = if changed + 1 == len {
        // Keys often come in ascending runs (the extents of a file): leave full leaves behind. All that is greater
        // than the last key must go to the right then, or keys in between would split a full leaf each time.
        let right = block.split_off(changed);
        let mut successor = Vec::with_capacity(block.key(changed - 1).len() + 1);
        successor.extend_from_slice(block.key(changed - 1));
        successor.push(0);
        (right, successor)
    } else {
        let right = block.split_off(block.middle());
        let separator = shortest_between(block.key(block.len() - 1), right.key(0)).to_vec();
        (right, separator)
    };
    Some(Split { separator, right: Arc::new(Node::Leaf(right)) })
}

fn split_branch(branch: &mut Branch) -> Option<Split> {
    if branch.children.len() <= BRANCH_CHILDREN_MAX {
        return None;
    }
    let middle = branch.children.len() / 2;
    let children = branch.children.split_off(middle);
    let separators = branch.separators.split_off(middle);
    // The separator between the halves moves up to the parent.
    let moved = branch.separators.split_off(middle - 1);
    let right = Branch { separators, children };
    Some(Split { separator: moved.key(0).to_vec(), right: Arc::new(Node::Branch(right)) })
}
