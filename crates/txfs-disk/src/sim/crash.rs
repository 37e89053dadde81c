//! What a power cut leaves: choosing among the changes in doubt, and building the disk that survives.
//!
//! The choice is a [`Judge`]'s: by a seed ([`super::policy`]), or by a caller that enumerates ([`Fragment`]).
//! Fragments are numbered in a fixed order (names, then files by id, each file's changes in order), so a run with one
//! thread and one seed has the same fragments every time.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::{Change, Contents, InDoubt, Part, SimFile};
use super::image::Image;
use super::names::{NameInDoubt, Names};
use super::state::State;

/// One thing that a power cut may keep or lose, independently of the others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Number of the fragment among those of this disk now, from 0.
    pub index: usize,
    /// Position of its change in the order of all changes on this disk; all sectors of one write have the same.
    pub order: u64,
    /// What it is.
    pub kind: FragmentKind,
}

/// The kinds of [`Fragment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentKind {
    /// A create, rename or remove. Once one is lost, the later ones are lost too and are not asked for.
    Name,
    /// A file's new length. Once one is lost, the same file's later ones are lost too, whatever is said of them.
    Length {
        /// The file's number, the same in all copies of a disk.
        file: u64,
    },
    /// One sector of one write.
    Sector {
        /// The file's number, the same in all copies of a disk.
        file: u64,
        /// Where the sector starts, in bytes.
        offset: u64,
    },
}

/// How much would be in doubt if power failed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// Creates, renames and removes since the last directory sync.
    pub name_changes: usize,
    /// Length changes that were not synced.
    pub length_changes: usize,
    /// Writes of which at least a sector is not on stable storage.
    pub writes: usize,
    /// Their sectors, each version of a sector counted.
    pub sectors: usize,
}

impl Unflushed {
    /// Number of [`Fragment`]s: a crash keeps one of up to two to this power combinations.
    pub fn fragments(&self) -> usize {
        self.name_changes + self.length_changes + self.sectors
    }
}

/// A verdict on all of a file's changes in doubt at once, which costs nothing per change.
pub(super) enum FileVerdict {
    AllLost,
    AllKept,
    /// Ask for each part.
    Each,
}

/// Decides what a crash keeps.
pub(super) trait Judge {
    fn keeps_name(&mut self, change: &NameInDoubt) -> bool;
    fn judge_file(&mut self, file: u64, in_doubt: &[InDoubt]) -> FileVerdict;
    fn keeps_part(&mut self, file: u64, change: &InDoubt, part: Part) -> bool;
}

/// The state of the disk after a crash so judged: everything on it is on stable storage.
pub(super) fn crashed(state: &State, judge: &mut dyn Judge) -> State {
    let names = state.names.survivors(&mut |change| judge.keeps_name(change));
    let mut named: Vec<u64> = names.values().copied().collect();
    named.sort_unstable();
    let mut files = BTreeMap::new();
    for id in named {
        if let Some(file) = state.files.get(&id) {
            let contents = file.contents.lock();
            let image = surviving_image(id, &contents.arrived(), judge);
            let allocation = contents.allocation.clone();
            files.insert(id, SimFile::new(id, Contents::settled(image, allocation, state.sector_bytes)));
        }
    }
    state.successor(Names::settled(names), files)
}

fn surviving_image(id: u64, contents: &Contents, judge: &mut dyn Judge) -> Image {
    if contents.in_doubt.is_empty() {
        return contents.stable.clone();
    }
    match judge.judge_file(id, &contents.in_doubt) {
        FileVerdict::AllLost => contents.stable.clone(),
        FileVerdict::AllKept => contents.all_kept(),
        FileVerdict::Each => contents.survivors(&mut |change, part| judge.keeps_part(id, change, part)),
    }
}

/// A copy of the disk as it is, changes in doubt included: what the next process finds after `kill -9`. Writes in
/// flight arrive.
pub(super) fn forked(state: &State) -> State {
    let files = state
        .files
        .iter()
        .map(|(id, file)| (*id, SimFile::new(*id, file.contents.lock().arrived().into_owned())));
    state.successor(state.names.clone(), files.collect())
}

/// Counts what is in doubt.
pub(super) fn count(state: &State) -> Unflushed {
    let mut unflushed = Unflushed { name_changes: state.names.in_doubt.len(), ..Unflushed::default() };
    for file in state.files.values() {
        for entry in &file.contents.lock().arrived().in_doubt {
            match &entry.change {
                Change::Grow(_) | Change::Cut(_) => unflushed.length_changes += 1,
                Change::Write { range, .. } => {
                    unflushed.writes += 1;
                    unflushed.sectors += ((range.end - range.start) / state.sector_bytes) as usize;
                }
            }
        }
    }
    unflushed
}

/// Lets a caller choose fragment by fragment.
pub(super) struct ByFragment<'a> {
    /// Number of the first fragment of each file.
    first_of_file: BTreeMap<u64, usize>,
    next_index: usize,
    keep: &'a mut dyn FnMut(&Fragment) -> bool,
}

impl<'a> ByFragment<'a> {
    pub(super) fn new(state: &State, keep: &'a mut dyn FnMut(&Fragment) -> bool) -> Self {
        let mut next = state.names.in_doubt.len();
        let mut first_of_file = BTreeMap::new();
        for (id, file) in &state.files {
            first_of_file.insert(*id, next);
            let contents = file.contents.lock();
            next += contents
                .arrived()
                .in_doubt
                .iter()
                .map(|entry| entry.fragments(state.sector_bytes))
                .sum::<usize>();
        }
        ByFragment { first_of_file, next_index: 0, keep }
    }
}

impl Judge for ByFragment<'_> {
    fn keeps_name(&mut self, change: &NameInDoubt) -> bool {
        let fragment = Fragment { index: self.next_index, order: change.order, kind: FragmentKind::Name };
        self.next_index += 1;
        (self.keep)(&fragment)
    }

    fn judge_file(&mut self, file: u64, _: &[InDoubt]) -> FileVerdict {
        self.next_index = self.first_of_file.get(&file).copied().unwrap_or_default();
        FileVerdict::Each
    }

    fn keeps_part(&mut self, file: u64, change: &InDoubt, part: Part) -> bool {
        let kind = match part {
            Part::Length => FragmentKind::Length { file },
            Part::Sector(offset) => FragmentKind::Sector { file, offset },
        };
        let fragment = Fragment { index: self.next_index, order: change.order, kind };
        self.next_index += 1;
        (self.keep)(&fragment)
    }
}

impl InDoubt {
    fn fragments(&self, sector_bytes: u64) -> usize {
        match &self.change {
            Change::Grow(_) | Change::Cut(_) => 1,
            Change::Write { range, .. } => ((range.end - range.start) / sector_bytes) as usize,
        }
    }
}

/// The files of a state, by id.
pub(super) type FileMap = BTreeMap<u64, Arc<SimFile>>;
