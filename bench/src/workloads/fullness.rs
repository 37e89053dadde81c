//! `fullness`: device bytes for each byte of random 4 KiB overwrites, against how full the volume is. A log-structured
//! volume has to move what is live to gain space; the fuller it is, the more.

use crate::Result;
use crate::bench::Bench;
use crate::contestants::plain::PAGE_BYTES;
use crate::figures::Spread;
use crate::result::{Cell, Lines, Plot, Section, Table};
use crate::scale::fullness::{HOT_PAGES_PERCENT, HOT_WRITES_PERCENT, MEASURED_SHARE, Overwritten, Point};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "fullness",
    "device bytes for each byte of random 4 KiB overwrites, against how full the volume is",
    run,
);

const VOLUME_BYTES: u64 = 512 << 20;
const SEGMENT_BYTES: u64 = 8 << 20;
/// The last one twice: that as many overwrites again change nothing shows that the state is steady.
const PERCENTS: [u64; 5] = [50, 70, 80, 90, 90];

fn table(caption: String, points: &[Point]) -> Table {
    let columns = [
        "Full",
        "Device bytes per user byte",
        "of these, log",
        "log, first half",
        "second half",
        "of which moved by cleaning",
        "index",
        "Commits a second",
    ];
    let row = |point: &Point| {
        vec![
            Cell::text(format!("{} %", point.percent)),
            Cell::number(point.device, 2),
            Cell::number(point.log, 2),
            Cell::number(point.log_halves[0], 2),
            Cell::number(point.log_halves[1], 2),
            Cell::number(point.moved, 2),
            Cell::number(point.index, 2),
            Cell::number(point.rate, 0),
        ]
    };
    Table { caption, columns: columns.map(str::to_owned).to_vec(), rows: points.iter().map(row).collect() }
}

fn run(bench: &Bench) -> Result<Section> {
    let size = bench.scaled(VOLUME_BYTES, 16 * SEGMENT_BYTES) / SEGMENT_BYTES * SEGMENT_BYTES;
    // as much as the volume holds; in a quick look just enough to have done it
    let before = bench.scaled(size / PAGE_BYTES as u64, 200);
    let measured = bench.scaled(size / PAGE_BYTES as u64 / MEASURED_SHARE, 200);
    bench.progress.begin(PERCENTS.len() as u64 * 4);
    let (mut tables, mut series, mut halves) = (Vec::new(), Vec::new(), Vec::new());
    for skewed in [false, true] {
        let name = if skewed { "skewed" } else { "uniform" };
        let volume = Overwritten::create(&bench.places.txfs, size, SEGMENT_BYTES, skewed)?;
        let points = volume.points(&PERCENTS, before, measured, &mut |what| {
            bench.progress.step(&format!("{name}, {what}"))
        })?;
        tables.push(table(format!("Random durable 4 KiB overwrites in steady state, {name}"), &points));
        halves.extend(points.iter().map(|point| point.log_halves));
        let line = |value: &dyn Fn(&Point) -> Option<f64>| {
            points.iter().filter_map(|point| Some((point.percent as f64, value(point)?))).collect()
        };
        series.push((format!("{name}, all"), line(&|point| point.device)));
        series.push((format!("{name}, moved by cleaning"), line(&|point| Some(point.moved))));
    }
    let unsteady: Vec<f64> =
        halves.iter().map(|[first, second]| (second / first - 1.0).abs() * 100.0).collect();
    let unsteady = Spread::of(&unsteady);
    let lines = Lines {
        name: "fullness".to_owned(),
        title: "Device bytes for each byte of random 4 KiB overwrites".to_owned(),
        across: "full, %".to_owned(),
        up: "device bytes per user byte".to_owned(),
        logarithmic: false,
        series,
    };
    Ok(Section {
        title: "Overwriting in a full volume".to_owned(),
        about: format!(
            "A volume with a limit of {} MiB is filled to a share of the space that statfs shows, then random pages \
             are overwritten, a transaction for each, until as much has been written as the volume holds; then an \
             eighth of that is measured, durable, in two halves. Checkpoints and cleaning are included. Skewed: {HOT_WRITES_PERCENT} % of \
             the overwrites go to {HOT_PAGES_PERCENT} % of the pages.",
            size >> 20
        ),
        tables,
        plots: vec![Plot::Lines(lines)],
        notes: vec![
            format!(
                "That the state is steady shows in the second row of {} %: once more as much was overwritten as the volume \
                 holds. The halves of a measurement differ by {:.0} % in the middle and by {:.0} % at most, since cleaning \
                 gains whole segments.",
                PERCENTS[PERCENTS.len() - 1],
                unsteady.median,
                unsteady.max
            ),
            "Uniformly random overwrites are the worst case of a cleaner: no segment is much emptier than another."
                .to_owned(),
        ],
        ..Section::default()
    })
}
