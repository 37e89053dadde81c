//! Many scenarios on many threads, until enough different crash states have been seen.

use std::cell::RefCell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, UnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::concurrent::overlap::run_overlap;
use crate::concurrent::threads::run_threads;
use crate::engine_mode::run_engine;
use crate::every_write::run_every_write;
use crate::faults::{run_every_fault, run_faults};
use crate::generator::{PROFILES, PROFILES_IN_TURN, Profile};
use crate::hash::derive_seed;
use crate::session::{RunOptions, ScenarioReport, run_scenario};
use crate::violation::{Mode, ScenarioId, Violation};

/// What a campaign does and when it ends.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    /// Different crash states to reach.
    pub states: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// Threads; results do not depend on it, only how many scenarios there are in the end.
    pub threads: usize,
    /// Ends it early.
    pub time_max: Option<Duration>,
    /// Scenarios at most.
    pub scenarios_max: Option<u64>,
    /// Only this kind of scenario.
    pub profile: Option<&'static Profile>,
    /// What is done to the scenarios.
    pub mode: Mode,
    /// Goes on after violations, up to this many.
    pub violations_max: usize,
    /// Prints progress to standard error.
    pub progress: bool,
}

/// What a campaign did and found.
#[derive(Debug, Default)]
pub struct CampaignReport {
    /// Scenarios run.
    pub scenarios: u64,
    /// Sums over all scenarios; `states` is empty here.
    pub totals: ScenarioReport,
    /// Different crash states.
    pub distinct_states: u64,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// How long it took.
    pub elapsed: Duration,
    /// The time up to the first violation.
    pub first_violation: Option<Duration>,
}

impl CampaignReport {
    /// One line for people.
    pub fn summary(&self) -> String {
        let seconds = self.elapsed.as_secs_f64().max(0.001);
        format!(
            "{} distinct crash states ({} images, {} recoveries) in {} scenarios, {} sessions, {} actions, {} disk \
             steps, {} commits, {} conflicts; {seconds:.1} s, {:.0} states/s; {} violations",
            self.distinct_states,
            self.totals.images,
            self.totals.recoveries,
            self.scenarios,
            self.totals.sessions,
            self.totals.actions,
            self.totals.disk_steps,
            self.totals.commits,
            self.totals.conflicts,
            self.distinct_states as f64 / seconds,
            self.violations.len()
        )
    }
}

/// The kind of scenario that a seed stands for, where none is asked for.
pub fn profile_of(seed: u64) -> &'static Profile {
    &PROFILES[(seed % PROFILES_IN_TURN as u64) as usize]
}

/// The scenario with this number in a campaign.
pub fn scenario(options: &CampaignOptions, number: u64) -> (&'static Profile, u64) {
    // Seeds fit into 32 bits, so that they are easy to type.
    let seed = derive_seed(options.seed, number) >> 32;
    (options.profile.unwrap_or_else(|| profile_of(seed)), seed)
}

/// Runs one scenario; a panic is a violation, too.
pub fn run_one(
    profile: &'static Profile,
    seed: u64,
    mode: Mode,
    options: RunOptions,
) -> Result<ScenarioReport, Box<Violation>> {
    let run = AssertUnwindSafe(|| match mode {
        Mode::Crash => run_scenario(profile, seed, options),
        Mode::EveryWrite => {
            run_every_write(profile, seed, options.actions_max.unwrap_or(profile.steps), options)
        }
        Mode::Faults => run_faults(profile, seed, options),
        Mode::EveryFault => run_every_fault(profile, seed, options),
        Mode::Engine => run_engine(profile, seed, options),
        Mode::Overlap => run_overlap(profile, seed, options),
        Mode::Threads => run_threads(profile, seed, options),
    });
    quietly(run).unwrap_or_else(|panic| {
        let scenario = ScenarioId { profile: profile.name, seed, mode };
        Err(Box::new(Violation { scenario, place: "a panic".to_owned(), what: panic }))
    })
}

thread_local! {
    /// Message of the last panic of this thread; `None` outside [`quietly`].
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`; a panic becomes an error with its message and place, and prints nothing.
pub fn quietly<T>(work: impl FnOnce() -> T + UnwindSafe) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let caught = PANIC.with_borrow_mut(|slot| match slot {
                Some(text) => {
                    *text = info.to_string();
                    true
                }
                None => false,
            });
            if !caught {
                earlier(info);
            }
        }));
    });
    let outer = PANIC.replace(Some(String::new()));
    let result = std::panic::catch_unwind(work);
    let text = PANIC.replace(outer).unwrap_or_default();
    result.map_err(|_| format!("panic: {text}"))
}

/// Runs a campaign.
pub fn run_campaign(options: &CampaignOptions) -> CampaignReport {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let states: Mutex<HashSet<u64>> = Mutex::new(HashSet::new());
    let report = Mutex::new(CampaignReport::default());
    let last_progress = Mutex::new(start);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if options.scenarios_max.is_some_and(|max| number >= max) {
                        break;
                    }
                    let (profile, seed) = scenario(options, number);
                    let result = run_one(profile, seed, options.mode, RunOptions::default());
                    let mut report = report.lock();
                    report.scenarios += 1;
                    match result {
                        Ok(found) => {
                            let mut states = states.lock();
                            states.extend(&found.states);
                            report.distinct_states = states.len() as u64;
                            add(&mut report.totals, &found);
                        }
                        Err(violation) => {
                            if options.progress {
                                eprintln!("{violation}");
                            }
                            report.first_violation.get_or_insert(start.elapsed());
                            report.violations.push(*violation);
                        }
                    }
                    report.elapsed = start.elapsed();
                    let late = options.time_max.is_some_and(|max| report.elapsed >= max);
                    if report.distinct_states >= options.states
                        || report.violations.len() >= options.violations_max
                        || late
                    {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let mut last = last_progress.lock();
                    if options.progress && last.elapsed() > Duration::from_secs(10) {
                        *last = Instant::now();
                        eprintln!("{}", report.summary());
                    }
                }
            });
        }
    });
    let mut report = report.into_inner();
    report.elapsed = start.elapsed();
    report
}

fn add(totals: &mut ScenarioReport, one: &ScenarioReport) {
    totals.actions += one.actions;
    totals.disk_steps += one.disk_steps;
    totals.images += one.images;
    totals.recoveries += one.recoveries;
    totals.sessions += one.sessions;
    totals.commits += one.commits;
    totals.conflicts += one.conflicts;
}
