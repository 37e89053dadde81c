//! One scenario, run once for every step of input and output, with the power lost in step 1, 2, 3 ...
//!
//! Unlike the images of a running volume, here the engine itself sees the failing step and everything after it fail.
//! A first run without a cut records the actions and the model's history; the same seed does the same again, so the
//! history says what each cut run may leave.

use std::panic::AssertUnwindSafe;

use txfs::{Isolation, Savepoint, Transaction, TransactionOptions, Volume};
use txfs_disk::sim::SimulatedDisk;

use crate::campaign::quietly;
use crate::generator::{Action, Durability, Profile};
use crate::hash::derive_seed;
use crate::model::History;
use crate::session::keep::commit_kept_only;
use crate::session::{Logged, RunOptions, Runner, ScenarioReport, Session, Verdict, create_volume, new_disk};
use crate::verify;
use crate::violation::{Mode, ScenarioId};
use crate::volume::{clean_options, run_inside, run_on_base};

/// Carries out actions without a model.
struct Player<'a> {
    disk: &'a SimulatedDisk,
    profile: &'static Profile,
    volume: Option<Volume>,
    slots: Vec<Option<Transaction>>,
    savepoints: Vec<Vec<Savepoint>>,
}

impl Player<'_> {
    /// False when the action failed; for operations of the file system that is nothing special.
    fn play(&mut self, action: &Action) -> bool {
        let Some(volume) = &self.volume else { return false };
        match action {
            Action::Base(operation) => run_on_base(volume, operation).0.errno().is_none(),
            Action::Inside { slot, operation } => match &self.slots[*slot] {
                Some(transaction) => {
                    let errno = run_inside(transaction, operation).0.errno();
                    if matches!(errno, Some(libc::ECANCELED | libc::ENOSPC)) {
                        self.slots[*slot] = None;
                    }
                    errno.is_none()
                }
                None => false,
            },
            Action::Begin { slot, serializable, recorded } => {
                let isolation = if *serializable { Isolation::Serializable } else { Isolation::Snapshot };
                let options = TransactionOptions { isolation, recorded: *recorded, ..Default::default() };
                self.slots[*slot] = Some(volume.begin_with(options));
                self.savepoints[*slot].clear();
                true
            }
            Action::Save { slot } => match self.slots[*slot].as_ref().map(Transaction::savepoint) {
                Some(Ok(savepoint)) => {
                    self.savepoints[*slot].push(savepoint);
                    true
                }
                _ => false,
            },
            Action::RollBack { slot, savepoint } => {
                self.savepoints[*slot].truncate(savepoint + 1);
                match (&self.slots[*slot], self.savepoints[*slot].last()) {
                    (Some(transaction), Some(savepoint)) => transaction.rollback_to(*savepoint).is_ok(),
                    _ => false,
                }
            }
            Action::Commit { slot, durability } => {
                let durability = match durability {
                    Durability::Durable => txfs::Durability::Durable,
                    Durability::Ordered => txfs::Durability::Ordered,
                    Durability::Deferred => txfs::Durability::Deferred,
                };
                self.slots[*slot].take().is_some_and(|transaction| transaction.commit(durability).is_ok())
            }
            Action::Abort { slot } => {
                self.slots[*slot] = None;
                true
            }
            Action::Keep { slot, name, prepared } => {
                self.slots[*slot].take().is_some_and(|transaction| match prepared {
                    true => transaction.prepare(name).is_ok(),
                    false => transaction.keep(name).is_ok(),
                })
            }
            Action::CommitKept { name } => volume.commit_kept(name).is_ok(),
            Action::CommitKeptOnly { name, paths } => commit_kept_only(volume, name, paths).is_ok(),
            Action::AbortKept { name } => volume.abort_kept(name).is_ok(),
            Action::CreateSnapshot { name, durability } => {
                volume.create_snapshot(name, durability.of_volume()).is_ok()
            }
            Action::DeleteSnapshot { name } => volume.delete_snapshot(name).is_ok(),
            Action::Sync => volume.sync().is_ok(),
            Action::Checkpoint => volume.checkpoint().is_ok(),
            Action::Clean { segments_max } => {
                volume.clean(&clean_options(*segments_max), &mut |_, _| {}).is_ok()
            }
            Action::WritePending => volume.write_pending().is_ok(),
            Action::Reopen => {
                self.slots.iter_mut().for_each(|slot| *slot = None);
                let closed = volume.close().is_ok();
                self.volume = None;
                self.volume = verify::open(self.disk, self.profile).ok();
                closed && self.volume.is_some()
            }
            Action::Undo { sequence, .. } => volume.undo(*sequence, txfs::Durability::Durable).is_ok(),
            Action::Retain { ino } => {
                // A node that is gone by now is no failure.
                !volume.retain(*ino).is_err_and(|error| !matches!(error, txfs::Error::Stale { .. }))
            }
            Action::Release { ino } => {
                volume.release(*ino, 1);
                true
            }
        }
    }
}

/// Runs a scenario once for every step. `actions` bounds its length: the cost grows with its square.
pub fn run_every_write(
    profile: &'static Profile,
    seed: u64,
    actions: usize,
    options: RunOptions,
) -> Verdict<ScenarioReport> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::EveryWrite };
    let mut runner = Runner { profile, options, scenario, report: ScenarioReport::default() };
    let mut session = Session::start(&runner)?;
    let steps_before = session.disk.steps();
    for _ in 0..actions {
        session.act(&mut runner)?;
    }
    let steps_after = session.disk.steps();
    let (log, history) = (std::mem::take(&mut session.log), session.history.clone());
    session.finish(&mut runner)?;
    runner.options.trace = false;
    for step in steps_before..steps_after {
        run_cut(&mut runner, &log, &history, step)?;
    }
    runner.report.disk_steps = steps_after - steps_before;
    Ok(runner.report)
}

fn run_cut(runner: &mut Runner, log: &[Logged], history: &History, step: u64) -> Verdict {
    let (profile, seed) = (runner.profile, runner.scenario.seed);
    let disk = new_disk(profile, seed);
    let place = |action: usize| format!("action {action}, power lost in disk step {}", step + 1);
    create_volume(&disk, profile, seed).map_err(|error| runner.violation(place(0), error.to_string()))?;
    let volume =
        verify::open(&disk, profile).map_err(|error| runner.violation(place(0), error.to_string()))?;
    disk.power_off_after(step);
    let slots = (0..profile.transactions_max).map(|_| None).collect();
    let savepoints = vec![Vec::new(); profile.transactions_max];
    let mut player = Player { disk: &disk, profile, volume: Some(volume), slots, savepoints };
    let (mut oldest, mut newest, mut last) = (0, 0, 0);
    for (index, logged) in log.iter().enumerate() {
        last = index + 1;
        newest = logged.newest;
        let acknowledged = quietly(AssertUnwindSafe(|| player.play(&logged.action)))
            .map_err(|panic| runner.violation(place(last), panic))?;
        if !disk.power_lost() {
            oldest = logged.durable;
            continue;
        }
        // An acknowledgement counts even when the power went in the same action.
        let promises = matches!(
            logged.action,
            Action::Commit { durability: Durability::Durable, .. }
                | Action::Keep { .. }
                | Action::CommitKept { .. }
                | Action::CommitKeptOnly { .. }
                | Action::AbortKept { .. }
                | Action::CreateSnapshot { durability: Durability::Durable, .. }
                | Action::DeleteSnapshot { .. }
                | Action::Sync
                | Action::Reopen
        );
        if acknowledged && promises {
            oldest = logged.durable;
        }
        break;
    }
    player.slots.clear();
    drop(player);
    for index in 0..u64::from(runner.profile.images_per_write + 2) {
        let image_seed = derive_seed(derive_seed(seed, step), index);
        let image = match index {
            0 => disk.crash_where(|_| true),
            1 => disk.crash_where(|_| false),
            _ => disk.crash(image_seed),
        };
        runner.report.images += 1;
        if !runner.report.states.insert(image.fingerprint()) {
            continue;
        }
        let place = format!("{} (image {index})", place(last));
        let volume = verify::open(&image, profile).map_err(|error| {
            runner.violation(place.clone(), format!("the recovered volume does not open: {error}"))
        })?;
        runner.report.recoveries += 1;
        verify::compare(&volume, history, oldest, newest)
            .map_err(|what| runner.violation(place.clone(), what))?;
        verify::check(&image, &volume).map_err(|what| runner.violation(place.clone(), what))?;
        verify::kill(&image, volume);
    }
    Ok(())
}
