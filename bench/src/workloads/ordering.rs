//! `ordered-then-durable`: three new files of 10 MB, then 10 MB in a file of 40 MB, in this order; section 4.3 of TxFS
//! (ATC'18).
//!
//! Plain files keep the order with an fsync each. TxFS commits the files ordered and only the update durable.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use txfs::{Durability, Paths, ROOT_INO, View};

use crate::Result;
use crate::bench::Bench;
use crate::beside::beside;
use crate::contestants::Kind;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::{Aligned, PlainDirectory};
use crate::result::{Goal, Plot, Section};
use crate::rounds::{Contestant, Meter, compete};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "ordered-then-durable",
    "three 10 MB files, then a 10 MB update in a 40 MB file, in order",
    run,
)
.on_mount();

const FILES: u32 = 3;
const CONTENT_BYTES: u64 = 10 << 20;
const PLACES: u64 = 4;
/// Of one direct write.
const PIECE_BYTES: u64 = 1 << 20;
const RAW: &str = "raw: direct writes, one flush";
const TXFS: &str = "TxFS: ordered, then durable";
const ALL_DURABLE: &str = "TxFS: all durable";

fn run(bench: &Bench) -> Result<Section> {
    let bytes = bench.scaled(CONTENT_BYTES, 64 << 10);
    let mut content = vec![0; bytes as usize];
    fastrand::Rng::with_seed(1).fill(&mut content);
    let content = &content;

    bench.progress.prepare("a volume and files");
    let embedded = Embedded::prepared(&bench.places.txfs, bytes * 60)?;
    let updated = embedded.file("updated", bytes * PLACES)?;
    embedded.settle()?;
    let embedded = &embedded;
    let transactions = |files: Durability| {
        move |meter: &mut Meter| {
            while meter.goes_on() {
                let at = meter.operations() % PLACES * bytes;
                meter.time(|| {
                    for number in 0..FILES {
                        let transaction = embedded.volume.begin();
                        let name = format!("new{number}");
                        let made = transaction.make_file(ROOT_INO, name.as_bytes(), 0o644, 0, 0)?;
                        transaction.write(made.ino, 0, content)?;
                        transaction.commit(files)?;
                    }
                    let transaction = embedded.volume.begin();
                    transaction.write(updated, at, content)?;
                    transaction.commit(Durability::Durable)?;
                    Ok(())
                })?;
                for number in 0..FILES {
                    embedded.volume.base().remove(format!("new{number}"))?;
                }
            }
            Ok(())
        }
    };
    let raw_directory = PlainDirectory::create(&bench.places.txfs)?;
    let raw = raw_directory.direct_file("raw", bytes * (u64::from(FILES) + PLACES))?;
    let piece_bytes = PIECE_BYTES.min(bytes);
    let piece = Aligned::new(piece_bytes as usize);
    let settle = || embedded.settle();
    let mut contestants = vec![
        Contestant::new(RAW, &bench.places.txfs, |meter| {
            while meter.goes_on() {
                let updated = u64::from(FILES) + meter.operations() % PLACES;
                let parts: Vec<u64> = (0..u64::from(FILES)).chain([updated]).collect();
                let write = |part: u64| {
                    let mut places = (part * bytes..(part + 1) * bytes).step_by(piece_bytes as usize);
                    places.try_for_each(|at| raw.write(at, piece.bytes(piece_bytes as usize)))
                };
                meter.time(|| {
                    // nothing keeps them apart until the flush, and one write at a time is not all that a disk can do
                    beside(parts.len(), |number, _| write(parts[number]), || Ok(()))?;
                    raw.sync()
                })?;
            }
            Ok(())
        }),
        Contestant::new(TXFS, &embedded.place, transactions(Durability::Ordered)).settling(settle),
        Contestant::new(ALL_DURABLE, &embedded.place, transactions(Durability::Durable)).settling(settle),
    ];
    for place in &bench.places.plain {
        let directory = PlainDirectory::create(place)?;
        let updated = directory.file("updated", bytes * PLACES)?;
        contestants.push(Contestant::new(place.kind.to_string(), place, move |meter| {
            while meter.goes_on() {
                let at = meter.operations() % PLACES * bytes;
                meter.time(|| {
                    for number in 0..FILES {
                        let file = File::create_new(directory.join(&format!("new{number}")))?;
                        file.write_all_at(content, 0)?;
                        file.sync_all()?;
                    }
                    updated.write_all_at(content, at)?;
                    Ok(updated.sync_all()?)
                })?;
                for number in 0..FILES {
                    fs::remove_file(directory.join(&format!("new{number}")))?;
                }
            }
            Ok(())
        }));
    }
    let contest = compete(bench, &mut contestants)?;

    let mut goals = Vec::new();
    for (delay, limit) in [(0, 1.2), (1000, 1.5)] {
        if bench.flush_delays_us.contains(&delay) {
            let times = |who| contest.rate_ratio(who, &Kind::Ext4.to_string(), delay);
            let figure = "three 10 MB files, then a 10 MB update, times the rate of ext4";
            goals.push(Goal::at_least(figure, delay, limit, times(TXFS)).raw(times(RAW)));
        }
    }
    Ok(Section {
        title: "Ordered work, then one durable update".to_owned(),
        about: "Three new files of 10 MB are to be there before 10 MB are overwritten in a file of 40 MB. The file systems \
                keep the order with an fsync for each file. TxFS commits each file in an ordered transaction and the \
                update in a durable one; all durable is the same without that. Raw writes the same bytes over blocks that \
                were written before, all four parts side by side in direct writes of 1 MiB, and flushes once at the end. The files are removed again \
                outside of the time. The paper has 1.38 times the rate of ext4."
            .to_owned(),
        plots: vec![Plot::Bars(contest.bars(
            "ordered-then-durable",
            "Three 10 MB files, then a 10 MB update",
            "a second",
        ))],
        tables: contest.tables(),
        goals,
        ..Section::default()
    })
}
