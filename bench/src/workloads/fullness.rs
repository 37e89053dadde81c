//! `fullness`: device bytes for each byte of random 4 KiB overwrites, against how full the volume is. A log-structured
//! volume has to move what is live to gain space; the fuller it is, the more.
//!
//! Steady state: before each measurement as much is overwritten as the volume holds. Checkpoints and cleaning are counted.

use txfs::{CreateOptions, Durability, Ino, OpenOptions, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::embedded::Embedded;
use crate::result::{Cell, Lines, Plot, Section, Table};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "fullness",
    "device bytes for each byte of random 4 KiB overwrites, against how full the volume is",
    run,
);

const VOLUME_BYTES: u64 = 512 << 20;
const SEGMENT_BYTES: u64 = 8 << 20;
/// Of one transaction while the file grows.
const GROWTH_BYTES: u64 = 256 << 10;
const PAGE_BYTES: u64 = 4096;
const PERCENTS: [u64; 5] = [30, 50, 70, 80, 90];

/// Grows the file, in ordered transactions.
fn grow(embedded: &Embedded, ino: Ino, from: u64, to: u64) -> Result<()> {
    let mut content = vec![0; GROWTH_BYTES as usize];
    fastrand::Rng::with_seed(to).fill(&mut content);
    for at in (from..to).step_by(GROWTH_BYTES as usize) {
        let transaction = embedded.volume.begin();
        transaction.write(ino, at, &content[..GROWTH_BYTES.min(to - at) as usize])?;
        transaction.commit(Durability::Ordered)?;
    }
    Ok(())
}

/// Overwrites random pages, each in a durable transaction of its own.
fn overwrite(
    embedded: &Embedded,
    ino: Ino,
    pages: u64,
    count: u64,
    random: &mut fastrand::Rng,
) -> Result<()> {
    let mut content = [0; PAGE_BYTES as usize];
    random.fill(&mut content);
    for number in 0..count {
        content[..8].copy_from_slice(&number.to_le_bytes());
        let transaction = embedded.volume.begin();
        transaction.write(ino, random.u64(0..pages) * PAGE_BYTES, &content)?;
        transaction.commit(Durability::Durable)?;
    }
    Ok(())
}

fn run(bench: &Bench) -> Result<Section> {
    let size = bench.scaled(VOLUME_BYTES, 16 * SEGMENT_BYTES) / SEGMENT_BYTES * SEGMENT_BYTES;
    let create = CreateOptions {
        segment_bytes: SEGMENT_BYTES,
        size_bytes_max: Some(size),
        preallocate_bytes: size,
        ..CreateOptions::default()
    };
    bench.progress.prepare("a volume with a size limit");
    let embedded = Embedded::create_with(&bench.places.txfs, &create, &OpenOptions::default())?;
    let space = embedded.volume.stat()?.statistics;
    let usable = space.blocks_total * u64::from(space.block_bytes);
    let ino = embedded.file("file", PAGE_BYTES)?;
    let mut bytes = 0;
    // as much as the volume holds; in a quick look just enough to have done it
    let count = bench.scaled(size / PAGE_BYTES, 200);
    let mut random = fastrand::Rng::with_seed(13);
    bench.progress.begin(PERCENTS.len() as u64 * 2);
    let (mut rows, mut points, mut engine_points) = (Vec::new(), Vec::new(), Vec::new());
    for percent in PERCENTS {
        let pages = usable * percent / 100 / PAGE_BYTES;
        bench.progress.step(&format!("{percent} % full, getting there"));
        grow(&embedded, ino, bytes, pages * PAGE_BYTES)?;
        bytes = pages * PAGE_BYTES;
        overwrite(&embedded, ino, pages, count, &mut random)?;
        embedded.settle()?;
        embedded.place.flush_journal()?;
        bench.progress.step(&format!("{percent} % full"));
        let (before, engine_before) = (embedded.place.traffic()?, embedded.volume.stat()?.engine);
        let begun = std::time::Instant::now();
        overwrite(&embedded, ino, pages, count, &mut random)?;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        embedded.settle()?;
        embedded.place.flush_journal()?;
        let (after, engine_after) = (embedded.place.traffic()?, embedded.volume.stat()?.engine);
        let written = (count * PAGE_BYTES) as f64;
        let device = before.zip(after).map(|(before, after)| after.since(before).bytes as f64 / written);
        let share = |after: u64, before: u64| (after - before) as f64 / written;
        let log = share(engine_after.log_bytes, engine_before.log_bytes);
        let index = share(engine_after.index_bytes_written, engine_before.index_bytes_written);
        let moved = share(engine_after.bytes_moved, engine_before.bytes_moved);
        let conflicts = engine_after.conflicts - engine_before.conflicts;
        if conflicts > 0 {
            return Err(format!("{conflicts} transactions were aborted while cleaning").into());
        }
        points.extend(device.map(|device| (percent as f64, device)));
        engine_points.push((percent as f64, moved));
        rows.push(vec![
            Cell::text(format!("{percent} %")),
            Cell::number(device, 2),
            Cell::number(log, 2),
            Cell::number(moved, 2),
            Cell::number(index, 2),
            Cell::number(rate, 0),
        ]);
    }
    let columns = [
        "Full",
        "Device bytes per user byte",
        "of these, log",
        "of which moved by cleaning",
        "index",
        "Commits a second",
    ];
    let table = Table {
        caption: "Random durable 4 KiB overwrites in steady state".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    };
    let lines = Lines {
        name: "fullness".to_owned(),
        title: "Device bytes for each byte of random 4 KiB overwrites".to_owned(),
        across: "full, %".to_owned(),
        up: "device bytes per user byte".to_owned(),
        logarithmic: false,
        series: vec![("all".to_owned(), points), ("moved by cleaning".to_owned(), engine_points)],
    };
    Ok(Section {
        title: "Overwriting in a full volume".to_owned(),
        about: format!(
            "A volume with a limit of {} MiB is filled to a share of the space that statfs shows, then random pages \
             are overwritten, a durable transaction for each, until as much has been written as the volume holds; \
             then as much again is measured. Checkpoints and cleaning are included.",
            size >> 20
        ),
        tables: vec![table],
        plots: vec![Plot::Lines(lines)],
        notes: vec![
            "Uniformly random overwrites are the worst case of a cleaner: no segment is much emptier than another."
                .to_owned(),
        ],
        ..Section::default()
    })
}
