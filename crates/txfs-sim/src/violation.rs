//! A broken promise: what was promised, where in which run, and how to see it again.

use std::fmt;

/// Identifies one scenario: the same one gives the same run bit for bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioId {
    /// Kind of scenario.
    pub profile: &'static str,
    /// Seed of its choices.
    pub seed: u64,
    /// What is done to it.
    pub mode: Mode,
}

/// What is done to a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Images of power cuts are taken at every step while it runs.
    Crash,
    /// It is run once for every step, each time with the power lost in that step.
    EveryWrite,
    /// Reads, writes, syncs fail and bits flip.
    Faults,
    /// It is run once for every position at which a write or a flush can fail.
    EveryFault,
    /// As `Crash`, on the engine without the file system.
    Engine,
    /// Log writes are in flight together and complete in any order.
    Overlap,
    /// Real threads beside the engine's own; the one mode in which a seed does not say everything.
    Threads,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 7] = [
        Mode::Crash,
        Mode::EveryWrite,
        Mode::Faults,
        Mode::EveryFault,
        Mode::Engine,
        Mode::Overlap,
        Mode::Threads,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Crash => "crash",
            Mode::EveryWrite => "every-write",
            Mode::Faults => "faults",
            Mode::EveryFault => "every-fault",
            Mode::Engine => "engine",
            Mode::Overlap => "overlap",
            Mode::Threads => "threads",
        }
    }

    /// The mode with this name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The run.
    pub scenario: ScenarioId,
    /// Where in it: action, generation, crash point.
    pub place: String,
    /// What was found, and what was expected.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScenarioId { profile, seed, mode } = &self.scenario;
        writeln!(formatter, "violation in scenario {profile} seed {seed} ({})", mode.name())?;
        writeln!(formatter, "  at {}", self.place)?;
        for line in self.what.lines() {
            writeln!(formatter, "  {line}")?;
        }
        write!(
            formatter,
            "  replay: txfs-sim replay --profile {profile} --seed {seed} --mode {}",
            mode.name()
        )
    }
}
