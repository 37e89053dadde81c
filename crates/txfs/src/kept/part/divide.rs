//! Divides what a kept transaction has changed into what is chosen and the rest, such that the rest on top of what is chosen is
//! what it was: what the rest began with has what is chosen.

use std::collections::{BTreeMap, BTreeSet};

use super::choose::{Choice, Place, has_own_changes};
use crate::records::{Dirent, InodeRecord};
use crate::transaction::overlay::{InodeState, NameState, Overlay, TimeIntent, add_links};
use crate::types::{Ino, NodeKind};

/// Both parts.
#[derive(Default)]
pub(super) struct Divided {
    pub(super) chosen: Overlay,
    pub(super) rest: Overlay,
    /// Nodes in both: names of them, or in them, came and went on both sides.
    pub(super) both: BTreeSet<Ino>,
}

/// How the names of one side concern a node.
#[derive(Clone, Copy, Default)]
struct Concern {
    /// Names of it came and went.
    named: bool,
    /// Names in it did.
    filled: bool,
    /// By how much that changes its link count, but for a directory that goes.
    links: i64,
}

pub(super) fn divide(overlay: Overlay, choice: &Choice) -> Divided {
    let mut divided = Divided::default();
    let chosen_concerns = concerns(&overlay, |place| choice.names.contains(place));
    let rest_concerns = concerns(&overlay, |place| !choice.names.contains(place));
    for (ino, state) in overlay.inodes {
        let concern = |all: &BTreeMap<Ino, Concern>| all.get(&ino).copied().unwrap_or_default();
        let (chosen, rest) = (concern(&chosen_concerns), concern(&rest_concerns));
        let is_chosen = choice.nodes.contains(&ino);
        let own = has_own_changes(&state);
        let in_chosen = is_chosen || chosen.named || chosen.filled;
        let in_rest = own && !is_chosen || rest.named || rest.filled;
        if !in_chosen {
            divided.rest.inodes.insert(ino, state);
        } else if !in_rest {
            divided.chosen.inodes.insert(ino, state);
        } else {
            let (mine, left) = divide_node(state, is_chosen, chosen, rest);
            divided.chosen.inodes.insert(ino, mine);
            divided.rest.inodes.insert(ino, left);
            divided.both.insert(ino);
        }
    }
    for (place, state) in overlay.names {
        let part = if choice.names.contains(&place) { &mut divided.chosen } else { &mut divided.rest };
        part.names.insert(place, state);
    }
    divided
}

fn concerns(overlay: &Overlay, is_in: impl Fn(&Place) -> bool) -> BTreeMap<Ino, Concern> {
    let mut concerns: BTreeMap<Ino, Concern> = BTreeMap::new();
    let is_changed = |state: &NameState| state.current != state.original;
    for (place, state) in overlay.names.iter().filter(|(place, state)| is_in(place) && is_changed(state)) {
        let (old, new) = (&state.original.0, &state.current.0);
        let mut add = |dirent: &Dirent, by: i64| {
            let is_directory = dirent.kind == NodeKind::Directory;
            let node = concerns.entry(dirent.ino).or_default();
            node.named = true;
            node.links += if is_directory { 0 } else { by };
            let directory = concerns.entry(place.0).or_default();
            directory.filled = true;
            directory.links += if is_directory { by } else { 0 };
        };
        old.iter().filter(|dirent| !new.contains(dirent)).for_each(|dirent| add(dirent, -1));
        new.iter().filter(|dirent| !old.contains(dirent)).for_each(|dirent| add(dirent, 1));
    }
    concerns
}

/// Divides the changes of a node that both sides change.
fn divide_node(
    state: InodeState,
    is_chosen: bool,
    chosen: Concern,
    rest: Concern,
) -> (InodeState, InodeState) {
    let Some(original) = state.original.clone() else {
        // A new directory, with names of the rest in it.
        let record =
            InodeRecord { nlink: add_links(state.record.nlink, -rest.links), ..state.record.clone() };
        let mut left = InodeState::existing(record.clone());
        follow(&mut left, &state, rest, rest.links);
        return (InodeState { record, ..state }, left);
    };
    if is_chosen {
        let left_links = state.link_delta - chosen.links;
        let nlink = add_links(original.nlink, chosen.links);
        let record = InodeRecord { nlink, ..state.record.clone() };
        let mut left = InodeState::existing(record.clone());
        follow(&mut left, &state, rest, left_links);
        return (InodeState { record, link_delta: chosen.links, ..state }, left);
    }
    let mut mine = InodeState::existing(original);
    follow(&mut mine, &state, chosen, chosen.links);
    let left = InodeState {
        original: Some(mine.record.clone()),
        // Of a directory that goes, this is the larger part.
        link_delta: state.link_delta - chosen.links,
        moved: state.moved && rest.named,
        renamed: state.renamed && rest.named,
        ..state
    };
    (mine, left)
}

/// Adds what follows from names that came and went: links, times, and where the node lies.
fn follow(part: &mut InodeState, whole: &InodeState, concern: Concern, links: i64) {
    part.add_links(links);
    if concern.named {
        part.renamed = whole.renamed;
        part.moved = whole.moved;
        if whole.moved {
            part.record.parent = whole.record.parent;
        }
    }
    let ctime = whole.record.ctime;
    if concern.filled {
        part.record.mtime = if whole.mtime == TimeIntent::Set { ctime } else { whole.record.mtime };
        part.mtime = TimeIntent::Touched;
    }
    part.touch_node(ctime);
}
