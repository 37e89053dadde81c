//! Many clients at once: on disjoint files of one directory nobody is in anybody's way, and on one hot page everybody
//! gets on.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use common::assert_clean;
use txfs::{
    Durability, Isolation, Paths, SetAttributes, Transaction, TransactionOptions, View, Volume, XattrMode,
};

const CLIENTS: u64 = 16;

fn volume() -> (tempfile::TempDir, Volume) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vol");
    Volume::create(&path).unwrap();
    let volume = Volume::open(&path).unwrap();
    (directory, volume)
}

fn in_threads(work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let work = &work;
            scope.spawn(move || work(client));
        }
    });
}

type Step = Box<dyn Fn(&dyn View) -> txfs::Result<()>>;

/// The life of a file: each step is a transaction, or several are one.
fn steps(directory: u64, client: u64, round: u64) -> Vec<Step> {
    let name = move |what: &str| format!("{what}-{client}-{round}").into_bytes();
    let find = move |view: &dyn View, what: &str| view.lookup(directory, &name(what)).map(|found| found.ino);
    vec![
        Box::new(move |view| {
            let made = view.make_file(directory, &name("new"), 0o600, 0, 0)?;
            view.write(made.ino, 0, &client.to_le_bytes().repeat(1500)).map(drop)
        }),
        Box::new(move |view| {
            let file = find(view, "new")?;
            view.append(file, b"more")?;
            view.set_xattr(file, b"user.client", &client.to_le_bytes(), XattrMode::Set)?;
            let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
            view.set_attributes(file, &set).map(drop)
        }),
        Box::new(move |view| {
            view.rename(directory, &name("new"), directory, &name("renamed"), txfs::RenameMode::NoReplace)?;
            view.link(find(view, "renamed")?, directory, &name("linked")).map(drop)
        }),
        Box::new(move |view| {
            let file = find(view, "renamed")?;
            assert_eq!(view.read(file, 0, 20_000)?.len(), 12_004);
            let set = SetAttributes { size: Some(100), ..SetAttributes::default() };
            view.set_attributes(file, &set).map(drop)
        }),
        Box::new(move |view| {
            view.unlink(directory, &name("linked"))?;
            assert_eq!(view.attributes(directory)?.nlink, 2);
            match round.is_multiple_of(4) {
                true => Ok(()),
                false => view.unlink(directory, &name("renamed")),
            }
        }),
    ]
}

#[test]
fn sixteen_clients_on_disjoint_files_of_one_directory_never_conflict() {
    const ROUNDS: u64 = 24;
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let (_directory, volume) = volume();
        let shared = volume.base().create_dir("shared").unwrap().ino;
        let commits = AtomicU64::new(0);
        let began = Instant::now();
        in_threads(|client| {
            for round in 0..ROUNDS {
                let commit = |tx: &Transaction| {
                    // So that the others are in the midst of theirs.
                    std::thread::yield_now();
                    let durability = if round == 7 { Durability::Durable } else { Durability::Ordered };
                    if let Err(error) = tx.commit(durability) {
                        panic!("client {client}, round {round}: {error}");
                    }
                    commits.fetch_add(1, Ordering::Relaxed);
                };
                let begin = || volume.begin_with(TransactionOptions { isolation, ..Default::default() });
                let together = round.is_multiple_of(3).then(begin);
                for step in steps(shared, client, round) {
                    let alone;
                    let tx = match &together {
                        Some(tx) => tx,
                        None => {
                            alone = begin();
                            &alone
                        }
                    };
                    step(tx).unwrap();
                    std::thread::yield_now();
                    if together.is_none() {
                        commit(tx);
                    }
                }
                together.iter().for_each(&commit);
            }
        });
        let left = volume.base().list_directory(shared).unwrap().len() as u64;
        assert_eq!(left, CLIENTS * ROUNDS / 4);
        assert_clean(&volume);
        let commits = commits.load(Ordering::Relaxed);
        println!(
            "{isolation:?}: {commits} commits of {CLIENTS} clients without a conflict, {:.0}/s",
            commits as f64 / began.elapsed().as_secs_f64()
        );
    }
}

#[test]
fn sixteen_clients_on_one_hot_page_all_get_on() {
    const EACH: u64 = 200;
    let (_directory, volume) = volume();
    volume.base().write_file("hot", &0u64.to_le_bytes()).unwrap();
    let attempts = AtomicU64::new(0);
    let most = AtomicU64::new(0);
    let began = Instant::now();
    in_threads(|_| {
        for _ in 0..EACH {
            let mut mine = 0;
            // Whoever fails does so because somebody else got through: nobody can need more
            // than these attempts.
            let limit = (CLIENTS * EACH) as u32;
            let updated = volume.transact(limit, Durability::Ordered, |tx| {
                mine += 1;
                let file = tx.resolve("hot")?;
                let value = u64::from_le_bytes(tx.read(file, 0, 8)?.try_into().unwrap());
                // Otherwise most would be through before the next one has a processor.
                std::thread::yield_now();
                tx.write(file, 0, &(value + 1).to_le_bytes()).map(drop)
            });
            if let Err(error) = updated {
                panic!("gave up after {mine} attempts: {error}");
            }
            attempts.fetch_add(mine, Ordering::Relaxed);
            most.fetch_max(mine, Ordering::Relaxed);
        }
    });
    let took = began.elapsed();
    let value = volume.base().read_file("hot").unwrap();
    assert_eq!(value, (CLIENTS * EACH).to_le_bytes(), "no update is lost");
    assert_clean(&volume);
    println!(
        "one hot page, {CLIENTS} clients: {:.0} commits/s, {:.2} attempts each, at most {}",
        (CLIENTS * EACH) as f64 / took.as_secs_f64(),
        attempts.load(Ordering::Relaxed) as f64 / (CLIENTS * EACH) as f64,
        most.load(Ordering::Relaxed)
    );
}
