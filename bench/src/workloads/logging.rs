//! `logging-protocol`: an update that is made safe by a log file, figure 1b of TxFS (ATC'18): write and sync the log and
//! its directory, update the file and sync it, remove the log and sync the directory.
//!
//! TxFS runs the same calls in one transaction, in which syncs do nothing and the log is never written, and once more
//! rewritten to what a transaction leaves to do: the update.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use txfs::{Durability, FileOptions, Paths};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::Kind;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::{Aligned, PAGE_BYTES, PlainDirectory};
use crate::result::{Goal, Plot, Section};
use crate::rounds::{Contestant, Meter, compete};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "logging-protocol",
    "a 4 KiB update through a log file (TxFS, figure 1b), in a transaction, and rewritten",
    run,
)
.on_mount();

const FILE_BYTES: u64 = 16 << 20;
const PREPARED_BYTES: u64 = 256 << 20;

const RAW: &str = "raw: one direct data-sync write of a record";
const WRAPPED: &str = "TxFS: the same calls in a transaction";
const REWRITTEN: &str = "TxFS: rewritten";
const MOUNT: &str = "TxFS mount: in a transaction";

fn unsafe_name(kind: Kind) -> String {
    format!("{kind}: without any sync")
}

/// Each update with its page and its content, for as long as the round lasts.
fn updates(meter: &mut Meter, pages: u64, mut update: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(u64::from(meter.round));
    let mut content = [0; PAGE_BYTES];
    while meter.goes_on() {
        random.fill(&mut content);
        let offset = random.u64(0..pages) * PAGE_BYTES as u64;
        meter.time(|| update(offset, &content))?;
    }
    Ok(())
}

fn with_log(
    directory: &Path,
    handle: &File,
    original: &File,
    offset: u64,
    content: &[u8],
    sync: bool,
) -> Result<()> {
    let synced = |file: &File| if sync { file.sync_all() } else { Ok(()) };
    let path = directory.join("log");
    let mut log = File::create(&path)?;
    log.write_all(content)?;
    synced(&log)?;
    synced(handle)?;
    original.write_all_at(content, offset)?;
    synced(original)?;
    drop(log);
    fs::remove_file(&path)?;
    Ok(synced(handle)?)
}

fn run(bench: &Bench) -> Result<Section> {
    let file_bytes = bench.scaled(FILE_BYTES, 1 << 20);
    let pages = file_bytes / PAGE_BYTES as u64;
    bench.progress.prepare("a volume and files");
    let embedded = Embedded::prepared(&bench.places.txfs, bench.scaled(PREPARED_BYTES, 1 << 20))?;
    embedded.volume.base().create_dir_all("directory")?;
    embedded.file("directory/original", file_bytes)?;
    embedded.settle()?;
    let embedded = &embedded;

    let writable = FileOptions::new().read(true).write(true);
    let creating = FileOptions::new().write(true).create(true).truncate(true);
    let wrapped = |meter: &mut Meter| {
        updates(meter, pages, |offset, content| {
            let transaction = embedded.volume.begin();
            let log = transaction.open("directory/log", &creating)?;
            log.write_at(0, content)?;
            log.sync()?;
            let original = transaction.open("directory/original", &writable)?;
            original.write_at(offset, content)?;
            original.sync()?;
            drop((log, original));
            transaction.remove("directory/log")?;
            transaction.commit(Durability::Durable)?;
            Ok(())
        })
    };
    let update = |offset: u64, content: &[u8]| {
        let transaction = embedded.volume.begin();
        transaction.open("directory/original", &writable)?.write_at(offset, content)?;
        transaction.commit(Durability::Durable)?;
        Ok(())
    };
    let record_bytes = embedded.record_bytes(|| update(0, &[1; PAGE_BYTES]))?;
    let record = Aligned::new(record_bytes);
    let raw_directory = PlainDirectory::create(&bench.places.txfs)?;
    let raw = raw_directory.direct_file("raw", file_bytes + record_bytes as u64)?;
    let settle = || embedded.settle();
    let mut contestants = vec![
        Contestant::new(RAW, &embedded.place, |meter| {
            updates(meter, pages, |offset, _| raw.write_durably(offset, record.bytes(record_bytes)))
        }),
        Contestant::new(WRAPPED, &embedded.place, wrapped).settling(settle),
        Contestant::new(REWRITTEN, &embedded.place, |meter| updates(meter, pages, update)).settling(settle),
    ];
    for place in &bench.places.plain {
        for sync in [true, false] {
            // without syncs it is no update protocol: the bound that the kernel's caches set
            if !sync && place.kind != Kind::Ext4 {
                continue;
            }
            let directory = PlainDirectory::create(place)?;
            let original = directory.file("original", file_bytes)?;
            let name = if sync { place.kind.to_string() } else { unsafe_name(place.kind) };
            contestants.push(Contestant::new(name, place, move |meter| {
                updates(meter, pages, |offset, content| {
                    with_log(directory.path(), &directory.handle, &original, offset, content, sync)
                })
            }));
        }
    }
    if let Some(mounted) = &bench.mounted {
        let directory = PlainDirectory::create(&mounted.place)?;
        drop(directory.file("original", file_bytes)?);
        // as seen from the root of a transaction's view
        let inside = directory.path().strip_prefix(&mounted.place.directory)?.to_path_buf();
        let mut transactions = mounted.connect()?;
        contestants.push(Contestant::new(MOUNT, &mounted.place, move |meter| {
            let _ = &directory;
            updates(meter, pages, |offset, content| {
                transactions.durable(|view| {
                    let directory = view.join(&inside);
                    let original = File::options().write(true).open(directory.join("original"))?;
                    let handle = File::open(&directory)?;
                    with_log(&directory, &handle, &original, offset, content, true)
                })
            })
        }));
    }
    let contest = compete(bench, &mut contestants)?;

    let mut goals = Vec::new();
    for (delay, wrapped, rewritten) in [(0, 6.0, 8.0), (1000, 4.0, 4.0)] {
        for (name, limit, what) in
            [(WRAPPED, wrapped, "in a transaction"), (REWRITTEN, rewritten, "rewritten")]
        {
            if bench.flush_delays_us.contains(&delay) {
                let found = contest.rate_ratio(name, &Kind::Ext4.to_string(), delay);
                let figure = format!("logging protocol, {what}, times the rate of ext4");
                let raw = contest.rate_ratio(RAW, &Kind::Ext4.to_string(), delay);
                goals.push(Goal::at_least(figure, delay, limit, found).raw(raw));
            }
        }
    }
    Ok(Section {
        title: "An update through a log file".to_owned(),
        about: format!(
            "The protocol of figure 1b of the TxFS paper, 4 KiB at a random place of a file of {} MiB: write and sync a \
             log, sync its directory, update the file and sync it, remove the log, sync the directory. TxFS runs the same \
             calls in one durable transaction, and rewritten to the update alone, which a transaction makes safe by \
             itself. The paper has 1.20 and 1.55 times the rate of ext4.",
            file_bytes >> 20
        ),
        plots: vec![Plot::Bars(contest.bars("logging-protocol", "Updates through a log file", "a second"))],
        tables: contest.tables(),
        goals,
        notes: vec![format!(
            "Raw is one direct data-sync write of {record_bytes} bytes, which is what the log takes for such a transaction: \
             an update that is durable when it returns has at least that to do."
        )],
        ..Section::default()
    })
}
