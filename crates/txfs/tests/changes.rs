//! The list of changes of a transaction, as `txfs run --review` shows it.

mod common;

use std::path::PathBuf;

use common::*;
use txfs::{
    Change, ChangeKind, Durability, Paths, SetAttributes, SetTime, Timestamp, View, Volume, XattrMode,
};

fn prepared() -> Volume {
    let volume = new_volume();
    let base = volume.base();
    base.create_dir_all("a/b").unwrap();
    base.write_file("a/file", b"old content").unwrap();
    base.write_file("a/b/deep", b"deep").unwrap();
    base.write_file("top", b"top").unwrap();
    volume
}

fn described(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|change| {
            let sizes = format!("{:?} -> {:?}", change.old_size, change.new_size).replace("Some", "");
            format!("{} {:?} {sizes}", change.path.display(), change.kind)
        })
        .collect()
}

#[test]
fn every_kind_of_change_is_listed_once() {
    let volume = prepared();
    let tx = volume.begin();
    assert_eq!(tx.changes().unwrap(), []);
    tx.write_file("a/file", b"new").unwrap();
    tx.write_file("a/new", b"brand new").unwrap();
    tx.create_dir("dir").unwrap();
    tx.rename_path("a/b/deep", "dir/moved").unwrap();
    tx.remove("a/b").unwrap();
    tx.set_mode("top", 0o600).unwrap();
    tx.write_file("temporary", b"x").unwrap();
    tx.remove("temporary").unwrap();
    assert_eq!(
        described(&tx.changes().unwrap()),
        [
            "a/b Deleted (0) -> None",
            "a/file Modified (11) -> (3)",
            "a/new Created None -> (9)",
            "dir Created None -> (0)",
            "dir/moved Renamed { from: \"a/b/deep\", modified: false } (4) -> (4)",
            "top Attributes (3) -> (3)",
        ]
    );
    // What is there before can be read next to it.
    let before = tx.before().unwrap();
    assert_eq!(before.read_file("a/file").unwrap(), b"old content");
    assert_eq!(tx.read_file("a/file").unwrap(), b"new");
    // Looking at the changes is no read of the transaction: somebody else may list `a/b` differently.
    volume.base().write_file("unrelated", b"x").unwrap();
    tx.commit(Durability::Ordered).unwrap();
    assert_clean(&volume);
}

#[test]
fn a_renamed_directory_is_one_change() {
    let volume = prepared();
    let tx = volume.begin();
    tx.rename_path("a", "z").unwrap();
    let deep = tx.resolve("z/b/deep").unwrap();
    tx.append(deep, b"er").unwrap();
    assert_eq!(
        described(&tx.changes().unwrap()),
        ["z Renamed { from: \"a\", modified: false } (0) -> (0)", "z/b/deep Modified (4) -> (6)",]
    );
}

#[test]
fn attributes_and_links() {
    let volume = prepared();
    let tx = volume.begin();
    let file = tx.resolve("a/file").unwrap();
    tx.set_xattr(file, b"user.x", b"y", XattrMode::Set).unwrap();
    let top = tx.resolve("top").unwrap();
    let set = SetAttributes { mtime: Some(SetTime::At(Timestamp::new(1, 0))), ..SetAttributes::default() };
    tx.set_attributes(top, &set).unwrap();
    tx.hard_link("a/b/deep", "link").unwrap();
    assert_eq!(
        described(&tx.changes().unwrap()),
        ["a/file Attributes (11) -> (11)", "link Created (4) -> (4)", "top Attributes (3) -> (3)"]
    );
}

#[test]
fn a_file_is_found_by_any_of_its_names() {
    let volume = prepared();
    let base = volume.base();
    base.hard_link("a/file", "a/b/second").unwrap();
    // The directory that the node remembers is no longer one of its names'.
    base.remove("a/file").unwrap();
    let tx = volume.begin();
    let file = tx.resolve("a/b/second").unwrap();
    tx.write(file, 0, b"x").unwrap();
    let changes = tx.changes().unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (changes[0].path.clone(), &changes[0].kind),
        (PathBuf::from("a/b/second"), &ChangeKind::Modified)
    );
    assert_clean(&volume);
}
