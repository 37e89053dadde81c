//! What a checkpoint makes of the tree: new nodes where something changes, the old ones everywhere else.
//!
//! From a node's old entries and the changes in its range come its new entries. The branch above puts the new entries of
//! neighbouring children together, divides them among nodes, writes those, and has entries of its own from that. So one
//! rule splits, joins and fills nodes on all levels: a run of new keys gives full leaves, a leaf that a key too many came
//! to gives two halves, and what has become small goes together with its neighbour.
//!
//! Cleaning is part of it: a node in a region that is to become empty counts as changed.
//!
//! Space for the recursion: one call a level; the tree's height is checked when it is read.

use super::LEAF_BYTES_MAX;
use super::cache::Table;
use super::entries::Entries;
use super::file::IndexFile;
use super::node::{Change, Node};
use super::output::{Output, few_bytes};
use super::pointer::Pointer;
use super::regions::Victims;
use crate::index::IndexError;

/// Levels that a tree can have; with the least children that a branch has, more than any file has room for.
pub(super) const LEVELS_MAX: u8 = 32;

/// Makes the next version.
pub(super) struct Rebuild<'a, 'b> {
    pub(super) file: &'a IndexFile,
    /// The table of the version that is rebuilt.
    pub(super) table: &'a Table,
    pub(super) victims: Victims,
    pub(super) output: &'b mut Output<'a>,
    /// Keys in the tree.
    pub(super) keys: u64,
}

impl Rebuild<'_, '_> {
    /// Makes the changes, which are in key order, in the tree of this root; returns the new root and its level.
    pub(super) fn run(
        &mut self,
        root: Pointer,
        level: u8,
        changes: &[Change<'_>],
    ) -> Result<(Pointer, u8), IndexError> {
        let Some(mut entries) = self.node(root, level, &[], changes)? else { return Ok((root, level)) };
        self.output.release(root, level);
        let mut level = level;
        loop {
            // A branch of one child is superfluous at the top.
            if level > 0
                && entries.len() == 1
                && let Some((_, child)) = entries.pop_child()
            {
                return self.shrink(child, level - 1);
            }
            if level > 0 && entries.is_empty() {
                // All children are gone.
                level = 0;
            }
            let mut above = Entries::default();
            self.pack(&entries, level, &[], &mut above)?;
            if above.is_empty() {
                let empty = Node::build(0, std::iter::empty());
                return Ok((self.output.node(empty, 0)?, 0));
            }
            if above.len() == 1
                && let Some((_, root)) = above.pop_child()
            {
                return Ok((root, level));
            }
            entries = above;
            level += 1;
        }
    }

    /// Takes the first branch with more than one child, or a leaf, as the root.
    fn shrink(&mut self, mut root: Pointer, mut level: u8) -> Result<(Pointer, u8), IndexError> {
        // It may be a node that was just made.
        self.output.write()?;
        while level > 0 {
            let child = {
                let held = self.file.node(self.table, &root, level)?;
                match held.as_ref() {
                    Some(node) if node.len() == 1 => node.child(0),
                    _ => break,
                }
            };
            self.output.release(root, level);
            (root, level) = (child, level - 1);
        }
        Ok((root, level))
    }

    /// The new entries of a node, `None` if it stays as it is. Its own place is released by the caller.
    fn node(
        &mut self,
        pointer: Pointer,
        level: u8,
        bound: &[u8],
        changes: &[Change<'_>],
    ) -> Result<Option<Entries>, IndexError> {
        let moves = self.victims.contains(&pointer);
        if changes.is_empty() && !moves && (level == 0 || self.victims.is_empty()) {
            return Ok(None);
        }
        let held = self.file.node(self.table, &pointer, level)?;
        let Some(node) = held.as_ref() else { return Ok(None) };
        if !moves && self.nothing_to_do(node, changes) {
            return Ok(None);
        }
        if level == 0 {
            return Ok(Some(self.merge(node, changes)));
        }
        let (entries, changed) = self.branch(node, bound, changes)?;
        Ok((changed || moves).then_some(entries))
    }

    /// Deletions of what is not there; no child that is to move.
    fn nothing_to_do(&self, node: &Node, changes: &[Change<'_>]) -> bool {
        match node.level() {
            0 => changes.iter().all(|(key, value)| value.is_none() && node.find(key).is_err()),
            1 => {
                changes.is_empty() && !(0..node.len()).any(|index| self.victims.contains(&node.child(index)))
            }
            _ => false,
        }
    }

    /// Makes changes in a leaf that stays one leaf of ordinary size: its new bytes.
    fn patch(&mut self, pointer: Pointer, changes: &[Change<'_>]) -> Result<Option<Vec<u8>>, IndexError> {
        let held = self.file.node(self.table, &pointer, 0)?;
        let Some(node) = held.as_ref() else { return Ok(None) };
        if self.nothing_to_do(node, changes) {
            return Ok(None);
        }
        let Some(bytes) = node.patch(changes, few_bytes(0)..LEAF_BYTES_MAX + 1) else { return Ok(None) };
        for (key, value) in changes {
            self.keys += u64::from(value.is_some());
            self.keys -= u64::from(node.find(key).is_ok()).min(self.keys);
        }
        self.output.release(pointer, 0);
        Ok(Some(bytes))
    }

    /// A leaf's entries with the changes made.
    fn merge(&mut self, node: &Node, changes: &[Change<'_>]) -> Entries {
        let mut entries = Entries::default();
        let mut next = 0;
        for (key, value) in changes {
            let (until, found) = match node.find(key) {
                Ok(index) => (index, true),
                Err(index) => (index, false),
            };
            for index in next..until {
                entries.push([node.prefix(), node.rest(index)], node.value(index));
            }
            next = until + usize::from(found);
            self.keys -= u64::from(found).min(self.keys);
            if let Some(value) = value {
                self.keys += 1;
                entries.push([key, &[]], value);
            }
        }
        for index in next..node.len() {
            entries.push([node.prefix(), node.rest(index)], node.value(index));
        }
        entries
    }

    /// A branch's new entries, and whether any of its children changed.
    fn branch(
        &mut self,
        node: &Node,
        bound: &[u8],
        mut changes: &[Change<'_>],
    ) -> Result<(Entries, bool), IndexError> {
        let below = node.level() - 1;
        let mut out = Entries::default();
        let mut changed = false;
        // New entries of the children since the last one that stays, and the bound of the first of them.
        let mut pending: Option<(Vec<u8>, Entries)> = None;
        // Whether the last child in `out` is one that stays: only such a one can be read again to be joined.
        let mut last_stays = false;
        let (mut key, mut end) = (bound.to_vec(), Vec::new());
        for index in 0..node.len() {
            let child = node.child(index);
            if index > 0 {
                node.copy_key(index, &mut key);
            }
            let count = match index + 1 < node.len() {
                true if changes.is_empty() => 0,
                true => {
                    node.copy_key(index + 1, &mut end);
                    changes.partition_point(|(key, _)| *key < end.as_slice())
                }
                false => changes.len(),
            };
            let (mine, rest) = changes.split_at(count);
            changes = rest;
            if below == 0
                && count > 0
                && pending
                    .as_ref()
                    .is_none_or(|(_, entries)| entries.is_empty() || entries.bytes() >= few_bytes(0))
                && let Some(bytes) = self.patch(child, mine)?
            {
                self.flush(&mut pending, below, &mut out)?;
                changed = true;
                out.push([&key, &[]], &self.output.node(bytes, 0)?.encode());
                last_stays = false;
                continue;
            }
            if let Some(entries) = self.node(child, below, &key, mine)? {
                self.output.release(child, below);
                changed = true;
                match &mut pending {
                    Some((_, pending)) => pending.append(&entries),
                    None => pending = Some((key.clone(), entries)),
                }
                continue;
            }
            match &mut pending {
                Some((_, entries)) if !entries.is_empty() && entries.bytes() < few_bytes(below) => {
                    self.take_over(child, below, &key, entries)?;
                    continue;
                }
                Some(_) => self.flush(&mut pending, below, &mut out)?,
                None => {}
            }
            out.push([&key, &[]], &child.encode());
            last_stays = true;
        }
        if let Some((_, entries)) = &pending
            && entries.bytes() < few_bytes(below)
            && !entries.is_empty()
            && last_stays
            && let Some((key, child)) = out.pop_child()
        {
            let mut joined = Entries::default();
            self.take_over(child, below, &key, &mut joined)?;
            joined.append(entries);
            pending = Some((key, joined));
        }
        self.flush(&mut pending, below, &mut out)?;
        Ok((out, changed))
    }

    /// Adds the entries of a node that did not change, to be joined with its neighbour.
    fn take_over(
        &mut self,
        pointer: Pointer,
        level: u8,
        bound: &[u8],
        entries: &mut Entries,
    ) -> Result<(), IndexError> {
        let held = self.file.node(self.table, &pointer, level)?;
        if let Some(node) = held.as_ref() {
            entries.push_node(node, bound);
        }
        self.output.release(pointer, level);
        Ok(())
    }

    /// Makes nodes of what is pending.
    fn flush(
        &mut self,
        pending: &mut Option<(Vec<u8>, Entries)>,
        level: u8,
        out: &mut Entries,
    ) -> Result<(), IndexError> {
        match pending.take() {
            Some((bound, entries)) => self.pack(&entries, level, &bound, out),
            None => Ok(()),
        }
    }

    /// Writes the entries as nodes of this level and adds those to `out`; `bound` is the least key that may be in them.
    fn pack(
        &mut self,
        entries: &Entries,
        level: u8,
        bound: &[u8],
        out: &mut Entries,
    ) -> Result<(), IndexError> {
        for (index, piece) in entries.pieces(level).enumerate() {
            let pointer = self.output.node(piece.build(level), level)?;
            let key = if index == 0 { bound } else { piece.separator(level) };
            out.push([key, &[]], &pointer.encode());
        }
        Ok(())
    }
}
