//! `many-files` and `ten-million-files`: what one operation costs in a volume of ten thousand files, and what it costs in one
//! of a million, or of ten million with a million of them in one directory.

use crate::Result;
use crate::bench::Bench;
use crate::figures::Spread;
use crate::result::{Cell, Goal, Lines, Plot, Section, Table};
use crate::scale::many::{self, Options, Step};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "many-files",
    "1 million files in one volume, 100 thousand in one directory: cost of one operation, memory",
    |bench| run(bench, "many-files", &MILLION),
);

/// See the module.
pub const HUGE: Workload = Workload::new(
    "ten-million-files",
    "10 million files in one volume, 1 million in one directory: cost of one operation, memory",
    |bench| run(bench, "ten-million-files", &TEN_MILLION),
)
.huge();

struct Size {
    title: &'static str,
    /// Files; the growth between the first and the last is judged.
    steps: &'static [u64],
}

const MILLION: Size = Size { title: "A million files", steps: &[10_000, 100_000, 1_000_000] };
const TEN_MILLION: Size =
    Size { title: "Ten million files", steps: &[10_000, 100_000, 1_000_000, 10_000_000] };
const LARGE_DIRECTORY: u64 = 1_000_000;
const GROWTH_MAX: f64 = 2.0;
const RESIDENT_MIB_MAX: f64 = 1024.0;

type Figure = (&'static str, fn(&Step) -> f64);

/// Costs of an operation; each may only grow so much.
const COSTS: [Figure; 9] = [
    ("create, bulk, us", |step| step.grow_us),
    ("create, us", |step| step.create_us),
    ("look up, us", |step| step.lookup_us),
    ("look up in the large directory, us", |step| step.lookup_large_us),
    ("list, us a name", |step| step.list_us),
    ("list the large directory, us a name", |step| step.list_large_us),
    ("remove, us", |step| step.remove_us),
    ("checkpoint of 100 changes, ms", |step| step.checkpoint_ms),
    ("open, ms", |step| step.open_ms),
];

fn run(bench: &Bench, name: &str, size: &Size) -> Result<Section> {
    bench.progress.prepare("growing a volume to millions of files");
    let outcome = many::run(&Options {
        dir: bench.places.txfs.directory.clone(),
        sizes: size.steps.iter().map(|&files| bench.scaled(files, 1000)).collect(),
        large_directory: bench.scaled(LARGE_DIRECTORY, 100),
        operations: 20_000,
    })?;
    let steps = &outcome.steps;
    let mut columns = vec![String::new()];
    columns
        .extend(steps.iter().map(|step| format!("{} files", crate::figures::number(step.files as f64, 0))));
    let row = |name: &str, of: &dyn Fn(&Step) -> f64, decimals| {
        let mut cells = vec![Cell::text(name)];
        cells.extend(steps.iter().map(|step| Cell::number(of(step), decimals)));
        cells
    };
    let mut rows = vec![row("of them in the large directory", &|step| step.large_directory as f64, 0)];
    rows.extend(COSTS.iter().map(|(name, of)| row(name, of, 2)));
    rows.push(row("index, MB", &|step| step.index_bytes as f64 / 1e6, 0));
    rows.push(row("resident memory, at most, MiB", &|step| step.peak_mib, 0));

    let ends = steps.first().zip(steps.last());
    let mut goals: Vec<Goal> = COSTS
        .iter()
        .map(|(name, of)| {
            let name = name.rsplit_once(", ").map_or(*name, |(name, _)| name);
            let figure = format!("{} against ten thousand: {name}", size.title.to_lowercase());
            let growth = ends.map(|(first, last)| Spread::of(&[of(last) / of(first)]));
            Goal::at_most(figure, 0, GROWTH_MAX, growth)
        })
        .collect();
    let resident = steps.last().map(|step| Spread::of(&[step.peak_mib]));
    let figure = format!("resident memory with {}", size.title.to_lowercase());
    goals.push(Goal::at_most(figure, 0, RESIDENT_MIB_MAX, resident).unit(" MiB", 0));

    let line = |(name, of): &Figure| {
        // ever ten times as many files: a step to the right each
        let points = steps.iter().map(|step| ((step.files as f64).log10(), of(step)));
        ((*name).to_owned(), points.filter(|point| point.1.is_finite()).collect())
    };
    Ok(Section {
        title: size.title.to_owned(),
        about: "Empty files, names and inodes being what counts here, in directories of a thousand, and one file of ten in a \
                large directory until it holds a million of them. The volume grows by transactions of a thousand files; at each \
                size, operations at random places are measured, checkpoints included."
            .to_owned(),
        tables: vec![Table { caption: "Cost of one operation".to_owned(), columns, rows }],
        plots: vec![Plot::Lines(Lines {
            name: name.to_owned(),
            title: "Cost of one operation while the volume grows".to_owned(),
            across: "files, power of ten".to_owned(),
            up: "us (checkpoint, open: ms)".to_owned(),
            logarithmic: true,
            series: COSTS.iter().map(line).collect(),
        })],
        goals,
        ..Section::default()
    })
}
