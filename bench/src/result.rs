//! What a workload found: tables, plots, and the figures that it is judged by. Kept as JSON, so that the page can be
//! written again without a run.

use serde::{Deserialize, Serialize};

use crate::figures::Spread;

/// Everything that one workload found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Section {
    /// Name of the workload.
    pub workload: String,
    /// Heading on the page.
    pub title: String,
    /// What is done and measured, in a few sentences.
    pub about: String,
    /// Figures beside each other.
    pub tables: Vec<Table>,
    /// Pictures of them.
    pub plots: Vec<Plot>,
    /// What was to reach.
    pub goals: Vec<Goal>,
    /// What the figures leave out, or what was noticed.
    pub notes: Vec<String>,
    /// How long the workload took, in seconds, with all preparations.
    pub seconds: f64,
}

/// Columns and rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// What the rows are.
    pub caption: String,
    /// Headings, with units.
    pub columns: Vec<String>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// One field of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A median with its spread over the rounds.
    Figure {
        /// The figure.
        spread: Spread,
        /// Digits behind the point.
        decimals: usize,
    },
    /// One number without a spread.
    Number {
        /// The number.
        value: f64,
        /// Digits behind the point.
        decimals: usize,
    },
    /// Not measured.
    None,
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A median with its spread; nothing where there were no rounds.
    pub fn figure(spread: Spread, decimals: usize) -> Cell {
        if spread.median.is_nan() { Cell::None } else { Cell::Figure { spread, decimals } }
    }

    /// One number; nothing where there is none.
    pub fn number(value: impl Into<Option<f64>>, decimals: usize) -> Cell {
        match value.into() {
            Some(value) if !value.is_nan() => Cell::Number { value, decimals },
            _ => Cell::None,
        }
    }
}

/// Which side of the limit is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// The figure may be this at most.
    AtMost,
    /// The figure must be this at least.
    AtLeast,
}

/// A figure that something is expected of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// What it is; the same words for each flush delay.
    pub figure: String,
    /// Added to each flush, in microseconds.
    pub flush_delay_us: u64,
    /// What it was; nothing when it could not be measured, for the reason in the notes.
    pub found: Option<Spread>,
    /// What the raw device attains in the same figure, in the same run: the limit that the hardware sets here. Nothing
    /// where that means nothing.
    #[serde(default)]
    pub raw: Option<Spread>,
    /// What it should be.
    pub limit: f64,
    /// Which side of it.
    pub bound: Bound,
    /// Behind the number: `x`, ` ms`.
    pub unit: String,
    /// Digits behind the point.
    pub decimals: usize,
}

impl Goal {
    /// A ratio of at least `limit`.
    pub fn at_least(
        figure: impl Into<String>,
        flush_delay_us: u64,
        limit: f64,
        found: Option<Spread>,
    ) -> Goal {
        let (bound, unit, decimals) = (Bound::AtLeast, "x".to_owned(), 2);
        let found = found.filter(is_figure);
        Goal { figure: figure.into(), flush_delay_us, found, raw: None, limit, bound, unit, decimals }
    }

    /// A ratio of at most `limit`.
    pub fn at_most(
        figure: impl Into<String>,
        flush_delay_us: u64,
        limit: f64,
        found: Option<Spread>,
    ) -> Goal {
        Goal { bound: Bound::AtMost, ..Goal::at_least(figure, flush_delay_us, limit, found) }
    }

    /// With another unit than `x`.
    pub fn unit(self, unit: &str, decimals: usize) -> Goal {
        Goal { unit: unit.to_owned(), decimals, ..self }
    }

    /// With what the raw device attains in it.
    pub fn raw(self, raw: Option<Spread>) -> Goal {
        Goal { raw: raw.filter(is_figure), ..self }
    }

    /// Whether the median is on the right side; nothing when it was not measured. What the raw device attains has no say.
    pub fn reached(&self) -> Option<bool> {
        self.found.map(|found| self.suffices(found))
    }

    /// Whether the raw device would reach it; nothing when that was not measured.
    pub fn raw_reached(&self) -> Option<bool> {
        self.raw.map(|raw| self.suffices(raw))
    }

    fn suffices(&self, figure: Spread) -> bool {
        match self.bound {
            Bound::AtMost => figure.median <= self.limit,
            Bound::AtLeast => figure.median >= self.limit,
        }
    }
}

/// Rounds that are too short find nothing.
fn is_figure(spread: &Spread) -> bool {
    [spread.median, spread.min, spread.max].iter().all(|value| value.is_finite())
}

/// A picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Plot {
    /// Groups of horizontal bars, one bar in each for each series.
    Bars(Bars),
    /// Lines over a common axis.
    Lines(Lines),
}

/// Groups of bars.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bars {
    /// Of the file: letters, digits and dashes.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// Of the values.
    pub unit: String,
    /// Steps of ten instead of a linear axis.
    pub logarithmic: bool,
    /// From top to bottom: the group's label and its bars with their series.
    pub groups: Vec<(String, Vec<(String, Spread)>)>,
}

/// Lines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lines {
    /// Of the file: letters, digits and dashes.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// Below the horizontal axis, with its unit.
    pub across: String,
    /// Beside the vertical axis, with its unit.
    pub up: String,
    /// Steps of ten on the vertical axis.
    pub logarithmic: bool,
    /// Each with its points, from left to right.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides() {
        let found = Some(Spread { median: 4.0, min: 1.0, max: 9.0 });
        assert_eq!(Goal::at_least("a", 0, 4.0, found).reached(), Some(true));
        assert_eq!(Goal::at_least("a", 0, 4.1, found).reached(), Some(false));
        assert_eq!(Goal::at_most("a", 0, 4.0, found).reached(), Some(true));
        assert_eq!(Goal::at_most("a", 0, 3.9, found).reached(), Some(false));
        assert_eq!(Goal::at_most("a", 0, 3.9, None).reached(), None);
    }

    #[test]
    fn the_raw_device_has_no_say_in_what_is_reached() {
        let spread = |median| Some(Spread { median, min: median, max: median });
        let goal = Goal::at_least("a", 0, 4.0, spread(2.0)).raw(spread(3.0));
        assert_eq!((goal.reached(), goal.raw_reached()), (Some(false), Some(false)));
        let goal = Goal::at_least("a", 0, 4.0, spread(2.0)).raw(spread(5.0));
        assert_eq!((goal.reached(), goal.raw_reached()), (Some(false), Some(true)));
        assert_eq!(Goal::at_least("a", 0, 4.0, spread(2.0)).raw(spread(f64::NAN)).raw_reached(), None);
    }

    #[test]
    fn goals_without_raw_figures_still_read() {
        let old = r#"{"figure": "a", "flush_delay_us": 0, "found": null, "limit": 1.5, "bound": "AtMost",
            "unit": "x", "decimals": 2}"#;
        assert!(serde_json::from_str::<Goal>(old).unwrap().raw.is_none());
    }
}
