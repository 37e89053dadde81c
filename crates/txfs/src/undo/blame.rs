//! Who was it: the later recorded commits that have changed what is in the way of undoing one.

use crate::conflict::{Conflict, ConflictKind, ConflictReport, Other};
use crate::error::Result;
use crate::history::{RecordedCommit, list};
use crate::records::history::UndoState;
use crate::undo::UndoData;
use crate::volume::Volume;

/// How many commits are looked at.
const COMMITS_MAX: usize = 1000;

/// Names the commits after `sequence`, the newest first, as far as they were recorded and it is still known what they changed.
pub(super) fn name_others(volume: &Volume, sequence: u64, report: &mut ConflictReport) -> Result<()> {
    let snapshot = volume.engine_snapshot();
    let mut nameless = report.conflicts.iter_mut().collect::<Vec<&mut Conflict>>();
    for commit in list(&snapshot, None, COMMITS_MAX)? {
        if commit.sequence <= sequence || nameless.is_empty() {
            break;
        }
        let UndoState::Kept { number, .. } = commit.undo else { continue };
        let changed = UndoData::load(&snapshot, number)?;
        nameless.retain_mut(|conflict| {
            let touched = touches(&changed, conflict);
            if touched {
                conflict.other = other(&commit);
            }
            !touched
        });
    }
    Ok(())
}

fn other(commit: &RecordedCommit) -> Other {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    Other {
        sequence: Some(commit.sequence),
        time: Some(commit.time),
        process: (commit.process > 0).then_some(commit.process),
        command: text(&commit.command),
        message: text(&commit.message),
        ..Other::default()
    }
}

fn touches(changed: &UndoData, conflict: &Conflict) -> bool {
    let ino = conflict.ino;
    let node = changed.nodes.get(&ino);
    match &conflict.kind {
        ConflictKind::Name { name } => {
            changed.names.iter().any(|change| change.directory == ino && Some(&change.name) == name.as_ref())
        }
        ConflictKind::Listing => changed.names.iter().any(|change| change.directory == ino),
        ConflictKind::Existence => {
            let names = &mut changed.names.iter();
            changed.removed.contains_key(&ino)
                || names.any(|change| is_of(change.before, ino) || is_of(change.after, ino))
        }
        ConflictKind::Parent => changed.names.iter().any(|change| is_of(change.after, ino)),
        ConflictKind::Permissions => {
            node.and_then(|node| node.records.as_ref()).is_some_and(|(before, after)| {
                (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid)
            })
        }
        ConflictKind::Size => node
            .and_then(|node| node.records.as_ref())
            .is_some_and(|(before, after)| before.size != after.size),
        ConflictKind::Pages { first, last } => {
            node.is_some_and(|node| node.cleared.iter().any(|(from, to)| from <= last && to >= first))
        }
        ConflictKind::ExtendedAttribute => node.is_some_and(|node| !node.xattrs.is_empty()),
    }
}

fn is_of(entry: crate::records::undo::Entry, ino: u64) -> bool {
    entry.is_some_and(|(other, _)| other == ino)
}
