//! `txfs gc`.

use std::io::{self, Write};

use serde::Serialize;
use txfs::CleanOptions;
use txfs_protocol::{Cleaned, Client};

use super::printed;
use crate::cli::Gc;
use crate::error::Error;
use crate::output::progress::Progress;
use crate::output::{self, format};
use crate::place;

/// Segments that a mounted volume's owner cleans between two steps of the progress bar.
const STEP_SEGMENTS: u64 = 8;

/// The result as JSON.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    cleaned: Cleaned,
    segment_bytes: u64,
}

/// Cleans the volume, or has its owner do it.
pub fn run(arguments: Gc) -> Result<(), Error> {
    let report = match place::connect(&arguments.target)? {
        Some((client, _)) => by_owner(client, arguments.live)?,
        None => ourselves(&arguments)?,
    };
    printed(if arguments.json { output::print_json(&report) } else { print(&report) })
}

fn ourselves(arguments: &Gc) -> Result<Report, Error> {
    let failed = |source| Error::volume(&arguments.target, source);
    let volume = place::open_unmounted(&arguments.target)?;
    let options = CleanOptions { live_percent_max: arguments.live, ..CleanOptions::default() };
    let mut progress: Option<Progress> = None;
    let mut told = 0;
    let cleaned = volume.clean(&options, &mut |done, total| {
        progress.get_or_insert_with(|| Progress::new("cleaning", total)).advance(done - told);
        told = done;
    });
    drop(progress);
    let segment_bytes = volume.stat().map_err(failed)?.engine.segment_bytes;
    let closed = volume.close();
    let cleaned = cleaned.map_err(failed)?;
    closed.map_err(failed)?;
    let cleaned = Cleaned {
        segments: cleaned.segments,
        moved_bytes: cleaned.bytes_moved,
        gained_bytes: cleaned.bytes_gained,
        segments_damaged: cleaned.segments_damaged,
        segments_removed: cleaned.segments_removed,
    };
    Ok(Report { cleaned, segment_bytes })
}

/// In steps, so that there is something to show.
fn by_owner(mut client: Client, live_percent_max: u8) -> Result<Report, Error> {
    let stat = client.stat()?;
    let figure = |name: &str| stat["space"][name].as_u64().unwrap_or(0);
    let mut progress = Progress::new("cleaning", figure("dead_bytes"));
    let mut cleaned = Cleaned::default();
    // No more than there were in the beginning: others may be making new ones all the time.
    let mut left = figure("segments");
    while left > 0 {
        let step = client.clean(STEP_SEGMENTS.min(left), live_percent_max, false)?;
        add(&mut cleaned, &step);
        progress.advance(step.gained_bytes);
        if step.segments == 0 {
            break;
        }
        left = left.saturating_sub(step.segments);
    }
    add(&mut cleaned, &client.clean(0, live_percent_max, true)?);
    Ok(Report { cleaned, segment_bytes: figure("segment_bytes") })
}

fn add(sum: &mut Cleaned, step: &Cleaned) {
    sum.segments += step.segments;
    sum.moved_bytes += step.moved_bytes;
    sum.gained_bytes += step.gained_bytes;
    sum.segments_damaged += step.segments_damaged;
    sum.segments_removed += step.segments_removed;
}

fn print(report: &Report) -> io::Result<()> {
    let Report { cleaned, segment_bytes } = report;
    let mut out = io::stdout().lock();
    if cleaned.segments_damaged > 0 {
        let count = format::counted(cleaned.segments_damaged, "segment holds", "segments hold");
        output::warning(&format!(
            "{count} data that cannot be read, and stayed as they are: run `txfs check`"
        ));
    }
    writeln!(
        out,
        "cleaned {}: moved {}, gained {}; gave {} back to the host",
        format::counted(cleaned.segments, "segment", "segments"),
        format::bytes(cleaned.moved_bytes),
        format::bytes(cleaned.gained_bytes),
        format::bytes(cleaned.segments_removed * segment_bytes),
    )
}
