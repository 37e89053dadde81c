//! Says what a conflict is about: the engine's ranges become kinds and paths, and its origins become processes.
//!
//! All of it costs something, and is done when there is a conflict to be told. A call outside of transactions is repeated
//! and tells nobody, so for one nothing is looked up.

use std::collections::BTreeMap;
use std::path::PathBuf;

use txfs_engine::{Clash, ConflictRange, ConflictReport as EngineReport, EngineError, Opponent, Read};

use super::locate::{Locator, SCAN_ENTRIES_CHEAP};
use super::session::Session;
use crate::conflict::{
    ATTRIBUTE_SPACE, Access, Conflict, ConflictKind, ConflictReport, EXISTS, NAME_SPACE, Other, PAGE_SPACE,
    PARENT, PERMISSIONS, XATTR_SPACE,
};
use crate::error::Error;
use crate::origin;
use crate::records::{Bucket, key};
use crate::types::Ino;

/// Paths that were found out for one report.
type Paths = BTreeMap<Ino, Option<PathBuf>>;

impl Session {
    /// An error of the engine as one of ours.
    pub(super) fn explain(&self, error: EngineError) -> Error {
        match error {
            EngineError::Conflict(report) => Error::Conflict(Box::new(self.explain_all(&report))),
            EngineError::Held { name, range } => {
                let path =
                    self.origin.as_ref().and_then(|_| self.describe_range(&range, &mut Paths::new()).1);
                Error::Held { name, ino: range.object, path }
            }
            error => match Error::from(error) {
                Error::Conflict(mut report) if self.origin.is_some() => {
                    for conflict in &mut report.conflicts {
                        conflict.path = self.cheap_path(conflict.ino);
                    }
                    Error::Conflict(report)
                }
                error => error,
            },
        }
    }

    pub(crate) fn explain_all(&self, report: &EngineReport) -> ConflictReport {
        if self.origin.is_none() {
            return ConflictReport { conflicts: Vec::new(), more: report.more + report.clashes.len() as u64 };
        }
        let mut paths = Paths::new();
        let mut others: Vec<(&Opponent, Other)> = Vec::new();
        let mut conflicts = Vec::with_capacity(report.clashes.len());
        for Clash { range, written, with } in &report.clashes {
            let known = others.iter().find(|(opponent, _)| *opponent == with);
            let other = match known {
                Some((_, other)) => other.clone(),
                None => {
                    let other = origin::describe(with, self.shared.clock.now());
                    others.push((with, other.clone()));
                    other
                }
            };
            let (kind, path) = self.describe_range(range, &mut paths);
            let access = if *written { Access::Written } else { Access::Read };
            conflicts.push(Conflict { kind, access, ino: range.object, path, other });
        }
        ConflictReport { conflicts, more: report.more }
    }

    fn describe_range(&self, range: &ConflictRange, paths: &mut Paths) -> (ConflictKind, Option<PathBuf>) {
        let ino = range.object;
        let mut path = paths.entry(ino).or_insert_with(|| self.cheap_path(ino)).clone();
        let kind = match range.space {
            PAGE_SPACE => ConflictKind::Pages { first: range.first, last: range.last },
            NAME_SPACE if range.first != range.last => ConflictKind::Listing,
            NAME_SPACE => {
                let name = self.name_at(ino, range.first);
                if let (Some(path), Some(name)) = (&mut path, &name) {
                    path.push(crate::paths::name_to_path(name));
                }
                ConflictKind::Name { name }
            }
            XATTR_SPACE => ConflictKind::ExtendedAttribute,
            ATTRIBUTE_SPACE => match range.first {
                EXISTS => ConflictKind::Existence,
                PERMISSIONS => ConflictKind::Permissions,
                PARENT => ConflictKind::Parent,
                _ => ConflictKind::Size,
            },
            _ => ConflictKind::Existence,
        };
        (kind, path)
    }

    /// A path of the inode, in the state that the session saw or else the current one, unless that takes long.
    pub(super) fn cheap_path(&self, ino: Ino) -> Option<PathBuf> {
        [self.snapshot.clone(), self.shared.engine.snapshot()].into_iter().find_map(|snapshot| {
            let mut session = Session::read_only(&self.shared, snapshot);
            Locator::new(SCAN_ENTRIES_CHEAP).path(&mut session, ino).ok().flatten()
        })
    }

    /// A name with this hash, in the current state or in the one that the session saw.
    fn name_at(&self, directory: Ino, hash: u64) -> Option<Vec<u8>> {
        [self.shared.engine.snapshot(), self.snapshot.clone()].into_iter().find_map(|snapshot| {
            let value = snapshot.get(&key::dirent(directory, hash)).ok().flatten()?;
            Bucket::decode(&value).ok()?.0.into_iter().next().map(|dirent| dirent.name)
        })
    }
}
