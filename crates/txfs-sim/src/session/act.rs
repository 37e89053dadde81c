//! Carries out single actions, on the volume and on the model, and compares the answers.

use txfs::{Isolation, TransactionOptions};

use super::{Faulted, Runner, Session, Verdict};
use crate::compare::agrees;
use crate::generator::{Action, Durability};
use crate::model::Footprint;
use crate::operation::{Operation, Outcome};
use crate::verify;
use crate::violation::Violation;
use crate::volume::{clean_options, run_inside, run_on_base};

impl Session {
    pub(super) fn perform(&mut self, runner: &mut Runner, action: Action) -> Verdict {
        match action {
            Action::Base(operation) => self.base(runner, &operation)?,
            Action::Inside { slot, operation } => self.inside(runner, slot, &operation)?,
            Action::Commit { slot, durability } => self.commit(runner, slot, durability)?,
            Action::Begin { slot, serializable, recorded } => {
                let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
                let options = TransactionOptions { isolation, recorded, ..TransactionOptions::default() };
                self.slots[slot] = Some(self.volume().begin_with(options));
                self.savepoints[slot].clear();
                self.model_slots[slot] = Some(self.history.begin(serializable, recorded));
            }
            Action::Save { slot } => self.save(runner, slot)?,
            Action::RollBack { slot, savepoint } => self.roll_back(runner, slot, savepoint)?,
            Action::Abort { slot } => {
                if let Some(transaction) = self.slots[slot].take() {
                    transaction.abort();
                }
                self.model_slots[slot] = None;
            }
            Action::Keep { slot, name, prepared } => self.keep(runner, slot, &name, prepared)?,
            Action::CommitKept { name } => self.commit_kept(runner, &name)?,
            Action::CommitKeptOnly { name, paths } => self.commit_kept_only(runner, &name, &paths)?,
            Action::AbortKept { name } => self.abort_kept(runner, &name)?,
            Action::Reopen if !self.tolerant => self.reopen(runner)?,
            Action::CreateSnapshot { name, durability } => self.create_snapshot(runner, &name, durability)?,
            Action::DeleteSnapshot { name } => self.delete_snapshot(runner, &name)?,
            Action::Sync | Action::Reopen => {
                let result = self.volume().sync();
                if self.went_well(runner, "sync", result)? {
                    self.history.mark_durable();
                }
            }
            Action::Checkpoint => {
                let result = self.volume().checkpoint();
                self.went_well(runner, "checkpoint", result)?;
            }
            Action::Clean { segments_max } => {
                let options = clean_options(segments_max);
                let result = self.volume().clean(&options, &mut |_, _| {}).map(|_| ());
                self.went_well(runner, "clean", result)?;
            }
            Action::WritePending => {
                let result = self.volume().write_pending();
                if self.went_well(runner, "write_pending", result)? {
                    self.history.mark_handed();
                }
            }
            Action::Undo { commit, sequence } => self.undo(runner, commit, sequence)?,
            Action::Retain { ino } => {
                if !self.history.retained().contains(&ino) && self.volume().retain(ino).is_ok() {
                    self.history.retain(ino);
                }
            }
            Action::Release { ino } => {
                self.volume().release(ino, 1);
                self.history.release(ino);
            }
        }
        Ok(())
    }

    /// False when a tolerated fault struck.
    pub(super) fn went_well(
        &mut self,
        runner: &Runner,
        what: &str,
        result: txfs::Result<()>,
    ) -> Verdict<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if self.tolerates(error.errno(), Faulted::Nothing) => Ok(false),
            Err(error) => Err(self.fail(runner, format!("{what} failed: {error}"))),
        }
    }

    fn mismatch(
        &self,
        runner: &Runner,
        operation: &Operation,
        answers: (&Outcome, &Outcome),
        message: Option<&str>,
    ) -> Box<Violation> {
        let (actual, expected) = answers;
        let message = message.map(|message| format!(" ({message})")).unwrap_or_default();
        self.fail(runner, format!("{operation:?}\n  returned {actual:?}{message}\n  expected {expected:?}"))
    }

    fn base(&mut self, runner: &mut Runner, operation: &Operation) -> Verdict {
        let (actual, message) = run_on_base(self.volume(), operation);
        if self.is_out_of_space(runner, actual.errno()) {
            return self.after_no_space(runner, &format!("{operation:?}"));
        }
        if actual.errno() == Some(libc::EBUSY) && !self.history.kept().is_empty() {
            return self.held(runner, operation);
        }
        let expected = self.history.expect(operation, &actual);
        if let Some(errno) = actual.errno()
            && actual != expected
            && self.tolerates(errno, Faulted::Operation(operation.clone()))
        {
            return Ok(());
        }
        if !agrees(operation, &expected, &actual, self.history.current()) {
            return Err(self.mismatch(runner, operation, (&actual, &expected), message.as_deref()));
        }
        let before = self.history.newest();
        let change = Footprint::of(operation, self.history.current(), &actual);
        self.history.run(operation, &actual, self.action);
        self.note_kept(runner, Some(&change), before)?;
        runner.report.commits += u64::from(self.history.newest() > before);
        Ok(())
    }

    fn inside(&mut self, runner: &mut Runner, slot: usize, operation: &Operation) -> Verdict {
        let (Some(transaction), Some(model)) = (&self.slots[slot], &mut self.model_slots[slot]) else {
            return Ok(());
        };
        let (actual, message) = run_inside(transaction, operation);
        if actual.errno() == Some(libc::ECANCELED) {
            let verdict = self.history.check_refusal(model, Some(operation));
            runner.report.conflicts += 1;
            let again = run_inside(transaction, operation).0.errno();
            let commit = transaction.commit(txfs::Durability::Ordered).err().map(|error| error.errno());
            self.slots[slot] = None;
            self.model_slots[slot] = None;
            if (again, commit) != (Some(libc::ECANCELED), Some(libc::ECANCELED)) {
                let what = format!("a doomed transaction was let go on: again {again:?}, commit {commit:?}");
                return Err(self.fail(runner, what));
            }
            return verdict
                .map_err(|what| self.fail(runner, format!("{operation:?} was {what}: {message:?}")));
        }
        if self.is_out_of_space(runner, actual.errno()) {
            // As with any file system, a range whose writing failed is undefined: sensible programs abort.
            self.slots[slot] = None;
            self.model_slots[slot] = None;
            return self.after_no_space(runner, &format!("{operation:?} in a transaction"));
        }
        let Some(model) = &mut self.model_slots[slot] else { return Ok(()) };
        let before = model.view.clone();
        if let Some(errno) = actual.errno()
            && actual != before.clone().run(operation, None)
            && self.tolerates(errno, Faulted::Nothing)
        {
            if let Some(model) = &mut self.model_slots[slot] {
                model.note_attempt(operation);
            }
            if operation.mutates() {
                // As with any file system, a range whose writing failed is undefined: sensible programs abort.
                self.slots[slot] = None;
                self.model_slots[slot] = None;
            }
            return Ok(());
        }
        let newest = self.history.newest();
        let Some(model) = &mut self.model_slots[slot] else { return Ok(()) };
        model.was_let_through(operation, &actual, newest);
        let expected = model.run(operation, &actual);
        if !agrees(operation, &expected, &actual, &before) {
            return Err(self.mismatch(runner, operation, (&actual, &expected), message.as_deref()));
        }
        Ok(())
    }

    fn save(&mut self, runner: &mut Runner, slot: usize) -> Verdict {
        let (Some(transaction), Some(model)) = (&self.slots[slot], &mut self.model_slots[slot]) else {
            return Ok(());
        };
        match transaction.savepoint() {
            Ok(savepoint) => {
                self.savepoints[slot].push(savepoint);
                model.save();
                Ok(())
            }
            Err(error) if error.is_conflict() => self.doomed(runner, slot, &error),
            Err(error) => {
                // Nothing has changed, but sensible programs abort.
                self.slots[slot] = None;
                self.model_slots[slot] = None;
                if self.is_out_of_space(runner, Some(error.errno())) {
                    return self.after_no_space(runner, "a savepoint");
                }
                match self.tolerates(error.errno(), Faulted::Nothing) {
                    true => Ok(()),
                    false => Err(self.fail(runner, format!("a savepoint failed: {error}"))),
                }
            }
        }
    }

    fn roll_back(&mut self, runner: &mut Runner, slot: usize, savepoint: usize) -> Verdict {
        let (Some(transaction), Some(model)) = (&self.slots[slot], &mut self.model_slots[slot]) else {
            return Ok(());
        };
        self.savepoints[slot].truncate(savepoint + 1);
        let Some(savepoint_of_volume) = self.savepoints[slot].last() else { return Ok(()) };
        let result = transaction.rollback_to(*savepoint_of_volume);
        if let Err(error) = &result
            && error.is_conflict()
        {
            return self.doomed(runner, slot, error);
        }
        model.roll_back(savepoint);
        result.map_err(|error| self.fail(runner, format!("going back to a savepoint failed: {error}")))
    }

    /// A savepoint was refused, as any operation of a doomed transaction is.
    fn doomed(&mut self, runner: &mut Runner, slot: usize, error: &txfs::Error) -> Verdict {
        runner.report.conflicts += 1;
        self.slots[slot] = None;
        let Some(model) = self.model_slots[slot].take() else { return Ok(()) };
        let verdict = self.history.check_refusal(&model, None);
        verdict.map_err(|what| self.fail(runner, format!("a savepoint was {what}: {error}")))
    }

    fn commit(&mut self, runner: &mut Runner, slot: usize, durability: Durability) -> Verdict {
        let (Some(transaction), Some(model)) = (self.slots[slot].take(), self.model_slots[slot].take())
        else {
            return Ok(());
        };
        let wanted = match durability {
            Durability::Durable => txfs::Durability::Durable,
            Durability::Ordered => txfs::Durability::Ordered,
            Durability::Deferred => txfs::Durability::Deferred,
        };
        match transaction.commit(wanted) {
            Ok(receipt) => {
                runner.report.commits += 1;
                let (before, change) = (self.history.newest(), model.footprint().clone());
                let committed = self.history.commit(model, self.action, receipt.sequence);
                committed.map_err(|what| self.fail(runner, what))?;
                self.note_kept(runner, Some(&change), before)?;
                if durability == Durability::Durable {
                    self.history.mark_durable();
                }
                Ok(())
            }
            Err(error) if error.errno() == libc::ECANCELED => {
                runner.report.conflicts += 1;
                let verdict = self.history.check_late_refusal(&model);
                verdict.map_err(|what| self.fail(runner, format!("the commit was {what}: {error}")))
            }
            Err(error) if error.errno() == libc::EBUSY => {
                let verdict = self.history.check_held(model.footprint(), false);
                verdict.map_err(|what| self.fail(runner, format!("the commit was {what}: {error}")))
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) => {
                self.after_no_space(runner, "a commit")
            }
            Err(error) if self.tolerates(error.errno(), Faulted::Commit(model)) => Ok(()),
            Err(error) => Err(self.fail(runner, format!("commit failed: {error}"))),
        }
    }

    fn undo(&mut self, runner: &mut Runner, commit: usize, sequence: u64) -> Verdict {
        match self.volume().undo(sequence, txfs::Durability::Durable) {
            Ok(receipt) => {
                runner.report.commits += 1;
                let undone = self.history.undone(commit, receipt.sequence, self.action);
                undone.map_err(|what| self.fail(runner, what))?;
                self.history.mark_durable();
                if self.tolerant {
                    // The fault that is armed would strike whoever looks.
                    return Ok(());
                }
                // What an undo leads to is looked at as a whole, not only what the next crash leaves of it.
                let newest = self.history.newest();
                verify::compare(self.volume(), &self.history, newest, newest)
                    .map_err(|what| self.fail(runner, format!("undoing commit {commit}: {what}")))?;
                Ok(())
            }
            Err(error) if error.errno() == libc::ECANCELED => {
                runner.report.conflicts += 1;
                let verdict = self.history.check_not_undone(commit);
                verdict.map_err(|what| self.fail(runner, format!("{what}: {error}")))
            }
            Err(error) if error.errno() == libc::ENODATA => {
                // Given up for newer ones or for space; or lost in a crash, and nobody could see that.
                let kept = self.volume().history(None, usize::MAX).unwrap_or_default();
                let kept = kept.iter().any(|entry| {
                    entry.sequence == sequence && matches!(entry.undo, txfs::UndoState::Kept { .. })
                });
                match kept {
                    true => Err(self.fail(runner, format!("undoing commit {commit} failed: {error}"))),
                    false => Ok(()),
                }
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) => {
                self.after_no_space(runner, "undoing a commit")
            }
            Err(error) if self.tolerates(error.errno(), Faulted::Undo(commit)) => Ok(()),
            Err(error) => Err(self.fail(runner, format!("undoing commit {commit} failed: {error}"))),
        }
    }
}
