//! Batches in flight together, completed in an order that the seed decides, with power lost in between.
//!
//! Workers commit, sync and make checkpoints; each of their writes, to the log and to the index, is held by the disk. Whenever all of them wait,
//! the scenario either gives an idle worker something to do or lets one of the writes go, and takes images of what a
//! power cut now would leave. When nobody can go on although nothing is held, somebody was forgotten.
//!
//! The scenario holds snapshots as well. Who finds no space waits for them, and where nobody else can go on, they end,
//! the oldest first. In a volume whose size is limited, nothing may then fail for lack of space: what the commits write
//! is never as much as the volume holds.
//!
//! Only one decision is made at a time, so a seed gives nearly the same run again: what is left to the scheduler is a race
//! between callers that one completion has woken together. A replay tries several times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use txfs_disk::sim::{Completion, SimulatedDisk};
use txfs_engine::{Engine, EngineError, EngineOptions, Snapshot};

use super::work::{Ledger, Work, is_no_space, purpose};
use super::workers::{Command, Workers};
use crate::engine_mode;
use crate::generator::Profile;
use crate::hash::{derive_seed, mix};
use crate::images::{End, Image};
use crate::session::{RunOptions, Runner, ScenarioReport, Verdict, new_disk};
use crate::violation::{Mode, ScenarioId};
use crate::volume::clean_options;

const WORKERS: usize = 4;
/// Longer than any worker runs without waiting for something.
const LONG: Duration = Duration::from_secs(20);

/// What a worker has to say: what it did, and an error.
type Answer = Result<(), EngineError>;

struct Overlap {
    disk: SimulatedDisk,
    engine: Arc<Engine>,
    ledger: Arc<Ledger>,
    workers: Workers<Answer>,
    held: Vec<Snapshot>,
    random: fastrand::Rng,
    place: String,
    generation: u32,
    /// A write failed: errors are no violations any more.
    poisoned: bool,
    seen: std::collections::HashSet<(u64, u64)>,
}

fn options(profile: &Profile) -> EngineOptions {
    // Small, so that ordered commits make writes of their own beside the durable ones.
    EngineOptions {
        queue_bytes_max: 32 << 10,
        overlap_flush_us: 0,
        // Nobody gives up waiting for a snapshot: the scenario decides when one ends.
        reader_patience: Duration::MAX,
        ..engine_mode::options(profile)
    }
}

/// Runs one scenario.
pub fn run_overlap(profile: &'static Profile, seed: u64, run_options: RunOptions) -> Verdict<ScenarioReport> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::Overlap };
    let mut runner = Runner { profile, options: run_options, scenario, report: ScenarioReport::default() };
    let disk = new_disk(profile, seed);
    let format = engine_mode::format(profile, seed);
    let engine = Engine::create(&disk.as_disk(), &format, &[])
        .and_then(|()| Engine::open(disk.as_disk(), options(profile)))
        .map_err(|error| runner.violation("making the volume", error.to_string()))?;
    let ledger = Ledger::new(profile);
    let random = fastrand::Rng::with_seed(purpose(seed, 1));
    Overlap::new(disk, engine, ledger, random, String::new(), 1).run(&mut runner, profile.steps * 2)?;
    Ok(runner.report)
}

impl Overlap {
    fn new(
        disk: SimulatedDisk,
        engine: Engine,
        ledger: Ledger,
        random: fastrand::Rng,
        place: String,
        generation: u32,
    ) -> Overlap {
        Overlap {
            disk,
            engine: Arc::new(engine),
            ledger: Arc::new(ledger),
            workers: Workers::start(WORKERS),
            held: Vec::new(),
            random,
            place,
            generation,
            poisoned: false,
            seen: Default::default(),
        }
    }

    fn run(mut self, runner: &mut Runner, steps: usize) -> Verdict {
        self.disk.hold_writes(true);
        let verdict = (0..steps).try_for_each(|step| self.step(runner, step));
        let verdict = verdict.and_then(|()| self.wind_up(runner, steps));
        runner.report.sessions += 1;
        runner.report.disk_steps += self.disk.steps();
        self.disk.power_off();
        self.held.clear();
        match &verdict {
            Ok(()) => self.workers.join(),
            // Whoever was forgotten would never come back: the threads are left alone.
            Err(_) => std::mem::forget(self.workers),
        }
        verdict
    }

    fn fail(
        &self,
        runner: &Runner,
        step: usize,
        what: impl Into<String>,
    ) -> Box<crate::violation::Violation> {
        let held: Vec<_> = self.disk.held();
        let what = what.into();
        runner.violation(
            format!("{}step {step} of session {}", self.place, self.generation),
            format!("{what}\nin flight: {held:?}"),
        )
    }

    fn step(&mut self, runner: &mut Runner, step: usize) -> Verdict {
        runner.report.actions += 1;
        let mut idle = self.workers.idle();
        let held = self.disk.held();
        if idle.is_empty() && held.is_empty() {
            if self.end_oldest_snapshot(runner, step) {
                return self.after_step(runner, step);
            }
            if self.is_stuck() {
                return Err(self.fail(runner, step, "every worker waits, and nothing is in flight"));
            }
            return self.after_step(runner, step);
        }
        // All kinds of moments: few writes in flight, and as many as there are workers.
        if !idle.is_empty() && (held.is_empty() || self.random.u32(0..5) < 3) {
            idle.sort_unstable();
            let worker = idle[self.random.usize(0..idle.len())];
            let command = self.command(runner, step, worker);
            self.workers.give(worker, command);
        } else {
            self.release(runner, step, held);
        }
        self.after_step(runner, step)
    }

    /// Ends a snapshot for which workers may be waiting; false when there is none left.
    fn end_oldest_snapshot(&mut self, runner: &Runner, step: usize) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let snapshot = self.held.remove(0);
        if runner.options.trace {
            println!(
                "{step:4} the snapshot of commit {} ends, of {}",
                snapshot.sequence(),
                self.held.len() + 1
            );
        }
        true
    }

    /// True when nothing goes on by itself even after a while. A worker that waits for a lock of the allocator, which
    /// another scenario's thread holds, looks asleep for a moment.
    fn is_stuck(&self) -> bool {
        let idle = self.workers.idle().len();
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if self.workers.idle().len() > idle || !self.disk.held().is_empty() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn release(&mut self, runner: &Runner, step: usize, mut held: Vec<txfs_disk::sim::HeldWrite>) {
        // Much may be committed during a checkpoint.
        let of_the_log = |write: &txfs_disk::sim::HeldWrite| write.file != "index";
        if held.iter().any(of_the_log) && self.random.u32(0..24) > 0 {
            held.retain(of_the_log);
        }
        // By place, because the order of issue may be that of a race.
        held.sort_by(|left, right| (&left.file, left.offset).cmp(&(&right.file, right.offset)));
        // Half of the time the last one, so that gaps arise.
        let at = if self.random.bool() { held.len() - 1 } else { self.random.usize(0..held.len()) };
        let fails = !self.poisoned && self.random.u32(0..400) == 0;
        self.poisoned |= fails;
        if runner.options.trace {
            println!("{step:4} {} {:?} of {}", if fails { "fails" } else { "lands" }, held[at], held.len());
        }
        self.disk.release(held[at].number, if fails { Completion::Fails } else { Completion::Succeeds });
    }

    fn after_step(&mut self, runner: &mut Runner, step: usize) -> Verdict {
        if !self.workers.settle(LONG) {
            return Err(self.fail(runner, step, "a worker neither waits nor comes back"));
        }
        for (worker, answer) in self.workers.take_answers() {
            if runner.options.trace {
                println!("{step:4} worker {worker} answers {answer:?}");
            }
            match answer {
                Ok(()) => {}
                Err(error) if is_no_space(&error) && runner.profile.capacity_bytes.is_some() => {}
                Err(_) if self.poisoned => {}
                Err(error) => return Err(self.fail(runner, step, format!("worker {worker}: {error}"))),
            }
        }
        self.look(runner, step)?;
        self.take_images(runner, step)
    }

    fn command(&mut self, runner: &mut Runner, step: usize, worker: usize) -> Command<Answer> {
        let (engine, ledger) = (self.engine.clone(), self.ledger.clone());
        let choice = self.random.u32(0..100);
        if runner.options.trace {
            println!("{step:4} worker {worker} gets {choice}");
        }
        match choice {
            0..=4 => Box::new(move || ledger.sync(&engine).map(|_| ())),
            5..=9 => Box::new(move || ledger.write_pending(&engine).map(|_| ())),
            10..=13 => Box::new(move || engine.checkpoint()),
            14..=17 => {
                let options = clean_options(self.random.u64(1..4));
                Box::new(move || engine.clean(&options, &mut |_, _| {}).map(|_| ()))
            }
            _ => {
                runner.report.commits += 1;
                let work = Work::draw(&mut self.random, runner.profile);
                Box::new(move || ledger.commit(&engine, work).map(|_| ()))
            }
        }
    }

    /// What is published must always be the state that it counts; old snapshots go on showing theirs.
    fn look(&mut self, runner: &mut Runner, step: usize) -> Verdict {
        if self.poisoned || !step.is_multiple_of(7) {
            return Ok(());
        }
        self.held.push(self.engine.snapshot());
        if self.held.len() > 4 {
            // The oldest, which holds most, stays for longest.
            let at = self.random.usize(0..self.held.len()).max(self.random.usize(0..self.held.len()));
            self.held.remove(at);
        }
        for snapshot in &self.held {
            self.ledger
                .compare(&self.engine, snapshot)
                .map_err(|what| self.fail(runner, step, format!("a snapshot: {what}")))?;
        }
        Ok(())
    }

    fn take_images(&mut self, runner: &mut Runner, step: usize) -> Verdict {
        let per_step = (runner.profile.images_per_write * runner.options.images_factor).max(1);
        for _ in 0..per_step {
            let seed = self.random.u64(..);
            let end = if seed.is_multiple_of(8) { End::Killed } else { End::PowerCut };
            // The promises first: a worker that only looked asleep may have its commit acknowledged while the image is
            // taken, and what was acknowledged afterwards need not be in it.
            let (durable, handed) = (self.ledger.durable(), self.ledger.handed());
            let (disk, oldest) = match end {
                End::PowerCut => (self.disk.crash(seed), durable),
                End::Killed => (self.disk.fork(), handed),
            };
            let fingerprint = disk.fingerprint();
            runner.report.images += 1;
            runner.report.states.insert(fingerprint);
            if self.seen.insert((fingerprint, oldest)) {
                let (oldest, durable) = (oldest as usize, durable as usize);
                let image = Image { disk, end, step: self.disk.steps(), seed, fingerprint, oldest, durable };
                self.verify(runner, step, &image)?;
            }
        }
        Ok(())
    }

    fn verify(&mut self, runner: &mut Runner, step: usize, image: &Image) -> Verdict {
        let (engine, number) = self
            .ledger
            .recover(&image.disk, options(runner.profile), image.oldest as u64)
            .map_err(|what| self.fail(runner, step, format!("{}: {what}", image.describe())))?;
        runner.report.recoveries += 1;
        if self.generation < 3 && derive_seed(image.seed, 5).is_multiple_of(120) {
            let durable = if image.end == End::PowerCut { number } else { image.durable as u64 };
            let ledger = self.ledger.recovered(number, durable);
            let random = fastrand::Rng::with_seed(derive_seed(image.seed, 7));
            let place = format!("{}step {step}, {}, ", self.place, image.describe());
            let next = Overlap::new(image.disk.clone(), engine, ledger, random, place, self.generation + 1);
            return next.run(runner, runner.profile.steps / 4);
        }
        image.disk.power_off();
        Ok(())
    }

    /// Lets everything go, and sees that everybody comes back.
    fn wind_up(&mut self, runner: &mut Runner, steps: usize) -> Verdict {
        for step in steps.. {
            let held = self.disk.held();
            if !held.is_empty() {
                self.release(runner, step, held);
            } else if self.workers.idle().len() == WORKERS {
                break;
            } else if !self.end_oldest_snapshot(runner, step) && self.is_stuck() {
                return Err(self.fail(runner, step, "a worker waits although nothing is in flight"));
            }
            self.after_step(runner, step)?;
        }
        let digest = mix(self.ledger.newest(), self.disk.fingerprint());
        runner.report.trace_digest = mix(runner.report.trace_digest, digest);
        Ok(())
    }
}
