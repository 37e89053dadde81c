//! Kept and prepared transactions.

mod common;

use common::{EEXIST, EINVAL, ENOENT, assert_clean, errno, new_disk, new_volume, open};
use txfs::{
    Access, ConflictKind, Durability, Error, Isolation, KeptSide, KeptState, OtherState, Paths,
    SetAttributes, TransactionOptions, View, Volume, XattrMode,
};
use txfs_disk::sim::SimulatedDisk;

const EBUSY: i32 = 16;

fn reopen(volume: Volume, disk: &SimulatedDisk) -> Volume {
    volume.close().unwrap();
    drop(volume);
    open(disk)
}

fn labelled(volume: &Volume, label: &str) -> txfs::Transaction {
    volume.begin_with(TransactionOptions {
        recorded: true,
        label: label.into(),
        process: Some(7),
        command: Some("make".into()),
        ..TransactionOptions::default()
    })
}

/// Everything that there is to find: paths, kinds, sizes and contents.
fn tree(view: &impl Paths) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![String::new()];
    while let Some(directory) = pending.pop() {
        for entry in view.read_dir(&directory).unwrap() {
            let path = format!("{directory}/{}", String::from_utf8_lossy(&entry.name));
            match entry.kind {
                txfs::NodeKind::Directory => pending.push(path.clone()),
                txfs::NodeKind::File => found.push((path.clone(), view.read_file(&path).unwrap())),
                _ => found.push((path.clone(), Vec::new())),
            }
        }
    }
    found.sort();
    found
}

/// Changes of all sorts.
fn prepare_ground(volume: &Volume) {
    let base = volume.base();
    base.create_dir("d").unwrap();
    base.write_file("d/changed", &[1; 300_000]).unwrap();
    base.write_file("d/cut", &[2; 50_000]).unwrap();
    base.write_file("d/renamed", b"renamed").unwrap();
    base.write_file("d/removed", &[3; 20_000]).unwrap();
    base.write_file("d/linked", b"linked").unwrap();
    base.write_file("other", b"other").unwrap();
}

fn change_everything(tx: &txfs::Transaction) {
    let ino = tx.resolve("d/changed").unwrap();
    tx.write(ino, 5 * 4096 + 7, &[9; 10_000]).unwrap();
    tx.set_xattr(ino, b"user.a", b"value", XattrMode::Set).unwrap();
    let cut = tx.resolve("d/cut").unwrap();
    tx.set_attributes(cut, &SetAttributes { size: Some(10_000), ..SetAttributes::default() }).unwrap();
    tx.allocate(cut, txfs::AllocateMode::PunchHole, 0, 4096).unwrap();
    tx.rename_path("d/renamed", "elsewhere").unwrap();
    tx.remove("d/removed").unwrap();
    tx.create_dir("d/new").unwrap();
    tx.write_file("d/new/file", &vec![4; 3 << 20]).unwrap();
    tx.symlink("file", "d/new/link").unwrap();
    tx.hard_link("d/linked", "d/new/again").unwrap();
    tx.write_file("gone", b"1").unwrap();
    tx.remove("gone").unwrap();
}

#[test]
fn what_is_kept_is_invisible_until_it_is_committed_however_often_the_volume_is_opened() {
    let disk = new_disk();
    let mut volume = open(&disk);
    prepare_ground(&volume);
    let before = tree(&volume.base());
    let tx = labelled(&volume, "monday");
    change_everything(&tx);
    tx.keep("mine").unwrap();
    let ours = tree(&volume.kept_view("mine", KeptSide::Ours).unwrap());
    assert!(
        ours.iter().any(|(path, _)| path == "/d/new/again")
            && !ours.iter().any(|(path, _)| path == "/d/removed")
    );
    assert!(!tx.is_open());
    for round in 0..3 {
        assert_eq!(tree(&volume.base()), before);
        let kept = volume.kept().unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].name.as_str(), kept[0].state), ("mine", KeptState::Kept));
        assert_eq!(
            (kept[0].command.as_str(), kept[0].message.as_str(), kept[0].process),
            ("make", "monday", 7)
        );
        assert_eq!(kept[0].conflicts, 0);
        assert!(kept[0].data_bytes >= 3 << 20 && kept[0].pinned_bytes > kept[0].data_bytes);
        assert_eq!(volume.kept_conflicts("mine").unwrap(), None);
        let view = volume.kept_view("mine", KeptSide::Ours).unwrap();
        assert_eq!(tree(&view), ours);
        assert_eq!(view.changes().unwrap().len(), 8, "{:?}", view.changes().unwrap());
        drop(view);
        assert_clean(&volume);
        // It is found wherever the cleaner puts it, and goes along with others' changes.
        if round == 1 {
            volume.clean(&txfs::CleanOptions::default(), &mut |_, _| {}).unwrap();
        }
        volume = reopen(volume, &disk);
    }
    volume.base().write_file("between", b"1").unwrap();
    let receipt = volume.commit_kept("mine").unwrap();
    let mut expected = ours.clone();
    expected.push(("/between".into(), b"1".to_vec()));
    expected.sort();
    assert_eq!(tree(&volume.base()), expected);
    assert_eq!(
        volume.base().get_xattr(volume.base().resolve("d/changed").unwrap(), b"user.a").unwrap(),
        b"value"
    );
    assert_eq!(volume.history(None, 9).unwrap()[0].sequence, receipt.sequence);
    assert_eq!(volume.history(None, 9).unwrap()[0].message, "monday");
    assert!(volume.kept().unwrap().is_empty());
    assert_clean(&volume);
    let volume = reopen(volume, &disk);
    assert_eq!(tree(&volume.base()), expected);
    assert_eq!(errno(volume.commit_kept("mine")), ENOENT);
    assert_clean(&volume);
}

#[test]
fn what_is_aborted_leaves_nothing() {
    let disk = new_disk();
    let volume = open(&disk);
    prepare_ground(&volume);
    let before = tree(&volume.base());
    let live = volume.stat().unwrap().engine.live_bytes;
    for round in 0..2 {
        let tx = volume.begin();
        change_everything(&tx);
        match round {
            0 => tx.keep("mine").unwrap(),
            _ => tx.prepare("mine").unwrap(),
        }
        assert!(volume.stat().unwrap().engine.live_bytes > live + (3 << 20));
        volume.abort_kept("mine").unwrap();
        assert_eq!(errno(volume.abort_kept("mine")), ENOENT);
        assert_eq!(volume.stat().unwrap().engine.live_bytes, live);
        assert_clean(&volume);
    }
    let volume = reopen(volume, &disk);
    assert_eq!(tree(&volume.base()), before);
    assert!(volume.kept().unwrap().is_empty());
    // Nothing is held any more.
    volume.base().write_file("d/changed", b"new").unwrap();
}

#[test]
fn a_commit_that_overlaps_a_kept_transaction_succeeds_and_is_noted() {
    let disk = new_disk();
    let volume = open(&disk);
    prepare_ground(&volume);
    let base = volume.base();
    let tx = labelled(&volume, "mine");
    let changed = tx.resolve("d/changed").unwrap();
    tx.read_file("other").unwrap();
    tx.write(changed, 0, b"mine").unwrap();
    tx.keep("mine").unwrap();
    base.write(changed, 20 * 4096, b"not in its way").unwrap();
    base.write_file("d/also new", b"1").unwrap();
    assert_eq!(volume.kept().unwrap()[0].conflicts, 0);
    let other = base.resolve("other").unwrap();
    base.write(other, 0, b"theirs").unwrap();
    base.write(other, 0, b"noted once").unwrap();
    let theirs = labelled(&volume, "theirs");
    theirs.write(changed, 100, b"theirs").unwrap();
    let sequence = theirs.commit(Durability::Durable).unwrap().sequence;
    let mut volume = volume;
    for _ in 0..2 {
        let report = volume.kept_conflicts("mine").unwrap().unwrap();
        assert_eq!(report.conflicts.len(), 2, "{report:?}");
        let (first, second) = (&report.conflicts[0], &report.conflicts[1]);
        assert_eq!(
            (first.kind.clone(), first.access),
            (ConflictKind::Pages { first: 0, last: 0 }, Access::Written)
        );
        assert_eq!(first.path.as_deref(), Some("d/changed".as_ref()));
        assert_eq!((first.other.sequence, first.other.process), (Some(sequence), Some(7)));
        assert_eq!(first.other.command.as_deref(), Some("make"));
        assert_eq!(first.other.message.as_deref(), Some("theirs"));
        assert_eq!((second.access, second.other.state), (Access::Read, OtherState::Committed));
        assert_eq!(second.other.process, Some(std::process::id()));
        let error = volume.commit_kept("mine").unwrap_err();
        assert_eq!(error.conflicts(), Some(&report));
        assert_eq!(volume.kept().unwrap()[0].conflicts, 2);
        assert_eq!(volume.base().read_file("other").unwrap(), b"noted once");
        assert_clean(&volume);
        volume = reopen(volume, &disk);
    }
    volume.abort_kept("mine").unwrap();
    assert_eq!(&volume.base().read_file("d/changed").unwrap()[100..106], b"theirs");
    assert_clean(&volume);
}

#[test]
fn conflicts_from_before_it_was_kept_are_noted_too() {
    let volume = new_volume();
    prepare_ground(&volume);
    let ino = volume.base().resolve("d/changed").unwrap();
    let (tx, snapshot) =
        (volume.begin(), TransactionOptions { isolation: Isolation::Snapshot, ..Default::default() });
    let loose = volume.begin_with(snapshot);
    for tx in [&tx, &loose] {
        tx.read(ino, 8192, 10).unwrap();
        tx.write_file("other name", b"1").unwrap();
    }
    volume.base().write(ino, 8192, b"theirs").unwrap();
    tx.keep("serializable").unwrap();
    loose.keep("snapshot").unwrap();
    let report = volume.kept_conflicts("serializable").unwrap().unwrap();
    assert_eq!(report.conflicts[0].kind, ConflictKind::Pages { first: 2, last: 2 });
    assert_eq!(volume.kept_conflicts("snapshot").unwrap(), None);
    volume.commit_kept("snapshot").unwrap();
    assert!(volume.commit_kept("serializable").unwrap_err().is_conflict());
    // The name was free when it was kept, and is not any more.
    assert_eq!(volume.kept_conflicts("serializable").unwrap().unwrap().conflicts.len(), 2);
    volume.abort_kept("serializable").unwrap();
    assert_eq!(errno(volume.kept_conflicts("serializable")), ENOENT);
    assert_clean(&volume);
}

#[test]
fn names_are_checked_and_taken_once() {
    let volume = new_volume();
    let tx = volume.begin();
    tx.write_file("a", b"1").unwrap();
    for name in ["", "a/b", "-x", "a\nb", &"x".repeat(101)] {
        assert_eq!(errno(tx.keep(name)), EINVAL);
    }
    tx.keep("one").unwrap();
    let tx = volume.begin();
    tx.write_file("b", b"1").unwrap();
    let error = tx.prepare("one").unwrap_err();
    assert!(matches!(error, Error::KeptExists { .. }));
    assert_eq!(error.errno(), EEXIST);
    assert!(tx.is_open(), "it can be kept under another name");
    tx.prepare("two").unwrap();
    assert_eq!(
        volume.kept().unwrap().iter().map(|kept| kept.name.as_str()).collect::<Vec<_>>(),
        ["one", "two"]
    );
    volume.commit_kept("two").unwrap();
    volume.commit_kept("one").unwrap();
    assert!(volume.base().exists("a").unwrap() && volume.base().exists("b").unwrap());
    let empty = volume.begin();
    empty.read_dir_names();
    empty.prepare("one").unwrap();
    volume.base().write_file("a", b"2").unwrap();
    volume.commit_kept("one").unwrap();
}

trait ReadNames {
    fn read_dir_names(&self);
}

impl ReadNames for txfs::Transaction {
    fn read_dir_names(&self) {
        self.read_dir("").unwrap();
    }
}

#[test]
fn nobody_changes_what_a_prepared_transaction_has_read_or_written() {
    let disk = new_disk();
    let mut volume = open(&disk);
    prepare_ground(&volume);
    let tx = volume.begin();
    change_everything(&tx);
    tx.read_file("other").unwrap();
    tx.prepare("order 7").unwrap();
    let ours = tree(&volume.kept_view("order 7", KeptSide::Ours).unwrap());
    for _ in 0..2 {
        let base = volume.base();
        let (changed, other) = (base.resolve("d/changed").unwrap(), base.resolve("other").unwrap());
        let error = base.write(changed, 6 * 4096, b"x").unwrap_err();
        assert!(matches!(&error, Error::Held { name, .. } if name == "order 7"), "{error:?}");
        assert!(error.to_string().contains("\"order 7\""));
        let refused = [
            base.write(other, 0, b"x").map(drop),
            base.remove("other"),
            base.remove("d/changed"),
            base.remove("d/renamed"),
            base.rename_path("d/renamed", "x"),
            base.remove("d/linked"),
            base.create_dir("d/new").map(drop),
            base.write_file("elsewhere", b"1").map(drop),
            base.set_xattr(changed, b"user.a", b"x", XattrMode::Set),
        ];
        for (at, result) in refused.into_iter().enumerate() {
            assert_eq!(errno(result), EBUSY, "number {at}");
        }
        // What is not in its way works, and so does reading.
        base.write(changed, 0, b"first page").unwrap();
        base.write_file("d/free", b"1").unwrap();
        base.read_file("other").unwrap();
        let theirs = volume.begin();
        theirs.write(other, 0, b"theirs").unwrap();
        let error = theirs.commit(Durability::Durable).unwrap_err();
        assert_eq!(error.errno(), EBUSY);
        assert!(error.to_string().contains("(other)"), "{error}");
        assert_clean(&volume);
        volume = reopen(volume, &disk);
    }
    volume.commit_kept("order 7").unwrap();
    let mut expected = ours.clone();
    expected.push(("/d/free".into(), b"1".to_vec()));
    expected.sort();
    let changed = expected.iter_mut().find(|(path, _)| path == "/d/changed").unwrap();
    changed.1[..10].copy_from_slice(b"first page");
    assert_eq!(tree(&volume.base()), expected);
    volume.base().write_file("other", b"free again").unwrap();
    assert_clean(&volume);
}

#[test]
fn preparing_fails_as_a_commit_would() {
    let volume = new_volume();
    prepare_ground(&volume);
    let ino = volume.base().resolve("other").unwrap();
    let tx = volume.begin();
    tx.read_file("other").unwrap();
    tx.write_file("new", b"1").unwrap();
    volume.base().write(ino, 0, b"x").unwrap();
    let error = tx.prepare("late").unwrap_err();
    assert!(error.is_conflict(), "{error:?}");
    assert!(volume.kept().unwrap().is_empty());

    // Two prepared ones are never in each other's way, whichever commits first.
    let (one, two) = (volume.begin(), volume.begin());
    one.read_file("other").unwrap();
    one.write_file("one", b"1").unwrap();
    two.write_file("other", b"two").unwrap();
    two.prepare("two").unwrap();
    assert_eq!(errno(one.prepare("one")), EBUSY);
    volume.commit_kept("two").unwrap();
    assert_clean(&volume);
}

#[test]
fn a_kept_transaction_gives_way_to_a_prepared_one() {
    let volume = new_volume();
    prepare_ground(&volume);
    let ino = volume.base().resolve("other").unwrap();
    let (kept, prepared) = (volume.begin(), volume.begin());
    kept.write(ino, 0, b"kept").unwrap();
    prepared.write(ino, 0, b"prepared").unwrap();
    kept.keep("kept").unwrap();
    prepared.prepare("prepared").unwrap();
    let error = volume.commit_kept("kept").unwrap_err();
    assert!(matches!(&error, Error::Held { name, .. } if name == "prepared"), "{error:?}");
    volume.commit_kept("prepared").unwrap();
    assert!(volume.commit_kept("kept").unwrap_err().is_conflict());
    volume.abort_kept("kept").unwrap();
    assert_eq!(&volume.base().read_file("other").unwrap()[..8], b"prepared");
    assert_clean(&volume);
}

#[test]
fn links_and_removals_that_meet_do_not_keep_a_prepared_one_from_committing() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("a", b"1").unwrap();
    base.hard_link("a", "b").unwrap();
    let (one, two) = (volume.begin(), volume.begin());
    one.remove("a").unwrap();
    let ino = two.resolve("b").unwrap();
    two.write(ino, 0, b"2").unwrap();
    one.prepare("one").unwrap();
    // It might be the last name that goes with `one`: that must not depend on `two`.
    assert_eq!(errno(two.prepare("two")), EBUSY);
    base.remove("b").unwrap();
    base.hard_link("a", "c").unwrap();
    volume.commit_kept("one").unwrap();
    assert_eq!(base.attributes(base.resolve("c").unwrap()).unwrap().nlink, 1);
    let last = volume.begin();
    last.write_file("c", b"new content").unwrap();
    last.remove("c").unwrap();
    last.prepare("last").unwrap();
    // Another name may come: then the node stays, with what was written to it.
    base.hard_link("c", "d").unwrap();
    volume.commit_kept("last").unwrap();
    assert_eq!(base.read_file("d").unwrap(), b"new content");
    assert!(!base.exists("c").unwrap());
    assert_clean(&volume);
}

#[test]
fn nodes_that_lost_their_names_while_they_were_open_go_in_the_end() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("open", &[1; 10_000]).unwrap();
    let ino = base.resolve("open").unwrap();
    volume.retain(ino).unwrap();
    let tx = volume.begin();
    tx.write(ino, 0, b"2").unwrap();
    base.remove("open").unwrap();
    assert!(tx.keep("late").is_err() || volume.kept_conflicts("late").unwrap().is_some());
    volume.release(ino, 1);
    if !volume.kept().unwrap().is_empty() {
        volume.abort_kept("late").unwrap();
    }
    assert_eq!(volume.check().unwrap().orphans, 0);
    assert_clean(&volume);
}

#[test]
fn many_files_and_much_data_are_kept() {
    let disk = new_disk();
    let volume = open(&disk);
    let tx = volume.begin();
    for number in 0..3000 {
        tx.write_file(format!("file {number}"), &[number as u8; 100]).unwrap();
    }
    for number in 0..4 {
        tx.write_file(format!("large {number}"), &vec![number; 9 << 20]).unwrap();
    }
    tx.keep("much").unwrap();
    let volume = reopen(volume, &disk);
    assert_clean(&volume);
    volume.commit_kept("much").unwrap();
    assert_clean(&volume);
    let volume = reopen(volume, &disk);
    assert_eq!(volume.base().read_dir("").unwrap().len(), 3004);
    assert_eq!(volume.base().read_file("file 2999").unwrap(), [2999u32 as u8; 100]);
    assert_eq!(volume.base().read_file("large 3").unwrap(), vec![3; 9 << 20]);
    let tx = volume.begin();
    for number in 0..4 {
        let ino = tx.resolve(format!("large {number}")).unwrap();
        for page in (0..9 * 256).step_by(2) {
            tx.write(ino, page * 4096, &[0xee; 4096]).unwrap();
        }
    }
    tx.prepare("holes").unwrap();
    volume.commit_kept("holes").unwrap();
    let found = volume.base().read_file("large 3").unwrap();
    assert!(
        found
            .chunks(4096)
            .enumerate()
            .all(|(page, bytes)| bytes == [if page % 2 == 0 { 0xee } else { 3 }; 4096])
    );
    assert_clean(&volume);
}

#[test]
fn a_prepared_transaction_commits_in_a_volume_that_is_full_by_then() {
    for background in [false, true] {
        let disk = SimulatedDisk::new(txfs_disk::sim::SimOptions::default());
        let create = txfs::CreateOptions {
            segment_bytes: 1 << 20,
            size_bytes_max: Some(24 << 20),
            ..txfs::CreateOptions::default()
        };
        Volume::create_on(disk.as_disk(), &create).unwrap();
        let reader_patience = std::time::Duration::from_millis(50);
        let options = txfs::OpenOptions { background, reader_patience, ..txfs::OpenOptions::default() };
        let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
        volume.base().write_file("file", &vec![1; 5 << 20]).unwrap();
        let tx = volume.begin();
        tx.write_file("file", &vec![2; 5 << 20]).unwrap();
        for number in 0..500 {
            tx.write_file(format!("new {number}"), &[3; 5000]).unwrap();
        }
        tx.prepare("order").unwrap();
        // Until not even a file without data can be made.
        let mut count = 0;
        for size in [100_000, 4096, 0] {
            let full = (0..100_000).find_map(|_| {
                count += 1;
                volume.base().write_file(format!("filler {count}"), &vec![4; size]).err()
            });
            match full {
                Some(error) => assert_eq!(error.errno(), 28, "{error}"),
                None => assert_eq!(size, 0),
            }
        }
        let volume = match background {
            true => volume,
            false => {
                volume.close().unwrap();
                drop(volume);
                Volume::open_on(disk.as_disk(), &options).unwrap()
            }
        };
        volume.commit_kept("order").unwrap();
        assert_eq!(volume.base().read_file("file").unwrap(), vec![2; 5 << 20]);
        assert_eq!(volume.base().read_file("new 499").unwrap(), vec![3; 5000]);
        assert_clean(&volume);
    }
}

#[test]
fn what_conflicts_at_its_commit_is_kept_instead() {
    let volume = new_volume();
    prepare_ground(&volume);
    let late =
        || volume.begin_with(TransactionOptions { late_conflicts: true, ..TransactionOptions::default() });
    let ino = volume.base().resolve("other").unwrap();
    let tx = late();
    tx.write_file("new", &[1; 10_000]).unwrap();
    tx.commit_or_keep(Durability::Durable, "none").unwrap();
    assert!(volume.base().exists("new").unwrap() && volume.kept().unwrap().is_empty());
    let tx = late();
    tx.write(ino, 0, b"mine").unwrap();
    tx.write_file("gone", b"1").unwrap();
    tx.remove("gone").unwrap();
    volume.base().write(ino, 0, b"their").unwrap();
    tx.write_file("new", &[2; 20_000]).unwrap();
    let error = tx.commit_or_keep(Durability::Durable, "conflicting").unwrap_err();
    assert!(error.is_conflict());
    let kept = volume.kept().unwrap();
    assert_eq!((kept.len(), kept[0].name.as_str(), kept[0].conflicts), (1, "conflicting", 1));
    let view = volume.kept_view("conflicting", KeptSide::Ours).unwrap();
    assert_eq!(view.read_file("new").unwrap(), [2; 20_000]);
    let side = |side| volume.kept_view("conflicting", side).unwrap().read_file("other").unwrap();
    assert_eq!(side(KeptSide::Base), b"other");
    assert_eq!(side(KeptSide::Ours), b"miner");
    assert_eq!(side(KeptSide::Theirs), b"their");
    assert_eq!(errno(view.write(ino, 0, b"x")), common::EROFS);
    assert_eq!(errno(view.commit(Durability::Durable)), common::EROFS);
    assert_eq!(volume.base().read_file("new").unwrap(), [1; 10_000]);
    volume.abort_kept("conflicting").unwrap();
    assert_eq!(volume.stat().unwrap().buffered_bytes, 0);
    assert_clean(&volume);
}

#[test]
fn what_it_began_with_can_be_read_whatever_others_do() {
    let disk = new_disk();
    let mut volume = open(&disk);
    prepare_ground(&volume);
    let tx = volume.begin();
    change_everything(&tx);
    tx.read_file("other").unwrap();
    tx.read_dir("").unwrap();
    // One conflict is there before it is kept.
    let changed = volume.base().resolve("d/changed").unwrap();
    let before = tree(&volume.base());
    volume.base().write(changed, 5 * 4096, &[7; 100]).unwrap();
    tx.keep("mine").unwrap();
    let ours = tree(&volume.kept_view("mine", KeptSide::Ours).unwrap());
    for round in 0..4 {
        let base = volume.base();
        match round {
            0 => {
                base.write(changed, 6 * 4096, &[8; 10_000]).unwrap();
                base.write(changed, 0, &[8; 4096]).unwrap();
                base.write_file("other", b"something else").unwrap();
                base.write_file("made", b"by others").unwrap();
            }
            1 => {
                base.remove("d/changed").unwrap();
                base.remove("other").unwrap();
                base.remove("d/linked").unwrap();
                base.write_file("d/cut", b"short").unwrap();
            }
            2 => {
                volume.checkpoint().unwrap();
                let everything =
                    txfs::CleanOptions { live_percent_max: 100, ..txfs::CleanOptions::default() };
                volume.clean(&everything, &mut |_, _| {}).unwrap();
            }
            _ => base.remove_all("d").unwrap(),
        }
        let found = tree(&volume.kept_view("mine", KeptSide::Base).unwrap());
        let paths = |tree: &[(String, Vec<u8>)]| -> Vec<String> {
            tree.iter().map(|(path, _)| path.clone()).collect()
        };
        assert_eq!(paths(&found), paths(&before), "round {round}");
        for ((path, found), (_, expected)) in found.iter().zip(&before) {
            let at = found.iter().zip(expected).position(|(a, b)| a != b);
            assert_eq!((found.len(), at), (expected.len(), None), "{path} in round {round}");
        }
        assert!(tree(&volume.kept_view("mine", KeptSide::Ours).unwrap()) == ours, "round {round}");
        assert!(tree(&volume.kept_view("mine", KeptSide::Theirs).unwrap()) == tree(&volume.base()));
        assert_eq!(volume.kept_view("mine", KeptSide::Ours).unwrap().changes().unwrap().len(), 8);
        assert_clean(&volume);
        volume = reopen(volume, &disk);
    }
    let pinned = volume.kept().unwrap()[0].pinned_bytes;
    assert!(pinned > volume.kept().unwrap()[0].data_bytes + 300_000, "{pinned}");
    let live = volume.stat().unwrap().engine.live_bytes;
    volume.abort_kept("mine").unwrap();
    assert!(volume.stat().unwrap().engine.live_bytes < live - 300_000);
    assert_clean(&volume);
}
