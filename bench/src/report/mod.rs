//! From results to what people read: text for a terminal, the page, its pictures.

mod axis;
mod bars;
mod lines;
pub mod page;
pub mod terminal;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::machine::Machine;
use crate::result::{Goal, Section};
use crate::rounds::delay_text;

/// Everything that stands on the page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Where it was measured.
    pub machine: Machine,
    /// Rounds of each timing.
    pub rounds: u32,
    /// Length of a round, in seconds.
    pub round_seconds: f64,
    /// How it was run.
    pub command: String,
    /// In the order of the page.
    pub sections: Vec<Section>,
}

impl Report {
    /// Of an earlier run.
    pub fn load(path: &Path) -> Result<Report> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// For later.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// Takes a newer section in the place of an older one of the same workload, in the order of `names`.
    pub fn put(&mut self, section: Section, names: &[&str]) {
        self.sections.retain(|other| other.workload != section.workload);
        self.sections.push(section);
        let place = |section: &Section| names.iter().position(|name| *name == section.workload);
        self.sections.sort_by_key(|section| place(section).unwrap_or(names.len()));
    }
}

/// `at most 1.25x`
fn limit_text(goal: &Goal) -> String {
    let bound = match goal.bound {
        crate::result::Bound::AtMost => "at most",
        crate::result::Bound::AtLeast => "at least",
    };
    format!("{bound} {}{}", goal.limit, goal.unit)
}

fn found_text(goal: &Goal) -> String {
    goal.found.map_or_else(|| "not measured".to_owned(), |found| found.text(goal.decimals) + &goal.unit)
}

fn reached_text(goal: &Goal) -> &'static str {
    match goal.reached() {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "-",
    }
}

/// The rows of the table of goals: figure, flushes, found, to reach, reached.
fn goal_row(goal: &Goal) -> [String; 5] {
    [
        goal.figure.clone(),
        delay_text(goal.flush_delay_us),
        found_text(goal),
        limit_text(goal),
        reached_text(goal).to_owned(),
    ]
}
