//! Shows that the simulator notices: builds an engine that can be broken on purpose and runs a campaign with each fault.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use txfs_engine::broken::{Fault, VARIABLE};

/// An engine that is broken on purpose.
pub struct BrokenEngine {
    /// What is wrong with it.
    pub fault: Fault,
    /// What it does.
    pub meaning: &'static str,
    /// The runs in which that must show.
    pub arguments: &'static [&'static str],
}

const CRASHES: &[&str] = &["campaign", "--states", "1000000000"];
const UNDO_CRASHES: &[&str] = &["campaign", "--profile", "undo-large", "--states", "1000000000"];
/// Transactions are kept and prepared.
const KEPT_CRASHES: &[&str] = &["campaign", "--profile", "kept", "--states", "1000000000"];
const ENGINE_CRASHES: &[&str] = &["campaign", "--engine", "--states", "1000000000"];
const SNAPSHOT_CRASHES: &[&str] = &["campaign", "--profile", "snapshots", "--states", "1000000000"];
/// Writes, those of checkpoints too, are held while others go on.
const OVERLAP: &[&str] = &["concurrent", "--overlap-only", "--scenarios", "1000000000"];
/// The same with so little space that a segment is soon used again.
const FULL_DISK_OVERLAP: &[&str] =
    &["concurrent", "--overlap-only", "--profile", "full-disk", "--scenarios", "1000000000"];

/// All of them.
pub const BROKEN_ENGINES: [BrokenEngine; 10] = [
    BrokenEngine {
        fault: Fault::SkipFlush,
        meaning: "acknowledges durable commits without a flush",
        arguments: CRASHES,
    },
    BrokenEngine {
        fault: Fault::IgnoreChecksum,
        meaning: "recovers records without verifying their checksum",
        arguments: CRASHES,
    },
    BrokenEngine {
        fault: Fault::PublishTorn,
        meaning: "acknowledges a durable commit of which only the first sector was flushed",
        arguments: CRASHES,
    },
    BrokenEngine {
        fault: Fault::AcknowledgeOutOfOrder,
        meaning: "acknowledges a durable commit while an earlier write is in flight",
        arguments: OVERLAP,
    },
    BrokenEngine {
        fault: Fault::RecycleInSight,
        meaning: "uses a segment again that a snapshot can still see",
        arguments: ENGINE_CRASHES,
    },
    BrokenEngine {
        fault: Fault::RecycleBeforeCheckpoint,
        meaning: "uses a segment again to which the durable index still refers",
        arguments: FULL_DISK_OVERLAP,
    },
    BrokenEngine {
        fault: Fault::CleanBlindly,
        meaning: "moves data without looking whether it is still the same",
        arguments: OVERLAP,
    },
    BrokenEngine {
        fault: Fault::UndoBlindly,
        meaning: "undoes changes of pages without looking whether they are still there",
        arguments: UNDO_CRASHES,
    },
    BrokenEngine {
        fault: Fault::UnsavedPrepared,
        meaning: "does not keep for named snapshots what prepared changes replace",
        arguments: SNAPSHOT_CRASHES,
    },
    BrokenEngine {
        fault: Fault::ForgetKept,
        meaning: "forgets what kept transactions have read and written when it is opened",
        arguments: KEPT_CRASHES,
    },
];

/// Builds the engine and demands that for each fault a campaign finds a violation within `limit`.
pub fn run(seed: u64, limit: Duration) -> ExitCode {
    let program = match build() {
        Ok(program) => program,
        Err(problem) => {
            println!("broken: {problem}");
            return ExitCode::FAILURE;
        }
    };
    // Without a fault it is sound, or what follows shows nothing.
    let sound = campaign(&program, None, &["campaign", "--states", "3000"], seed, limit);
    let mut all_caught = match sound {
        Ok((_, None)) => true,
        Ok((_, Some(text))) => {
            println!("broken: no fault, and yet:\n{text}");
            false
        }
        Err(problem) => {
            println!("broken: no fault: {problem}");
            false
        }
    };
    for BrokenEngine { fault, meaning, arguments } in BROKEN_ENGINES {
        let name = fault.name();
        match campaign(&program, Some(fault), arguments, seed, limit) {
            Ok((elapsed, Some(text))) => {
                for line in text.lines().take(8) {
                    println!("    {line}");
                }
                println!("broken: {name} ({meaning}): caught after {:.2} s", elapsed.as_secs_f64());
            }
            Ok((_, None)) => {
                println!("broken: {name} ({meaning}): NOT CAUGHT within {} s", limit.as_secs());
                all_caught = false;
            }
            Err(problem) => {
                println!("broken: {name} ({meaning}): NOT CAUGHT: {problem}");
                all_caught = false;
            }
        }
    }
    if all_caught { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// It has a target directory of its own, so that the sound program is never replaced.
fn build() -> Result<PathBuf, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => Path::new(&target).join("broken"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/broken"),
    };
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--profile", "simulation", "--bin", "txfs-sim", "--features", "broken"])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_PROFILE_SIMULATION_DEBUG", "0")
        .status()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    match built.success() {
        true => Ok(target.join("simulation/txfs-sim")),
        false => Err("the engine does not build".to_owned()),
    }
}

/// How long a campaign took, and what it says of the violation that it found.
fn campaign(
    program: &Path,
    fault: Option<Fault>,
    arguments: &[&str],
    seed: u64,
    limit: Duration,
) -> Result<(Duration, Option<String>), String> {
    let start = Instant::now();
    let minutes = format!("{}", limit.as_secs_f64() / 60.0);
    let mut command = Command::new(program);
    command.args(arguments).args(["--seed", &seed.to_string(), "--minutes", &minutes]);
    match fault {
        Some(fault) => command.env(VARIABLE, fault.name()),
        None => command.env_remove(VARIABLE),
    };
    let output = command.output().map_err(|error| format!("the campaign cannot be run: {error}"))?;
    let elapsed = start.elapsed();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(1) if text.contains("violation in scenario") => Ok((elapsed, Some(text))),
        Some(0) => Ok((elapsed, None)),
        _ => Err(format!("the campaign ended with {}: {text}", output.status)),
    }
}
