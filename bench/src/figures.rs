//! Medians and percentiles.

use serde::{Deserialize, Serialize};

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Spread {
            median: percentile(&sorted, 0.5),
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
        }
    }

    /// Of the quotients of what belongs together.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Spread {
        let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
        Spread::of(&ratios)
    }

    /// `12.3 (11.9-14.0)`, or `12.3` where there is no spread.
    pub fn text(&self, decimals: usize) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(|value| number(value, decimals));
        if self.min == self.max { median } else { format!("{median} ({min}-{max})") }
    }
}

/// `12,345.6`
pub fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let digits = text.trim_start_matches('-').find('.').unwrap_or(text.trim_start_matches('-').len());
    let sign = text.len() - text.trim_start_matches('-').len();
    let mut out = String::with_capacity(text.len() + digits / 3);
    for (index, character) in text.char_indices() {
        let place = index.wrapping_sub(sign);
        if index > sign && place < digits && (digits - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(character);
    }
    out
}

/// The value below which the given share of the sorted values lies; the middle of two where there is no single one.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_small_sets() {
        assert_eq!(percentile(&[1.0, 2.0, 3.0], 0.5), 2.0);
        assert_eq!(percentile(&[1.0, 2.0], 0.5), 1.5);
        assert_eq!(percentile(&[7.0], 0.99), 7.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(1234567.89, 1), "1,234,567.9");
        assert_eq!(number(123.0, 0), "123");
        assert_eq!(number(-123456.0, 0), "-123,456");
        assert_eq!(number(1000.0, 2), "1,000.00");
        assert_eq!(number(f64::NAN, 2), "NaN");
    }

    #[test]
    fn spread_does_not_need_order() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
    }
}
