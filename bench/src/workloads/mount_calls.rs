//! `mount-calls`: what ordinary programs do on a mount, one call at a time, beside the file systems of the kernel.
//!
//! The rows are those of [`crate::mount_calls`], which runs in a process of its own for every contestant and round; on
//! TxFS once as it is and once in a transaction. Rows that have to reach the device are also done on a raw file.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::Result;
use crate::bench::Bench;
use crate::contestants::plain::{Aligned, DirectFile, PAGE_BYTES, PlainDirectory};
use crate::contestants::{Kind, Place};
use crate::figures::Spread;
use crate::mount_calls::{Contestant, SAMPLES};
use crate::result::{Bars, Cell, Goal, Plot, Section, Table};
use crate::rounds::delay_text;
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "mount-calls",
    "create, stat, open, rename, unlink, fsync and a large file on a mount, call by call",
    run,
)
.on_mount();

/// Size of the large file.
const LARGE_MIB: u64 = 256;

/// What is expected of the mount, by row: microseconds at most, gigabytes a second at least.
const GOALS: [(&str, f64); 9] = [
    ("create+write 4 KiB+close", 25.0),
    ("stat", 0.9),
    ("open+read+close", 3.0),
    ("rename", 12.0),
    ("unlink", 12.0),
    ("create+write+fsync+close", 60.0),
    ("replace by temp+fsync+rename", 80.0),
    ("write large file+fsync", 1.2),
    ("read it", 2.5),
];

const RAW: &str = "raw";
/// The rows of which a durable write of 4 KiB is the least.
const DURABLE: [&str; 2] = ["create+write+fsync+close", "replace by temp+fsync+rename"];
const LARGE: &str = "write large file+fsync";
/// Of the raw file that small writes go to, and of one write to the large one.
const MIB: u64 = 1 << 20;

/// How many calls of each kind a turn has, and the size of its large file.
struct Amounts {
    calls: u64,
    durable_calls: u64,
    large_mib: u64,
}

impl Amounts {
    fn arguments(&self) -> Vec<String> {
        let amounts = [
            ("--calls", self.calls),
            ("--durable-calls", self.durable_calls),
            ("--large-mib", self.large_mib),
        ];
        let fixed = ["alone", "mount-calls", "--json", "--rounds", "1", "."].map(str::to_owned);
        let amounts = amounts.into_iter().flat_map(|(name, amount)| [name.to_owned(), amount.to_string()]);
        fixed.into_iter().chain(amounts).collect()
    }
}

/// One contestant's turn: its figures, in the order of [`SAMPLES`].
type Turn<'work> = Box<dyn Fn(&Amounts) -> Result<Vec<f64>> + 'work>;

fn run(bench: &Bench) -> Result<Section> {
    let program = std::env::current_exe()?;
    let program = &program;
    let outside = move |directory: &Path, amounts: &Amounts| -> Result<Vec<f64>> {
        let output = Command::new(program).args(amounts.arguments()).current_dir(directory).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}: {}", directory.display(), said.trim()).into());
        }
        figures(&output.stdout)
    };
    let raw_directory = PlainDirectory::create(&bench.places.txfs)?;
    let large_mib = bench.scaled(LARGE_MIB, 1);
    let (small, large) =
        (raw_directory.direct_file("small", MIB)?, raw_directory.direct_file("large", large_mib * MIB)?);
    let raw_turn = |amounts: &Amounts| raw_figures(&small, &large, amounts);
    let mut turns: Vec<(String, Turn<'_>)> = vec![(RAW.to_owned(), Box::new(raw_turn))];
    for place in &bench.places.plain {
        turns.push((place.kind.to_string(), Box::new(move |amounts| outside(&place.directory, amounts))));
    }
    if let Some(mounted) = &bench.mounted {
        let inside = |amounts: &Amounts| {
            figures(mounted.run_in_transaction(program, &amounts.arguments())?.as_bytes())
        };
        turns.push((format!("{}, in a transaction", Kind::Mount), Box::new(inside)));
    }

    let (mut tables, mut plots, mut goals) = (Vec::new(), Vec::new(), Vec::new());
    bench.progress.begin((bench.flush_delays_us.len() * bench.rounds as usize * turns.len()) as u64);
    for &delay in &bench.flush_delays_us {
        bench.flush_delay.set_us(delay)?;
        // dear flushes take their time, and tell the same after fewer of them
        let share = if delay == 0 { 1 } else { 4 };
        let amounts = Amounts {
            calls: bench.scaled(4000, 20),
            durable_calls: bench.scaled(1000 / share, 10),
            large_mib,
        };
        let mut found = vec![vec![Vec::new(); SAMPLES.len()]; turns.len()];
        for _ in 0..bench.rounds {
            for ((name, turn), found) in turns.iter().zip(&mut found) {
                bench.progress.step(&format!("{name} ({})", delay_text(delay)));
                for (rounds, figure) in found.iter_mut().zip(turn(&amounts)?) {
                    rounds.push(figure);
                }
            }
            bench.places.plain.iter().try_for_each(Place::flush)?;
        }
        bench.flush_delay.set_us(0)?;

        let names = turns.iter().map(|(name, _)| name.clone());
        tables.push(table(delay, names.clone(), &found));
        if delay == 0 {
            plots.push(Plot::Bars(bars(names, &found)));
            let of = |wanted: &str| {
                turns.iter().zip(&found).find(|((name, _), _)| name == wanted).map(|(_, rows)| rows)
            };
            let (mount, raw) = (of(&Kind::Mount.to_string()), of(RAW));
            goals = GOALS.iter().map(|goal| goal_of(goal, mount, raw)).collect();
        }
    }
    let mut notes = vec![
        "In a transaction fsync has nothing to do; the commit at the end is not in the figures.".to_owned(),
    ];
    if bench.mounted.is_none() {
        notes.push(
            "There was no mount of TxFS: no txfs command beside the benchmark, or no FUSE here.".to_owned(),
        );
    }
    Ok(Section {
        title: "What ordinary programs do on a mount".to_owned(),
        about: "The same program on the file systems of the kernel, on a mount of TxFS (FUSE) and in a transaction on that \
                mount (`txfs run`), one thread, one call after the other. `stat` and `open+read+close` use what the kernel \
                has cached; `stat after a write` is the first one after it, for which the kernel asks; `read it again, \
                pages dropped` comes from the volume. Raw is what has to reach the device at least: one direct data-sync \
                write of 4 KiB for each durable file, direct writes of 1 MiB and a flush for the large one."
            .to_owned(),
        tables,
        plots,
        goals,
        notes,
        ..Section::default()
    })
}

/// The rounds of each row of each contestant.
type Found = [Vec<Vec<f64>>];

fn table(delay: u64, names: impl Iterator<Item = String>, found: &Found) -> Table {
    let mut columns = vec!["µs a call".to_owned()];
    columns.extend(names);
    let rows = SAMPLES.iter().enumerate().map(|(index, (what, unit))| {
        let label = if *unit == "us" { (*what).to_owned() } else { format!("{what}, {unit}") };
        let mut row = vec![Cell::text(label)];
        row.extend(found.iter().map(|rows| Cell::figure(Spread::of(&rows[index]), 2)));
        row
    });
    Table { caption: delay_text(delay), columns, rows: rows.collect() }
}

fn bars(names: impl Iterator<Item = String> + Clone, found: &Found) -> Bars {
    let calls = SAMPLES.iter().enumerate().filter(|(_, (_, unit))| *unit == "us");
    let group = |(index, (what, _)): (usize, &(&str, &str))| {
        let bars = names.clone().zip(found).map(|(name, rows)| (name, Spread::of(&rows[index])));
        ((*what).to_owned(), bars.filter(|(_, spread)| spread.median.is_finite()).collect())
    };
    Bars {
        name: "mount-calls".to_owned(),
        title: "What ordinary programs do".to_owned(),
        unit: "µs a call".to_owned(),
        logarithmic: true,
        groups: calls.map(group).collect(),
    }
}

fn goal_of(&(what, limit): &(&str, f64), mount: Option<&Vec<Vec<f64>>>, raw: Option<&Vec<Vec<f64>>>) -> Goal {
    let row = SAMPLES.iter().position(|(name, _)| *name == what);
    let of = |rows: Option<&Vec<Vec<f64>>>| row.zip(rows).map(|(row, rows)| Spread::of(&rows[row]));
    let (rounds, raw) = (of(mount), of(raw));
    let goal = match row.map(|row| SAMPLES[row].1) {
        Some("us") => Goal::at_most(format!("mount: {what}"), 0, limit, rounds).unit(" µs", 1),
        _ => Goal::at_least(format!("mount: {what}"), 0, limit, rounds).unit(" GB/s", 2),
    };
    goal.raw(raw)
}

/// The rows that have to reach the device; no figure for the others.
fn raw_figures(small: &DirectFile, large: &DirectFile, amounts: &Amounts) -> Result<Vec<f64>> {
    let content = Aligned::new(MIB as usize);
    let mut figures = vec![f64::NAN; SAMPLES.len()];
    for (figure, (what, _)) in figures.iter_mut().zip(SAMPLES) {
        let begun = Instant::now();
        if DURABLE.contains(&what) {
            for call in 0..amounts.durable_calls {
                small.write_durably(call * PAGE_BYTES as u64 % MIB, content.bytes(PAGE_BYTES))?;
            }
            *figure = begun.elapsed().as_secs_f64() * 1e6 / amounts.durable_calls as f64;
        } else if what == LARGE {
            for piece in 0..amounts.large_mib {
                large.write(piece * MIB, content.bytes(MIB as usize))?;
            }
            large.sync()?;
            *figure = (amounts.large_mib * MIB) as f64 / 1e9 / begun.elapsed().as_secs_f64();
        }
    }
    Ok(figures)
}

fn figures(json: &[u8]) -> Result<Vec<f64>> {
    let contestants: Vec<Contestant> = serde_json::from_slice(json)?;
    let contestant = contestants.first().ok_or("no figures")?;
    Ok(contestant.rows.iter().map(|row| row.figure.median).collect())
}
