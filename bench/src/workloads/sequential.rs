//! `sequential`: a large file from end to end, against direct I/O on the same disk.

use crate::Result;
use crate::bench::Bench;
use crate::result::{Bars, Cell, Goal, Plot, Section, Table};
use crate::scale::sequential::{self, Options};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload =
    Workload::new("sequential", "a large file written and read from end to end, against direct I/O", run);

const FILE_MIB: u64 = 512;
const CALL_KIB: u64 = 1024;
const SHARE_MIN: f64 = 0.8;

fn run(bench: &Bench) -> Result<Section> {
    bench.progress.prepare("a large file");
    let outcome = sequential::run(&Options {
        dir: bench.places.txfs.directory.clone(),
        mib: bench.scaled(FILE_MIB, 1),
        call_kib: CALL_KIB,
        rounds: bench.rounds,
    })?;
    let rows = [
        ("write", outcome.raw_write, outcome.txfs_write, outcome.write_ratio),
        ("read", outcome.raw_read, outcome.txfs_read, outcome.read_ratio),
    ];
    let row = |(name, raw, txfs, ratio)| {
        vec![Cell::text(name), Cell::figure(raw, 0), Cell::figure(txfs, 0), Cell::figure(ratio, 2)]
    };
    let group = |(name, raw, txfs, _): (&str, _, _, _)| {
        (name.to_owned(), vec![("raw, direct I/O".to_owned(), raw), ("TxFS".to_owned(), txfs)])
    };
    let goal = |what: &str, ratio| {
        Goal::at_least(format!("sequential {what}, against the raw disk"), 0, SHARE_MIN, Some(ratio))
    };
    Ok(Section {
        title: "Sequential writing and reading".to_owned(),
        about: format!(
            "A file of {} MiB, in calls of {CALL_KIB} KiB: TxFS writes it in one durable transaction and reads it with \
             nothing cached; raw is direct I/O on a plain file beside it, over blocks that were written before, with a \
             flush at the end.",
            outcome.bytes >> 20
        ),
        tables: vec![Table {
            caption: "MB/s".to_owned(),
            columns: ["", "raw, direct I/O", "TxFS", "ratio"].map(str::to_owned).to_vec(),
            rows: rows.into_iter().map(row).collect(),
        }],
        plots: vec![Plot::Bars(Bars {
            name: "sequential".to_owned(),
            title: "A large file from end to end".to_owned(),
            unit: "MB/s".to_owned(),
            logarithmic: false,
            groups: rows.into_iter().map(group).collect(),
        })],
        goals: vec![goal("write", outcome.write_ratio), goal("read", outcome.read_ratio)],
        ..Section::default()
    })
}
