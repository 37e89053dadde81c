//! A doomed transaction fails at its next operation, and one that is not doomed does not.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use common::*;
use txfs::{
    Clock, Durability, Isolation, OpenOptions, Paths, ROOT_INO, Timestamp, Transaction, TransactionOptions,
    View, Volume, XattrMode,
};

fn prepared() -> (Volume, u64) {
    let volume = new_volume();
    volume.base().write_file("file", &[1; 40_960]).unwrap();
    volume.base().write_file("other", b"x").unwrap();
    volume.base().create_dir_all("a/b").unwrap();
    let file = volume.base().resolve("file").unwrap();
    (volume, file)
}

/// Every operation fails with the conflict, and so does the commit.
#[track_caller]
fn is_doomed(tx: &Transaction, file: u64) {
    assert_eq!(errno(tx.read(file, 0, 1)), ECANCELED);
    assert_eq!(errno(tx.write(file, 0, b"x")), ECANCELED);
    assert_eq!(errno(tx.exists("a")), ECANCELED);
    assert_eq!(errno(tx.changes()), ECANCELED);
    assert!(tx.is_open() && tx.conflict().is_some());
    let known = tx.conflict().unwrap();
    let error = tx.commit(Durability::Durable).unwrap_err();
    assert_eq!(error.conflicts(), Some(&known));
    assert!(!tx.is_open());
}

#[track_caller]
fn lives(tx: &Transaction) {
    tx.exists("nothing").unwrap();
    tx.exists("nothing").unwrap();
    tx.commit(Durability::Durable).unwrap();
}

#[test]
fn what_was_read_or_written_dooms_when_it_is_overwritten() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let doomed = |work: &dyn Fn(&Transaction, u64), change: &dyn Fn(&Volume, u64), doomed: bool| {
            for by_transaction in [false, true] {
                let (volume, file) = prepared();
                let tx = volume.begin_with(TransactionOptions { isolation, ..Default::default() });
                work(&tx, file);
                if by_transaction {
                    let other = volume.begin();
                    other.write(file, 36_864, b"z").unwrap();
                    other.commit(Durability::Ordered).unwrap();
                }
                change(&volume, file);
                if doomed {
                    is_doomed(&tx, file)
                } else {
                    lives(&tx)
                }
                assert_eq!(volume.stat().unwrap().transactions_open, 0);
                assert_clean(&volume);
            }
        };
        let write = |at: u64| {
            move |tx: &Transaction, file| {
                tx.write(file, at, b"w").unwrap();
            }
        };
        let change = |at: u64| {
            move |volume: &Volume, file| {
                volume.base().write(file, at, b"c").unwrap();
            }
        };
        doomed(&write(4096), &change(4097), true);
        doomed(&write(4096), &change(8192), false);
        let serializable = isolation == Isolation::Serializable;
        let read = |tx: &Transaction, file| {
            tx.read(file, 8192, 10).unwrap();
            tx.write_file("own", b"x").unwrap();
        };
        doomed(&read, &change(8192), serializable);
        doomed(&read, &change(0), false);
        doomed(&|tx, file| drop(tx.read(file, 8192, 10).unwrap()), &change(8192), false);
        let listed = |tx: &Transaction, file| {
            tx.read_dir("a").unwrap();
            tx.write(file, 0, b"x").unwrap();
        };
        doomed(&listed, &|volume, _| volume.base().write_file("a/new", b"x").unwrap(), serializable);
        doomed(
            &|tx, _| tx.remove("other").unwrap(),
            &|volume, _| volume.base().remove("other").unwrap(),
            true,
        );
        doomed(&write(0), &|volume, _| volume.base().remove("file").unwrap(), true);
        let chmod = |tx: &Transaction, _| tx.set_mode("file", 0o600).unwrap();
        doomed(&chmod, &|volume, _| volume.base().set_mode("file", 0o640).unwrap(), true);
        doomed(&chmod, &change(0), false);
        let xattr = |tx: &Transaction, file| tx.set_xattr(file, b"user.a", b"x", XattrMode::Set).unwrap();
        let set = |name: &'static [u8]| {
            move |volume: &Volume, file| volume.base().set_xattr(file, name, b"y", XattrMode::Set).unwrap()
        };
        doomed(&xattr, &set(b"user.a"), true);
        doomed(&xattr, &set(b"user.b"), false);
        doomed(&|tx, _| tx.truncate("file", 8192).unwrap(), &change(9000), true);
        doomed(&|tx, _| tx.truncate("file", 1 << 20).unwrap(), &change(0), false);
        doomed(
            &|tx, _| tx.rename_path("a/b", "b").unwrap(),
            &|volume, _| volume.base().remove("a/b").unwrap(),
            true,
        );
    }
}

#[test]
fn what_is_touched_after_the_other_commit_dooms_as_well() {
    let (volume, file) = prepared();
    // It has changed something, and looked: so that only what it touches from here on is new.
    let begun = || {
        let tx = volume.begin();
        tx.write_file("own", b"x").unwrap();
        volume.base().write(file, 8192, b"c").unwrap();
        tx.exists("nothing").unwrap();
        tx
    };
    let tx = begun();
    tx.read(file, 4096, 1).unwrap();
    tx.write(file, 4096, b"x").unwrap();
    lives(&tx);
    let tx = begun();
    tx.read(file, 8192, 1).unwrap();
    is_doomed(&tx, file);
    let tx = begun();
    tx.write(file, 8192, b"x").unwrap();
    is_doomed(&tx, file);
    let tx = begun();
    tx.truncate("file", 0).unwrap();
    is_doomed(&tx, file);
    let tx = begun();
    let directory = volume.base().resolve("a").unwrap();
    volume.base().write_file("a/new", b"x").unwrap();
    tx.exists("nothing").unwrap();
    tx.make_file(directory, b"new", 0o644, 0, 0).unwrap();
    is_doomed(&tx, file);
}

#[test]
fn a_large_first_write_over_what_others_have_changed_dooms() {
    let (volume, file) = prepared();
    let tx = volume.begin();
    volume.base().write(file, (16 << 20) - 100, b"c").unwrap();
    // In pieces, between which it looks: when it does so last, it has not come to the place.
    tx.write(file, 0, &vec![7; 16 << 20]).unwrap();
    is_doomed(&tx, file);
}

#[test]
fn what_a_savepoint_brings_back_is_looked_at_again() {
    let (volume, file) = prepared();
    let snapshot = || TransactionOptions { isolation: Isolation::Snapshot, ..Default::default() };
    let other = volume.begin_with(snapshot());
    other.write(file, 0, b"x").unwrap();
    other.make_file(ROOT_INO, b"name", 0o644, 0, 0).unwrap();
    other.remove("name").unwrap();
    volume.base().write_file("name", b"c").unwrap();
    lives(&other);
    let (volume, file) = prepared();
    let tx = volume.begin_with(snapshot());
    tx.make_file(ROOT_INO, b"name", 0o644, 0, 0).unwrap();
    tx.write(file, 0, b"x").unwrap();
    let again = tx.savepoint().unwrap();
    tx.remove("name").unwrap();
    volume.base().write_file("name", b"c").unwrap();
    tx.exists("nothing").unwrap();
    tx.rollback_to(again).unwrap();
    is_doomed(&tx, file);
}

#[test]
fn who_changes_nothing_is_never_doomed() {
    let (volume, file) = prepared();
    let tx = volume.begin();
    tx.read(file, 0, 4096).unwrap();
    tx.write_file("a/gone", b"x").unwrap();
    tx.remove("a/gone").unwrap();
    volume.base().write(file, 0, b"c").unwrap();
    volume.base().write_file("a/gone", b"c").unwrap();
    assert_eq!(tx.read(file, 0, 1).unwrap(), [1], "its snapshot's");
    tx.read(file, 4096, 1).unwrap();
    // Now it does: what it read at its beginning counts again.
    tx.make_file(ROOT_INO, b"stays", 0o644, 0, 0).unwrap();
    is_doomed(&tx, file);

    let tx = volume.begin();
    tx.read(file, 0, 4096).unwrap();
    volume.base().write(file, 0, b"d").unwrap();
    for _ in 0..3 {
        tx.read(file, 0, 4096).unwrap();
    }
    tx.commit(Durability::Durable).unwrap();
}

#[test]
fn a_write_that_is_under_way_fails_too() {
    // The clock is asked in the midst of the call, after its first look at others' commits.
    let (volume, armed): (Arc<OnceLock<(Volume, u64)>>, Arc<AtomicBool>) = Default::default();
    let clock = {
        let (volume, armed) = (volume.clone(), armed.clone());
        Clock::new(move || {
            if let Some((volume, file)) = volume.get().filter(|_| armed.swap(false, Ordering::SeqCst)) {
                volume.base().write(*file, 0, b"c").unwrap();
            }
            Timestamp::new(1, 1)
        })
    };
    let options = OpenOptions { clock, ..open_options() };
    let opened = Volume::open_on(new_disk().as_disk(), &options).unwrap();
    opened.base().write_file("file", &[1; 40_960]).unwrap();
    let file = opened.base().resolve("file").unwrap();
    let (volume, file) = volume.get_or_init(|| (opened, file));
    let tx = volume.begin();
    tx.write(*file, 0, b"x").unwrap();
    armed.store(true, Ordering::SeqCst);
    assert_eq!(errno(tx.write(*file, 4096, &vec![7; 16 << 20])), ECANCELED);
    assert!(!armed.load(Ordering::SeqCst));
    is_doomed(&tx, *file);
    assert_clean(volume);
}

#[test]
fn what_a_doomed_transaction_held_is_given_up_before_it_ends() {
    let (volume, file) = prepared();
    let tx = volume.begin();
    tx.write(file, 0, &[2; 100_000]).unwrap();
    assert!(volume.stat().unwrap().buffered_bytes > 0);
    volume.base().write(file, 0, b"c").unwrap();
    assert_eq!(errno(tx.exists("a")), ECANCELED);
    assert_eq!(volume.stat().unwrap().buffered_bytes, 0);
    assert_eq!(volume.stat().unwrap().transactions_open, 1);
    tx.abort();
    assert_eq!(volume.stat().unwrap().transactions_open, 0);
    assert!(tx.conflict().is_none());
}
