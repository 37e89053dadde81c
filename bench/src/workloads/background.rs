//! `mail-background`: latency of a small commit while ten mail servers write in the background; figure 15 of exF2FS
//! (FAST'22).
//!
//! The commit is what an insert into three databases leaves: a page in each of three files. The paper had each file system's
//! journal carry the mail along with it (a compound transaction); a record of TxFS holds its own transaction only.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use txfs::{Durability, FileOptions, Ino, Paths, View, Volume};

use crate::Result;
use crate::bench::Bench;
use crate::beside::beside;
use crate::contestants::Place;
use crate::contestants::embedded::Embedded;
use crate::contestants::plain::{Aligned, DirectFile, PAGE_BYTES, PlainDirectory};
use crate::figures::Spread;
use crate::result::{Goal, Plot, Section};
use crate::rounds::{Contestant, Meter, compete};
use crate::workloads::Workload;

/// See the module.
pub const WORKLOAD: Workload = Workload::new(
    "mail-background",
    "latency of small commits with ten mail-server-like writers in the background",
    run,
)
.on_mount();

const WRITERS: usize = 10;
const DATABASES: usize = 3;
const DATABASE_BYTES: u64 = 1 << 20;
/// Mails of each writer that are there at any time.
const MAILS: u64 = 100;
/// What a mail gets in one append, on average.
const MAIL_BYTES: usize = 16 << 10;
const PREPARED_BYTES: u64 = 512 << 20;
const RAW: &str = "raw";

fn idle(system: impl std::fmt::Display) -> String {
    format!("{system}: idle")
}

fn loaded(system: impl std::fmt::Display) -> String {
    format!("{system}: {WRITERS} mail writers")
}

/// One turn of a mail server as filebench's varmail has it: a mail goes, another comes and is synced, one is read,
/// prolonged and synced, one is read.
trait Mail: Sync {
    fn turn(&self, writer: usize, random: &mut fastrand::Rng, content: &[u8]) -> Result<()>;
}

struct PlainMail<'files>(&'files PlainDirectory);

impl Mail for PlainMail<'_> {
    fn turn(&self, writer: usize, random: &mut fastrand::Rng, content: &[u8]) -> Result<()> {
        let mut mail = || self.0.join(&format!("{writer}-{}", random.u64(0..MAILS)));
        let (replaced, prolonged, read) = (mail(), mail(), mail());
        if replaced.exists() {
            fs::remove_file(&replaced)?;
        }
        let mut file = File::create_new(&replaced)?;
        file.write_all(content)?;
        file.sync_all()?;
        if prolonged.exists() {
            let mut file = File::options().read(true).append(true).open(&prolonged)?;
            file.read_to_end(&mut Vec::new())?;
            file.write_all(content)?;
            file.sync_all()?;
        }
        if read.exists() {
            fs::read(&read)?;
        }
        Ok(())
    }
}

struct TxfsMail<'volume>(&'volume Volume);

impl Mail for TxfsMail<'_> {
    fn turn(&self, writer: usize, random: &mut fastrand::Rng, content: &[u8]) -> Result<()> {
        let mut mail = || format!("mail/{writer}-{}", random.u64(0..MAILS));
        let (replaced, prolonged, read) = (mail(), mail(), mail());
        let base = self.0.base();
        if base.exists(&replaced)? {
            base.remove(&replaced)?;
        }
        let file = base.open(&replaced, &FileOptions::new().write(true).create_new(true))?;
        file.append(content)?;
        file.sync()?;
        if base.exists(&prolonged)? {
            base.read_file(&prolonged)?;
            let file = base.open(&prolonged, &FileOptions::new().write(true))?;
            file.append(content)?;
            file.sync()?;
        }
        if base.exists(&read)? {
            base.read_file(&read)?;
        }
        Ok(())
    }
}

/// What of it has to reach the device, and nothing else: two direct data-sync writes of the mail's size, in whole pages, to a
/// file of each writer's own.
struct RawMail {
    files: Vec<DirectFile>,
    content: Aligned,
    _directory: PlainDirectory,
}

impl RawMail {
    fn create(place: &Place) -> Result<RawMail> {
        let directory = PlainDirectory::create(place)?;
        let file = |writer| directory.direct_file(&format!("mail{writer}"), MAILS * 2 * MAIL_BYTES as u64);
        let files = (0..WRITERS).map(file).collect::<Result<_>>()?;
        Ok(RawMail { files, content: Aligned::new(2 * MAIL_BYTES), _directory: directory })
    }
}

impl Mail for RawMail {
    fn turn(&self, writer: usize, random: &mut fastrand::Rng, content: &[u8]) -> Result<()> {
        let pages = content.len().next_multiple_of(PAGE_BYTES);
        for _ in 0..2 {
            let at = random.u64(0..MAILS) * 2 * MAIL_BYTES as u64;
            self.files[writer].write_durably(at, self.content.bytes(pages))?;
        }
        Ok(())
    }
}

/// Inserts for as long as the round lasts, with mail in the background or without; counts the mail's turns.
fn inserts(
    meter: &mut Meter,
    mail: Option<(&dyn Mail, &AtomicU64)>,
    mut insert: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut foreground = || {
        let mut random = fastrand::Rng::with_seed(u64::from(meter.round));
        let mut content = [0; PAGE_BYTES];
        while meter.goes_on() {
            random.fill(&mut content);
            let offset = random.u64(0..DATABASE_BYTES / PAGE_BYTES as u64) * PAGE_BYTES as u64;
            meter.time(|| insert(offset, &content))?;
        }
        Ok(())
    };
    let Some((mail, turns)) = mail else { return foreground() };
    beside(
        WRITERS,
        |writer, over| {
            let mut random = fastrand::Rng::with_seed(writer as u64);
            let mut content = vec![0; 2 * MAIL_BYTES];
            random.fill(&mut content);
            while !over.load(Ordering::Relaxed) {
                let len = random.usize(1..content.len());
                mail.turn(writer, &mut random, &content[..len])?;
                turns.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        },
        foreground,
    )
    .map(|_| ())
}
fn run(bench: &Bench) -> Result<Section> {
    bench.progress.prepare("a volume and files");
    let embedded = Embedded::prepared(&bench.places.txfs, bench.scaled(PREPARED_BYTES, 1 << 20))?;
    embedded.volume.base().create_dir_all("mail")?;
    let databases: Vec<Ino> = (0..DATABASES)
        .map(|number| embedded.file(&format!("database{number}"), DATABASE_BYTES))
        .collect::<Result<_>>()?;
    embedded.settle()?;
    let (embedded, databases) = (&embedded, &databases);
    let turns: Vec<(String, AtomicU64)> = [RAW.to_owned(), "TxFS".to_owned()]
        .into_iter()
        .chain(bench.places.plain.iter().map(|place| place.kind.to_string()))
        .map(|name| (name, AtomicU64::new(0)))
        .collect();

    let directories: Vec<PlainDirectory> =
        bench.places.plain.iter().map(PlainDirectory::create).collect::<Result<_>>()?;
    let mails: Vec<PlainMail<'_>> = directories.iter().map(PlainMail).collect();
    let mail = TxfsMail(&embedded.volume);
    let insert = |offset: u64, content: &[u8]| {
        let transaction = embedded.volume.begin();
        for &ino in databases {
            transaction.write(ino, offset, content)?;
        }
        transaction.commit(Durability::Durable)?;
        Ok(())
    };
    let (raw_turns, txfs_turns) = (&turns[0].1, &turns[1].1);
    let record_bytes = embedded.record_bytes(|| insert(0, &[1; PAGE_BYTES]))?;
    let record = Aligned::new(record_bytes);
    let raw_directory = PlainDirectory::create(&bench.places.txfs)?;
    let raw_file = raw_directory.direct_file("databases", DATABASE_BYTES + record_bytes as u64)?;
    let raw_insert = |offset: u64, _: &[u8]| raw_file.write_durably(offset, record.bytes(record_bytes));
    let raw_mail = RawMail::create(&bench.places.txfs)?;
    let settle = || embedded.settle();
    let mut contestants = vec![
        Contestant::new(idle(RAW), &bench.places.txfs, |meter| inserts(meter, None, raw_insert)),
        Contestant::new(loaded(RAW), &bench.places.txfs, |meter| {
            inserts(meter, Some((&raw_mail, raw_turns)), raw_insert)
        }),
        Contestant::new(idle("TxFS"), &embedded.place, |meter| inserts(meter, None, insert)).settling(settle),
        Contestant::new(loaded("TxFS"), &embedded.place, |meter| {
            inserts(meter, Some((&mail, txfs_turns)), insert)
        })
        .settling(settle),
    ];
    for ((place, directory), (mail, (_, turns))) in
        bench.places.plain.iter().zip(&directories).zip(mails.iter().zip(&turns[2..]))
    {
        for with_mail in [false, true] {
            let files: Vec<File> = (0..DATABASES)
                .map(|number| directory.file(&format!("database{number}-{with_mail}"), DATABASE_BYTES))
                .collect::<Result<_>>()?;
            let name = if with_mail { loaded(place.kind) } else { idle(place.kind) };
            contestants.push(Contestant::new(name, place, move |meter| {
                let mail = with_mail.then_some((mail as &dyn Mail, turns));
                inserts(meter, mail, |offset, content| {
                    files.iter().try_for_each(|file| file.write_all_at(content, offset))?;
                    Ok(files.iter().try_for_each(File::sync_data)?)
                })
            }));
        }
    }
    let contest = compete(bench, &mut contestants)?;
    drop(contestants);

    let mut goals = Vec::new();
    for &delay in bench.flush_delays_us.iter().filter(|delay| [0, 1000].contains(*delay)) {
        let growth = |who| contest.latency_ratio(&loaded(who), &idle(who), delay);
        let figure = "latency of small commits with ten mail writers, against idle";
        goals.push(Goal::at_most(figure, delay, 2.0, growth("TxFS")).raw(growth(RAW)));
    }
    let ratios = turns.iter().flat_map(|(name, _)| {
        let contest = &contest;
        bench.flush_delays_us.iter().filter_map(move |&delay| {
            let ratio: Spread = contest.latency_ratio(&loaded(name), &idle(name), delay)?;
            Some(format!("{name} {} ({})", ratio.text(1), crate::rounds::delay_text(delay)))
        })
    });
    let ratios: Vec<String> = ratios.collect();
    let done: Vec<String> = turns
        .iter()
        .map(|(name, turns)| {
            format!("{name} {}", crate::figures::number(turns.load(Ordering::Relaxed) as f64, 0))
        })
        .collect();
    Ok(Section {
        title: "Small commits beside ten mail servers".to_owned(),
        about: format!(
            "One thread writes a page in each of three files and makes them durable (TxFS: one transaction; the file \
             systems: fdatasync of each, not atomic), alone and with {WRITERS} threads that behave like filebench's \
             varmail: remove a mail, create and sync another, read, prolong and sync one, read one. Raw writes for each \
             insert what the log of TxFS takes for it ({record_bytes} bytes) in one direct data-sync write; its mail \
             writers make two such writes of a mail's size each turn and nothing else. In figure 15 of exF2FS, TxFS in the kernel took 34 times as long as exF2FS with that load."
        ),
        plots: vec![Plot::Bars(contest.bars(
            "mail-background",
            "Small commits beside mail servers",
            "a second",
        ))],
        tables: contest.tables(),
        goals,
        notes: vec![
            format!("Median latency with mail over that without: {}.", ratios.join(", ")),
            format!(
                "Turns of the mail writers in all rounds, which is how much load each made: {}.",
                done.join(", ")
            ),
            "Flushes and device bytes of the loaded rows are those of the mail too.".to_owned(),
        ],
        ..Section::default()
    })
}
