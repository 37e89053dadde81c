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
use crate::figures::Spread;
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

fn figure_text(goal: &Goal, figure: Option<Spread>, without: &str) -> String {
    figure.map_or_else(|| without.to_owned(), |figure| figure.text(goal.decimals) + &goal.unit)
}

fn reached_text(goal: &Goal) -> &'static str {
    match goal.reached() {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "-",
    }
}

/// The table of goals, its headings first; what the raw disk attains only where that is known of any of them.
fn goal_rows<'goals>(goals: impl Iterator<Item = &'goals Goal> + Clone) -> Vec<Vec<String>> {
    let with_raw = goals.clone().any(|goal| goal.raw.is_some());
    let row = |[figure, flushes, found, raw, limit, reached]: [String; 6]| {
        let raw = with_raw.then_some(raw);
        [figure, flushes, found].into_iter().chain(raw).chain([limit, reached]).collect()
    };
    let headings = ["figure", "flushes", "found", "raw disk here", "to reach", "reached"];
    let mut rows = vec![row(headings.map(str::to_owned))];
    rows.extend(goals.map(|goal| {
        row([
            goal.figure.clone(),
            delay_text(goal.flush_delay_us),
            figure_text(goal, goal.found, "not measured"),
            figure_text(goal, goal.raw, "-"),
            limit_text(goal),
            reached_text(goal).to_owned(),
        ])
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_disk_has_a_column_where_it_is_known() {
        let goal = |raw: Option<f64>| {
            Goal::at_least("a", 0, 4.0, Some(Spread::of(&[2.0]))).raw(raw.map(|raw| Spread::of(&[raw])))
        };
        let without = goal_rows([goal(None)].iter());
        assert_eq!(without[1], ["a", "as the disk is", "2.00x", "at least 4x", "**no**"]);
        let with = goal_rows([goal(None), goal(Some(3.0))].iter());
        assert_eq!(with[0][3], "raw disk here");
        assert_eq!([&with[1][3], &with[2][3]], ["-", "3.00x"]);
    }
}
