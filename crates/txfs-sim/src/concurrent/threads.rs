//! Real threads beside the engine's own, until power is lost at a step that nobody foresees.
//!
//! The schedule is the operating system's, so a seed does not give the same run again; what is checked holds under
//! every schedule. The disk takes its time now and then, so that writes overlap.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use txfs_disk::sim::SimulatedDisk;
use txfs_engine::{Engine, EngineOptions};

use super::work::{Ledger, Work, is_no_space, purpose};
use crate::engine_mode;
use crate::generator::Profile;
use crate::hash::derive_seed;
use crate::session::{RunOptions, Runner, ScenarioReport, Verdict, new_disk};
use crate::violation::{Mode, ScenarioId};
use crate::volume::clean_options;

const THREADS: u64 = 5;
/// Images of one run at most: they are verified when it is over.
const IMAGES_MAX: usize = 60;
const COMMITS_MAX: u32 = 400;

/// A disk at one moment of the run, and the number of commits that it must hold.
struct Taken {
    disk: SimulatedDisk,
    oldest: u64,
    what: &'static str,
}

fn options(profile: &Profile) -> EngineOptions {
    EngineOptions {
        background: true,
        write_interval: Duration::from_micros(200),
        flush_interval: Duration::from_millis(5),
        queue_bytes_max: 64 << 10,
        overlap_flush_us: 0,
        // A thread may be waiting for a snapshot of its own.
        reader_patience: Duration::from_millis(5),
        ..engine_mode::options(profile)
    }
}

/// Runs one scenario.
pub fn run_threads(profile: &'static Profile, seed: u64, run_options: RunOptions) -> Verdict<ScenarioReport> {
    let scenario = ScenarioId { profile: profile.name, seed, mode: Mode::Threads };
    let mut runner = Runner { profile, options: run_options, scenario, report: ScenarioReport::default() };
    let mut random = fastrand::Rng::with_seed(purpose(seed, 2));
    let disk = new_disk(profile, seed);
    let format = engine_mode::format(profile, seed);
    Engine::create(&disk.as_disk(), &format, &[])
        .map_err(|error| runner.violation("making the volume", error.to_string()))?;
    let (mut disk, mut ledger) = (disk, Ledger::new(profile));
    for generation in 1..=3 {
        let place = format!("session {generation}");
        let (next, number) = session(&mut runner, &disk, &Arc::new(ledger), &mut random, &place)?;
        (disk, ledger) = (next, number);
    }
    Ok(runner.report)
}

/// One life of a volume up to a power cut. Returns one of the disks that the cut may leave, and its ledger.
fn session(
    runner: &mut Runner,
    disk: &SimulatedDisk,
    ledger: &Arc<Ledger>,
    random: &mut fastrand::Rng,
    place: &str,
) -> Verdict<(SimulatedDisk, Ledger)> {
    let engine = Engine::open(disk.as_disk(), options(runner.profile))
        .map_err(|error| runner.violation(place, error.to_string()))?;
    let taken = watch(disk, Arc::downgrade(ledger), random.u64(..));
    disk.power_off_after(disk.steps() + random.u64(40..2000));
    let problems: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let seed = random.u64(..);
            let (engine, problems, profile) = (&engine, &problems, runner.profile);
            scope.spawn(move || {
                if let Err(problem) = work(engine, ledger, disk, profile, seed) {
                    problems.lock().push(problem);
                    disk.power_off();
                }
            });
        }
    });
    disk.power_off();
    disk.stop_observing();
    drop(engine);
    if let Some(problem) = problems.lock().pop() {
        return Err(runner.violation(place, problem));
    }
    runner.report.sessions += 1;
    runner.report.disk_steps += disk.steps();
    runner.report.commits += ledger.newest();
    let mut images = std::mem::take(&mut *taken.lock());
    for _ in 0..12 {
        let image = disk.crash(random.u64(..));
        images.push(Taken { disk: image, oldest: ledger.durable(), what: "after the power cut" });
    }
    let mut last = None;
    for (index, image) in images.iter().enumerate() {
        runner.report.images += 1;
        runner.report.states.insert(image.disk.fingerprint());
        // With threads of its own an engine also replays the log in two.
        let options =
            if index % 2 == 0 { options(runner.profile) } else { engine_mode::options(runner.profile) };
        let recovered = ledger.recover(&image.disk, options, image.oldest);
        let (engine, number) =
            recovered.map_err(|what| runner.violation(place, format!("{}: {what}", image.what)))?;
        runner.report.recoveries += 1;
        match engine.close() {
            Ok(()) => {}
            Err(error) if is_no_space(&error) && runner.profile.is_limited() => {}
            Err(error) => {
                return Err(runner.violation(place, format!("closing what was recovered: {error}")));
            }
        }
        last = Some((image.disk.clone(), ledger.recovered(number, number)));
    }
    last.ok_or_else(|| runner.violation(place, "there was no image"))
}

/// Takes images at random steps, and makes some writes slow.
fn watch(disk: &SimulatedDisk, ledger: Weak<Ledger>, seed: u64) -> Arc<Mutex<Vec<Taken>>> {
    let taken: Arc<Mutex<Vec<Taken>>> = Arc::default();
    let (images, calls) = (taken.clone(), AtomicU64::new(0));
    disk.observe(move |disk, step| {
        let draw = derive_seed(seed, calls.fetch_add(1, Ordering::Relaxed));
        let Some(ledger) = ledger.upgrade() else { return };
        if draw.is_multiple_of(8) && !step.complete {
            std::thread::sleep(Duration::from_micros(draw >> 8 & 0xff));
        }
        if draw % 25 == 1 && images.lock().len() < IMAGES_MAX {
            // First the promises, then the disk: what is promised in between may be missing.
            let image = if draw & 1 << 20 == 0 {
                let oldest = ledger.durable();
                Taken { oldest, disk: disk.crash(draw), what: "in a power cut during the run" }
            } else {
                let oldest = ledger.handed();
                Taken { oldest, disk: disk.fork(), what: "killed during the run" }
            };
            images.lock().push(image);
        }
    });
    taken
}

/// One thread's life. An error is something that must not happen.
fn work(
    engine: &Engine,
    ledger: &Ledger,
    disk: &SimulatedDisk,
    profile: &Profile,
    seed: u64,
) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut held = Vec::new();
    for _ in 0..COMMITS_MAX {
        let result = match random.u32(0..100) {
            0..=2 => ledger.sync(engine).map(|_| ()),
            3..=4 => ledger.write_pending(engine).map(|_| ()),
            5..=6 => engine.checkpoint(),
            15..=16 => {
                let options = clean_options(random.u64(1..4));
                engine.clean(&options, &mut |_, _| {}).map(|_| ())
            }
            7..=10 => {
                held.push(engine.snapshot());
                Ok(())
            }
            11..=14 => {
                for snapshot in held.drain(..) {
                    ledger.compare_live(engine, &snapshot, disk)?;
                }
                Ok(())
            }
            _ => ledger.commit(engine, Work::draw(&mut random, profile)).map(|_| ()),
        };
        match result {
            Ok(()) => {}
            Err(error) if is_no_space(&error) && profile.is_limited() => {}
            Err(_) if disk.power_lost() => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
