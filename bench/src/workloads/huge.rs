//! `huge-transaction`: transactions much larger than memory may be used for: an LSM compaction of 198 files and 13.3 GB
//! (exF2FS, FAST'22), then one of 20 GB.

use crate::Result;
use crate::bench::Bench;
use crate::figures::Spread;
use crate::result::{Cell, Goal, Section, Table};
use crate::scale::Latencies;
use crate::scale::huge::{self, Options, Outcome};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "huge-transaction",
    "one transaction of 198 files and 13.3 GB, then one of 20 GB, committed and aborted",
    run,
)
.huge();

const FILES: u64 = 198;
const GIGABYTES: [f64; 2] = [13.3, 20.0];
const RESIDENT_MIB_MAX: f64 = 300.0;

type Phase = (&'static str, fn(&Outcome) -> &Latencies);

fn run(bench: &Bench) -> Result<Section> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    bench.progress.begin(GIGABYTES.len() as u64);
    for gigabytes in GIGABYTES {
        bench.progress.step(&format!("{gigabytes} GB"));
        outcomes.push(huge::run(&Options {
            dir: bench.places.txfs.directory.clone(),
            files: FILES,
            gigabytes: gigabytes * bench.scale,
            // what the compaction reads: a tenth of it, which has to fit on the disk too
            inputs: 8,
            abort_gigabytes: 4.0 * bench.scale,
        })?);
    }
    let row = |outcome: &Outcome| {
        let gigabytes = outcome.bytes as f64 / 1e9;
        vec![
            Cell::text(format!("{} files, {gigabytes:.1} GB", outcome.files)),
            Cell::number(outcome.work_s, 1),
            Cell::number(gigabytes * 1e3 / outcome.work_s, 0),
            Cell::number(outcome.commit_s * 1e3, 0),
            Cell::number(outcome.peak_mib, 0),
            Cell::number(outcome.abort_s * 1e3, 1),
            Cell::number(outcome.abort_peak_mib, 0),
            Cell::number(outcome.open_s * 1e3, 1),
        ]
    };
    let columns = [
        "",
        "work, s",
        "MB/s",
        "commit, ms",
        "resident, at most, MiB",
        "abort of 4 GB, ms",
        "resident until then, at most, MiB",
        "open afterwards, ms",
    ];
    let others = |(name, pick): Phase| {
        let mut cells = vec![Cell::text(name)];
        for outcome in &outcomes {
            let latencies = pick(outcome);
            cells.push(Cell::number(latencies.p50_us, 0));
            cells.push(Cell::number(latencies.max_us / 1e3, 1));
        }
        cells
    };
    let phases: [Phase; 3] = [
        ("without it", |outcome| &outcome.idle),
        ("while it writes", |outcome| &outcome.during_work),
        ("while it commits", |outcome| &outcome.during_commit),
    ];
    let mut others_columns = vec![String::new()];
    for outcome in &outcomes {
        let gigabytes = outcome.bytes as f64 / 1e9;
        others_columns.push(format!("{gigabytes:.1} GB: median, us"));
        others_columns.push(format!("{gigabytes:.1} GB: longest, ms"));
    }
    let goals = outcomes.iter().map(|outcome| {
        let figure = format!("resident memory of a transaction of {:.1} GB", outcome.bytes as f64 / 1e9);
        Goal::at_most(figure, 0, RESIDENT_MIB_MAX, Some(Spread::of(&[outcome.peak_mib]))).unit(" MiB", 0)
    });
    let aborted = outcomes.first().map(|outcome| {
        let figure = format!(
            "resident memory of an aborted transaction of {:.1} GB",
            outcome.abort_bytes as f64 / 1e9
        );
        let worst = outcomes.iter().map(|outcome| outcome.abort_peak_mib).fold(f64::NAN, f64::max);
        Goal::at_most(figure, 0, RESIDENT_MIB_MAX, Some(Spread::of(&[worst]))).unit(" MiB", 0)
    });
    Ok(Section {
        title: "Huge transactions".to_owned(),
        about: format!(
            "One transaction like an LSM compaction: it reads 8 files, writes {FILES} new ones and removes what it read, \
             with default memory budgets. Beside it, another thread commits small durable transactions all the time. \
             Then one of 4 GB is written and aborted, and the volume is closed, opened and looked at."
        ),
        goals: goals.chain(aborted).collect(),
        tables: vec![
            Table {
                caption: "The transaction".to_owned(),
                columns: columns.map(str::to_owned).to_vec(),
                rows: outcomes.iter().map(row).collect(),
            },
            Table {
                caption: "What others' small durable commits wait".to_owned(),
                columns: others_columns,
                rows: phases.into_iter().map(others).collect(),
            },
        ],
        ..Section::default()
    })
}
