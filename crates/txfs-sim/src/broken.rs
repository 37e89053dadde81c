//! Shows that the simulator notices: builds engines that are broken on purpose and runs a campaign on each.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// An engine that is broken on purpose.
pub struct BrokenEngine {
    /// The feature of `txfs-engine` that breaks it.
    pub feature: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// The runs in which that must show.
    pub arguments: &'static [&'static str],
}

const CRASHES: &[&str] = &["campaign", "--states", "1000000000"];
const ENGINE_CRASHES: &[&str] = &["campaign", "--engine", "--states", "1000000000"];
/// Writes, those of checkpoints too, are held while others go on.
const OVERLAP: &[&str] = &["concurrent", "--overlap-only", "--scenarios", "1000000000"];
/// The same with so little space that a segment is soon used again.
const FULL_DISK_OVERLAP: &[&str] =
    &["concurrent", "--overlap-only", "--profile", "full-disk", "--scenarios", "1000000000"];

/// All of them.
pub const BROKEN_ENGINES: [BrokenEngine; 7] = [
    BrokenEngine {
        feature: "broken-skip-flush",
        meaning: "acknowledges durable commits without a flush",
        arguments: CRASHES,
    },
    BrokenEngine {
        feature: "broken-ignore-checksum",
        meaning: "recovers records without verifying their checksum",
        arguments: CRASHES,
    },
    BrokenEngine {
        feature: "broken-publish-torn",
        meaning: "acknowledges a durable commit of which only the first sector was flushed",
        arguments: CRASHES,
    },
    BrokenEngine {
        feature: "broken-acknowledge-out-of-order",
        meaning: "acknowledges a durable commit while an earlier write is in flight",
        arguments: OVERLAP,
    },
    BrokenEngine {
        feature: "broken-recycle-in-sight",
        meaning: "uses a segment again that a snapshot can still see",
        arguments: ENGINE_CRASHES,
    },
    BrokenEngine {
        feature: "broken-recycle-before-checkpoint",
        meaning: "uses a segment again to which the durable index still refers",
        arguments: FULL_DISK_OVERLAP,
    },
    BrokenEngine {
        feature: "broken-clean-blindly",
        meaning: "moves data without looking whether it is still the same",
        arguments: OVERLAP,
    },
];

/// Builds each broken engine and demands that a campaign finds a violation within `limit`.
pub fn run(seed: u64, limit: Duration) -> ExitCode {
    let mut all_caught = true;
    for BrokenEngine { feature, meaning, arguments } in BROKEN_ENGINES {
        match catch(feature, arguments, seed, limit) {
            Ok((elapsed, text)) => {
                for line in text.lines().take(8) {
                    println!("    {line}");
                }
                println!("broken: {feature} ({meaning}): caught after {:.2} s", elapsed.as_secs_f64());
            }
            Err(problem) => {
                println!("broken: {feature} ({meaning}): NOT CAUGHT: {problem}");
                all_caught = false;
            }
        }
    }
    if all_caught { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The broken engines share a target directory of their own, so that the sound program is never replaced.
fn catch(
    feature: &str,
    arguments: &[&str],
    seed: u64,
    limit: Duration,
) -> Result<(Duration, String), String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => Path::new(&target).join("broken"),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/broken"),
    };
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--profile", "simulation", "--bin", "txfs-sim", "--features", feature])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_PROFILE_SIMULATION_DEBUG", "0")
        .status()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !built.success() {
        return Err("it does not build".to_owned());
    }
    let start = Instant::now();
    let minutes = format!("{}", limit.as_secs_f64() / 60.0);
    let output = Command::new(target.join("simulation/txfs-sim"))
        .args(arguments)
        .args(["--seed", &seed.to_string(), "--minutes", &minutes])
        .output()
        .map_err(|error| format!("the campaign cannot be run: {error}"))?;
    let elapsed = start.elapsed();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(1) if text.contains("violation in scenario") => Ok((elapsed, text)),
        Some(0) => Err(format!("no violation within {} s", limit.as_secs())),
        _ => Err(format!("the campaign ended with {}: {text}", output.status)),
    }
}
