//! Undoing recorded commits: what they changed comes back and nothing else; what is in the way is told; what is kept for it is
//! bounded and gives way.

mod common;

use std::collections::BTreeMap;

use common::{assert_clean, clock, new_disk, new_volume, open, open_options};
use txfs::{
    AllocateMode, Attributes, ConflictKind, CreateOptions, Durability, Error, Ino, NewNode, NodeKind,
    OpenOptions, Paths, ROOT_INO, RenameMode, SetAttributes, Timestamp, Transaction, TransactionOptions,
    UndoState, View, Volume, XattrMode,
};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

fn recorded(volume: &Volume, label: &str) -> Transaction {
    volume.begin_with(TransactionOptions { recorded: true, label: label.into(), ..Default::default() })
}

/// Commits what `work` does, recorded.
fn commit(volume: &Volume, work: impl FnOnce(&Transaction)) -> u64 {
    let tx = recorded(volume, "");
    work(&tx);
    tx.commit(Durability::Durable).unwrap().sequence
}

fn undo(volume: &Volume, sequence: u64) -> u64 {
    let undone = volume.undo(sequence, Durability::Durable).unwrap().sequence;
    assert_clean(volume);
    undone
}

/// Kind, mode, owner, group, names, size, time of the last change of the content; content or target; attributes.
type Node = ((NodeKind, u32, u32, u32, u32, u64), Timestamp, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>, Ino);

/// The whole tree by path.
fn dump(volume: &Volume) -> BTreeMap<String, Node> {
    let view = volume.snapshot();
    let mut nodes = BTreeMap::new();
    let mut pending = vec![(String::new(), ROOT_INO)];
    while let Some((path, ino)) = pending.pop() {
        let Attributes { kind, mode, uid, gid, nlink, size, mtime, .. } = view.attributes(ino).unwrap();
        let mut content = Vec::new();
        match kind {
            NodeKind::File => content = view.read(ino, 0, size as usize).unwrap(),
            NodeKind::Symlink => content = view.read_link(ino).unwrap(),
            NodeKind::Directory => {
                for entry in view.read_dir(&path).unwrap() {
                    pending.push((
                        format!("{path}/{}", String::from_utf8_lossy(&entry.name))
                            .trim_start_matches('/')
                            .to_owned(),
                        entry.ino,
                    ));
                }
            }
            _ => {}
        }
        let names = view.list_xattrs(ino).unwrap();
        let xattrs =
            names.into_iter().map(|name| (name.clone(), view.get_xattr(ino, &name).unwrap())).collect();
        nodes.insert(path, ((kind, mode, uid, gid, nlink, size), mtime, content, xattrs, ino));
    }
    nodes
}

#[track_caller]
fn conflict(volume: &Volume, sequence: u64) -> Vec<txfs::Conflict> {
    let before = dump(volume);
    let conflicts = match volume.undo(sequence, Durability::Durable) {
        Err(Error::UndoConflict { sequence: of, report }) => {
            assert_eq!(of, sequence);
            report.conflicts
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(dump(volume), before, "nothing was changed");
    conflicts
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

#[test]
fn all_that_a_commit_did_comes_back_and_undoing_that_too() {
    let disk = new_disk();
    let volume = open(&disk);
    let base = volume.base();
    base.create_dir_all("a/b/c").unwrap();
    base.write_file("a/big", &pattern(1, 3 << 20)).unwrap();
    base.write_file("a/short", b"short").unwrap();
    base.write_file("a/cut", &pattern(2, 50_000)).unwrap();
    base.write_file("a/b/gone", &pattern(3, 30_000)).unwrap();
    base.write_file("a/b/replaced", b"replaced").unwrap();
    base.write_file("a/b/c/deep", b"deep").unwrap();
    base.write_file("a/linked", b"linked").unwrap();
    let linked = base.resolve("a/linked").unwrap();
    let b = base.resolve("a/b").unwrap();
    base.link(linked, b, b"second").unwrap();
    base.symlink("big", "a/link").unwrap();
    let gone = base.resolve("a/b/gone").unwrap();
    base.set_xattr(gone, b"user.kept", b"value", XattrMode::Set).unwrap();
    let short = base.resolve("a/short").unwrap();
    base.set_xattr(short, b"user.old", b"old", XattrMode::Set).unwrap();
    let before = dump(&volume);
    assert_clean(&volume);

    let sequence = commit(&volume, |tx| {
        tx.write(tx.resolve("a/big").unwrap(), 100_000, &pattern(4, 300_000)).unwrap();
        tx.allocate(tx.resolve("a/big").unwrap(), AllocateMode::PunchHole, 1 << 20, 200_000).unwrap();
        tx.write(tx.resolve("a/short").unwrap(), 20_000, b"longer").unwrap();
        let size = SetAttributes { size: Some(5000), ..Default::default() };
        tx.set_attributes(tx.resolve("a/cut").unwrap(), &size).unwrap();
        tx.remove("a/b/gone").unwrap();
        tx.write_file("a/new", &pattern(5, 70_000)).unwrap();
        tx.create_dir("a/dir").unwrap();
        tx.write_file("a/dir/inside", b"inside").unwrap();
        tx.rename_path("a/new", "a/b/replaced").unwrap();
        tx.rename_path("a/b/c", "a/dir/moved").unwrap();
        tx.remove("a/linked").unwrap();
        tx.remove("a/link").unwrap();
        tx.symlink("elsewhere", "a/link").unwrap();
        let mode = SetAttributes { mode: Some(0o600), uid: Some(7), ..Default::default() };
        tx.set_attributes(tx.resolve("a/short").unwrap(), &mode).unwrap();
        tx.set_xattr(short, b"user.old", b"changed", XattrMode::Set).unwrap();
        tx.set_xattr(short, b"user.new", b"new", XattrMode::Set).unwrap();
        let fifo = NewNode { kind: NodeKind::Fifo, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: None };
        tx.make_node(tx.resolve("a").unwrap(), b"fifo", &fifo).unwrap();
    });
    assert_clean(&volume);
    let after = dump(&volume);
    assert_ne!(before, after);
    let undone = undo(&volume, sequence);
    assert_eq!(dump(&volume), before);
    let again = undo(&volume, undone);
    assert_eq!(strip(dump(&volume)), strip(after.clone()));
    undo(&volume, again);
    assert_eq!(strip(dump(&volume)), strip(before.clone()));
    // It is all there after a crash, and after cleaning too.
    volume.sync().unwrap();
    let volume = open(&disk.crash(3));
    let options = txfs::CleanOptions { live_percent_max: 100, ..Default::default() };
    volume.clean(&options, &mut |_, _| {}).unwrap();
    assert_eq!(strip(dump(&volume)), strip(before));
    let last = volume.history(None, 1).unwrap()[0].sequence;
    undo(&volume, last);
    assert_eq!(strip(dump(&volume)), strip(after));
}

/// Without times: they come back once, and then only where nothing has moved them.
fn strip(nodes: BTreeMap<String, Node>) -> BTreeMap<String, Node> {
    nodes
        .into_iter()
        .map(|(path, node)| (path, (node.0, Timestamp::default(), node.2, node.3, node.4)))
        .collect()
}

#[test]
fn what_others_did_elsewhere_stays() {
    let volume = new_volume();
    volume.base().write_file("file", &pattern(1, 40_000)).unwrap();
    volume.base().create_dir("d").unwrap();
    let file = volume.base().resolve("file").unwrap();
    let sequence = commit(&volume, |tx| {
        tx.write(file, 0, b"first page").unwrap();
        tx.write_file("d/one", b"1").unwrap();
        tx.set_xattr(file, b"user.a", b"a", XattrMode::Set).unwrap();
    });
    let base = volume.base();
    base.write(file, 8192, b"third page").unwrap();
    base.write_file("d/two", b"2").unwrap();
    base.set_xattr(file, b"user.b", b"b", XattrMode::Set).unwrap();
    let mode = SetAttributes { mode: Some(0o600), ..Default::default() };
    base.set_attributes(file, &mode).unwrap();
    let mut content = pattern(1, 40_000);
    content[8192..8192 + 10].copy_from_slice(b"third page");
    undo(&volume, sequence);
    assert_eq!(base.read_file("file").unwrap(), content);
    assert!(base.read_file("d/one").is_err());
    assert_eq!(base.read_file("d/two").unwrap(), b"2");
    assert_eq!(base.list_xattrs(file).unwrap(), [b"user.b".to_vec()]);
    assert_eq!(base.attributes(file).unwrap().mode, 0o600);
}

#[test]
fn what_is_in_the_way_is_told_with_who_it_was() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir("d").unwrap();
    base.write_file("d/file", &pattern(1, 40_000)).unwrap();
    base.write_file("d/other", b"other").unwrap();
    let file = base.resolve("d/file").unwrap();
    let first = commit(&volume, |tx| {
        tx.write(file, 0, b"one").unwrap();
        tx.write_file("d/made", b"made").unwrap();
        tx.remove("d/other").unwrap();
        let mode = SetAttributes { mode: Some(0o600), ..Default::default() };
        tx.set_attributes(file, &mode).unwrap();
        tx.set_xattr(file, b"user.a", b"a", XattrMode::Set).unwrap();
    });
    let tx = recorded(&volume, "second");
    tx.write(file, 100, b"two").unwrap();
    tx.write_file("d/other", b"another").unwrap();
    let mode = SetAttributes { mode: Some(0o640), ..Default::default() };
    tx.set_attributes(file, &mode).unwrap();
    let second = tx.commit(Durability::Durable).unwrap().sequence;
    base.set_xattr(file, b"user.a", b"b", XattrMode::Set).unwrap();
    base.write_file("d/made", b"changed").unwrap();

    let found = conflict(&volume, first);
    let has = |path: &str, kind: &dyn Fn(&ConflictKind) -> bool, by: Option<u64>| {
        let fits = |conflict: &&txfs::Conflict| {
            conflict.path.as_deref() == Some(path.as_ref())
                && kind(&conflict.kind)
                && conflict.other.sequence == by
        };
        assert!(found.iter().any(|conflict| fits(&conflict)), "{path} in {found:#?}");
    };
    has("d/file", &|kind| *kind == ConflictKind::Pages { first: 0, last: 0 }, Some(second));
    has("d/file", &|kind| *kind == ConflictKind::Permissions, Some(second));
    has("d/file", &|kind| *kind == ConflictKind::ExtendedAttribute, None);
    has("d/other", &|kind| matches!(kind, ConflictKind::Name { .. }), Some(second));
    has("d/made", &|kind| matches!(kind, ConflictKind::Pages { .. }), None);
    assert_eq!(
        found.iter().filter_map(|conflict| conflict.other.message.clone()).next().as_deref(),
        Some("second")
    );
    // In the order in which they were made it goes.
    base.write_file("d/made", b"made").unwrap();
    base.set_xattr(file, b"user.a", b"a", XattrMode::Set).unwrap();
    undo(&volume, second);
    undo(&volume, first);
    assert_eq!(base.read_file("d/file").unwrap(), pattern(1, 40_000));
    assert_eq!(base.read_file("d/other").unwrap(), b"other");
}

#[test]
fn undone_once_is_enough() {
    let volume = new_volume();
    let sequence = commit(&volume, |tx| tx.write_file("file", b"1").unwrap());
    undo(&volume, sequence);
    let found = conflict(&volume, sequence);
    assert!(matches!(found[0].kind, ConflictKind::Name { .. }), "{found:?}");
    assert!(found[0].other.sequence.is_some());
}

#[test]
fn directories_come_and_go_with_care() {
    let volume = new_volume();
    let base = volume.base();
    let made = commit(&volume, |tx| {
        tx.create_dir_all("a/b").unwrap();
        tx.write_file("a/b/file", b"1").unwrap();
    });
    base.write_file("a/b/mine", b"2").unwrap();
    let found = conflict(&volume, made);
    assert!(found.iter().any(|conflict| conflict.kind == ConflictKind::Listing), "{found:?}");
    base.remove("a/b/mine").unwrap();
    undo(&volume, made);
    assert!(base.resolve("a").is_err());

    base.create_dir_all("x/y/z").unwrap();
    base.write_file("x/y/z/file", b"1").unwrap();
    let before = dump(&volume);
    let removed = commit(&volume, |tx| {
        tx.remove("x/y/z/file").unwrap();
        for path in ["x/y/z", "x/y", "x"] {
            tx.remove(path).unwrap();
        }
    });
    let undone = undo(&volume, removed);
    assert_eq!(dump(&volume), before);
    // What was removed lies in what was removed later: one after the other.
    undo(&volume, undone);
    base.create_dir_all("p/q").unwrap();
    base.write_file("p/q/file", b"1").unwrap();
    let before = dump(&volume);
    let first = commit(&volume, |tx| tx.remove("p/q/file").unwrap());
    let second = commit(&volume, |tx| tx.remove("p/q").unwrap());
    let found = conflict(&volume, first);
    assert_eq!(found[0].kind, ConflictKind::Existence, "{found:?}");
    assert_eq!(found[0].other.sequence, Some(second));
    undo(&volume, second);
    undo(&volume, first);
    assert_eq!(strip(dump(&volume)), strip(before));
}

#[test]
fn moving_back_makes_no_cycle() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("a/c").unwrap();
    base.create_dir("b").unwrap();
    let moved = commit(&volume, |tx| tx.rename_path("a/c", "b/c").unwrap());
    // `a` now lies below `c`, where `c` is to go.
    base.rename_path("a", "b/c/a").unwrap();
    let found = conflict(&volume, moved);
    assert_eq!(found[0].kind, ConflictKind::Parent, "{found:?}");
    base.rename_path("b/c/a", "a").unwrap();
    undo(&volume, moved);
    assert!(base.resolve("a/c").is_ok());
}

#[test]
fn who_has_it_open_goes_on() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("file", &pattern(1, 20_000)).unwrap();
    let ino = base.resolve("file").unwrap();
    volume.retain(ino).unwrap();
    let removed = commit(&volume, |tx| tx.remove("file").unwrap());
    assert_eq!(base.read(ino, 0, 20_000).unwrap(), pattern(1, 20_000));
    base.write(ino, 0, b"changed").unwrap();
    let found = conflict(&volume, removed);
    assert_eq!(found[0].kind, ConflictKind::Existence, "{found:?}");
    volume.release(ino, 1);
    assert_clean(&volume);
    let again = commit(&volume, |tx| tx.write_file("file", b"x").unwrap());
    let ino = base.resolve("file").unwrap();
    volume.retain(ino).unwrap();
    undo(&volume, again);
    assert_eq!(base.read(ino, 0, 1).unwrap(), b"x");
    volume.release(ino, 1);
    assert_clean(&volume);
}

#[test]
fn a_name_given_to_what_was_made_keeps_it() {
    let volume = new_volume();
    let base = volume.base();
    let made = commit(&volume, |tx| tx.write_file("file", b"1").unwrap());
    let ino = base.resolve("file").unwrap();
    base.link(ino, ROOT_INO, b"mine").unwrap();
    base.write_file("mine", b"changed").unwrap();
    undo(&volume, made);
    assert!(base.resolve("file").is_err());
    assert_eq!(base.read_file("mine").unwrap(), b"changed");
    assert_eq!(base.attributes(ino).unwrap().nlink, 1);
}

#[test]
fn a_dry_run_changes_nothing() {
    let volume = new_volume();
    volume.base().write_file("old", b"old").unwrap();
    let sequence = commit(&volume, |tx| {
        tx.write_file("old", b"changed").unwrap();
        tx.write_file("new", b"new").unwrap();
    });
    let before = dump(&volume);
    let tx = volume.begin_undo(sequence, TransactionOptions::default()).unwrap();
    let paths: Vec<_> = tx.changes().unwrap().into_iter().map(|change| change.path).collect();
    assert_eq!(paths, ["new", "old"].map(std::path::PathBuf::from));
    tx.abort();
    assert_eq!(dump(&volume), before);
}

#[test]
fn what_cannot_be_undone_says_why() {
    let disk = new_disk();
    let options = OpenOptions { history_commits_max: 2, ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    volume.base().write_file("file", b"1").unwrap();
    let plain = volume.begin();
    plain.write_file("file", b"2").unwrap();
    let unrecorded = plain.commit(Durability::Durable).unwrap().sequence;
    drop(plain);
    let why = |sequence| {
        let error = volume.undo(sequence, Durability::Durable).unwrap_err();
        assert_eq!(error.errno(), common::ENODATA);
        error.to_string()
    };
    assert!(why(unrecorded).contains("not in the history"), "{}", why(unrecorded));
    let first = commit(&volume, |tx| tx.write_file("file", b"3").unwrap());
    commit(&volume, |tx| tx.write_file("file", b"4").unwrap());
    commit(&volume, |tx| tx.remove("file").unwrap());
    assert!(why(first).contains("not in the history"));
    assert_clean(&volume);
    drop(volume);
    let options = OpenOptions { history_bytes_max: Some(0), ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let sequence = commit(&volume, |tx| tx.write_file("file", b"5").unwrap());
    let error = volume.undo(sequence, Durability::Durable).unwrap_err();
    assert!(error.to_string().contains("nothing was kept"), "{error}");
    assert_eq!(volume.stat().unwrap().history_bytes, 0);
    assert_clean(&volume);
}

#[test]
fn the_oldest_go_when_they_keep_too_much() {
    let disk = new_disk();
    let options = OpenOptions { history_bytes_max: Some(1 << 20), ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let base = volume.base();
    base.write_file("file", &pattern(0, 300 << 10)).unwrap();
    let ino = base.resolve("file").unwrap();
    let mut all = Vec::new();
    for round in 0..10 {
        all.push(commit(&volume, |tx| {
            tx.write(ino, 0, &pattern(round + 1, 300 << 10)).unwrap();
            tx.write_file(format!("gone-{round}"), &pattern(round, 20_000)).unwrap();
            if round > 0 {
                tx.remove(format!("gone-{}", round - 1)).unwrap();
            }
        }));
        let stat = volume.stat().unwrap();
        assert!(stat.history_bytes <= 1 << 20 && stat.history_bytes_max == 1 << 20, "{stat:?}");
        assert_clean(&volume);
    }
    let states: Vec<UndoState> = volume.history(None, 20).unwrap().iter().map(|commit| commit.undo).collect();
    assert!(matches!(states[..3], [UndoState::Kept { .. }, UndoState::Kept { .. }, UndoState::Kept { .. }]));
    assert!(states[3..].iter().all(|state| *state == UndoState::Expired), "{states:?}");
    assert_eq!(volume.stat().unwrap().history_undoable, 3);
    let error = volume.undo(all[0], Durability::Durable).unwrap_err();
    assert!(error.to_string().contains("no longer"), "{error}");
    // One that would keep too much by itself.
    base.write_file("large", &pattern(9, 2 << 20)).unwrap();
    let large = commit(&volume, |tx| tx.remove("large").unwrap());
    assert_eq!(volume.history(None, 1).unwrap()[0].undo, UndoState::TooLarge);
    assert!(
        volume
            .undo(large, Durability::Durable)
            .unwrap_err()
            .to_string()
            .contains("more than the history may")
    );
    assert_eq!(volume.stat().unwrap().history_undoable, 3, "it costs the others nothing");
    assert_clean(&volume);
    let live = volume.stat().unwrap().engine.live_bytes;
    let kept = volume.stat().unwrap().history_bytes;
    assert!(live < (330 << 10) + kept + 50_000, "{live} live bytes, {kept} for the history");
    volume.close().unwrap();
    drop(volume);
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    assert_eq!(volume.stat().unwrap().history_bytes, kept);
    undo(&volume, all[9]);
    undo(&volume, all[8]);
    assert_eq!(volume.base().read(ino, 0, 300 << 10).unwrap(), pattern(8, 300 << 10));
}

#[test]
fn a_full_volume_gives_up_its_history_first() {
    let disk = SimulatedDisk::new(SimOptions::default());
    let create = CreateOptions {
        segment_bytes: 1 << 20,
        identity: Some(([1; 16], [2; 16])),
        clock: clock(),
        size_bytes_max: Some(16 << 20),
        ..CreateOptions::default()
    };
    Volume::create_on(disk.as_disk(), &create).unwrap();
    let options = OpenOptions { history_bytes_max: Some(1 << 30), ..open_options() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let base = volume.base();
    base.write_file("file", &pattern(0, 4 << 20)).unwrap();
    let ino = base.resolve("file").unwrap();
    for round in 1..40u64 {
        if round % 2 == 0 {
            // By calls: some pages anew.
            for page in 0..100 {
                base.write(ino, page * 4096, &pattern(round + page, 4096)).unwrap();
            }
        } else {
            commit(&volume, |tx| {
                tx.write(ino, 0, &pattern(round, 512 << 10)).unwrap();
                tx.write_file("other", &pattern(round, 512 << 10)).unwrap();
            });
        }
    }
    let states: Vec<UndoState> =
        volume.history(None, 100).unwrap().iter().map(|commit| commit.undo).collect();
    assert!(matches!(states[0], UndoState::Kept { .. }), "{states:?}");
    assert!(states.contains(&UndoState::GaveWay), "{states:?}");
    assert_clean(&volume);
    // To the brim.
    let mut files = 0;
    while base.write_file(format!("fill-{files}"), &pattern(files, 256 << 10)).is_ok() {
        files += 1;
    }
    assert_eq!(volume.stat().unwrap().history_bytes, 0);
    assert_clean(&volume);
}

#[test]
fn many_files_are_made_and_removed_again() {
    let volume = new_volume();
    let sequence = commit(&volume, |tx| {
        for number in 0..3000 {
            tx.write_file(format!("file-{number}"), &pattern(number, 100 + number as usize)).unwrap();
        }
    });
    let after = dump(&volume);
    let kept = volume.stat().unwrap().history_bytes;
    assert!(kept < 3000 * 60, "{kept} bytes are kept");
    let undone = undo(&volume, sequence);
    assert_eq!(dump(&volume).len(), 1);
    undo(&volume, undone);
    assert_eq!(strip(dump(&volume)), strip(after));
}

#[test]
fn replaced_and_exchanged_names_come_back() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("one/inside").unwrap();
    base.create_dir("two").unwrap();
    base.write_file("file", b"file").unwrap();
    base.write_file("two/file", b"other").unwrap();
    let before = dump(&volume);
    let sequence = commit(&volume, |tx| {
        let (one, two) = (tx.resolve("one").unwrap(), tx.resolve("two").unwrap());
        tx.rename(one, b"inside", two, b"file", RenameMode::Exchange).unwrap();
        tx.rename_path("file", "one/inside").unwrap();
    });
    undo(&volume, sequence);
    assert_eq!(dump(&volume), before);
}

#[test]
fn what_came_back_and_was_renamed_does_not_come_back_again() {
    let volume = new_volume();
    volume.base().write_file("file", b"content").unwrap();
    let removed = commit(&volume, |tx| tx.remove("file").unwrap());
    let undone = undo(&volume, removed);
    let renamed = commit(&volume, |tx| tx.rename_path("file", "other").unwrap());
    // The name is free, as the commit left it. The file is not gone any more.
    let found = conflict(&volume, removed);
    assert!(matches!(found[0].kind, ConflictKind::Existence), "{found:?}");
    assert!([Some(undone), Some(renamed)].contains(&found[0].other.sequence), "{found:?}");
}

/// The list of changes as text.
fn diff(volume: &Volume, after: u64, up_to: u64) -> Vec<String> {
    let changes = volume.diff(after, up_to).unwrap();
    let text = |change: txfs::Change| {
        let kind = match change.kind {
            txfs::ChangeKind::Created => "created".to_owned(),
            txfs::ChangeKind::Modified => "modified".to_owned(),
            txfs::ChangeKind::Attributes => "attributes".to_owned(),
            txfs::ChangeKind::Deleted => "deleted".to_owned(),
            txfs::ChangeKind::Renamed { from, modified } => format!("renamed {} {modified}", from.display()),
        };
        let sizes = (change.old_size, change.new_size);
        let sizes = if change.node == NodeKind::File { format!(" {sizes:?}") } else { String::new() };
        format!("{} {kind}{sizes}", change.path.display())
    };
    changes.into_iter().map(text).collect()
}

#[test]
fn what_commits_have_changed_can_be_listed() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("old/dir").unwrap();
    base.write_file("old/file", b"12345").unwrap();
    base.write_file("old/gone", b"123").unwrap();
    base.write_file("mode", b"").unwrap();
    let first = commit(&volume, |tx| {
        tx.write_file("new", b"1").unwrap();
        tx.write_file("passing", b"1").unwrap();
        tx.write(tx.resolve("old/file").unwrap(), 5, b"678").unwrap();
        tx.set_mode("mode", 0o600).unwrap();
    });
    base.write_file("unrecorded", b"1").unwrap();
    let second = commit(&volume, |tx| {
        tx.remove("passing").unwrap();
        tx.remove("old/gone").unwrap();
        tx.remove("old/dir").unwrap();
        tx.rename_path("old/file", "old/moved").unwrap();
        tx.write(tx.resolve("new").unwrap(), 1, b"2").unwrap();
    });
    let third = commit(&volume, |tx| tx.rename_path("old", "elsewhere").unwrap());
    assert_eq!(
        diff(&volume, first - 1, first),
        [
            "elsewhere/moved modified (Some(5), Some(8))",
            "mode attributes (Some(0), Some(0))",
            "new created (None, Some(1))",
            "passing created (None, Some(1))"
        ]
    );
    assert_eq!(
        diff(&volume, first, second),
        [
            "elsewhere/dir deleted",
            "elsewhere/gone deleted (Some(3), None)",
            "elsewhere/moved renamed elsewhere/file false (Some(8), Some(8))",
            "new modified (Some(1), Some(2))",
            "passing deleted (Some(1), None)",
        ]
    );
    assert_eq!(diff(&volume, second, third), ["elsewhere renamed old false"]);
    assert_eq!(
        diff(&volume, first - 1, third),
        [
            "elsewhere renamed old false",
            "elsewhere/dir deleted",
            "elsewhere/gone deleted (Some(3), None)",
            "elsewhere/moved renamed elsewhere/file true (Some(5), Some(8))",
            "mode attributes (Some(0), Some(0))",
            "new created (None, Some(2))",
        ]
    );
    assert!(matches!(volume.diff(first, first + 1), Err(Error::NotUndoable { .. })));
}
