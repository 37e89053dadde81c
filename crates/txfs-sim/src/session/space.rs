//! A full disk: what fails for lack of space must have changed nothing, and deleting must always help.
//!
//! After some failures the session gives up its transactions and empties the volume. While it does, nothing may fail
//! any more: not a removal, not the checkpoint, and not the write that comes after.

use std::collections::VecDeque;

use super::{Runner, Session, Verdict};
use crate::generator::Action;
use crate::model::Tree;
use crate::operation::{Kind, Name, Operation};
use crate::verify;

/// Failures after which the session makes room.
const FAILURES_MAX: u32 = 5;
/// What must fit into an emptied volume, in bytes.
const PROBE_BYTES: u64 = 48 << 10;

#[derive(Default)]
pub(super) struct Space {
    failures: u32,
    /// Actions that make room; they come before any others.
    relief: VecDeque<Action>,
    /// The present action is one of them.
    relieving: bool,
}

impl Space {
    pub(super) fn next_action(&mut self) -> Option<Action> {
        let action = self.relief.pop_front();
        self.relieving = action.is_some();
        action
    }
}

impl Session {
    /// True when an action may fail for lack of space, and did.
    pub(super) fn is_out_of_space(&self, runner: &Runner, errno: Option<i32>) -> bool {
        errno == Some(libc::ENOSPC) && runner.profile.is_limited() && !self.tolerant
    }

    /// Nothing must have changed.
    pub(super) fn after_no_space(&mut self, runner: &mut Runner, what: &str) -> Verdict {
        if self.space.relieving {
            let figures = self.volume().stat().map(|stat| format!("{stat:?}")).unwrap_or_default();
            return Err(self.fail(
                runner,
                format!("{what} found no space, although the volume was being emptied: {figures}"),
            ));
        }
        let newest = self.history.newest();
        verify::compare(self.volume(), &self.history, newest, newest)
            .map_err(|problem| self.fail(runner, format!("{what} found no space, and then {problem}")))?;
        self.space.failures += 1;
        if self.space.failures > FAILURES_MAX {
            self.space.failures = 0;
            self.plan_relief();
        }
        Ok(())
    }

    fn plan_relief(&mut self) {
        let slots = 0..self.model_slots.len();
        let mut relief: VecDeque<Action> = slots
            .filter(|slot| self.model_slots[*slot].is_some())
            .map(|slot| Action::Abort { slot })
            .collect();
        let kept = self.history.kept().iter().map(|kept| Action::AbortKept { name: kept.name.clone() });
        relief.extend(kept);
        relief.extend(self.history.named().keys().map(|name| Action::DeleteSnapshot { name: name.clone() }));
        relief.extend(self.history.retained().iter().map(|ino| Action::Release { ino: *ino }));
        let mut files = files(self.history.current());
        // A file with one name is kept for the write in the end.
        let links = |ino: u64| self.history.current().node(ino).map_or(0, |node| node.nlink);
        let kept = files.iter().position(|(_, _, ino)| links(*ino) == 1).map(|at| files.swap_remove(at).2);
        if let Some(ino) = kept {
            relief.push_back(Action::Base(Operation::Truncate { ino, size: 0 }));
        }
        for (parent, name, _) in files {
            relief.push_back(Action::Base(Operation::Unlink { parent, name }));
        }
        relief.push_back(Action::Sync);
        relief.push_back(Action::Checkpoint);
        if let Some(ino) = kept {
            let write = Operation::Write { ino, offset: 0, len: PROBE_BYTES, fill: 7 };
            relief.push_back(Action::Base(write));
            relief.push_back(Action::Checkpoint);
        }
        self.space.relief = relief;
    }
}

/// All names of regular files.
fn files(tree: &Tree) -> Vec<(u64, Name, u64)> {
    let mut files = Vec::new();
    for parent in tree.linked(Kind::Directory).into_iter().chain([crate::operation::ROOT_INO]) {
        let Ok(entries) = tree.entries(parent) else { continue };
        for (name, ino) in entries {
            if tree.kind(*ino) == Some(Kind::File) {
                files.push((parent, name.clone(), *ino));
            }
        }
    }
    files.sort();
    files.dedup();
    files
}
