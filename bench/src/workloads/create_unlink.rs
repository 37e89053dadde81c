//! `create-unlink-sync`: files that are created, unlinked and made durable for nothing; table 1 of TxFS (ATC'18).

use std::fs::{self, File};
use std::sync::Mutex;

use txfs::{Durability, Paths, View};

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
const TXFS: &str = "TxFS: in transactions";
const MOUNT: &str = "TxFS mount: in transactions";

fn run(bench: &Bench) -> Result<Section> {
    let embedded = Embedded::create(&bench.places.txfs)?;
    embedded.volume.base().create_dir_all("directory")?;
    let parent = embedded.volume.base().resolve("directory")?;
    let embedded = &embedded;
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
        about: "Six threads create a file in a common directory, unlink it again and make that durable: TxFS in a durable \
                transaction for each file, the file systems with fsync of the directory. A transaction that leaves nothing \
                behind has nothing to write. Table 1 of the TxFS paper has 133 times the rate of ext4, on a drive with \
                slow flushes."
            .to_owned(),
        plots: vec![Plot::Bars(contest.bars("create-unlink-sync", "Create, unlink, sync, six threads", "a second"))],
        tables: contest.tables(),
        goals,
        ..Section::default()
    })
}
