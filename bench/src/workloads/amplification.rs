//! `amplification`: device bytes for each byte of the user, for allocating durable writes of several sizes; table 3 of
//! exF2FS (FAST'22).
//!
//! Counted at the device, over everything: the journal and the checkpoints of the file systems (frozen for a moment at the
//! end) and those of TxFS. Nothing is timed.

use std::io::Write;
use std::rc::Rc;

use txfs::{Durability, Paths, View};

use crate::Result;
use crate::bench::Bench;
use crate::contestants::Place;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::PlainDirectory;
use crate::figures::Spread;
use crate::result::{Bars, Cell, Goal, Plot, Section, Table};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "amplification",
    "device bytes for each user byte, allocating durable writes of 4 to 32 KiB",
    run,
)
.on_mount();

/// Write sizes with the limits that TxFS is to stay under.
const SIZES: [(usize, f64); 4] = [(4 << 10, 1.2), (8 << 10, 1.1), (16 << 10, 1.05), (32 << 10, 1.03)];
const TOTAL_BYTES: u64 = 64 << 20;
/// A new volume is given so many times as much: it writes zeros for whole segments, used or not.
const FRESH_SHARE: u64 = 2;
const ROUNDS_MAX: u32 = 2;

const FRESH: &str = "TxFS, new volume";
const STEADY: &str = "TxFS";

/// Appends durably to the file of this name until so many bytes are written, in writes of one size.
type Append<'work> = Box<dyn Fn(&str, usize, u64) -> Result<()> + 'work>;

type Remove<'work> = Box<dyn Fn(&str) -> Result<()> + 'work>;

struct Writer<'work> {
    name: String,
    place: Place,
    append: Append<'work>,
    remove: Remove<'work>,
    /// What is only in memory or in a journal gets to its place.
    settle: Box<dyn Fn() -> Result<()> + 'work>,
}

impl Writer<'_> {
    /// Device bytes for each user byte; nothing without a device.
    fn amplification(&self, size: usize, total: u64) -> Result<Option<f64>> {
        (self.settle)()?;
        let before = self.place.traffic()?;
        (self.append)("growing", size, total)?;
        (self.settle)()?;
        let after = self.place.traffic()?;
        // So that the next one finds as much room.
        (self.remove)("growing")?;
        Ok(before.zip(after).map(|(before, after)| after.since(before).bytes as f64 / total as f64))
    }
}

fn append(embedded: &Embedded, name: &str, size: usize, total: u64) -> Result<()> {
    let volume = &embedded.volume;
    let mut content = vec![0; size];
    fastrand::Rng::with_seed(size as u64).fill(&mut content);
    volume.base().write_file(name, b"")?;
    let ino = volume.base().resolve(name)?;
    for number in 0..total / size as u64 {
        content[..8].copy_from_slice(&number.to_le_bytes());
        let transaction = volume.begin();
        transaction.append(ino, &content)?;
        transaction.commit(Durability::Durable)?;
    }
    Ok(())
}

fn run(bench: &Bench) -> Result<Section> {
    let total = bench.scaled(TOTAL_BYTES, 256 << 10);
    bench.progress.prepare("a volume");
    let embedded = Embedded::prepared(&bench.places.txfs, total * 4)?;
    let embedded = &embedded;
    let mut writers = vec![Writer {
        name: STEADY.to_owned(),
        place: bench.places.txfs.clone(),
        append: Box::new(|name, size, total| append(embedded, name, size, total)),
        remove: Box::new(|name| Ok(embedded.volume.base().remove(name)?)),
        settle: Box::new(|| {
            embedded.settle()?;
            embedded.place.flush_journal()
        }),
    }];
    for place in &bench.places.plain {
        let directory = Rc::new(PlainDirectory::create(place)?);
        let removing = directory.clone();
        writers.push(Writer {
            name: place.kind.to_string(),
            place: place.clone(),
            append: Box::new(move |name, size, total| {
                let mut file = directory.file(name, 0)?;
                let mut content = vec![0; size];
                fastrand::Rng::with_seed(size as u64).fill(&mut content);
                for number in 0..total / size as u64 {
                    content[..8].copy_from_slice(&number.to_le_bytes());
                    file.write_all(&content)?;
                    file.sync_all()?;
                }
                Ok(())
            }),
            remove: Box::new(move |name| Ok(std::fs::remove_file(removing.join(name))?)),
            settle: Box::new(|| place.flush_journal()),
        });
    }

    let rounds = bench.rounds.min(ROUNDS_MAX);
    bench.progress.begin((u64::from(rounds) + writers.len() as u64) * SIZES.len() as u64);
    let mut found = vec![vec![Vec::new(); SIZES.len()]; writers.len() + 1];
    for round in 0..rounds {
        for (index, (size, _)) in SIZES.into_iter().enumerate() {
            // what is judged; what the others write does not vary from round to round, and takes minutes
            let taking_part = if round == 0 { writers.len() } else { 1 };
            for (writer, found) in writers[..taking_part].iter().zip(&mut found) {
                bench.progress.step(&format!("{}, {} KiB", writer.name, size >> 10));
                found[index].extend(writer.amplification(size, total)?);
            }
            // not in a quick look: making a volume takes its time
            if round == 0 && bench.scale >= 1.0 {
                bench.progress.step(&format!("{FRESH}, {} KiB", size >> 10));
                found[writers.len()][index].extend(fresh(&bench.places.txfs, size, total * FRESH_SHARE)?);
            }
        }
    }

    let names = writers.iter().map(|writer| writer.name.as_str()).chain([FRESH]);
    let mut columns = vec![String::new()];
    columns.extend(SIZES.iter().map(|(size, _)| format!("{} KiB", size >> 10)));
    let rows = names.clone().zip(&found).map(|(name, sizes)| {
        let mut row = vec![Cell::text(name)];
        row.extend(sizes.iter().map(|rounds| Cell::figure(Spread::of(rounds), 2)));
        row
    });
    let table =
        Table { caption: "Device bytes for each byte of the user".to_owned(), columns, rows: rows.collect() };
    let groups = SIZES.iter().enumerate().map(|(index, (size, _))| {
        let bars = names.clone().zip(&found).filter(|(_, sizes)| !sizes[index].is_empty());
        let bars = bars.map(|(name, sizes)| (name.to_owned(), Spread::of(&sizes[index])));
        (format!("{} KiB", size >> 10), bars.collect())
    });
    let bars = Bars {
        name: "amplification".to_owned(),
        title: "Device bytes for each byte of the user, allocating durable writes".to_owned(),
        unit: "times".to_owned(),
        logarithmic: true,
        groups: groups.collect(),
    };
    let goals = SIZES.iter().enumerate().map(|(index, (size, limit))| {
        let found = (!found[0][index].is_empty()).then(|| Spread::of(&found[0][index]));
        let figure = format!("device bytes per user byte, allocating durable writes of {} KiB", size >> 10);
        Goal::at_most(figure, 0, *limit, found).unit("", 3)
    });
    Ok(Section {
        title: "Write amplification of allocating durable writes".to_owned(),
        about: format!(
            "A file grows to {} MiB by durable appends: TxFS commits a transaction for each, the file systems fsync. \
             Counted at the device, with TxFS's checkpoints and the journals' write-back at the end.",
            total >> 20
        ),
        goals: goals.collect(),
        tables: vec![table],
        plots: vec![Plot::Bars(bars)],
        notes: vec![
            format!("{STEADY}, which is judged, was measured {rounds} times, all others once."),
            format!(
                "TxFS is judged on a volume with preallocated space, which it uses again and again as a file system uses \
                 its blocks. A volume without writes zeros into each new segment ahead of its use, once in its life; the \
                 row of a new volume counts those zeros, those of spare segments that were not used yet among them, for a \
                 file of {} MiB.",
                (total * FRESH_SHARE) >> 20
            ),
            "The papers had 12, 6, 2.5 and 2.5 for TxFS in the kernel (ATC'18), and 3, 2, 1.5 and 1.1 for exF2FS \
             (FAST'22)."
                .to_owned(),
        ],
        ..Section::default()
    })
}

/// The same on a volume that was made for it.
fn fresh(place: &Place, size: usize, total: u64) -> Result<Option<f64>> {
    place.flush_journal()?;
    let before = place.traffic()?;
    let embedded = Embedded::create(place)?;
    append(&embedded, "file", size, total)?;
    embedded.settle()?;
    place.flush_journal()?;
    let after = place.traffic()?;
    Ok(before.zip(after).map(|(before, after)| after.since(before).bytes as f64 / total as f64))
}
