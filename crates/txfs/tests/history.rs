//! The volume's record of commits.

mod common;

use common::{clock, new_disk, new_volume, open, open_options};
use txfs::{Durability, OpenOptions, Paths, TransactionOptions, View, Volume};

fn recorded(volume: &Volume, label: &str) -> txfs::Transaction {
    volume.begin_with(TransactionOptions {
        recorded: true,
        label: label.into(),
        process: Some(7),
        command: Some("make".into()),
        ..TransactionOptions::default()
    })
}

fn sequences(volume: &Volume, before: Option<u64>, limit: usize) -> Vec<u64> {
    volume.history(before, limit).unwrap().into_iter().map(|commit| commit.sequence).collect()
}

#[test]
fn recorded_commits_are_there_with_what_they_did() {
    let disk = new_disk();
    let volume = open(&disk);
    volume.base().write_file("plain", b"not recorded").unwrap();
    let tx = recorded(&volume, "import");
    tx.create_dir("d").unwrap();
    tx.write_file("d/one", &[1; 5000]).unwrap();
    tx.write_file("d/two", &vec![2; 3 << 20]).unwrap();
    let first = tx.commit(Durability::Durable).unwrap().sequence;
    let unrecorded = volume.begin();
    unrecorded.write_file("other", b"").unwrap();
    unrecorded.commit(Durability::Durable).unwrap();
    let tx = recorded(&volume, "");
    tx.remove("plain").unwrap();
    let second = tx.commit(Durability::Ordered).unwrap().sequence;
    let nothing = recorded(&volume, "changes nothing");
    nothing.commit(Durability::Durable).unwrap();

    let history = volume.history(None, 10).unwrap();
    assert_eq!(history.len(), 2, "{history:?}");
    let (newest, oldest) = (&history[0], &history[1]);
    assert_eq!((newest.sequence, oldest.sequence), (second, first));
    assert_eq!((oldest.message.as_str(), oldest.command.as_str(), oldest.process), ("import", "make", 7));
    assert!(oldest.time <= newest.time && oldest.time.seconds > 0);
    // The directory, two files, and the root, whose times moved.
    assert_eq!((oldest.nodes, oldest.names), (4, 3));
    assert_eq!(oldest.data_bytes, 5000 + (3 << 20));
    assert_eq!((newest.nodes, newest.names, newest.data_bytes), (2, 1, 0));

    assert_eq!(sequences(&volume, Some(second), 10), [first]);
    assert_eq!(sequences(&volume, None, 1), [second]);
    assert_eq!(sequences(&volume, Some(first), 10), [] as [u64; 0]);
    assert_eq!(sequences(&volume, None, 0), [] as [u64; 0]);
    assert_eq!(volume.stat().unwrap().history_commits, 2);
    let check = volume.check().unwrap();
    assert!(check.problems.is_empty(), "{:?}", check.problems);

    volume.close().unwrap();
    drop(volume);
    let volume = open(&disk);
    assert_eq!(volume.history(None, 10).unwrap(), history, "it outlives the process");
    assert_eq!(volume.stat().unwrap().history_commits, 2);
}

#[test]
fn what_did_not_commit_is_not_there() {
    let volume = new_volume();
    volume.base().write_file("file", b"old").unwrap();
    let ino = volume.base().resolve("file").unwrap();
    let aborted = recorded(&volume, "aborted");
    aborted.write(ino, 0, b"new").unwrap();
    aborted.abort();
    let refused = recorded(&volume, "refused");
    refused.write(ino, 0, b"new").unwrap();
    volume.base().write(ino, 0, b"own").unwrap();
    assert!(refused.commit(Durability::Durable).unwrap_err().is_conflict());
    assert!(volume.history(None, 10).unwrap().is_empty());
}

#[test]
fn deferred_and_large_commits_are_recorded_too() {
    let disk = new_disk();
    let volume = open(&disk);
    let mut expected = Vec::new();
    for number in 0..5 {
        let tx = recorded(&volume, &format!("deferred {number}"));
        tx.write_file("file", &[number; 100]).unwrap();
        expected.push(tx.commit(Durability::Deferred).unwrap().sequence);
    }
    let tx = recorded(&volume, "many");
    for number in 0..3000 {
        tx.write_file(format!("many-{number}"), b"").unwrap();
    }
    expected.push(tx.commit(Durability::Durable).unwrap().sequence);
    expected.reverse();
    assert_eq!(sequences(&volume, None, 100), expected);
    // What is in the log only is replayed.
    let image = disk.crash(1);
    assert_eq!(sequences(&open(&image), None, 100), expected);
}

#[test]
fn the_oldest_go_when_there_are_too_many() {
    let disk = new_disk();
    let options = OpenOptions { history_commits_max: 3, clock: clock(), ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let mut all = Vec::new();
    for number in 0..10u8 {
        let tx = recorded(&volume, "");
        tx.write_file("file", &[number]).unwrap();
        all.push(tx.commit(Durability::Durable).unwrap().sequence);
        assert!(sequences(&volume, None, 100).len() <= 3);
    }
    let last: Vec<u64> = all.iter().rev().take(3).copied().collect();
    assert_eq!(sequences(&volume, None, 100), last);
    volume.close().unwrap();
    drop(volume);
    // With a smaller limit the next commits drop more than one each.
    let options = OpenOptions { history_commits_max: 1, clock: clock(), ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let tx = recorded(&volume, "");
    tx.write_file("file", b"last").unwrap();
    let newest = tx.commit(Durability::Durable).unwrap().sequence;
    assert_eq!(sequences(&volume, None, 100), [newest]);
    assert_eq!(volume.stat().unwrap().history_commits, 1);
}
