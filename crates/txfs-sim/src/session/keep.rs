//! Kept and prepared transactions: actions on them, and what other actions mean for them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use txfs::{KeptSide, KeptState, Volume};

use super::{Runner, Session, Verdict};
use crate::model::Footprint;
use crate::model::kept::Seen;
use crate::model::part::part;
use crate::operation::{Operation, Outcome};
use crate::violation::Mode;

/// What a volume says of its kept transactions.
pub(crate) fn seen(volume: &Volume) -> Result<Vec<Seen>, String> {
    let kept = volume.kept().map_err(|error| format!("kept transactions cannot be listed: {error}"))?;
    let seen =
        |kept: txfs::KeptTransaction| (kept.name, kept.state == KeptState::Prepared, kept.conflicts > 0);
    let mut seen: Vec<Seen> = kept.into_iter().map(seen).collect();
    seen.sort();
    Ok(seen)
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Commits what a kept transaction changes at or below some paths.
pub(crate) fn commit_kept_only(
    volume: &Volume,
    name: &str,
    paths: &[Vec<u8>],
) -> txfs::Result<txfs::KeptPart> {
    let paths: Vec<&Path> = paths.iter().map(|path| path_of(path)).collect();
    volume.commit_kept_only(name, &paths)
}

impl Session {
    /// False where faults are armed: then nobody keeps transactions or makes snapshots.
    pub(super) fn keeps(&self, runner: &Runner) -> bool {
        !self.tolerant && matches!(runner.scenario.mode, Mode::Crash | Mode::EveryWrite)
    }

    /// A change was carried out that touched this; `newest` was the newest commit before it.
    pub(super) fn note_kept(
        &mut self,
        runner: &Runner,
        change: Option<&Footprint>,
        newest: usize,
    ) -> Verdict {
        if self.history.kept().is_empty() {
            return Ok(());
        }
        let seen = seen(self.volume()).map_err(|what| self.fail(runner, what))?;
        let noted = self.history.note_kept(&seen, change, newest, self.action);
        noted.map_err(|what| self.fail(runner, what))
    }

    /// An operation outside of transactions was refused because of a prepared one.
    pub(super) fn held(&self, runner: &Runner, operation: &Operation) -> Verdict {
        let change = Footprint::of(operation, self.history.current(), &Outcome::Done);
        let verdict = self.history.check_held(&change, false);
        verdict.map_err(|what| self.fail(runner, format!("{operation:?} was {what}")))
    }

    pub(super) fn keep(&mut self, runner: &mut Runner, slot: usize, name: &str, prepared: bool) -> Verdict {
        if !self.keeps(runner) {
            return Ok(());
        }
        let (Some(transaction), Some(model)) = (self.slots[slot].take(), self.model_slots[slot].take())
        else {
            return Ok(());
        };
        let result = if prepared { transaction.prepare(name) } else { transaction.keep(name) };
        let newest = self.history.newest();
        match result {
            Ok(()) => {
                // What was there before it was kept has been noted: that counts as a change since.
                let since = self.history.changes_since(&model);
                let kept = self.history.keep(name, prepared, model, self.action);
                kept.map_err(|what| self.fail(runner, what))?;
                self.note_kept(runner, Some(&since), newest)?;
                self.history.mark_durable();
                Ok(())
            }
            Err(error) if prepared && error.errno() == libc::ECANCELED => {
                runner.report.conflicts += 1;
                let verdict = self.history.check_late_refusal(&model);
                verdict.map_err(|what| self.fail(runner, format!("preparing was {what}: {error}")))
            }
            Err(error) if prepared && error.errno() == libc::EBUSY => {
                let verdict = self.history.check_held(model.footprint(), true);
                verdict.map_err(|what| self.fail(runner, format!("preparing was {what}: {error}")))
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) => {
                self.after_no_space(runner, "keeping a transaction")
            }
            Err(error) => Err(self.fail(runner, format!("keeping it failed: {error}"))),
        }
    }

    pub(super) fn commit_kept(&mut self, runner: &mut Runner, name: &str) -> Verdict {
        let known = self.history.kept().iter().find(|kept| kept.name == name).cloned();
        let Some(known) = known.filter(|_| self.keeps(runner)) else { return Ok(()) };
        let newest = self.history.newest();
        match self.volume().commit_kept(name) {
            Ok(_) => {
                runner.report.commits += 1;
                let change = self.history.commit_kept(name, self.action);
                let change = change.map_err(|what| self.fail(runner, what))?;
                self.note_kept(runner, Some(&change), newest)?;
                self.history.mark_durable();
                Ok(())
            }
            Err(error) if error.errno() == libc::ECANCELED && known.conflicted => self.look_at(runner, name),
            Err(error) if error.errno() == libc::EBUSY && !known.prepared => {
                let verdict = self.history.check_held(known.transaction.footprint(), false);
                verdict.map_err(|what| self.fail(runner, format!("committing {name:?} was {what}: {error}")))
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) && !known.prepared => {
                self.after_no_space(runner, "committing a kept transaction")
            }
            Err(error) => {
                let what = if known.prepared { "prepared" } else { "kept" };
                Err(self.fail(runner, format!("the {what} transaction {name:?} does not commit: {error}")))
            }
        }
    }

    pub(super) fn commit_kept_only(&mut self, runner: &mut Runner, name: &str, paths: &[Vec<u8>]) -> Verdict {
        let known = self.history.kept().iter().find(|kept| kept.name == name).cloned();
        let Some(known) = known.filter(|_| self.keeps(runner)) else { return Ok(()) };
        let newest = self.history.newest();
        let error = match commit_kept_only(self.volume(), name, paths) {
            Ok(done) => {
                runner.report.commits += 1;
                let change = self.history.commit_kept_only(name, paths, done.remains, self.action);
                let change = change.map_err(|what| self.fail(runner, what))?;
                let conflicts = seen(self.volume()).map_err(|what| self.fail(runner, what))?;
                if conflicts.iter().any(|(other, _, now)| other == name && *now != known.conflicted) {
                    let what =
                        format!("the rest of {name:?} conflicts with the part of it that was committed");
                    return Err(self.fail(runner, what));
                }
                self.note_kept(runner, Some(&change), newest)?;
                self.history.mark_durable();
                return if done.remains { self.look_at(runner, name) } else { Ok(()) };
            }
            Err(error) => error,
        };
        let verdict = match &error {
            txfs::Error::PreparedAsWhole { .. } if known.prepared => Ok(()),
            // It asks for something that is not there yet.
            txfs::Error::NotSeparable { other, .. } if !known.prepared => {
                let other = other.as_os_str().as_bytes();
                let inside = |path: &Vec<u8>| path.is_empty() || path_of(other).starts_with(path_of(path));
                match paths.iter().any(inside) {
                    true => Err(format!("refused for a path that was named: {error}")),
                    false => Ok(()),
                }
            }
            txfs::Error::NotInKept { path, .. } if !known.prepared => {
                let path = path.as_os_str().as_bytes().to_vec();
                let sight = self.history.sight(&known);
                let differs =
                    sight.map(|sight| part(&sight, &known.base, &known.transaction.view, &[path]).differs);
                match differs {
                    Some(true) => Err(format!("refused although something differs there: {error}")),
                    _ => Ok(()),
                }
            }
            error if matches!(error.errno(), libc::ECANCELED | libc::ENOTSUP) && known.conflicted => Ok(()),
            error if error.errno() == libc::EBUSY && !known.prepared => {
                self.history.check_held(known.transaction.footprint(), false)
            }
            error if self.is_out_of_space(runner, Some(error.errno())) => {
                return self.after_no_space(runner, "committing a part of a kept transaction");
            }
            _ => Err(format!("does not commit: {error}")),
        };
        verdict.map_err(|what| self.fail(runner, format!("the part {paths:?} of {name:?} was {what}")))
    }

    /// What a conflicting one began with, and what it made of it, can be read.
    fn look_at(&self, runner: &Runner, name: &str) -> Verdict {
        for side in [KeptSide::Base, KeptSide::Ours] {
            let view = self.volume().kept_view(name, side);
            if view.as_ref().is_err_and(|error| error.errno() == libc::ENOTSUP) {
                // Others have changed too much.
                continue;
            }
            let view = view.map_err(|error| self.fail(runner, format!("{side:?} of {name:?}: {error}")))?;
            // What it has seen the name of, and nothing more, may be gone.
            let unreadable = crate::volume::dump(&view).1;
            if let Some(first) = unreadable.iter().find(|unreadable| unreadable.errno != libc::ESTALE) {
                let path = first.path.escape_ascii();
                return Err(self.fail(runner, format!("{side:?} of {name:?}: {path}: {}", first.message)));
            }
        }
        Ok(())
    }

    pub(super) fn abort_kept(&mut self, runner: &mut Runner, name: &str) -> Verdict {
        let known = self.history.kept().iter().any(|kept| kept.name == name);
        if !known || !self.keeps(runner) {
            return Ok(());
        }
        match self.volume().abort_kept(name) {
            Ok(()) => {
                self.history.abort_kept(name, self.action);
                self.history.mark_durable();
                Ok(())
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) => {
                self.after_no_space(runner, "aborting a kept transaction")
            }
            Err(error) => Err(self.fail(runner, format!("aborting {name:?} failed: {error}"))),
        }
    }

    /// All prepared transactions commit, whatever has happened, and those that are kept if no conflict is noted.
    pub(super) fn end_kept(&mut self, runner: &mut Runner) -> Verdict {
        let mut names: Vec<(bool, String)> =
            self.history.kept().iter().map(|kept| (!kept.prepared, kept.name.clone())).collect();
        names.sort();
        for (_, name) in names {
            let known = self.history.kept().iter().find(|kept| kept.name == name);
            match known.is_some_and(|kept| kept.divided && !self.history.is_clear(kept)) {
                true => self.abort_kept(runner, &name)?,
                false => self.commit_kept(runner, &name)?,
            }
        }
        Ok(())
    }
}
