//! Runs scenarios: on a volume and on the model side by side, with power cut at every step.
//!
//! A session is one life of a volume between two crashes. Some of the images that its crashes leave start sessions of
//! their own, so that crashes during recovery and after recovery are part of every campaign.

mod act;
pub(crate) mod keep;
pub(crate) mod named;
mod recover;
mod space;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use txfs::{CreateOptions, Savepoint, Transaction, Volume};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

use crate::engine_mode;
use crate::generator::{Action, Generator, Profile};
use crate::hash::{derive_seed, mix};
use crate::images::ImageCollector;
use crate::model::{History, ModelTransaction};
use crate::operation::Operation;
use crate::verify;
use crate::violation::{Mode, ScenarioId, Violation};

/// Sessions within sessions: a crash, recovery, more work, another crash ...
const GENERATIONS_MAX: u32 = 3;

/// What a scenario did and found.
#[derive(Clone, Debug, Default)]
pub struct ScenarioReport {
    /// Actions carried out, in all sessions.
    pub actions: u64,
    /// Steps of input and output at which power was cut.
    pub disk_steps: u64,
    /// Images taken, duplicates included.
    pub images: u64,
    /// Images recovered and compared.
    pub recoveries: u64,
    /// Fingerprints of all different images.
    pub states: HashSet<u64>,
    /// Sessions, the first included.
    pub sessions: u64,
    /// Commits: transactions, and operations outside them that changed something.
    pub commits: u64,
    /// Transactions that were refused.
    pub conflicts: u64,
    /// Digest of everything that happened.
    pub trace_digest: u64,
}

/// Limits and wishes of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Prints every action and what came of it.
    pub trace: bool,
    /// Multiplies the images taken per step.
    pub images_factor: u32,
    /// Actions at most; the profile's number otherwise.
    pub actions_max: Option<usize>,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions { trace: false, images_factor: 1, actions_max: None }
    }
}

/// Runs one scenario with crashes at every step.
pub fn run_scenario(
    profile: &'static Profile,
    seed: u64,
    options: RunOptions,
) -> Result<ScenarioReport, Box<Violation>> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::Crash };
    let mut runner = Runner { profile, options, scenario, report: ScenarioReport::default() };
    let mut session = Session::start(&runner)?;
    session.run(&mut runner, profile.steps)?;
    session.finish(&mut runner)?;
    Ok(runner.report)
}

/// An empty disk whose own choices depend on the seed.
pub fn new_disk(profile: &Profile, seed: u64) -> SimulatedDisk {
    let sector_bytes = if seed.is_multiple_of(5) { 4096 } else { 512 };
    let more_bytes = derive_seed(seed, 8) % (2 * profile.segment_bytes);
    SimulatedDisk::new(SimOptions {
        seed: derive_seed(seed, 3),
        sector_bytes,
        capacity_bytes: profile.capacity_bytes.map(|least| least + more_bytes),
        ..SimOptions::default()
    })
}

/// Makes the volume of a scenario.
pub fn create_volume(disk: &SimulatedDisk, profile: &Profile, seed: u64) -> txfs::Result<()> {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&derive_seed(seed, 4).to_le_bytes());
    let format = engine_mode::format(profile, seed);
    let options = CreateOptions {
        segment_bytes: format.segment_bytes,
        size_bytes_max: format.size_bytes_max,
        preallocate_bytes: format.preallocate_bytes,
        clock: verify::clock(),
        identity: Some((id, id)),
        ..CreateOptions::default()
    };
    Volume::create_on(Arc::new(disk.clone()), &options)
}

/// What all sessions of one scenario share.
pub(crate) struct Runner {
    pub(crate) profile: &'static Profile,
    pub(crate) options: RunOptions,
    pub(crate) scenario: ScenarioId,
    pub(crate) report: ScenarioReport,
}

impl Runner {
    pub(crate) fn violation(&self, place: impl Into<String>, what: impl Into<String>) -> Box<Violation> {
        Box::new(Violation { scenario: self.scenario.clone(), place: place.into(), what: what.into() })
    }
}

/// An action that failed because of an armed fault: nobody knows whether it will be there after a crash.
#[derive(Clone, Debug)]
pub(crate) enum Faulted {
    /// An operation outside transactions.
    Operation(Operation),
    /// A commit.
    Commit(ModelTransaction),
    /// The undoing of a commit.
    Undo(usize),
    /// Something that changes no content: a sync, a checkpoint, an operation inside a transaction.
    Nothing,
}

/// An action as it was carried out, and how far the history had come after it.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) action: Action,
    pub(crate) newest: usize,
    pub(crate) durable: usize,
}

/// One life of a volume between two crashes.
pub(crate) struct Session {
    pub(crate) disk: SimulatedDisk,
    pub(crate) volume: Option<Volume>,
    pub(crate) collector: ImageCollector,
    pub(crate) history: History,
    pub(crate) generator: Generator,
    model_slots: Vec<Option<ModelTransaction>>,
    slots: Vec<Option<Transaction>>,
    /// Of each slot's transaction, as many as its model has.
    savepoints: Vec<Vec<Savepoint>>,
    /// Faults are armed: errors of input and output are no violations, but are kept in `faulted`.
    pub(crate) tolerant: bool,
    pub(crate) faulted: Option<Faulted>,
    /// How the session deals with a disk that is full.
    space: space::Space,
    /// The first session's actions.
    pub(crate) log: Vec<Logged>,
    /// Digests of what images recovered to, by fingerprint.
    known: HashMap<u64, u64>,
    /// The sessions and crashes before this one.
    place: String,
    generation: u32,
    action: usize,
}

pub(crate) type Verdict<T = ()> = Result<T, Box<Violation>>;

impl Session {
    /// A fresh volume of the runner's scenario, opened.
    pub(crate) fn start(runner: &Runner) -> Verdict<Session> {
        let (profile, seed) = (runner.profile, runner.scenario.seed);
        let disk = new_disk(profile, seed);
        let collector = ImageCollector::watch(&disk, derive_seed(seed, 1), 0);
        create_volume(&disk, profile, seed)
            .map_err(|error| runner.violation("making the volume", error.to_string()))?;
        let mut session = Session {
            disk,
            volume: None,
            collector,
            history: History::default(),
            generator: Generator::new(derive_seed(seed, 2), profile),
            model_slots: Vec::new(),
            slots: Vec::new(),
            savepoints: Vec::new(),
            tolerant: false,
            faulted: None,
            space: space::Space::default(),
            log: Vec::new(),
            known: HashMap::new(),
            place: String::new(),
            generation: 1,
            action: 0,
        };
        session.open(runner)?;
        Ok(session)
    }

    pub(crate) fn fail(&self, runner: &Runner, what: impl Into<String>) -> Box<Violation> {
        runner.violation(format!("{}action {} of session {}", self.place, self.action, self.generation), what)
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("a session's volume is open while it runs")
    }

    fn open(&mut self, runner: &Runner) -> Verdict {
        let transactions = runner.profile.transactions_max;
        self.model_slots = vec![None; transactions];
        self.slots = (0..transactions).map(|_| None).collect();
        self.savepoints = vec![Vec::new(); transactions];
        let volume = verify::open(&self.disk, runner.profile)
            .map_err(|error| self.fail(runner, format!("the volume does not open: {error}")))?;
        self.volume = Some(volume);
        Ok(())
    }

    fn run(&mut self, runner: &mut Runner, actions: usize) -> Verdict {
        let actions = runner.options.actions_max.unwrap_or(actions).min(actions);
        let shift = (self.generation - 1).min(1);
        let per_step = (runner.profile.images_per_write * runner.options.images_factor) >> shift;
        self.collector.set_per_step(per_step.max(1));
        for _ in 0..actions {
            let steps = self.disk.steps();
            self.act(runner)?;
            self.expect_at_least();
            if self.disk.steps() > steps {
                self.collector.take_now(&self.disk);
            }
            self.verify_images(runner)?;
        }
        Ok(())
    }

    /// Carries out one action that the generator chooses.
    pub(crate) fn act(&mut self, runner: &mut Runner) -> Verdict {
        self.action += 1;
        runner.report.actions += 1;
        let action = match self.space.next_action() {
            Some(action) => action,
            None => self.generator.next(&self.history, &self.model_slots),
        };
        if runner.options.trace {
            println!("{:indent$}{:4} {action:?}", "", self.action, indent = self.generation as usize * 2 - 2);
        }
        self.perform(runner, action.clone())?;
        if self.generation == 1 {
            let (newest, durable) = (self.history.newest(), self.history.durable());
            self.log.push(Logged { action, newest, durable });
        }
        Ok(())
    }

    /// Drops the open transactions, in the volume and in the model.
    pub(crate) fn drop_transactions(&mut self) {
        for slot in 0..self.slots.len() {
            self.slots[slot] = None;
            self.model_slots[slot] = None;
        }
    }

    /// True when the failure is due to a fault that this session has armed.
    fn tolerates(&mut self, errno: i32, faulted: Faulted) -> bool {
        let due = self.tolerant && [libc::EIO, libc::ENOSPC, libc::EROFS].contains(&errno);
        if due {
            self.faulted = Some(faulted);
        }
        due
    }

    /// Closes the volume in good order, and looks at it once more.
    pub(crate) fn finish(&mut self, runner: &mut Runner) -> Verdict {
        self.action += 1;
        self.reopen(runner)?;
        self.end_kept(runner)?;
        self.verify_images(runner)?;
        verify::compare(self.volume(), &self.history, self.history.newest(), self.history.newest())
            .map_err(|what| self.fail(runner, format!("after a clean close: {what}")))?;
        verify::check(&self.disk, self.volume()).map_err(|what| self.fail(runner, what))?;
        let report = &mut runner.report;
        report.disk_steps += self.collector.steps();
        report.sessions += 1;
        report.trace_digest = mix(report.trace_digest, self.collector.trace_digest());
        report.trace_digest = mix(report.trace_digest, self.disk.fingerprint());
        report.trace_digest = mix(report.trace_digest, self.history.commits()[self.history.newest()].digest);
        if let Some(volume) = self.volume.take() {
            verify::kill(&self.disk, volume);
        }
        Ok(())
    }

    fn expect_at_least(&self) {
        self.collector.expect_at_least(self.history.durable(), self.history.handed());
    }

    pub(crate) fn reopen(&mut self, runner: &mut Runner) -> Verdict {
        self.drop_transactions();
        let volume = self.volume.take().expect("a session's volume is open while it runs");
        let result = volume.close();
        if !self.went_well(runner, "close", result)? {
            self.volume = Some(volume);
            return Ok(());
        }
        drop(volume);
        self.history.mark_durable();
        self.history = self.history.recovered(self.history.newest(), self.history.newest());
        self.expect_at_least();
        self.open(runner)
    }
}
