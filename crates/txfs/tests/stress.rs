//! Many threads on a real directory, with the engine's background work running: everything that commits is kept,
//! nothing else, and the volume stays sound throughout.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::assert_clean;
use txfs::{Durability, FileOptions, OpenOptions, Paths, RenameMode, View, Volume};

const THREADS: u64 = 4;
const ROUNDS: u64 = 60;

/// Moves one unit between two of ten accounts, each a page of one file; their sum never changes.
fn transfer(volume: &Volume, random: &mut fastrand::Rng) -> txfs::Result<()> {
    let tx = volume.begin();
    let accounts = tx.resolve("accounts")?;
    let (from, to) = (random.u64(0..10) * 4096, random.u64(0..10) * 4096);
    let read = |at| -> txfs::Result<i64> {
        let bytes = tx.read(accounts, at, 8)?;
        Ok(i64::from_le_bytes(bytes.try_into().unwrap()))
    };
    tx.write(accounts, from, &(read(from)? - 1).to_le_bytes())?;
    tx.write(accounts, to, &(read(to)? + 1).to_le_bytes())?;
    let durability = if random.u8(0..8) == 0 { Durability::Durable } else { Durability::Ordered };
    tx.commit(durability).map(drop)
}

fn balance(view: &dyn View) -> i64 {
    let accounts = view.resolve("accounts").unwrap();
    (0..10).map(|n| i64::from_le_bytes(view.read(accounts, n * 4096, 8).unwrap().try_into().unwrap())).sum()
}

/// Shuffles a shared tree; errors other than the tree's own moves by others are failures.
fn shuffle(volume: &Volume, random: &mut fastrand::Rng) {
    let tx = volume.begin();
    let name = |random: &mut fastrand::Rng| format!("tree/{}/{}", random.u8(0..3), random.u8(0..4));
    for _ in 0..random.u8(1..5) {
        let (one, two) = (name(random), name(random));
        let result = match random.u8(0..7) {
            0 => tx.write_file(&one, &vec![1; random.usize(0..20_000)]),
            1 => tx.remove_all(&one),
            2 => tx.rename_path(&one, &two),
            3 => tx.rename_path_with(&one, &two, RenameMode::Exchange),
            4 => tx.hard_link(&one, &two),
            5 => tx.create_dir_all(&one).map(drop),
            _ => tx.truncate(&one, random.u64(0..30_000)),
        };
        if let Err(error) = result {
            if error.is_conflict() {
                return;
            }
            // ENOENT, EEXIST, ENOTDIR, EISDIR, EINVAL, ENOTEMPTY, EPERM: what the tree looks like decides.
            assert!([2, 17, 20, 21, 22, 39, 1].contains(&error.errno()), "{error}");
        }
    }
    if let Err(error) = tx.commit(Durability::Ordered) {
        assert!(error.is_conflict(), "{error}");
    }
}

#[test]
fn threads_in_each_others_way_leave_a_sound_volume() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vol");
    Volume::create(&path).unwrap();
    let options = OpenOptions { transaction_memory_bytes: 100_000, ..OpenOptions::default() };
    let volume = Volume::open_with(&path, &options).unwrap();
    let base = volume.base();
    base.write_file("accounts", &[0; 40_960]).unwrap();
    for number in 0..3 {
        base.create_dir_all(format!("tree/{number}")).unwrap();
    }
    let done = AtomicBool::new(false);
    let committed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (volume, committed) = (&volume, &committed);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for round in 0..ROUNDS {
                        match transfer(volume, &mut random) {
                            Ok(()) => drop(committed.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => assert!(error.is_conflict(), "{error}"),
                        }
                        shuffle(volume, &mut random);
                        let base = volume.base();
                        base.write_file("shared", &[thread as u8; 10_000]).unwrap();
                        if let Ok(file) = base.open("shared", &FileOptions::new()) {
                            match base.remove("shared") {
                                Ok(()) => {}
                                Err(error) => assert!(error.is_not_found(), "{error}"),
                            }
                            // Removed by us or by another: an open file goes on.
                            file.attributes().unwrap();
                        }
                        if round % 20 == thread {
                            volume.checkpoint().unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(balance(&volume.snapshot()), 0);
                assert_eq!(balance(&volume.begin()), 0);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert!(committed.load(Ordering::Relaxed) > 0);
    assert_eq!(balance(&volume.base()), 0);
    assert_clean(&volume);
    let stat = volume.stat().unwrap();
    assert_eq!((stat.transactions_open, stat.buffered_bytes, stat.nodes_in_use), (0, 0, 0));
    assert_eq!(volume.check().unwrap().orphans, 0);
    volume.close().unwrap();
    drop((base, volume));
    let volume = Volume::open(&path).unwrap();
    assert_eq!(balance(&volume.base()), 0);
    assert_clean(&volume);
}
