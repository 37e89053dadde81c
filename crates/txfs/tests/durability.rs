//! Crashes and reopening: a transaction is there as a whole or not at all.

mod common;

use common::*;
use txfs::{CreateOptions, Durability, FileOptions, OpenOptions, Paths, View, Volume};

#[test]
fn a_durable_commit_survives_any_crash_and_an_open_one_leaves_nothing() {
    for seed in 0..40 {
        let disk = new_disk();
        let volume = open(&disk);
        let tx = volume.begin();
        tx.create_dir_all("a/b").unwrap();
        tx.write_file("a/b/big", &[3; 300_000]).unwrap();
        tx.write_file("a/small", b"small").unwrap();
        tx.hard_link("a/small", "a/b/again").unwrap();
        tx.commit(Durability::Durable).unwrap();
        let open_tx = volume.begin();
        open_tx.write_file("a/b/big", b"never").unwrap();
        open_tx.remove("a/small").unwrap();
        let crashed = disk.crash(seed);
        let volume = open(&crashed);
        let base = volume.base();
        assert_eq!(base.read_file("a/b/big").unwrap(), [3; 300_000]);
        assert_eq!(base.read_file("a/b/again").unwrap(), b"small");
        assert_eq!(base.stat("a/small").unwrap().nlink, 2);
        assert_clean(&volume);
        // New nodes get numbers of their own.
        base.write_file("after", b"x").unwrap();
        assert_clean(&volume);
    }
}

#[test]
fn work_that_leaves_nothing_behind_costs_no_commit() {
    let volume = open(&new_disk());
    let base = volume.base();
    base.create_dir_all("directory").unwrap();
    base.write_file("kept", b"kept").unwrap();
    volume.sync().unwrap();
    let before = volume.stat().unwrap().engine;
    let directory = base.stat("directory").unwrap();

    let tx = volume.begin();
    tx.write_file("directory/log", b"log").unwrap();
    tx.create_dir_all("directory/below").unwrap();
    tx.remove("directory/below").unwrap();
    tx.remove("directory/log").unwrap();
    tx.commit(Durability::Durable).unwrap();
    let after = volume.stat().unwrap().engine;
    assert_eq!((after.sequence, after.log_bytes), (before.sequence, before.log_bytes));
    assert_eq!(after.flushes, before.flushes);
    assert_eq!(base.stat("directory").unwrap(), directory);

    // what stays, times that were set and other changes of the directory are still committed
    let tx = volume.begin();
    tx.write_file("directory/log", b"log").unwrap();
    tx.remove("directory/log").unwrap();
    tx.set_mode("directory", 0o700).unwrap();
    tx.commit(Durability::Durable).unwrap();
    assert_eq!(base.stat("directory").unwrap().mode, 0o700);
    let tx = volume.begin();
    tx.write_file("directory/stays", b"").unwrap();
    tx.commit(Durability::Durable).unwrap();
    assert!(base.stat("directory").unwrap().mtime > directory.mtime);
    assert_clean(&volume);
}

#[test]
fn ordered_commits_are_there_up_to_one_of_them() {
    for seed in 0..40 {
        let disk = new_disk();
        let volume = open(&disk);
        for number in 0..20u8 {
            let tx = volume.begin();
            tx.write_file("one", &[number; 5000]).unwrap();
            tx.write_file(format!("file-{number}"), &[number]).unwrap();
            tx.write_file("two", &[number; 5000]).unwrap();
            tx.commit(Durability::Ordered).unwrap();
            if number == 7 {
                volume.sync().unwrap();
            }
            if number % 5 == 0 {
                volume.write_pending().unwrap();
            }
        }
        let volume = open(&disk.crash(seed));
        let base = volume.base();
        let last = base.read_file("one").unwrap()[0];
        assert!(last >= 7);
        assert_eq!(base.read_file("one").unwrap(), [last; 5000]);
        assert_eq!(base.read_file("two").unwrap(), [last; 5000]);
        for number in 0..20u8 {
            assert_eq!(base.exists(format!("file-{number}")).unwrap(), number <= last);
        }
        assert_clean(&volume);
    }
}

#[test]
fn orphans_go_with_the_next_opening() {
    let disk = new_disk();
    let volume = open(&disk);
    let base = volume.base();
    // Each page an extent of its own, so that its removal takes several commits.
    base.write_file("large", b"").unwrap();
    let large = base.resolve("large").unwrap();
    for page in 0..3000 {
        base.write(large, page * 8192, &[1; 4096]).unwrap();
    }
    base.write_file("small", b"x").unwrap();
    base.create_dir("dir").unwrap();
    let file = base.open("small", &FileOptions::new()).unwrap();
    let other = base.open("large", &FileOptions::new()).unwrap();
    let dir = base.resolve("dir").unwrap();
    volume.retain(dir).unwrap();
    let tx = volume.begin();
    tx.remove("small").unwrap();
    tx.remove("large").unwrap();
    tx.remove("dir").unwrap();
    tx.commit(Durability::Durable).unwrap();
    assert_eq!(volume.check().unwrap().orphans, 3);
    assert_clean(&volume);
    assert_eq!(file.attributes().unwrap().nlink, 0);

    let crashed = open(&disk.crash(1));
    let report = crashed.check().unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.orphans, report.files, report.extents, report.directories), (0, 0, 0, 1));

    drop((file, other));
    volume.release(dir, 1);
    let report = volume.check().unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.orphans, report.extents), (0, 0));
}

#[test]
fn a_large_file_is_removed_in_several_commits() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("large", b"").unwrap();
    let large = base.resolve("large").unwrap();
    let tx = volume.begin();
    for page in 0..5000 {
        tx.write(large, page * 8192, &[1; 4096]).unwrap();
    }
    tx.commit(Durability::Ordered).unwrap();
    let before = volume.stat().unwrap().sequence;
    base.remove("large").unwrap();
    assert!(volume.stat().unwrap().sequence > before + 3);
    let report = volume.check().unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.orphans, report.extents, report.files), (0, 0, 0));
}

#[test]
fn a_transaction_larger_than_its_memory() {
    let disk = new_disk();
    let budget = 1 << 20;
    let options = OpenOptions { transaction_memory_bytes: budget, ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    volume.base().write_file("old", &[1; 3_000_000]).unwrap();
    let tx = volume.begin();
    let piece = |number: u32| -> Vec<u8> { (0..1_000_000u32).map(|n| (n * 7 + number) as u8).collect() };
    for number in 0..20 {
        tx.write_file(format!("{number}"), &piece(number)).unwrap();
        assert!(tx.buffered_bytes().unwrap() <= budget + (1 << 20));
    }
    let old = tx.resolve("old").unwrap();
    tx.write(old, 5, b"patched").unwrap();
    tx.write_file("19", b"short").unwrap();
    for number in 0..19 {
        assert!(tx.read_file(format!("{number}")).unwrap() == piece(number));
    }
    // Nobody else sees it, and a crash now leaves nothing of it.
    assert_eq!(volume.base().read_dir("").unwrap().len(), 1);
    volume.sync().unwrap();
    let crashed = open(&disk.crash(3));
    assert_eq!(crashed.base().read_dir("").unwrap().len(), 1);
    assert_clean(&crashed);
    tx.commit(Durability::Durable).unwrap();
    let volume = open(&disk.crash(4));
    let base = volume.base();
    for number in 0..19 {
        assert!(base.read_file(format!("{number}")).unwrap() == piece(number));
    }
    assert_eq!(base.read_file("19").unwrap(), b"short");
    assert_eq!(&base.read(old, 4, 9).unwrap(), b"\x01patched\x01");
    assert_clean(&volume);
}

#[test]
fn all_transactions_together_keep_within_the_volumes_memory() {
    let disk = new_disk();
    let options = OpenOptions { volume_memory_bytes: 4 << 20, ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let transactions: Vec<_> = (0..8).map(|_| volume.begin()).collect();
    for (number, tx) in transactions.iter().enumerate() {
        tx.write_file(format!("{number}"), &[number as u8; 2_000_000]).unwrap();
    }
    assert!(volume.stat().unwrap().buffered_bytes <= 6 << 20);
    for tx in &transactions {
        tx.commit(Durability::Ordered).unwrap();
    }
    assert_eq!(volume.stat().unwrap().buffered_bytes, 0);
    for number in 0..8u8 {
        assert_eq!(volume.base().read_file(format!("{number}")).unwrap(), [number; 2_000_000]);
    }
    assert_clean(&volume);
}

#[test]
fn a_full_disk_is_enospc_and_leaves_the_volume_as_it_was() {
    let disk = new_disk();
    let volume = open(&disk);
    volume.base().write_file("kept", &[1; 100_000]).unwrap();
    volume.sync().unwrap();
    disk.set_capacity(Some(40 << 20));
    let tx = volume.begin();
    tx.write_file("kept", b"replaced").unwrap();
    let result = (0..100)
        .try_for_each(|number| tx.write_file(format!("{number}"), &[2; 2_000_000]))
        .and_then(|()| tx.commit(Durability::Durable).map(drop));
    assert_eq!(result.unwrap_err().errno(), 28);
    tx.abort();
    assert_eq!(volume.base().read_file("kept").unwrap(), [1; 100_000]);
    assert_clean(&volume);
    disk.set_capacity(None);
    volume.base().write_file("small", b"fits").unwrap();
    volume.sync().unwrap();
    assert_clean(&volume);
}

#[test]
fn wrong_use_has_clear_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vol");
    let error = Volume::open(&path).unwrap_err();
    assert_eq!(error.errno(), 2, "{error}");
    std::fs::create_dir(&path).unwrap();
    let error = Volume::open(&path).unwrap_err();
    assert!(error.to_string().contains("not a TxFS volume"), "{error}");
    Volume::create_with(&path, &CreateOptions { root_uid: 5, root_mode: 0o700, ..CreateOptions::default() })
        .unwrap();
    assert_eq!(Volume::create(&path).unwrap_err().errno(), 17);
    let volume = Volume::open(&path).unwrap();
    let root = volume.base().stat("/").unwrap();
    assert_eq!((root.uid, root.mode), (5, 0o700));
    let error = Volume::open(&path).unwrap_err();
    assert_eq!(error.errno(), 16, "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    volume.close().unwrap();
    volume.close().unwrap();
    assert!(volume.base().write_file("x", b"").is_err());
    let again = Volume::open(&path).unwrap();
    assert!(again.stat().unwrap().engine.recovery.clean());
    assert_eq!(again.base().statistics().unwrap().name_bytes_max, 255);
}
