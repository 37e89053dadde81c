//! A section as plain text.

use std::fmt::Write;

use crate::report::goal_rows;
use crate::result::{Cell, Section};

/// How a field of a table reads.
pub fn cell_text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Figure { spread, decimals } => spread.text(*decimals),
        Cell::Number { value, decimals } => crate::figures::number(*value, *decimals),
        Cell::None => "-".to_owned(),
    }
}

fn aligned(out: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (index, (text, width)) in row.iter().zip(&widths).enumerate() {
            let _ =
                if index == 0 { write!(line, "  {text:<width$}") } else { write!(line, "  {text:>width$}") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// All of it.
pub fn render(section: &Section) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}: {} ({:.0} s)\n", section.workload, section.title, section.seconds);
    for table in &section.tables {
        let _ = writeln!(out, "{}", table.caption);
        let mut rows = vec![table.columns.clone()];
        rows.extend(table.rows.iter().map(|row| row.iter().map(cell_text).collect()));
        aligned(&mut out, &rows);
        out.push('\n');
    }
    if !section.goals.is_empty() {
        let mut rows = goal_rows(section.goals.iter());
        rows.iter_mut().flatten().for_each(|text| *text = text.replace('*', ""));
        aligned(&mut out, &rows);
        out.push('\n');
    }
    for note in &section.notes {
        let _ = writeln!(out, "{note}");
    }
    out
}
