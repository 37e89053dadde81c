//! What a transaction has changed, for people: `txfs run --review` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::locate::Locator;
use super::session::Session;
use crate::error::Result;
use crate::paths::name_to_path;
use crate::types::{Ino, NodeKind, ROOT_INO};

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path, from the root, without a leading slash; for deletions the former one.
    pub path: PathBuf,
    /// What happened.
    pub kind: ChangeKind,
    /// Inode number.
    pub ino: Ino,
    /// What the node is.
    pub node: NodeKind,
    /// Size before, if it existed.
    pub old_size: Option<u64>,
    /// Size now, if it exists.
    pub new_size: Option<u64>,
}

/// What happened to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A name that was not there before.
    Created,
    /// The content changed.
    Modified,
    /// Only attributes changed (mode, owner, times that were set, extended attributes).
    Attributes,
    /// Another name of the same node went, this one came; its content may have changed too.
    Renamed {
        /// The former path.
        from: PathBuf,
        /// The content changed as well.
        modified: bool,
    },
    /// The name is gone.
    Deleted,
}

/// A name that came or went.
struct Name {
    directory: Ino,
    name: Vec<u8>,
    ino: Ino,
    node: NodeKind,
}

/// Lists what a session has changed. Nothing that this looks at counts as read by the transaction.
pub(crate) fn list(session: &mut Session) -> Result<Vec<Change>> {
    let recording = std::mem::replace(&mut session.recording, false);
    let changes = collect(session);
    session.recording = recording;
    changes
}

fn collect(session: &mut Session) -> Result<Vec<Change>> {
    let mut before = Session::read_only(&session.shared, session.snapshot.clone());
    let mut old_paths = Locator::new(usize::MAX);
    let mut new_paths = Locator::new(usize::MAX);
    let (gone, came) = changed_names(session);
    let mut gone_by_ino: BTreeMap<Ino, Vec<Name>> = BTreeMap::new();
    for name in gone {
        gone_by_ino.entry(name.ino).or_default().push(name);
    }

    let mut changes = Vec::new();
    let mut named = BTreeSet::new();
    for name in came {
        let path = path_below(&mut new_paths, session, name.directory, &name.name)?;
        let from = match gone_by_ino.get_mut(&name.ino).and_then(Vec::pop) {
            Some(old) => Some(path_below(&mut old_paths, &mut before, old.directory, &old.name)?),
            None => None,
        };
        named.insert(name.ino);
        let kind = match from {
            Some(from) => ChangeKind::Renamed { from, modified: is_modified(session, name.ino) },
            None => ChangeKind::Created,
        };
        changes.push(change(session, path, kind, name.ino, name.node));
    }
    for name in gone_by_ino.into_values().flatten() {
        let path = path_below(&mut old_paths, &mut before, name.directory, &name.name)?;
        let old_size = before.inode(name.ino).ok().map(|record| record.size);
        changes.push(Change {
            path,
            kind: ChangeKind::Deleted,
            ino: name.ino,
            node: name.node,
            old_size,
            new_size: None,
        });
    }

    let touched: Vec<(Ino, NodeKind, ChangeKind)> = session
        .overlay
        .inodes
        .iter()
        .filter(|(ino, state)| !state.is_created() && state.record.nlink > 0 && !named.contains(ino))
        .filter_map(|(&ino, state)| {
            let kind = match () {
                () if is_modified(session, ino) => ChangeKind::Modified,
                () if changes_attributes(state) => ChangeKind::Attributes,
                () => return None,
            };
            Some((ino, state.record.kind, kind))
        })
        .collect();
    for (ino, node, kind) in touched {
        let path = match new_paths.path(session, ino)? {
            Some(path) => path,
            None => match search(session, ino)? {
                Some(path) => path,
                None => continue,
            },
        };
        changes.push(change(session, path, kind, ino, node));
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn change(session: &Session, path: PathBuf, kind: ChangeKind, ino: Ino, node: NodeKind) -> Change {
    let state = session.overlay.inodes.get(&ino);
    let new_size = session.inode(ino).ok().map(|record| record.size);
    let old_size = match state {
        Some(state) => state.original.as_ref().map(|original| original.size),
        None => new_size,
    };
    Change { path, kind, ino, node, old_size, new_size }
}

fn is_modified(session: &Session, ino: Ino) -> bool {
    session.overlay.inodes.get(&ino).is_some_and(|state| {
        let grown = state.original.as_ref().is_some_and(|original| original.size != state.record.size);
        state.record.kind == NodeKind::File && (grown || !state.data.is_empty())
    })
}

fn changes_attributes(state: &super::overlay::InodeState) -> bool {
    let set = super::overlay::TimeIntent::Set;
    let times = state.mtime == set || state.atime == set;
    state.permissions || times || !state.xattrs.is_empty()
}

/// Names that went and names that came.
fn changed_names(session: &Session) -> (Vec<Name>, Vec<Name>) {
    let (mut gone, mut came) = (Vec::new(), Vec::new());
    for (&(directory, _), state) in &session.overlay.names {
        let name = |dirent: &crate::records::Dirent| Name {
            directory,
            name: dirent.name.clone(),
            ino: dirent.ino,
            node: dirent.kind,
        };
        let (old, new) = (&state.original.0, &state.current.0);
        gone.extend(old.iter().filter(|dirent| !new.contains(dirent)).map(name));
        came.extend(new.iter().filter(|dirent| !old.contains(dirent)).map(name));
    }
    (gone, came)
}

fn path_below(locator: &mut Locator, session: &mut Session, directory: Ino, name: &[u8]) -> Result<PathBuf> {
    let parent = match locator.path(session, directory)? {
        Some(path) => path,
        None => PathBuf::from(format!("<inode {directory}>")),
    };
    Ok(parent.join(name_to_path(name)))
}

/// Looks through the whole tree for a name of the inode.
fn search(session: &mut Session, ino: Ino) -> Result<Option<PathBuf>> {
    let mut pending = vec![(ROOT_INO, PathBuf::new())];
    while let Some((directory, path)) = pending.pop() {
        let mut cookie = 2;
        loop {
            let batch = session.list_batch(directory, cookie)?;
            let Some(last) = batch.last() else { break };
            cookie = last.cookie;
            for entry in batch {
                let below = path.join(Path::new(&name_to_path(&entry.name)));
                if entry.ino == ino {
                    return Ok(Some(below));
                }
                if entry.kind == NodeKind::Directory {
                    pending.push((entry.ino, below));
                }
            }
        }
    }
    Ok(None)
}
