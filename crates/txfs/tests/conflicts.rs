//! What a conflict report says: what both touched, and who the other one was.

mod common;

use std::path::Path;

use common::*;
use txfs::{
    Access, Clock, ConflictKind, ConflictReport, Durability, OpenOptions, Paths, Timestamp, Transaction,
    TransactionOptions, View, Volume, XattrMode,
};

#[track_caller]
fn refused(tx: &Transaction) -> ConflictReport {
    let error = tx.commit(Durability::Durable).unwrap_err();
    assert_eq!(error.errno(), ECANCELED);
    error.conflicts().expect("a conflict").clone()
}

fn volume_at(time: i64) -> Volume {
    let options = OpenOptions {
        clock: Clock::new(move || Timestamp::new(time, 5)),
        background: false,
        ..OpenOptions::default()
    };
    let volume = Volume::open_on(new_disk().as_disk(), &options).unwrap();
    volume.base().write_file("file", &[1; 40_960]).unwrap();
    volume.base().create_dir_all("a/b").unwrap();
    volume
}

#[test]
fn a_report_tells_all_that_was_touched_and_by_which_commit() {
    let volume = volume_at(1_795_343_467);
    let file = volume.base().resolve("file").unwrap();
    let tx = volume.begin();
    tx.read(file, 0, 4096).unwrap();
    tx.write(file, 8192, &[2; 4096]).unwrap();
    tx.read_dir("a").unwrap();
    tx.set_mode("file", 0o600).unwrap();
    tx.set_xattr(file, b"user.a", b"v", XattrMode::Set).unwrap();

    let options = TransactionOptions {
        label: "nightly import".into(),
        process: Some(4711),
        command: Some("./import.sh".into()),
        ..TransactionOptions::default()
    };
    let other = volume.begin_with(options);
    other.write(file, 0, &[3; 20_000]).unwrap();
    let transacted = other.commit(Durability::Durable).unwrap().sequence;
    volume.base().write_file("a/new", b"x").unwrap();
    volume.base().set_mode("file", 0o640).unwrap();
    volume.base().set_xattr(file, b"user.a", b"w", XattrMode::Set).unwrap();
    volume.base().write(file, 0, b"y").unwrap();

    let report = refused(&tx);
    assert_eq!((report.conflicts.len(), report.more), (5, 0), "{report}");
    let kinds: Vec<_> =
        report.conflicts.iter().map(|conflict| (conflict.kind.clone(), conflict.access)).collect();
    assert_eq!(
        kinds,
        [
            (ConflictKind::Pages { first: 2, last: 2 }, Access::Written),
            (ConflictKind::Permissions, Access::Written),
            (ConflictKind::ExtendedAttribute, Access::Written),
            (ConflictKind::Pages { first: 0, last: 0 }, Access::Read),
            (ConflictKind::Name { name: Some(b"new".to_vec()) }, Access::Read),
        ]
    );
    let first = &report.conflicts[0];
    assert_eq!(first.path.as_deref(), Some(Path::new("file")));
    assert_eq!(first.other.sequence, Some(transacted));
    assert_eq!(first.other.time, Some(Timestamp::new(1_795_343_467, 5)));
    assert_eq!((first.other.process, first.other.transaction), (Some(4711), Some(other.id())));
    assert_eq!(first.other.command.as_deref(), Some("./import.sh"));
    assert_eq!(first.other.message.as_deref(), Some("nightly import"));
    assert_eq!(report.conflicts[4].path.as_deref(), Some(Path::new("a/new")));
    // The call outside of transactions was made by this process.
    let outside = &report.conflicts[3].other;
    assert_eq!((outside.process, outside.transaction), (Some(std::process::id()), None));
    assert_eq!(outside.sequence, Some(volume.stat().unwrap().sequence));
    let told = report.to_string();
    let expected = format!(
        "file: bytes 8192 to 12287 (changed by commit {transacted} at 2026-11-22 10:31:07 UTC by process 4711, \
         `./import.sh`, \"nightly import\"), and 4 more"
    );
    assert_eq!(told, expected);
}

#[test]
fn calls_outside_of_transactions_are_told_by_process_and_by_command_while_it_runs() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let volume = volume_at(now as i64);
    let mut sleeper = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    // It is a copy of this process for a moment.
    let line = format!("/proc/{}/cmdline", sleeper.id());
    while !std::fs::read(&line).unwrap().starts_with(b"sleep") {
        std::thread::yield_now();
    }
    let (one, two) = (volume.begin(), volume.begin());
    one.truncate("file", 1).unwrap();
    two.truncate("file", 2).unwrap();
    txfs::set_caller(sleeper.id());
    volume.base().truncate("file", 3).unwrap();
    txfs::set_caller(0);
    let report = refused(&one);
    let other = report.conflicts[0].other.clone();
    assert_eq!((other.process, other.command.as_deref()), (Some(sleeper.id()), Some("sleep 100")));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let report = refused(&two);
    let other = report.conflicts[0].other.clone();
    assert_eq!((other.process, other.command), (Some(sleeper.id()), None), "it has ended");

    // A process that nobody knows, as with what the kernel writes back by itself.
    let tx = volume.begin();
    tx.truncate("file", 1).unwrap();
    volume.base().truncate("file", 2).unwrap();
    let report = refused(&tx);
    assert_eq!(report.conflicts[0].other.process, None);
}

#[test]
fn a_report_stays_short_and_counts_the_rest() {
    let volume = volume_at(1);
    let file = volume.base().resolve("file").unwrap();
    let tx = volume.begin();
    for page in 0..300 {
        tx.write(file, page * 8192, b"x").unwrap();
    }
    for page in 0..300 {
        volume.base().write(file, page * 8192, b"y").unwrap();
    }
    let report = refused(&tx);
    assert_eq!((report.conflicts.len(), report.count()), (100, 300));
    assert!(report.to_string().ends_with("and 299 more"), "{report}");
}
