//! `txfs check`.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use txfs_protocol::PathText;

use super::printed;
use crate::cli::Check;
use crate::error::Error;
use crate::output::{self, colour, format};
use crate::place;

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    clean: bool,
    directories: u64,
    files: u64,
    others: u64,
    orphans: u64,
    extents: u64,
    data_bytes: u64,
    duration_ms: u64,
    problems: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    kind: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ino: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathText>,
}

/// Examines every byte of the volume.
pub fn run(arguments: Check) -> Result<(), Error> {
    let volume_path = place::volume_of(&arguments.volume);
    let failed = |source| Error::volume(&arguments.volume, source);
    let started = Instant::now();
    let volume = place::open_unmounted(&volume_path)?;
    let checked = volume.check();
    let closed = volume.close();
    let checked = checked.map_err(failed)?;
    let clean = checked.is_clean();
    let report = Report {
        clean,
        directories: checked.directories,
        files: checked.files,
        others: checked.others,
        orphans: checked.orphans,
        extents: checked.extents,
        data_bytes: checked.data_bytes,
        duration_ms: started.elapsed().as_millis() as u64,
        problems: checked
            .problems
            .into_iter()
            .map(|problem| Finding {
                kind: format!("{:?}", problem.kind).to_lowercase(),
                message: problem.message,
                ino: problem.ino,
                path: problem.path.map(PathText::from),
            })
            .collect(),
    };
    printed(if arguments.json { output::print_json(&report) } else { print(&report) })?;
    if !clean {
        let count = format::counted(report.problems.len() as u64, "problem", "problems");
        return Err(Error::DamageFound { volume: arguments.volume, count });
    }
    closed.map_err(failed)
}

fn print(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let paint = colour::stdout();
    for problem in &report.problems {
        let place = match (&problem.path, problem.ino) {
            (Some(path), _) => format!("/{}: ", format::name(&path.0)),
            (None, Some(ino)) => format!("inode {ino}: "),
            (None, None) => String::new(),
        };
        writeln!(out, "{} {place}{}", paint.red(format_args!("{}:", problem.kind)), problem.message)?;
    }
    let verdict = if report.clean { paint.green("clean") } else { paint.red("damaged") };
    writeln!(
        out,
        "{verdict}: {}, {}, {} of data in {}, checked in {}",
        format::counted(report.files, "file", "files"),
        format::counted(report.directories, "directory", "directories"),
        format::bytes(report.data_bytes),
        format::counted(report.extents, "extent", "extents"),
        format::duration(Duration::from_millis(report.duration_ms)),
    )
}
