//! `txfs-sim`: crash campaigns, replays, and proof that broken engines are caught.
//!
//! Exit status: 0 when all promises were kept (for `broken`: when every broken engine was caught), 1 otherwise,
//! 2 for wrong arguments.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use txfs::Isolation;
use txfs_sim::broken;
use txfs_sim::campaign::{CampaignOptions, CampaignReport, profile_of, run_campaign, run_one};
use txfs_sim::generator::{PROFILES, Profile, profile};
use txfs_sim::histories;
use txfs_sim::session::RunOptions;
use txfs_sim::violation::Mode;

/// Runs TxFS on a simulated disk that loses power, fails and forgets, and compares it with a reference model.
#[derive(Parser)]
#[command(name = "txfs-sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs random scenarios, with power cut at every step, until enough different crash states were seen.
    Campaign {
        #[command(flatten)]
        limits: Limits,
        /// Different crash states to reach.
        #[arg(long, default_value_t = 20_000)]
        states: u64,
        /// The engine by itself, without the file system.
        #[arg(long)]
        engine: bool,
    },
    /// Runs scenarios once for every step of input and output, with the power lost in step 1, 2, 3 ...
    EveryWrite {
        #[command(flatten)]
        limits: Limits,
        /// Scenarios to run.
        #[arg(long, default_value_t = 20)]
        scenarios: u64,
    },
    /// Runs scenarios on a disk whose reads, writes and flushes fail, that fills up, and whose contents change.
    Faults {
        #[command(flatten)]
        limits: Limits,
        /// Scenarios to run.
        #[arg(long, default_value_t = 500)]
        scenarios: u64,
        /// Runs each once for every position at which a write, a flush or a change of names can fail.
        #[arg(long)]
        every_position: bool,
    },
    /// Runs threads on the engine: by turns with log writes in flight that complete in any order, or freely.
    Concurrent {
        #[command(flatten)]
        limits: Limits,
        /// Scenarios to run of each sort.
        #[arg(long, default_value_t = 20)]
        scenarios: u64,
        /// Only those in which threads run freely.
        #[arg(long)]
        threads_only: bool,
        /// Only those by turns.
        #[arg(long)]
        overlap_only: bool,
    },
    /// Runs random transactions in many threads on one volume, and checks what they saw of each other.
    Histories {
        /// Transactions that have to commit.
        #[arg(long, default_value_t = 100_000)]
        transactions: u64,
        /// Clients.
        #[arg(long, default_value_t = 6)]
        threads: u32,
        /// What transactions ask for: serializable, in which there must be no anomaly at all, or snapshot, in which
        /// write skew has to be found and nothing worse.
        #[arg(long, default_value = "serializable", value_parser = parse_isolation)]
        isolation: Isolation,
        /// Of what the clients do; when they do it is up to the operating system.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A directory for the volume, which must not exist yet; without one the disk is simulated.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Runs one scenario again and prints what happens.
    Replay {
        /// Kind of scenario, as the violation says; otherwise the seed decides.
        #[arg(long, value_parser = parse_profile)]
        profile: Option<&'static Profile>,
        /// Seed of the scenario, as the violation says.
        #[arg(long)]
        seed: u64,
        /// What is done to it: crash, every-write, faults, every-fault, engine, overlap or threads.
        #[arg(long, default_value = "crash", value_parser = parse_mode)]
        mode: Mode,
        /// Prints only the result.
        #[arg(long)]
        quiet: bool,
    },
    /// Builds engines that are broken on purpose, and demands that a campaign catches each of them.
    Broken {
        /// Seed of the campaigns.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Seconds within which each must be caught.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
}

#[derive(Args)]
struct Limits {
    /// Everything follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads; all processors by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Ends the campaign after this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Only this kind of scenario.
    #[arg(long, value_parser = parse_profile)]
    profile: Option<&'static Profile>,
    /// Stops after this many violations.
    #[arg(long, default_value_t = 1)]
    violations: usize,
}

fn parse_profile(name: &str) -> Result<&'static Profile, String> {
    profile(name).ok_or_else(|| {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn parse_isolation(name: &str) -> Result<Isolation, String> {
    match name {
        "serializable" => Ok(Isolation::Serializable),
        "snapshot" => Ok(Isolation::Snapshot),
        _ => Err("there are serializable and snapshot".to_owned()),
    }
}

fn parse_mode(name: &str) -> Result<Mode, String> {
    Mode::named(name).ok_or_else(|| Mode::ALL.map(Mode::name).join(", "))
}

fn campaign(limits: &Limits, mode: Mode, states: u64, scenarios_max: Option<u64>) -> CampaignReport {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    run_campaign(&CampaignOptions {
        states,
        seed: limits.seed,
        threads: limits.threads.unwrap_or(processors),
        time_max: limits.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0)),
        scenarios_max,
        profile: limits.profile,
        mode,
        violations_max: limits.violations,
        progress: true,
    })
}

fn finish(report: &CampaignReport) -> ExitCode {
    println!("sim: {}", report.summary());
    if let Some(first) = report.first_violation {
        println!("sim: first violation after {:.2} s", first.as_secs_f64());
    }
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what came of it; success when it was as promised.
fn histories(options: &histories::run::Options) -> ExitCode {
    let summary = match histories::run::run(options) {
        Ok(summary) => summary,
        Err(problem) => {
            println!("histories: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let (counts, report, (work, checking)) = (summary.counts, &summary.report, summary.took);
    println!(
        "histories: {} transactions committed ({} of them changed something), {} aborted, {} calls outside; {:.0}/s \
         with {} threads",
        counts.committed,
        counts.updates,
        counts.aborted,
        counts.calls,
        (counts.committed + counts.calls) as f64 / work.as_secs_f64(),
        options.threads,
    );
    println!(
        "histories: checked in {:.1} s: {} reads ({} of unknown version), {} edges",
        checking.as_secs_f64(),
        report.reads,
        report.ambiguous,
        report.edges
    );
    if let Some(permitted) = report.permitted.iter().min_by_key(|anomaly| anomaly.transactions.len()) {
        println!("histories: {} permitted anomalies, for instance {permitted}", report.permitted.len());
    }
    match summary.problem(options.isolation) {
        None => {
            println!("histories: no anomaly that {:?} isolation excludes", options.isolation);
            ExitCode::SUCCESS
        }
        Some(problem) => {
            println!("histories: seed {}: {problem}", options.seed);
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Campaign { limits, states, engine } => {
            let mode = if engine { Mode::Engine } else { Mode::Crash };
            finish(&campaign(&limits, mode, states, None))
        }
        Command::EveryWrite { limits, scenarios } => {
            finish(&campaign(&limits, Mode::EveryWrite, u64::MAX, Some(scenarios)))
        }
        Command::Faults { limits, scenarios, every_position } => {
            let mode = if every_position { Mode::EveryFault } else { Mode::Faults };
            finish(&campaign(&limits, mode, u64::MAX, Some(scenarios)))
        }
        Command::Concurrent { limits, scenarios, threads_only, overlap_only } => {
            let mut outcome = ExitCode::SUCCESS;
            let wanted = [(Mode::Overlap, !threads_only), (Mode::Threads, !overlap_only)];
            for (mode, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
                let report = campaign(&limits, mode, u64::MAX, Some(scenarios));
                if !report.violations.is_empty() {
                    outcome = ExitCode::FAILURE;
                }
                finish(&report);
            }
            outcome
        }
        Command::Histories { transactions, threads, isolation, seed, directory } => {
            histories(&histories::run::Options {
                transactions,
                threads: threads.max(1),
                isolation,
                seed,
                directory,
            })
        }
        Command::Replay { profile, seed, mode, quiet } => {
            let profile = profile.unwrap_or_else(|| profile_of(seed));
            let run = || run_one(profile, seed, mode, RunOptions { trace: !quiet, ..RunOptions::default() });
            let mut outcome = run();
            // With threads a seed leaves something to the scheduler: what one run showed, another may not.
            let repetitions = if matches!(mode, Mode::Overlap | Mode::Threads) { 40 } else { 0 };
            for _ in 0..repetitions {
                if outcome.is_err() {
                    break;
                }
                outcome = run();
            }
            match outcome {
                Ok(report) => {
                    println!(
                        "no violation; {} states, trace {:016x}",
                        report.states.len(),
                        report.trace_digest
                    );
                    ExitCode::SUCCESS
                }
                Err(violation) => {
                    println!("{violation}");
                    ExitCode::FAILURE
                }
            }
        }
        Command::Broken { seed, seconds } => broken::run(seed, Duration::from_secs(seconds)),
    }
}
