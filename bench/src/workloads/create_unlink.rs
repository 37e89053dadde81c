//! `create-unlink-sync`: files that are created, unlinked and made durable for nothing; table 1 of TxFS (ATC'18).
//!
//! The paper puts each turn (create, unlink, sync) into a transaction of its own, of which nothing is left to be written.
//! That measures what a transaction costs that does nothing. So that nobody takes it for more, the same number of
//! operations is also done in transactions that leave something: a file is created, and the one of the transaction before
//! is unlinked, one such pair in each transaction or many.

use std::fs::{self, File};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use txfs::{Durability, Ino, Paths, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::Kind;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::PlainDirectory;
use crate::result::{Goal, Plot, Section};
use crate::rounds::{Contestant, Meter, compete};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "create-unlink-sync",
    "6 threads that create a file, unlink it and sync the directory",
    run,
)
.on_mount();

const THREADS: usize = 6;
/// Pairs in each of the larger transactions.
const MANY: u64 = 32;
const TXFS: &str = "TxFS: in a transaction, nothing is left";
/// Transactions that leave a file, by the pairs in each.
const LEAVING: [(u64, &str); 2] = [
    (1, "TxFS: create, unlink the one before, 1 pair a transaction"),
    (MANY, "TxFS: create, unlink the one before, 32 pairs a transaction"),
];
const MOUNT: &str = "TxFS mount: in transactions";

/// Creates a file and unlinks the one before it, so many times in each durable transaction; counts the pairs.
fn leave_one(
    embedded: &Embedded,
    parent: Ino,
    pairs: u64,
    (round, thread): (u64, usize),
    meter: &mut Meter,
) -> Result<()> {
    let mut count = 0;
    let mut before: Option<String> = None;
    while meter.goes_on() {
        // The clock is asked for each pair, as it is for everybody else; the last pair pays for the commit.
        let transaction = embedded.volume.begin();
        for pair in 1..=pairs {
            meter.time(|| {
                let name = format!("left-{round}-{thread}-{count}");
                transaction.make_file(parent, name.as_bytes(), 0o644, 0, 0)?;
                if let Some(before) = before.replace(name) {
                    transaction.unlink(parent, before.as_bytes())?;
                }
                if pair == pairs {
                    transaction.commit(Durability::Durable)?;
                }
                Ok(())
            })?;
            count += 1;
        }
    }
    Ok(())
}

fn run(bench: &Bench) -> Result<Section> {
    let embedded = Embedded::create(&bench.places.txfs)?;
    embedded.volume.base().create_dir_all("directory")?;
    let parent = embedded.volume.base().resolve("directory")?;
    let (embedded, rounds) = (&embedded, &AtomicU64::new(0));
    let turn = move |meter: &mut Meter| {
        meter.threads(THREADS, |thread, meter| {
            let name = format!("file{thread}");
            while meter.goes_on() {
                meter.time(|| {
                    let transaction = embedded.volume.begin();
                    transaction.make_file(parent, name.as_bytes(), 0o644, 0, 0)?;
                    transaction.unlink(parent, name.as_bytes())?;
                    transaction.commit(Durability::Durable)?;
                    Ok(())
                })?;
            }
            Ok(())
        })
    };
    let mut contestants = vec![Contestant::new(TXFS, &embedded.place, turn).settling(|| embedded.settle())];
    for (pairs, name) in LEAVING {
        let turn = move |meter: &mut Meter| {
            // names of its own for each turn: the last file of each thread stays
            let round = rounds.fetch_add(1, Ordering::Relaxed);
            meter.threads(THREADS, |thread, meter| leave_one(embedded, parent, pairs, (round, thread), meter))
        };
        contestants.push(Contestant::new(name, &embedded.place, turn).settling(|| embedded.settle()));
    }
    for place in &bench.places.plain {
        let directory = PlainDirectory::create(place)?;
        contestants.push(Contestant::new(place.kind.to_string(), place, move |meter| {
            meter.threads(THREADS, |thread, meter| {
                let path = directory.join(&format!("file{thread}"));
                while meter.goes_on() {
                    meter.time(|| {
                        drop(File::create_new(&path)?);
                        fs::remove_file(&path)?;
                        Ok(directory.handle.sync_all()?)
                    })?;
                }
                Ok(())
            })
        }));
    }
    if let Some(mounted) = &bench.mounted {
        let directory = PlainDirectory::create(&mounted.place)?;
        // as seen from the root of a transaction's view
        let inside = directory.path().strip_prefix(&mounted.place.directory)?.to_path_buf();
        let connections: Vec<_> =
            (0..THREADS).map(|_| Ok(Mutex::new(mounted.connect()?))).collect::<Result<_>>()?;
        contestants.push(Contestant::new(MOUNT, &mounted.place, move |meter| {
            let _ = &directory;
            meter.threads(THREADS, |thread, meter| {
                let mut transactions = connections[thread].lock().map_err(|_| "a thread panicked")?;
                while meter.goes_on() {
                    meter.time(|| {
                        transactions.durable(|view| {
                            let path = view.join(&inside).join(format!("file{thread}"));
                            drop(File::create_new(&path)?);
                            Ok(fs::remove_file(&path)?)
                        })
                    })?;
                }
                Ok(())
            })
        }));
    }
    let contest = compete(bench, &mut contestants)?;

    let mut goals = Vec::new();
    for (delay, limit) in [(0, 8.0), (1000, 50.0)] {
        if bench.flush_delays_us.contains(&delay) {
            let found = contest.rate_ratio(TXFS, &Kind::Ext4.to_string(), delay);
            let figure = "create, unlink, sync of the directory, 6 threads, times the rate of ext4";
            goals.push(Goal::at_least(figure, delay, limit, found));
        }
    }
    Ok(Section {
        title: "Create, unlink, sync".to_owned(),
        about: "Six threads create a file in a common directory, unlink it again and make that durable, one pair of \
                operations after the other: TxFS with each pair in a durable transaction, the file systems with fsync of \
                the directory. Rates are pairs a second. A transaction that leaves nothing behind has nothing to write: \
                that is what table 1 of the TxFS paper shows, 133 times the rate of ext4 on a drive with slow flushes, and \
                what the goals are about. The two rows below it do the same operations in transactions that do leave \
                something: each pair creates a file and unlinks the one before, 1 or 32 pairs in each durable \
                transaction (32 pairs share a commit, which the file systems could do as well with a sync after \
                every 32; the median there is that of a pair without the commit)."
            .to_owned(),
        plots: vec![Plot::Bars(contest.bars("create-unlink-sync", "Create, unlink, sync, six threads", "a second"))],
        tables: contest.tables(),
        goals,
        ..Section::default()
    })
}
