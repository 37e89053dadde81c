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
        // rounds too short to find anything
        let found =
            found.filter(|found| [found.median, found.min, found.max].iter().all(|value| value.is_finite()));
        Goal { figure: figure.into(), flush_delay_us, found, limit, bound, unit, decimals }
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

    /// Whether the median is on the right side; nothing when it was not measured.
    pub fn reached(&self) -> Option<bool> {
        self.found.map(|found| match self.bound {
            Bound::AtMost => found.median <= self.limit,
            Bound::AtLeast => found.median >= self.limit,
        })
    }
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
}
