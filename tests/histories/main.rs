//! One client of a history that is checked afterwards.
//!
//! `txfs-e2e-histories KIND VOLUME POINT NUMBER COUNT ISOLATION OUTPUT`: works on the mount at POINT and writes what it did into
//! OUTPUT, a transaction a line, as `txfs_sim::history::text` has it.
//!
//! | kind | does |
//! | --- | --- |
//! | `transactions` | COUNT transactions, begun and ended over the owner's socket, in their views |
//! | `calls` | COUNT calls outside of transactions |
//! | `look` | one transaction that reads everything |

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use txfs_e2e::{Mounted, is_root, monotonic};
use txfs_protocol::{Client, CommitOutcome, Durability, Isolation};
use txfs_sim::histories::access::{Failure, Outcome as Done};
use txfs_sim::histories::layout::Layout;
use txfs_sim::histories::worker::Worker;
use txfs_sim::history::{Outcome, Record, Recorder, text};

struct Arguments {
    kind: String,
    volume: PathBuf,
    point: PathBuf,
    number: u32,
    count: u64,
    isolation: Isolation,
    output: PathBuf,
}

/// One transaction; what is done in it is `work`.
fn transaction(
    arguments: &Arguments,
    client: &mut Client,
    worker: &mut Worker<'_>,
    layout: &Layout,
    work: impl FnOnce(&mut Worker<'_>, &Mounted, &mut Recorder) -> Done<()>,
) -> Result<Record, Box<dyn Error>> {
    let mut recorder = Recorder::begin(arguments.number, monotonic());
    let begun = client.begin(arguments.isolation, "history")?;
    recorder.begun(monotonic(), None);
    let view = Mounted::new(arguments.point.join(begun.view.as_path()), layout);
    let outcome = match work(worker, &view, &mut recorder) {
        Ok(()) if worker.random.u8(0..30) == 0 && arguments.kind != "look" => None,
        Ok(()) => {
            recorder.committing(monotonic());
            match client.commit(Durability::Ordered)? {
                CommitOutcome::Committed { sequence } => Some(sequence),
                CommitOutcome::Conflicted(_) => return Ok(recorder.end(monotonic(), Outcome::Aborted)),
            }
        }
        Err(Failure::Conflict) => None,
        Err(failure) => return Err(format!("inside of a transaction: {failure:?}").into()),
    };
    Ok(match outcome {
        Some(sequence) => recorder.end(monotonic(), Outcome::Committed(Some(sequence))),
        None => {
            client.abort()?;
            recorder.end(monotonic(), Outcome::Aborted)
        }
    })
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let layout = Mounted::find(&arguments.point)?;
    let mut worker = Worker {
        process: arguments.number,
        layout: &layout,
        random: fastrand::Rng::with_seed(u64::from(arguments.number)),
        now: &monotonic,
        values: 0,
        owners: is_root(),
    };
    let mut records = Vec::new();
    let outside = Mounted::new(&arguments.point, &layout);
    let mut client = Client::connect(&arguments.volume)?;
    for _ in 0..arguments.count {
        match arguments.kind.as_str() {
            "calls" => match worker.call(&outside, &|| None) {
                Ok(record) => records.extend(record),
                Err(failure) => return Err(format!("a call outside of transactions: {failure:?}").into()),
            },
            "look" => records.push(transaction(
                arguments,
                &mut client,
                &mut worker,
                &layout,
                |worker, view, recorder| worker.read_all(view, recorder),
            )?),
            _ => records.push(transaction(
                arguments,
                &mut client,
                &mut worker,
                &layout,
                |worker, view, recorder| worker.transaction(view, recorder),
            )?),
        }
    }
    let lines: Vec<String> = records.iter().map(text::encode).collect();
    std::fs::write(&arguments.output, lines.join("\n") + "\n")?;
    Ok(())
}

fn arguments() -> Option<Arguments> {
    let mut words = std::env::args().skip(1);
    let mut next = || words.next();
    Some(Arguments {
        kind: next()?,
        volume: Path::new(&next()?).into(),
        point: Path::new(&next()?).into(),
        number: next()?.parse().ok()?,
        count: next()?.parse().ok()?,
        isolation: match next()?.as_str() {
            "snapshot" => Isolation::Snapshot,
            _ => Isolation::Serializable,
        },
        output: next()?.into(),
    })
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: txfs-e2e-histories KIND VOLUME POINT NUMBER COUNT ISOLATION OUTPUT");
        return ExitCode::from(2);
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("client {}: {error}", arguments.number);
            ExitCode::FAILURE
        }
    }
}
