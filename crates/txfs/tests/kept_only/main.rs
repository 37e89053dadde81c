//! Committing a part of a kept transaction.

#[path = "../common/mod.rs"]
mod common;
mod conflicts;
mod random;

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
