//! Savepoints: what a transaction goes back to, and what is left of what it did in between.

mod common;

use common::new_volume;
use txfs::{Durability, Isolation, Paths, TransactionOptions, View, Volume};

const MIB: usize = 1 << 20;

fn snapshot_isolation(volume: &Volume) -> txfs::Transaction {
    volume.begin_with(TransactionOptions { isolation: Isolation::Snapshot, ..TransactionOptions::default() })
}

#[test]
fn names_data_and_attributes_go_back() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("a/b").unwrap();
    base.write_file("a/file", &[1; 10_000]).unwrap();
    let ino = base.resolve("a/file").unwrap();

    let tx = volume.begin();
    tx.write(ino, 4096, &[2; 100]).unwrap();
    tx.write_file("a/new", b"first").unwrap();
    let savepoint = tx.savepoint().unwrap();
    tx.write(ino, 4096, &[3; 4096]).unwrap();
    tx.write(ino, 50_000, &[4; 10]).unwrap();
    tx.write_file("a/new", b"second").unwrap();
    tx.rename_path("a/new", "a/b/moved").unwrap();
    tx.remove("a/file").unwrap();
    tx.write_file("a/later", b"").unwrap();
    tx.rollback_to(savepoint).unwrap();

    assert_eq!(tx.read_file("a/new").unwrap(), b"first");
    assert!(!tx.exists("a/b/moved").unwrap() && !tx.exists("a/later").unwrap());
    let file = tx.read_file("a/file").unwrap();
    assert!(file.len() == 10_000 && file[4096..4196] == [2; 100] && file[4196] == 1);

    // And on from there, back again, and to the end.
    tx.write_file("a/later", b"again").unwrap();
    tx.rollback_to(savepoint).unwrap();
    tx.write_file("a/b/last", b"last").unwrap();
    tx.commit(Durability::Durable).unwrap();
    assert_eq!(base.read_file("a/new").unwrap(), b"first");
    assert_eq!(base.read_file("a/file").unwrap(), file);
    assert!(base.exists("a/b/last").unwrap() && !base.exists("a/later").unwrap());
    let check = volume.check().unwrap();
    assert!(check.problems.is_empty(), "{:?}", check.problems);
}

#[test]
fn savepoints_nest_and_end() {
    let volume = new_volume();
    let tx = volume.begin();
    let mut savepoints = Vec::new();
    for number in 0..4 {
        savepoints.push(tx.savepoint().unwrap());
        tx.write_file(format!("{number}"), b"").unwrap();
    }
    tx.rollback_to(savepoints[2]).unwrap();
    assert!(tx.exists("1").unwrap() && !tx.exists("2").unwrap());
    let gone = tx.rollback_to(savepoints[3]).unwrap_err();
    assert!(gone.errno() == 22 && gone.to_string().contains("the savepoint is gone"), "{gone}");
    tx.release_savepoint(savepoints[1]).unwrap();
    assert!(tx.rollback_to(savepoints[2]).is_err() && tx.exists("1").unwrap(), "changes stay");
    tx.rollback_to(savepoints[0]).unwrap();
    assert!(!tx.exists("0").unwrap());

    let other = volume.begin();
    let error = other.rollback_to(savepoints[0]).unwrap_err();
    assert!(error.to_string().contains("another transaction"), "{error}");
    tx.abort();
    assert!(tx.savepoint().is_err() && tx.rollback_to(savepoints[0]).is_err());
}

#[test]
fn data_that_is_in_the_log_already_goes_back_too() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("file", &vec![1; 4 * MIB]).unwrap();
    let ino = base.resolve("file").unwrap();
    let tx = volume.begin();
    tx.write(ino, 0, &vec![2; 2 * MIB]).unwrap();
    // In small pieces, so that it is in memory when the savepoint is taken.
    for page in 0..100 {
        tx.write(ino, (3 * MIB + page * 4096) as u64, &[3; 4096]).unwrap();
    }
    let savepoint = tx.savepoint().unwrap();
    tx.write(ino, 0, &vec![4; 4 * MIB]).unwrap();
    tx.truncate("file", 10).unwrap();
    tx.rollback_to(savepoint).unwrap();
    tx.commit(Durability::Durable).unwrap();
    let found = base.read_file("file").unwrap();
    let expected = [vec![2; 2 * MIB], vec![1; MIB], vec![3; 100 * 4096], vec![1; MIB - 100 * 4096]].concat();
    assert!(found == expected);
    assert_eq!(volume.stat().unwrap().buffered_bytes, 0, "nothing is counted that is not held");
    assert!(volume.check().unwrap().problems.is_empty());
}

#[test]
fn what_was_undone_conflicts_with_nobody_but_what_was_read_does() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("one", &[0; 4096]).unwrap();
    base.write_file("two", &[0; 4096]).unwrap();
    let (one, two) = (base.resolve("one").unwrap(), base.resolve("two").unwrap());

    let tx = snapshot_isolation(&volume);
    let savepoint = tx.savepoint().unwrap();
    tx.write(one, 0, b"undone").unwrap();
    tx.rollback_to(savepoint).unwrap();
    base.write(one, 0, b"other").unwrap();
    tx.write(two, 0, b"mine").unwrap();
    tx.commit(Durability::Durable).unwrap();
    assert!(base.read_file("one").unwrap().starts_with(b"other"));

    let tx = volume.begin();
    let savepoint = tx.savepoint().unwrap();
    let seen = tx.read_file("one").unwrap();
    tx.rollback_to(savepoint).unwrap();
    base.write(one, 0, b"newer").unwrap();
    let error = tx.write(two, 0, &seen[..5]).and_then(|_| tx.commit(Durability::Durable)).unwrap_err();
    assert!(error.is_conflict(), "the program knows what it has read: {error}");
}

#[test]
fn memory_of_savepoints_counts_until_they_end() {
    let volume = new_volume();
    let tx = volume.begin();
    tx.write_file("file", &[1; 4096]).unwrap();
    let savepoint = tx.savepoint().unwrap();
    tx.write_file("other", &[1; 8192]).unwrap();
    let all = volume.stat().unwrap().buffered_bytes;
    tx.rollback_to(savepoint).unwrap();
    let back = volume.stat().unwrap().buffered_bytes;
    assert!(back < all && back > 0, "{back} of {all}");
    tx.release_savepoint(savepoint).unwrap();
    assert_eq!(volume.stat().unwrap().buffered_bytes, tx.buffered_bytes().unwrap());
    drop(tx);
    assert_eq!(volume.stat().unwrap().buffered_bytes, 0);
}
