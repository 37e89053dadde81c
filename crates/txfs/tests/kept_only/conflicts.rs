//! What conflicts with a part, and what with the rest.

use super::*;

#[test]
fn conflicts_count_on_the_side_where_they_are() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let disk = new_disk();
        let mut volume = open(&disk);
        let base = volume.base();
        for name in ["a", "b", "read"] {
            base.write_file(name, &vec![1; 300_000]).unwrap();
        }
        let tx = volume.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() });
        let (a, b) = (tx.resolve("a").unwrap(), tx.resolve("b").unwrap());
        tx.read(a, 0, 4096).unwrap();
        tx.write(a, 0, b"mine").unwrap();
        tx.read(b, 0, 300_000).unwrap();
        tx.write(b, 0, b"mine").unwrap();
        tx.write_file("new", b"mine").unwrap();
        tx.keep("x").unwrap();
        // Another page than those written, in a file that the rest writes.
        volume.base().write(b, 100_000, b"theirs").unwrap();
        volume.base().write(b, 10, b"theirs").unwrap();
        volume = reopen(volume, &disk);
        let report = volume.commit_kept_only("x", &["b"]).unwrap_err();
        let report = report.conflicts().expect("a conflict").clone();
        assert!(report.conflicts.iter().all(|conflict| conflict.path.as_deref() == Some(Path::new("b"))));
        let saved = dump(&volume.kept_view("x", KeptSide::Base).unwrap())["b"].clone();
        assert!(volume.commit_kept_only("x", &["a"]).unwrap().remains);
        assert_eq!(&volume.base().read(a, 0, 4).unwrap(), b"mine");
        assert_eq!(&volume.base().read(b, 10, 6).unwrap(), b"theirs");
        assert_clean(&volume);
        // What the rest began with, and what it makes of that.
        assert_eq!(dump(&volume.kept_view("x", KeptSide::Base).unwrap())["b"], saved);
        assert!(ours(&volume, "x")["b"].2.starts_with(b"mine\x01"));
        volume = reopen(volume, &disk);
        assert!(volume.commit_kept("x").unwrap_err().is_conflict());
        assert!(volume.commit_kept_only("x", &["new"]).unwrap().remains);
        assert!(volume.commit_kept_only("x", &["b"]).unwrap_err().is_conflict());
        volume.abort_kept("x").unwrap();
        assert_clean(&volume);
    }
}

#[test]
fn what_was_only_read_counts_for_every_part() {
    let volume = new_volume();
    volume.base().write_file("read", b"1").unwrap();
    keep(&volume, |tx| {
        tx.read_file("read").unwrap();
        tx.write_file("a", b"a").unwrap();
        tx.write_file("b", b"b").unwrap();
    });
    volume.base().write_file("read", b"2").unwrap();
    let error = volume.commit_kept_only("x", &["a"]).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert!(!volume.base().exists("a").unwrap());
}

#[test]
fn the_rest_still_conflicts_after_its_other_half_was_committed() {
    let disk = new_disk();
    for reopens in [false, true] {
        let mut volume = open(&disk);
        volume.base().write_file("a", b"1").unwrap();
        volume.base().write_file("b", b"1").unwrap();
        keep(&volume, |tx| {
            tx.write_file("a", b"mine").unwrap();
            tx.write_file("b", b"mine").unwrap();
        });
        only(&volume, "x", &["a"]);
        if reopens {
            volume = reopen(volume, &disk);
        }
        volume.base().write_file("b", b"theirs").unwrap();
        assert_eq!(base(&volume, "x")["b"].2, b"1");
        assert!(volume.commit_kept("x").unwrap_err().is_conflict());
        assert_eq!(volume.base().read_file("b").unwrap(), b"theirs");
        volume.abort_kept("x").unwrap();
        volume.close().unwrap();
    }
}

#[test]
fn what_others_changed_of_a_shared_directory_stays_apart_from_the_base() {
    let volume = new_volume();
    let base_view = volume.base();
    base_view.create_dir("d").unwrap();
    base_view.write_file("d/old", b"old").unwrap();
    keep(&volume, |tx| {
        tx.create_dir("d/one").unwrap();
        tx.create_dir("d/two").unwrap();
        tx.write_file("d/old", b"new").unwrap();
    });
    // This saves the record of the directory for the base.
    volume.base().create_dir("d/theirs").unwrap();
    let links = |view: &BTreeMap<String, Node>| view["d"].0.4;
    assert_eq!((links(&base(&volume, "x")), links(&ours(&volume, "x"))), (2, 4));
    assert!(volume.commit_kept_only("x", &["d/one"]).unwrap().remains);
    assert_eq!((links(&base(&volume, "x")), links(&ours(&volume, "x"))), (3, 4));
    assert_eq!(links(&dump(&volume.snapshot())), 4);
    assert!(volume.commit_kept_only("x", &["d/two"]).unwrap().remains);
    volume.commit_kept("x").unwrap();
    assert_eq!(links(&dump(&volume.snapshot())), 5);
    assert_clean(&volume);
}

#[test]
fn a_prepared_transaction_holds_up_a_part_as_any_commit() {
    let volume = new_volume();
    volume.base().write_file("held", b"1").unwrap();
    keep(&volume, |tx| {
        tx.write_file("held", b"mine").unwrap();
        tx.write_file("free", b"mine").unwrap();
    });
    let tx = volume.begin();
    tx.read_file("held").unwrap();
    tx.write_file("other", b"2").unwrap();
    tx.prepare("p").unwrap();
    assert_eq!(errno(volume.commit_kept_only("x", &["held"])), EBUSY);
    assert!(volume.commit_kept_only("x", &["free"]).unwrap().remains);
    volume.commit_kept("p").unwrap();
    volume.commit_kept("x").unwrap();
    assert_clean(&volume);
}

fn every_other_page(tx: &Transaction, ino: Ino, content: &[u8]) {
    for page in (0..300).step_by(2) {
        tx.write(ino, page * 4096, content).unwrap();
    }
}

/// A part changes `a`, the rest more pages than conflicts are noted of.
fn keep_a_and_many(volume: &Volume) {
    volume.base().write_file("many", &vec![1; 300 * 4096]).unwrap();
    keep(volume, |tx| {
        tx.write_file("a", b"mine").unwrap();
        every_other_page(tx, tx.resolve("many").unwrap(), b"mine");
    });
}

#[test]
fn more_conflicts_than_are_noted_refuse_every_part() {
    for conflicts_in_part in [true, false] {
        let volume = new_volume();
        if conflicts_in_part {
            volume.base().write_file("a", b"1").unwrap();
        }
        keep_a_and_many(&volume);
        let theirs = volume.begin();
        every_other_page(&theirs, theirs.resolve("many").unwrap(), b"theirs");
        if conflicts_in_part {
            theirs.write_file("a", b"theirs").unwrap();
        }
        theirs.commit(Durability::Durable).unwrap();
        let refused = volume.commit_kept_only("x", &["a"]).unwrap_err();
        let expected = refused.errno() == ENOTSUP || conflicts_in_part && refused.is_conflict();
        assert!(expected, "{refused}");
        if conflicts_in_part {
            assert_eq!(volume.base().read_file("a").unwrap(), b"theirs");
        }
    }
}
