//! Groups of horizontal bars with their spread.

use std::fmt::Write;

use crate::figures::number;
use crate::report::axis::{Scale, WIDTH, colour, escape, label, legend, open};
use crate::result::Bars;

const BAR: f64 = 14.0;
const GAP: f64 = 12.0;
const LEFT: f64 = 215.0;
const RIGHT: f64 = WIDTH - 70.0;

/// The picture.
pub fn draw(plot: &Bars) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, bars) in &plot.groups {
        for (name, _) in bars {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let values =
        plot.groups.iter().flat_map(|(_, bars)| bars).flat_map(|(_, spread)| [spread.median, spread.max]);
    let scale = Scale::of(values, plot.logarithmic);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * scale.share(value);

    let mut body = String::new();
    let top = legend(&mut body, &names) + 16.0;
    let mut bars_text = String::new();
    let mut y = top;
    for (group, bars) in &plot.groups {
        let middle = y + BAR * bars.len() as f64 / 2.0 + 4.0;
        let _ = writeln!(
            bars_text,
            r#"<text class="end" x="{:.1}" y="{middle:.1}">{}</text>"#,
            LEFT - 8.0,
            escape(group)
        );
        for (name, spread) in bars {
            let index = names.iter().position(|other| other == name).unwrap_or(0);
            let (end, middle) = (x(spread.median), y + BAR / 2.0);
            let decimals = if spread.median < 10.0 { 2 } else { 0 };
            let _ = writeln!(
                bars_text,
                r#"<rect x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}" fill="{}"><title>{}: {} {}</title></rect>"#,
                y + 1.0,
                (end - LEFT).max(1.0),
                BAR - 2.0,
                colour(index),
                escape(name),
                spread.text(decimals),
                escape(&plot.unit)
            );
            let _ = writeln!(
                bars_text,
                r#"<line class="spread" x1="{:.1}" y1="{middle:.1}" x2="{:.1}" y2="{middle:.1}"/><text x="{:.1}" y="{:.1}">{}</text>"#,
                x(spread.min),
                x(spread.max),
                x(spread.max).max(end) + 5.0,
                middle + 4.0,
                number(spread.median, decimals)
            );
            y += BAR;
        }
        y += GAP;
    }
    let mut out = open(&format!("{} ({})", plot.title, plot.unit), y + 22.0);
    for tick in scale.ticks() {
        let _ = writeln!(
            out,
            r#"<line class="grid" x1="{0:.1}" y1="{1:.1}" x2="{0:.1}" y2="{2:.1}"/><text class="middle" x="{0:.1}" y="{3:.1}">{4}</text>"#,
            x(tick),
            top - 4.0,
            y - 4.0,
            y + 10.0,
            label(tick)
        );
    }
    out + &body + &bars_text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Spread;

    #[test]
    fn every_bar_is_drawn_and_named() {
        let bar = |name: &str, value: f64| (name.to_owned(), Spread::of(&[value]));
        let plot = Bars {
            name: "n".into(),
            title: "a < b".into(),
            unit: "a second".into(),
            logarithmic: true,
            groups: vec![
                ("first".into(), vec![bar("one", 10.0), bar("two", 2000.0)]),
                ("second".into(), vec![bar("one", 20.0)]),
            ],
        };
        let picture = draw(&plot);
        assert_eq!(picture.matches("<rect").count(), 2 + 3, "two in the legend, three bars");
        assert!(picture.contains("a &lt; b (a second)"));
        assert!(picture.contains("2,000"));
        assert!(picture.ends_with("</svg>\n"));
    }
}
