//! The page in Markdown, with its pictures beside it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::report::terminal::cell_text;
use crate::report::{Report, bars, goal_rows, lines};
use crate::result::{Goal, Plot, Section};

/// Directory of the pictures and of the results, beside the page.
pub const DIRECTORY: &str = "benchmarks";
/// The results, in that directory.
pub const RESULTS: &str = "results.json";

/// Writes the page, its pictures and the results that it was made of; pictures of earlier runs go.
pub fn write(report: &Report, page: &Path) -> Result<()> {
    let beside = page.with_file_name(DIRECTORY);
    fs::create_dir_all(&beside).map_err(|error| format!("{}: {error}", beside.display()))?;
    for entry in fs::read_dir(&beside)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            fs::remove_file(path)?;
        }
    }
    for plot in report.sections.iter().flat_map(|section| &section.plots) {
        let path = beside.join(format!("{}.svg", plot_name(plot)));
        let picture = match plot {
            Plot::Bars(plot) => bars::draw(plot),
            Plot::Lines(plot) => lines::draw(plot),
        };
        fs::write(&path, picture).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    report.save(&beside.join(RESULTS))?;
    fs::write(page, text(report)).map_err(|error| format!("{}: {error}", page.display()).into())
}

fn plot_name(plot: &Plot) -> &str {
    match plot {
        Plot::Bars(plot) => &plot.name,
        Plot::Lines(plot) => &plot.name,
    }
}

fn plot_title(plot: &Plot) -> &str {
    match plot {
        Plot::Bars(plot) => &plot.title,
        Plot::Lines(plot) => &plot.title,
    }
}

fn row<Text: AsRef<str>>(out: &mut String, cells: impl IntoIterator<Item = Text>) {
    for cell in cells {
        let _ = write!(out, "| {} ", cell.as_ref().replace('|', "\\|"));
    }
    out.push_str("|\n");
}

fn head(out: &mut String, columns: &[impl AsRef<str>]) {
    row(out, columns);
    row(out, columns.iter().enumerate().map(|(index, _)| if index == 0 { "---" } else { "---:" }));
}

fn goals<'goals>(out: &mut String, goals: impl Iterator<Item = &'goals Goal> + Clone) {
    for (index, cells) in goal_rows(goals).iter().enumerate() {
        if index == 0 {
            head(out, cells);
        } else {
            row(out, cells);
        }
    }
    out.push('\n');
}

/// How many of the goals that were not reached the raw disk does not reach either.
fn out_of_reach<'goals>(goals: impl Iterator<Item = &'goals Goal> + Clone) -> Option<String> {
    goals.clone().find(|goal| goal.raw.is_some())?;
    let missed = goals.filter(|goal| goal.reached() == Some(false));
    let beyond = missed.clone().filter(|goal| goal.raw_reached() == Some(false)).count();
    Some(format!(
        "Of the {} not reached, the raw disk does not reach {beyond} either: its column is what direct I/O on the same \
         device attains in that very figure, in the same run, and decides nothing.",
        missed.count()
    ))
}

fn section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "## {}\n\n{}\n", section.title, section.about);
    let _ =
        writeln!(out, "`txfs-bench {}`, {:.0} s with all preparations.\n", section.workload, section.seconds);
    for table in &section.tables {
        let _ = writeln!(out, "{}:\n", table.caption);
        head(out, &table.columns);
        for cells in &table.rows {
            row(out, cells.iter().map(cell_text));
        }
        out.push('\n');
    }
    for plot in &section.plots {
        let _ = writeln!(out, "![{}]({DIRECTORY}/{}.svg)\n", plot_title(plot), plot_name(plot));
    }
    if !section.goals.is_empty() {
        goals(out, section.goals.iter());
    }
    for note in &section.notes {
        let _ = writeln!(out, "* {note}");
    }
    if !section.notes.is_empty() {
        out.push('\n');
    }
}

/// The page.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let all = || report.sections.iter().flat_map(|section| &section.goals);
    let count = |wanted: Option<bool>| all().filter(|goal| goal.reached() == wanted).count();
    let _ = writeln!(
        out,
        "# Benchmarks\n\n\
         Written by `{}`; do not edit. `txfs-bench page` writes it again from \
         [{DIRECTORY}/{RESULTS}]({DIRECTORY}/{RESULTS}), and [bench/README.md](../bench/README.md) says how all of it \
         is measured and how to run it elsewhere.\n",
        report.command
    );
    let _ = writeln!(
        out,
        "Figures are medians of rounds of {} s ({} of them), with the smallest and the largest round in brackets. The contestants \
         take turns within a round, and ratios are taken round by round. Each timing is given twice: as the disk is, and \
         with 1 ms added to every flush, as the drives of the papers had it, for all contestants alike by the same \
         preloaded library.\n",
        report.round_seconds, report.rounds
    );
    let _ = writeln!(
        out,
        "Measured on {} at commit {}: {}, {} processors, {} GiB of memory, Linux {}.\n",
        machine.date,
        machine.commit,
        machine.processor,
        machine.processors,
        machine.memory_gib,
        machine.kernel
    );
    for place in &machine.places {
        let _ = writeln!(out, "* {place}");
    }
    let _ = writeln!(
        out,
        "\n## What was to reach\n\n{} figures reached, {} not, {} not measured.\n",
        count(Some(true)),
        count(Some(false)),
        count(None)
    );
    if let Some(sentence) = out_of_reach(all()) {
        let _ = writeln!(out, "{sentence}\n");
    }
    goals(&mut out, all());
    for one in &report.sections {
        section(&mut out, one);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}
