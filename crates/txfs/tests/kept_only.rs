//! Committing a part of a kept transaction.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{EINVAL, ENOENT, assert_clean, errno, new_disk, new_volume, open};
use txfs::{
    AllocateMode, Attributes, Durability, Error, Ino, Isolation, KeptPart, KeptSide, NodeKind, Paths,
    ROOT_INO, RenameMode, SetAttributes, Timestamp, Transaction, TransactionOptions, View, Volume, XattrMode,
};
use txfs_disk::sim::SimulatedDisk;

const EBUSY: i32 = 16;
const ENOTSUP: i32 = 95;

/// Kind, mode, owner, group, names, size; time of the last change of the content; content or target; extended attributes; number.
type Node = ((NodeKind, u32, u32, u32, u32, u64), Timestamp, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>, Ino);

/// The whole tree by path.
fn dump(view: &impl View) -> BTreeMap<String, Node> {
    let mut nodes = BTreeMap::new();
    let mut pending = vec![(String::new(), ROOT_INO)];
    while let Some((path, ino)) = pending.pop() {
        let Attributes { kind, mode, uid, gid, nlink, size, mtime, .. } = view.attributes(ino).unwrap();
        let content = match kind {
            NodeKind::File => view.read(ino, 0, size as usize).unwrap(),
            NodeKind::Symlink => view.read_link(ino).unwrap(),
            _ => Vec::new(),
        };
        if kind == NodeKind::Directory {
            for entry in view.list_directory(ino).unwrap() {
                let below = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                pending.push((below.trim_start_matches('/').to_owned(), entry.ino));
            }
        }
        let names = view.list_xattrs(ino).unwrap();
        let xattrs = names
            .into_iter()
            .map(|name| {
                let value = view.get_xattr(ino, &name).unwrap();
                (name, value)
            })
            .collect();
        nodes.insert(path, ((kind, mode, uid, gid, nlink, size), mtime, content, xattrs, ino));
    }
    nodes
}

fn ours(volume: &Volume, name: &str) -> BTreeMap<String, Node> {
    dump(&volume.kept_view(name, KeptSide::Ours).unwrap())
}

fn base(volume: &Volume, name: &str) -> BTreeMap<String, Node> {
    dump(&volume.kept_view(name, KeptSide::Base).unwrap())
}

fn reopen(volume: Volume, disk: &SimulatedDisk) -> Volume {
    volume.close().unwrap();
    drop(volume);
    open(disk)
}

/// The paths that it changes.
fn changed(volume: &Volume, name: &str) -> Vec<String> {
    let view = volume.kept_view(name, KeptSide::Ours).unwrap();
    view.changes().unwrap().into_iter().map(|change| change.path.to_str().unwrap().to_owned()).collect()
}

/// Commits a part, when nobody else has changed anything: what the transaction makes of the volume stays the same, and what it
/// began with is the volume.
#[track_caller]
fn only(volume: &Volume, name: &str, paths: &[&str]) -> KeptPart {
    let before = ours(volume, name);
    let part = volume.commit_kept_only(name, paths).unwrap();
    assert_clean(volume);
    if part.remains {
        assert_eq!(ours(volume, name), before);
        assert_eq!(base(volume, name), dump(&volume.snapshot()));
        let kept = &volume.kept().unwrap()[0];
        assert!((kept.names > 0 || kept.nodes > 0) && kept.conflicts == 0);
    } else {
        assert_eq!(dump(&volume.snapshot()), before);
        assert!(volume.kept().unwrap().is_empty());
    }
    part
}

#[track_caller]
fn refused(volume: &Volume, name: &str, paths: &[&str], other: &str) {
    let (before, now) = (ours(volume, name), dump(&volume.snapshot()));
    match volume.commit_kept_only(name, paths) {
        Err(Error::NotSeparable { other: found, .. }) => assert_eq!(found, Path::new(other)),
        answer => panic!("{answer:?}"),
    }
    assert_eq!((ours(volume, name), dump(&volume.snapshot())), (before, now));
}

fn keep(volume: &Volume, work: impl FnOnce(&Transaction)) {
    let tx = volume.begin();
    work(&tx);
    tx.keep("x").unwrap();
}

#[test]
fn files_of_one_directory_are_committed_one_by_one() {
    let disk = new_disk();
    let mut volume = open(&disk);
    let base = volume.base();
    base.create_dir("d").unwrap();
    for name in ["d/a", "d/b", "d/c"] {
        base.write_file(name, &[1; 20_000]).unwrap();
    }
    keep(&volume, |tx| {
        tx.write_file("d/a", &vec![2; 2 << 20]).unwrap();
        let b = tx.resolve("d/b").unwrap();
        tx.write(b, 5000, &[3; 100]).unwrap();
        tx.allocate(b, AllocateMode::PunchHole, 8192, 4096).unwrap();
        tx.set_attributes(b, &SetAttributes { mode: Some(0o600), ..SetAttributes::default() }).unwrap();
        tx.set_xattr(b, b"user.b", b"value", XattrMode::Set).unwrap();
        tx.remove("d/c").unwrap();
        tx.write_file("d/new", b"new").unwrap();
        tx.create_dir("d/sub").unwrap();
        tx.write_file("d/sub/file", &vec![5; 300_000]).unwrap();
    });
    let end = ours(&volume, "x");
    for path in ["d/b", "/d/c", "./d/sub/", "d/a"] {
        assert!(only(&volume, "x", &[path]).remains);
        let path = path.trim_matches(['.', '/']);
        let now = dump(&volume.snapshot());
        assert_eq!(now.get(path), end.get(path), "{path}");
        assert!(!changed(&volume, "x").iter().any(|changed| changed.starts_with(path)));
        assert_eq!(errno(volume.commit_kept_only("x", &[path])), ENOENT);
        volume = reopen(volume, &disk);
        assert_clean(&volume);
        assert_eq!(ours(&volume, "x"), end);
    }
    assert_eq!(changed(&volume, "x"), ["d/new"]);
    let part = only(&volume, "x", &["d"]);
    assert_eq!((part.remains, part.along), (false, Vec::new()));
    assert_eq!(dump(&reopen(volume, &disk).snapshot()), end);
}

#[test]
fn new_directories_on_the_way_come_along() {
    let volume = new_volume();
    keep(&volume, |tx| {
        tx.create_dir("a").unwrap();
        tx.create_dir("a/b").unwrap();
        tx.create_dir("a/b/c").unwrap();
        tx.create_dir("a/other").unwrap();
        tx.write_file("a/b/c/file", b"1").unwrap();
        tx.write_file("a/b/beside", b"2").unwrap();
        tx.write_file("a/other/file", b"3").unwrap();
        let b = tx.resolve("a/b").unwrap();
        tx.set_xattr(b, b"user.b", b"value", XattrMode::Set).unwrap();
    });
    let part = only(&volume, "x", &["a/b/c/file"]);
    assert_eq!(part.along, ["a", "a/b", "a/b/c"].map(PathBuf::from));
    assert!(!volume.base().exists("a/b/beside").unwrap() && !volume.base().exists("a/other").unwrap());
    assert_eq!(changed(&volume, "x"), ["a/b/beside", "a/other", "a/other/file"]);
    // What others do in those directories is no conflict, and what the rest needs must stay.
    volume.base().write_file("a/b/theirs", b"theirs").unwrap();
    assert_eq!(volume.kept().unwrap()[0].conflicts, 0);
    assert!(volume.commit_kept_only("x", &["a/other"]).unwrap().remains);
    volume.base().write_file("a/b/beside", b"theirs").unwrap();
    assert!(volume.commit_kept("x").unwrap_err().is_conflict());
    volume.abort_kept("x").unwrap();
    assert_eq!(volume.base().read_file("a/b/beside").unwrap(), b"theirs");
    assert_clean(&volume);
}

#[test]
fn a_directory_that_came_along_and_is_gone_is_a_conflict_of_the_rest() {
    let volume = new_volume();
    keep(&volume, |tx| {
        tx.create_dir("a").unwrap();
        tx.write_file("a/1", b"1").unwrap();
        tx.write_file("a/2", b"2").unwrap();
    });
    only(&volume, "x", &["a/1"]);
    volume.base().remove_all("a").unwrap();
    assert!(volume.commit_kept("x").unwrap_err().is_conflict());
    assert!(volume.commit_kept_only("x", &["a/2"]).unwrap_err().is_conflict());
    assert!(!volume.base().exists("a").unwrap());
    assert_clean(&volume);
}

#[test]
fn renames_are_committed_as_a_whole() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("from/dir").unwrap();
    base.create_dir("to").unwrap();
    base.write_file("from/file", &[1; 9000]).unwrap();
    base.write_file("from/dir/inside", b"inside").unwrap();
    base.write_file("to/replaced", b"replaced").unwrap();
    base.write_file("one", b"one").unwrap();
    base.write_file("two", b"two").unwrap();
    keep(&volume, |tx| {
        tx.rename_path("from/file", "to/replaced").unwrap();
        let file = tx.resolve("to/replaced").unwrap();
        tx.write(file, 0, b"changed").unwrap();
        tx.rename_path("from/dir", "to/moved").unwrap();
        tx.write_file("to/moved/inside", b"changed inside").unwrap();
        tx.write_file("to/moved/new", b"new").unwrap();
        tx.remove("to/moved/inside").unwrap();
        tx.rename(ROOT_INO, b"one", ROOT_INO, b"two", RenameMode::Exchange).unwrap();
        tx.write_file("last", b"last").unwrap();
    });
    refused(&volume, "x", &["to/replaced"], "from/file");
    refused(&volume, "x", &["from/file"], "to/replaced");
    refused(&volume, "x", &["to/moved"], "from/dir");
    refused(&volume, "x", &["to/moved/new"], "to/moved");
    refused(&volume, "x", &["one"], "two");
    refused(&volume, "x", &["two"], "one");
    // What goes is known by the path that it had, and needs nothing.
    only(&volume, "x", &["from/dir/inside"]);
    assert!(!volume.base().exists("from/dir/inside").unwrap());
    only(&volume, "x", &["from/file", "to/replaced"]);
    only(&volume, "x", &["to", "from"]);
    only(&volume, "x", &["one", "two"]);
    assert!(!only(&volume, "x", &["last"]).remains);
}

#[test]
fn hard_links_are_committed_as_far_as_that_makes_sense() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir("a").unwrap();
    base.create_dir("b").unwrap();
    for name in ["a/plain", "a/changed", "a/twice", "a/shared"] {
        base.write_file(name, name.as_bytes()).unwrap();
    }
    base.hard_link("a/twice", "b/twice").unwrap();
    base.hard_link("a/shared", "b/shared").unwrap();
    keep(&volume, |tx| {
        tx.hard_link("a/plain", "a/again").unwrap();
        tx.hard_link("a/plain", "b/again").unwrap();
        tx.hard_link("a/changed", "b/changed").unwrap();
        tx.write_file("a/changed", b"other content").unwrap();
        tx.remove("a/twice").unwrap();
        tx.remove("b/twice").unwrap();
        tx.write_file("b/shared", b"shared content").unwrap();
        tx.write_file("a/new", b"new").unwrap();
        tx.hard_link("a/new", "b/new").unwrap();
    });
    refused(&volume, "x", &["b/changed"], "a/changed");
    refused(&volume, "x", &["a/changed"], "b/changed");
    refused(&volume, "x", &["a/shared"], "b/shared");
    refused(&volume, "x", &["a/new"], "b/new");
    only(&volume, "x", &["b/again"]);
    let ino = volume.base().resolve("b/again").unwrap();
    assert_eq!(volume.base().attributes(ino).unwrap().nlink, 2);
    only(&volume, "x", &["a/twice"]);
    assert!(volume.base().exists("b/twice").unwrap());
    only(&volume, "x", &["b/twice"]);
    only(&volume, "x", &["a/shared", "b/shared"]);
    assert_eq!(volume.base().read_file("a/shared").unwrap(), b"shared content");
    assert!(!only(&volume, "x", &["a", "b"]).remains);
}

#[test]
fn a_removed_directory_takes_what_was_in_it_along() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("d/sub").unwrap();
    base.create_dir("e").unwrap();
    for name in ["d/a", "d/sub/b", "d/out", "e/f"] {
        base.write_file(name, &[7; 5000]).unwrap();
    }
    keep(&volume, |tx| {
        tx.rename_path("d/out", "out").unwrap();
        tx.remove_all("d").unwrap();
        tx.write_file("d", b"a file now").unwrap();
        tx.remove("e/f").unwrap();
        tx.remove("e").unwrap();
    });
    refused(&volume, "x", &["d"], "out");
    only(&volume, "x", &["d/sub"]);
    only(&volume, "x", &["e/f"]);
    // Somebody else needs the directory that the rest removes.
    volume.base().write_file("e/theirs", b"theirs").unwrap();
    assert!(volume.commit_kept_only("x", &["e"]).unwrap_err().is_conflict());
    assert!(volume.commit_kept("x").unwrap_err().is_conflict());
    assert!(volume.commit_kept_only("x", &["d", "out"]).unwrap().remains);
    assert_eq!(volume.base().read_file("d").unwrap(), b"a file now");
    assert_eq!(changed(&volume, "x"), ["e"]);
    volume.abort_kept("x").unwrap();
    assert_clean(&volume);
}

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
fn nobody_moves_a_new_directory_below_what_the_rest_moves_into_it() {
    let volume = new_volume();
    volume.base().create_dir("moved").unwrap();
    keep(&volume, |tx| {
        tx.create_dir("new").unwrap();
        tx.write_file("new/file", b"1").unwrap();
        tx.rename_path("moved", "new/moved").unwrap();
    });
    only(&volume, "x", &["new/file"]);
    volume.base().rename_path("new", "moved/new").unwrap();
    assert!(volume.commit_kept("x").unwrap_err().is_conflict());
    assert_clean(&volume);
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
fn parts_are_refused_where_there_are_none() {
    let volume = new_volume();
    volume.base().write_file("a", b"1").unwrap();
    volume.base().create_dir("d").unwrap();
    let tx = volume.begin();
    tx.write_file("a", b"2").unwrap();
    tx.write_file("d/b", b"2").unwrap();
    tx.prepare("p").unwrap();
    let error = volume.commit_kept_only("p", &["a"]).unwrap_err();
    assert!(matches!(&error, Error::PreparedAsWhole { name } if name == "p"), "{error}");
    volume.commit_kept("p").unwrap();
    assert_eq!(errno(volume.commit_kept_only("p", &["a"])), ENOENT);
    keep(&volume, |tx| tx.write_file("a", b"3").unwrap());
    for path in ["d", "d/b", "nothing", "nothing/below", "a/below"] {
        let error = volume.commit_kept_only("x", &["a", path]).unwrap_err();
        assert!(
            matches!(&error, Error::NotInKept { path: found, .. } if found == Path::new(path)),
            "{error}"
        );
    }
    assert_eq!(errno(volume.commit_kept_only("x", &["../a"])), EINVAL);
    assert_eq!(errno(volume.commit_kept_only("x", &[] as &[&str])), EINVAL);
    assert_eq!(volume.base().read_file("a").unwrap(), b"2");
    assert!(!only(&volume, "x", &["/"]).remains);
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

#[test]
fn more_conflicts_than_are_noted_refuse_every_part() {
    let volume = new_volume();
    volume.base().write_file("a", b"1").unwrap();
    volume.base().write_file("many", &vec![1; 300 * 4096]).unwrap();
    keep(&volume, |tx| {
        tx.write_file("a", b"mine").unwrap();
        let many = tx.resolve("many").unwrap();
        every_other_page(tx, many, b"mine");
    });
    let theirs = volume.begin();
    let many = theirs.resolve("many").unwrap();
    every_other_page(&theirs, many, b"theirs");
    theirs.write_file("a", b"theirs").unwrap();
    theirs.commit(Durability::Durable).unwrap();
    let refused = volume.commit_kept_only("x", &["a"]).unwrap_err();
    assert!(refused.errno() == ENOTSUP || refused.is_conflict(), "{refused}");
    assert_eq!(volume.base().read_file("a").unwrap(), b"theirs");
    let volume = new_volume();
    volume.base().write_file("many", &vec![1; 300 * 4096]).unwrap();
    keep(&volume, |tx| {
        tx.write_file("a", b"mine").unwrap();
        let many = tx.resolve("many").unwrap();
        every_other_page(tx, many, b"mine");
    });
    let theirs = volume.begin();
    let many = theirs.resolve("many").unwrap();
    every_other_page(&theirs, many, b"theirs");
    theirs.commit(Durability::Durable).unwrap();
    assert_eq!(errno(volume.commit_kept_only("x", &["a"])), ENOTSUP);
}

#[test]
fn a_part_is_in_the_history_and_is_undone_as_any_commit() {
    let volume = new_volume();
    volume.base().write_file("a", b"1").unwrap();
    volume.base().write_file("b", b"1").unwrap();
    let options = TransactionOptions { recorded: true, label: "both".into(), ..Default::default() };
    let tx = volume.begin_with(options);
    tx.write_file("a", b"mine").unwrap();
    tx.write_file("b", b"mine").unwrap();
    tx.keep("x").unwrap();
    let part = only(&volume, "x", &["a"]);
    let entry = &volume.history(None, 1).unwrap()[0];
    assert_eq!((entry.sequence, entry.message.as_str()), (part.sequence, "both"));
    volume.undo(part.sequence, Durability::Durable).unwrap();
    assert_eq!(volume.base().read_file("a").unwrap(), b"1");
    assert_clean(&volume);
}

#[test]
fn a_power_cut_leaves_all_of_it_or_the_part_committed_and_the_rest_kept() {
    let prepare = |disk: &SimulatedDisk| {
        let volume = open(disk);
        let base = volume.base();
        base.create_dir("d").unwrap();
        base.write_file("d/a", &[1; 100_000]).unwrap();
        base.write_file("d/b", &[1; 100_000]).unwrap();
        keep(&volume, |tx| {
            let a = tx.resolve("d/a").unwrap();
            tx.write(a, 50_000, &[2; 30_000]).unwrap();
            tx.create_dir("d/new").unwrap();
            tx.write_file("d/new/one", &vec![3; 600_000]).unwrap();
            tx.write_file("d/new/two", &[4; 70_000]).unwrap();
            tx.remove("d/b").unwrap();
        });
        // Something is saved of the base.
        volume.base().write_file("d/theirs", b"theirs").unwrap();
        volume.sync().unwrap();
        volume
    };
    let disk = new_disk();
    let volume = prepare(&disk);
    let steps = disk.steps();
    let (before, end) = (dump(&volume.snapshot()), ours(&volume, "x"));
    volume.commit_kept_only("x", &["d/a", "d/new/one"]).unwrap();
    let (after, base_after) = (dump(&volume.snapshot()), base(&volume, "x"));
    let last = disk.steps();
    assert!(last > steps && after != before);
    let mut seen = [0; 2];
    for step in steps..=last {
        let disk = new_disk();
        let volume = prepare(&disk);
        disk.power_off_after(step);
        let acknowledged = volume.commit_kept_only("x", &["d/a", "d/new/one"]).is_ok() && step >= last;
        drop(volume);
        for seed in 0..4 {
            let image = match seed {
                0 => disk.crash_where(|_| true),
                1 => disk.crash_where(|_| false),
                _ => disk.crash(step * 10 + seed),
            };
            let volume = open(&image);
            assert_clean(&volume);
            let strip = |tree: BTreeMap<String, Node>| -> Vec<(String, Vec<u8>, u32)> {
                tree.into_iter().map(|(path, node)| (path, node.2, node.0.4)).collect()
            };
            let now = strip(dump(&volume.snapshot()));
            let committed = now == strip(after.clone());
            assert!(committed || (now == strip(before.clone()) && !acknowledged), "step {step}");
            seen[usize::from(committed)] += 1;
            assert_eq!(strip(ours(&volume, "x")), strip(end.clone()));
            if committed {
                assert_eq!(strip(base(&volume, "x")), strip(base_after.clone()));
            }
            volume.commit_kept("x").unwrap();
            assert_clean(&volume);
            let all = strip(dump(&volume.snapshot()));
            assert_eq!(all, strip(end.clone()));
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn what_is_cleaned_in_between_is_found() {
    let volume = new_volume();
    keep(&volume, |tx| {
        tx.write_file("a", &vec![1; 3 << 20]).unwrap();
        tx.write_file("b", &vec![2; 3 << 20]).unwrap();
    });
    let end = ours(&volume, "x");
    let clean = || {
        volume.base().write_file("garbage", &vec![3; 6 << 20]).unwrap();
        volume.base().remove("garbage").unwrap();
        volume.checkpoint().unwrap();
        let cleaned = volume.clean(&txfs::CleanOptions::default(), &mut |_, _| {}).unwrap();
        assert!(cleaned.bytes_moved > 0);
    };
    clean();
    assert!(volume.commit_kept_only("x", &["b"]).unwrap().remains);
    clean();
    assert!(!volume.commit_kept_only("x", &["a"]).unwrap().remains);
    let now = dump(&volume.snapshot());
    assert!(now["a"] == end["a"] && now["b"] == end["b"] && now.len() == end.len());
    assert_clean(&volume);
}

/// A generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn path(&mut self) -> String {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let parts = 1 + self.below(3);
        (0..parts).map(|_| NAMES[self.below(4)]).collect::<Vec<_>>().join("/")
    }

    /// One change, which may fail.
    fn change(&mut self, view: &impl Paths) {
        let (path, other) = (self.path(), self.path());
        let fill = self.below(250) as u8;
        let ino = view.resolve(&path);
        let _ = match self.below(12) {
            0..=2 => view.create_dir(&path).map(drop),
            3 | 4 => view.write_file(&path, &vec![fill; self.below(30_000)]),
            5 => view.remove(&path),
            6 => view.remove_all(&path),
            7 | 8 => view.rename_path(&path, &other),
            9 => view.hard_link(&path, &other),
            10 => ino.and_then(|ino| view.write(ino, self.below(40_000) as u64, &[fill; 5000])).map(drop),
            _ => ino.and_then(|ino| {
                view.set_xattr(ino, b"user.x", &[fill], XattrMode::Set)?;
                view.set_attributes(ino, &SetAttributes { mode: Some(0o700), ..Default::default() })?;
                if self.below(3) == 0 {
                    view.set_attributes(ino, &SetAttributes { size: Some(777), ..Default::default() })?;
                }
                Ok(())
            }),
        };
    }
}

#[test]
fn whatever_part_is_committed_the_whole_stays_what_it_was() {
    let rounds: u64 = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let first: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut parts, mut inseparable) = (0, 0);
    for seed in first..first + rounds {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let disk = new_disk();
        let mut volume = open(&disk);
        for _ in 0..25 {
            random.change(&volume.base());
        }
        let tx = volume.begin();
        for _ in 0..4 + random.below(20) {
            random.change(&tx);
        }
        if tx.changes().unwrap().is_empty() {
            continue;
        }
        tx.keep("x").unwrap();
        let end = ours(&volume, "x");
        for _ in 0..12 {
            let mut paths = changed(&volume, "x");
            let theirs = volume.kept_view("x", KeptSide::Ours).unwrap();
            for change in theirs.changes().unwrap() {
                if let txfs::ChangeKind::Renamed { from, .. } = change.kind {
                    paths.push(from.to_str().unwrap().to_owned());
                }
            }
            drop(theirs);
            if paths.is_empty() {
                break;
            }
            let mut chosen = Vec::new();
            for _ in 0..1 + random.below(3) {
                chosen.push(paths[random.below(paths.len())].clone());
            }
            let before = dump(&volume.snapshot());
            match volume.commit_kept_only("x", &chosen) {
                Ok(part) => {
                    parts += 1;
                    assert_clean(&volume);
                    assert_ne!(dump(&volume.snapshot()), before, "seed {seed}");
                    if !part.remains {
                        assert_eq!(dump(&volume.snapshot()), end, "seed {seed}");
                        break;
                    }
                    if random.below(4) == 0 {
                        volume = reopen(volume, &disk);
                    }
                    assert_eq!(ours(&volume, "x"), end, "seed {seed}: {chosen:?}");
                    assert_eq!(base(&volume, "x"), dump(&volume.snapshot()), "seed {seed}: {chosen:?}");
                }
                Err(Error::NotSeparable { other, .. }) => {
                    inseparable += 1;
                    // What it asks for leads to the end.
                    chosen.push(other.to_str().unwrap().to_owned());
                    for _ in 0..40 {
                        match volume.commit_kept_only("x", &chosen) {
                            Ok(_) => break,
                            Err(Error::NotSeparable { other, .. }) => {
                                let other = other.to_str().unwrap().to_owned();
                                assert!(!chosen.contains(&other), "seed {seed}: {other} in {chosen:?}");
                                chosen.push(other);
                            }
                            Err(error) => panic!("seed {seed}: {chosen:?}: {error}"),
                        }
                    }
                    assert_clean(&volume);
                    if volume.kept().unwrap().is_empty() {
                        assert_eq!(dump(&volume.snapshot()), end, "seed {seed}");
                        break;
                    }
                    assert_eq!(ours(&volume, "x"), end, "seed {seed}: {chosen:?}");
                    assert_eq!(base(&volume, "x"), dump(&volume.snapshot()), "seed {seed}: {chosen:?}");
                }
                Err(error) => panic!("seed {seed}: {chosen:?}: {error}"),
            }
        }
        if !volume.kept().unwrap().is_empty() {
            volume.commit_kept("x").unwrap();
        }
        assert_eq!(dump(&volume.snapshot()), end, "seed {seed}");
        assert_clean(&volume);
        assert_eq!(dump(&reopen(volume, &disk).snapshot()), end, "seed {seed}");
    }
    println!("{parts} parts, {inseparable} inseparable");
    assert!(parts > rounds / 2 && inseparable > 0);
}
