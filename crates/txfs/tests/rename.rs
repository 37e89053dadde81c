//! The rename matrix: what is renamed, onto what, where, in which mode.

mod common;

use common::*;
use txfs::{Durability, Paths, ROOT_INO, RenameMode, View};

/// Puts a node of the kind under the name: `f`ile, empty `d`irectory, `D`irectory with a file in it, or nothing.
fn put(view: &dyn View, directory: u64, name: &[u8], kind: char) {
    match kind {
        'f' => drop(view.make_file(directory, name, 0o600, 0, 0).unwrap()),
        'd' => drop(view.make_directory(directory, name, 0o755, 0, 0).unwrap()),
        'D' => {
            let made = view.make_directory(directory, name, 0o755, 0, 0).unwrap().ino;
            view.make_file(made, b"inside", 0o600, 0, 0).unwrap();
        }
        _ => {}
    }
}

fn expected(source: char, target: char, mode: RenameMode) -> Result<(), i32> {
    match (mode, source, target) {
        (_, '-', _) => Err(ENOENT),
        (RenameMode::NoReplace, _, '-') | (RenameMode::Replace, _, '-') => Ok(()),
        (RenameMode::NoReplace, ..) => Err(EEXIST),
        (RenameMode::Exchange, _, '-') => Err(ENOENT),
        (RenameMode::Exchange, ..) => Ok(()),
        (_, 'f', 'f') => Ok(()),
        (_, 'f', _) => Err(EISDIR),
        (_, _, 'f') => Err(ENOTDIR),
        (_, _, 'D') => Err(ENOTEMPTY),
        _ => Ok(()),
    }
}

#[test]
fn every_kind_onto_every_kind_in_every_mode() {
    for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
        for (source, target) in "fdD-".chars().flat_map(|a| "fdD-".chars().map(move |b| (a, b))) {
            for (across, split) in [(false, false), (true, false), (false, true), (true, true)] {
                let volume = new_volume();
                let mut tx = volume.begin();
                let from = ROOT_INO;
                let to =
                    if across { tx.make_directory(ROOT_INO, b"to", 0o755, 0, 0).unwrap().ino } else { from };
                put(&tx, from, b"source", source);
                put(&tx, to, b"target", target);
                if split {
                    // What is renamed is in the snapshot, not in the overlay.
                    tx.commit(Durability::Ordered).unwrap();
                    tx = volume.begin();
                }
                let old_source = tx.lookup(from, b"source").map(|found| found.ino);
                let old_target = tx.lookup(to, b"target").map(|found| found.ino);
                let case = format!("{source} onto {target}, {mode:?}, across {across}, split {split}");
                let result = tx.rename(from, b"source", to, b"target", mode).map_err(|error| error.errno());
                assert_eq!(result, expected(source, target, mode), "{case}");
                let new_source = tx.lookup(from, b"source").map(|found| found.ino);
                let new_target = tx.lookup(to, b"target").map(|found| found.ino);
                match (result, mode) {
                    (Ok(()), RenameMode::Exchange) => {
                        assert_eq!(new_source.ok(), old_target.ok(), "{case}");
                        assert_eq!(new_target.ok(), old_source.ok(), "{case}");
                    }
                    (Ok(()), _) => {
                        assert_eq!(new_target.ok(), old_source.ok(), "{case}");
                        assert!(new_source.is_err(), "{case}");
                    }
                    (Err(_), _) => {
                        assert_eq!(new_target.ok(), old_target.ok(), "{case}");
                        assert_eq!(new_source.ok(), old_source.ok(), "{case}");
                    }
                }
                tx.commit(Durability::Ordered).unwrap();
                assert_clean(&volume);
            }
        }
    }
}

#[test]
fn no_directory_moves_into_itself() {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("a/b/c").unwrap();
    base.create_dir_all("x").unwrap();
    let tx = volume.begin();
    assert_eq!(errno(tx.rename_path("a", "a/b/c/d")), EINVAL);
    assert_eq!(errno(tx.rename_path("a", "a/d")), EINVAL);
    assert_eq!(errno(tx.rename_path("a/b", "a")), ENOTEMPTY);
    assert_eq!(errno(tx.rename_path_with("a", "a/b/c", RenameMode::Exchange)), EINVAL);
    assert_eq!(errno(tx.rename_path_with("a/b/c", "a", RenameMode::Exchange)), EINVAL);
    tx.rename_path("a/b", "x/b").unwrap();
    tx.rename_path("a", "x/b/c/a").unwrap();
    assert_eq!(errno(tx.rename_path("x", "x/b/c/a/x")), EINVAL);
    let x = tx.resolve("x").unwrap();
    assert_eq!(tx.lookup(tx.resolve("x/b").unwrap(), b"..").unwrap().ino, x);
    tx.commit(Durability::Ordered).unwrap();
    assert_eq!(base.attributes(x).unwrap().nlink, 3);
    assert_clean(&volume);
}

#[test]
fn names_of_the_same_node_stay_as_they_are() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("one", b"x").unwrap();
    base.hard_link("one", "two").unwrap();
    base.rename_path("one", "two").unwrap();
    assert!(base.exists("one").unwrap() && base.exists("two").unwrap());
    assert_eq!(errno(base.rename_path_with("one", "two", RenameMode::NoReplace)), EEXIST);
    base.rename_path_with("one", "two", RenameMode::Exchange).unwrap();
    base.rename_path("one", "one").unwrap();
    assert_eq!(base.stat("one").unwrap().nlink, 2);
    assert_clean(&volume);
}

#[test]
fn replacing_removes_one_name_of_the_target() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("new", b"new").unwrap();
    base.write_file("old", b"old").unwrap();
    base.hard_link("old", "other").unwrap();
    base.rename_path("new", "old").unwrap();
    assert_eq!(base.read_file("old").unwrap(), b"new");
    assert_eq!(base.read_file("other").unwrap(), b"old");
    assert_eq!(base.stat("other").unwrap().nlink, 1);
    assert_clean(&volume);
}

#[test]
fn a_renamed_directory_notices() {
    let volume = new_volume();
    let base = volume.base();
    let mut before = base.make_directory(ROOT_INO, b"a", 0o755, 0, 0).unwrap();
    for (from, to) in [(b"a", b"b"), (b"b", b"a")] {
        base.rename(ROOT_INO, from, ROOT_INO, to, RenameMode::Replace).unwrap();
        let after = base.attributes(before.ino).unwrap();
        assert!(after.ctime > before.ctime && after.mtime == before.mtime);
        before = after;
    }
    // Names that came and went in it change nothing of that.
    let tx = volume.begin();
    tx.make_file(before.ino, b"short-lived", 0o644, 0, 0).unwrap();
    tx.unlink(before.ino, b"short-lived").unwrap();
    tx.rename(ROOT_INO, b"a", ROOT_INO, b"c", RenameMode::Replace).unwrap();
    tx.commit(Durability::Ordered).unwrap();
    assert!(base.attributes(before.ino).unwrap().ctime > before.ctime);
    assert_clean(&volume);
}
