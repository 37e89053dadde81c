//! A few seconds of each mode, determinism, and the seeds that once showed a bug.

use std::fs;
use std::path::Path;

use txfs_sim::campaign::{CampaignOptions, profile_of, run_campaign, run_one};
use txfs_sim::generator::{PROFILES, profile};
use txfs_sim::session::RunOptions;
use txfs_sim::violation::Mode;

fn campaign(mode: Mode, states: u64, scenarios: u64) -> u64 {
    let report = run_campaign(&CampaignOptions {
        states,
        seed: 7,
        threads: 2,
        time_max: None,
        scenarios_max: Some(scenarios),
        profile: None,
        mode,
        violations_max: 1,
        progress: false,
    });
    println!("{}", report.summary());
    if let Some(violation) = report.violations.first() {
        panic!("{violation}");
    }
    report.distinct_states
}

#[test]
fn power_cuts_at_every_step_keep_all_promises() {
    assert!(campaign(Mode::Crash, 1_000, 40) >= 1_000);
}

#[test]
fn power_lost_in_step_one_two_three() {
    assert!(campaign(Mode::EveryWrite, u64::MAX, 3) > 100);
}

#[test]
fn failing_disks_lose_nothing_that_was_acknowledged() {
    campaign(Mode::Faults, u64::MAX, 60);
}

#[test]
fn a_fault_at_every_position_loses_nothing_that_was_acknowledged() {
    campaign(Mode::EveryFault, u64::MAX, 2);
}

#[test]
fn the_engine_by_itself_keeps_all_promises() {
    assert!(campaign(Mode::Engine, 1_000, 10) >= 1_000);
}

#[test]
fn writes_in_flight_complete_in_any_order() {
    assert!(campaign(Mode::Overlap, u64::MAX, 12) >= 1_000);
}

#[test]
fn threads_lose_nothing_that_was_acknowledged() {
    campaign(Mode::Threads, u64::MAX, 6);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = RunOptions { actions_max: Some(25), ..RunOptions::default() };
    for profile in &PROFILES {
        let run = || match run_one(profile, 11, Mode::Crash, options) {
            Ok(report) => report,
            Err(violation) => panic!("{violation}"),
        };
        let (first, second) = (run(), run());
        assert_eq!(first.trace_digest, second.trace_digest, "{}", profile.name);
        assert_eq!(first.states, second.states, "{}", profile.name);
        assert_eq!(first.recoveries, second.recoveries, "{}", profile.name);
    }
}

/// Lines of `seeds.txt`: mode, profile (or `-` for the seed's own), seed, and what it showed.
#[test]
fn seeds_that_showed_a_bug_stay_fixed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds.txt");
    let text = fs::read_to_string(path).expect("the list of seeds");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (Some(mode), Some(name), Some(seed)) = (words.next(), words.next(), words.next()) else {
            panic!("malformed line {line:?}");
        };
        let seed: u64 = seed.parse().unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let mode = Mode::named(mode).unwrap_or_else(|| panic!("{line:?}: unknown mode"));
        let profile = if name == "-" { Some(profile_of(seed)) } else { profile(name) };
        let profile = profile.unwrap_or_else(|| panic!("{line:?}: unknown profile"));
        if let Err(violation) = run_one(profile, seed, mode, RunOptions::default()) {
            panic!("{line}\n{violation}");
        }
    }
}
