//! Examination of a whole volume: everything that its parts say about each other.
//!
//! The engine checks what it can judge: segments, checksums of file data, space accounting. Here follows what the
//! records mean, in one snapshot: entries name nodes that exist and are of the same kind, every node can be reached,
//! link counts are right, the directories are a tree, extents lie in files, sorted, apart from each other and before
//! the end, and nothing is attached to a node that is not there. The tree of each named snapshot is examined in the same way.

mod examine;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use txfs_engine::{CheckReport, EngineError};

use crate::error::Result;
use crate::named::record_of;
use crate::records::key;
use crate::shared::Shared;
use crate::transaction::locate::Locator;
use crate::transaction::session::Session;

/// Problems beyond this number are counted, but not searched for a path.
const PATHS_MAX: usize = 1000;

/// What an examination found.
#[derive(Clone, Debug, Default)]
pub struct VolumeCheck {
    /// Everything that is wrong; empty for a sound volume.
    pub problems: Vec<Problem>,
    /// Directories seen.
    pub directories: u64,
    /// Regular files seen.
    pub files: u64,
    /// Other nodes seen (symlinks, devices ...).
    pub others: u64,
    /// Nodes without a name that are still in use.
    pub orphans: u64,
    /// Extents seen.
    pub extents: u64,
    /// Bytes of file data that the extents hold.
    pub data_bytes: u64,
    /// Named snapshots seen.
    pub snapshots: u64,
}

impl VolumeCheck {
    /// True when nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of thing.
    pub kind: ProblemKind,
    /// The node concerned, where there is one.
    pub ino: Option<u64>,
    /// A path of it, where known.
    pub path: Option<PathBuf>,
    /// The finding in words.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.ino) {
            (Some(path), Some(ino)) => write!(formatter, "/{} (inode {ino}): ", path.display())?,
            (None, Some(ino)) => write!(formatter, "inode {ino}: ")?,
            _ => {}
        }
        formatter.write_str(&self.message)
    }
}

/// Kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Found by the engine: segments, checksums of data, space accounting.
    Storage,
    /// A record does not decode.
    Record,
    /// A directory entry without its node, of another kind than its node, or a second entry of a directory.
    Entry,
    /// A node that no path leads to.
    Unreachable,
    /// A link count differs from the number of names.
    LinkCount,
    /// The directories are not a tree.
    Tree,
    /// Extents that overlap, lie behind the end, or belong to no file.
    Extent,
    /// A symlink's target, an extended attribute or an orphan mark without its node, or the reverse.
    Attachment,
    /// The count of allocated blocks differs from the extents.
    Blocks,
    /// An inode number that has not been handed out yet is in use.
    Counter,
}

pub(crate) fn check(shared: &Arc<Shared>, progress: &mut dyn FnMut(u64, u64)) -> Result<VolumeCheck> {
    check_meaning(shared, shared.engine.check(progress)?)
}

pub(crate) fn check_but_index_file(shared: &Arc<Shared>) -> Result<VolumeCheck> {
    check_meaning(shared, shared.engine.check_but_index_file(&mut |_, _| {})?)
}

fn check_meaning(shared: &Arc<Shared>, storage: CheckReport) -> Result<VolumeCheck> {
    let snapshot = shared.engine.snapshot();
    let mut report = examine::examine(&snapshot, &shared.hasher, false)?;
    report.data_bytes = storage.data_bytes;
    report.problems.extend(storage.problems.into_iter().map(|problem| Problem {
        kind: ProblemKind::Storage,
        ino: problem.key.as_deref().and_then(key::ino_of),
        path: None,
        message: problem.what,
    }));
    find_paths(&mut report.problems, Session::read_only(shared, snapshot));
    check_snapshots(shared, &mut report)?;
    report.problems.sort_by_key(|problem| (problem.kind, problem.ino));
    Ok(report)
}

/// Examines the tree of each named snapshot.
fn check_snapshots(shared: &Arc<Shared>, report: &mut VolumeCheck) -> Result<()> {
    let damaged = |what| Problem { kind: ProblemKind::Record, ino: None, path: None, message: what };
    let entries = match shared.engine.named() {
        Ok(entries) => entries,
        Err(error @ EngineError::Corrupt { .. }) => {
            report.problems.push(damaged(error.to_string()));
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let name = match record_of(&entry) {
            Ok(record) => record.name,
            Err(error) => {
                report.problems.push(damaged(error.to_string()));
                continue;
            }
        };
        report.snapshots += 1;
        // None while it is being removed.
        let Some(state) = shared.engine.named_at(entry.id) else { continue };
        let mut problems = examine::examine(&state, &shared.hasher, true)?.problems;
        find_paths(&mut problems, Session::read_only(shared, state));
        report.problems.extend(problems.into_iter().map(|problem| Problem {
            message: format!("{} (in snapshot {name:?})", problem.message),
            ..problem
        }));
    }
    Ok(())
}

fn find_paths(problems: &mut [Problem], mut session: Session) {
    let mut locator = Locator::new(usize::MAX);
    for problem in problems.iter_mut().take(PATHS_MAX) {
        if let Some(ino) = problem.ino {
            // What is damaged may be on the way; then the inode number has to do.
            problem.path = locator.path(&mut session, ino).ok().flatten();
        }
    }
}
