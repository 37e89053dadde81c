//! Lines over a common axis.

use std::fmt::Write;

use crate::report::axis::{Scale, WIDTH, colour, escape, label, legend, open};
use crate::result::Lines;

const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 20.0;

/// The picture.
pub fn draw(plot: &Lines) -> String {
    let points = || plot.series.iter().flat_map(|(_, points)| points);
    let across = Scale::of(points().map(|point| point.0), false);
    let up = Scale::of(points().map(|point| point.1), plot.logarithmic);
    let names: Vec<&str> = plot.series.iter().map(|(name, _)| name.as_str()).collect();

    let mut body = String::new();
    let top = legend(&mut body, &names) + 30.0;
    let bottom = top + HEIGHT;
    let x = |value: f64| LEFT + (RIGHT - LEFT) * across.share(value);
    let y = |value: f64| bottom - HEIGHT * up.share(value);

    let mut out = open(&plot.title, bottom + 44.0);
    for tick in across.ticks() {
        let _ = writeln!(
            out,
            r#"<line class="grid" x1="{0:.1}" y1="{top:.1}" x2="{0:.1}" y2="{bottom:.1}"/><text class="middle" x="{0:.1}" y="{1:.1}">{2}</text>"#,
            x(tick),
            bottom + 16.0,
            label(tick)
        );
    }
    for tick in up.ticks() {
        let _ = writeln!(
            out,
            r#"<line class="grid" x1="{LEFT}" y1="{0:.1}" x2="{RIGHT}" y2="{0:.1}"/><text class="end" x="{1:.1}" y="{2:.1}">{3}</text>"#,
            y(tick),
            LEFT - 6.0,
            y(tick) + 4.0,
            label(tick)
        );
    }
    let _ = writeln!(
        out,
        r#"<text class="middle" x="{:.1}" y="{:.1}">{}</text><text x="10" y="{:.1}">{}</text>"#,
        (LEFT + RIGHT) / 2.0,
        bottom + 36.0,
        escape(&plot.across),
        top - 10.0,
        escape(&plot.up)
    );
    out += &body;
    for (index, (_, points)) in plot.series.iter().enumerate() {
        let path: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let _ = writeln!(
            out,
            r#"<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>"#,
            colour(index),
            path.join(" ")
        );
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_series() {
        let plot = Lines {
            name: "n".into(),
            title: "t".into(),
            across: "seconds".into(),
            up: "MiB".into(),
            logarithmic: false,
            series: vec![("a".into(), vec![(0.0, 1.0), (10.0, 5.0)]), ("b".into(), vec![(0.0, 0.0)])],
        };
        let picture = draw(&plot);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(picture.contains("points=\"64.0,"));
    }
}
