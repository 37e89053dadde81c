//! What all pictures share: sizes, colours that can be read on light and on dark ground, and the scale of an axis.

use std::fmt::Write;

/// Width of every picture, in user units.
pub const WIDTH: f64 = 760.0;
/// Colours of the series, each told from its neighbours by people with any colour vision (after Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f8f8f", "#b8a800"];

/// Colour of the series with this number.
pub fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Text that stands for itself in XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a picture, with its title. Words and lines take the colour that suits the reader's ground; there is no
/// ground of our own.
pub fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{title}">
<style>
text {{ font: 12px system-ui, sans-serif; fill: #404040; }}
.title {{ font-size: 14px; font-weight: 600; }}
.end {{ text-anchor: end; }} .middle {{ text-anchor: middle; }}
.grid {{ stroke: #808080; stroke-opacity: .25; }}
.spread {{ stroke: #606060; }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #d0d0d0; }} .spread {{ stroke: #c0c0c0; }} }}
</style>
<text class="title" x="10" y="20">{title}</text>
"##
    )
}

/// Series with their colours, in a row below the title; the rows that it took.
pub fn legend(out: &mut String, names: &[&str]) -> f64 {
    let (mut x, mut y) = (10.0, 40.0);
    for (index, name) in names.iter().enumerate() {
        let width = 26.0 + 7.2 * name.chars().count() as f64;
        if x + width > WIDTH {
            (x, y) = (10.0, y + 18.0);
        }
        let _ = writeln!(
            out,
            r#"<rect x="{x}" y="{:.1}" width="10" height="10" fill="{}"/><text x="{:.1}" y="{y}">{}</text>"#,
            y - 9.0,
            colour(index),
            x + 15.0,
            escape(name)
        );
        x += width;
    }
    y
}

/// From values to places.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
}

impl Scale {
    /// Holds all the values; a linear one begins at 0.
    pub fn of(values: impl Iterator<Item = f64>, logarithmic: bool) -> Scale {
        let usable = values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0));
        let (low, high) =
            usable.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return Scale { logarithmic: false, low: 0.0, high: 1.0 };
        }
        if logarithmic {
            let low = 10_f64.powf(low.log10().floor());
            let high = 10_f64.powf(high.log10().ceil());
            return Scale { logarithmic, low, high: if high > low { high } else { low * 10.0 } };
        }
        let step = step(high.max(f64::MIN_POSITIVE));
        Scale { logarithmic, low: 0.0, high: (high / step).ceil().max(1.0) * step }
    }

    /// 0 for the low end, 1 for the high end.
    pub fn share(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Where lines and labels go.
    pub fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.logarithmic {
            let mut tick = self.low;
            while tick <= self.high * 1.001 {
                ticks.push(tick);
                tick *= 10.0;
            }
        } else {
            let step = step(self.high);
            let count = (self.high / step).round() as u32;
            ticks.extend((0..=count).map(|index| f64::from(index) * step));
        }
        ticks
    }
}

/// A round step that divides the range from 0 into about five.
fn step(high: f64) -> f64 {
    let rough = high / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let times =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| power * times >= rough * 0.999).unwrap_or(10.0);
    power * times
}

/// A tick's label: `2`, `0.5`, `20k`, `3M`.
pub fn label(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_their_values() {
        let linear = Scale::of([3.0, 47.0].into_iter(), false);
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(linear.share(25.0), 0.5);
        let logarithmic = Scale::of([30.0, 4700.0].into_iter(), true);
        assert_eq!(logarithmic.ticks().len(), 4);
        assert_eq!(logarithmic.share(10.0), 0.0);
        assert!((logarithmic.share(1000.0) - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(Scale::of(std::iter::empty(), true).share(5.0), 1.0);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([label(0.5), label(2.0), label(20_000.0), label(3e6)], ["0.5", "2", "20k", "3M"]);
    }
}
