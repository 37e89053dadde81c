//! POSIX semantics, through a transaction and through the base view alike.

mod common;

use common::*;
use txfs::{
    Durability, FileOptions, NewNode, NodeKind, Paths, ROOT_INO, SetAttributes, SetTime, Timestamp, View,
    Volume, XattrMode,
};

/// Runs a test on the base view, and on a transaction that is committed afterwards.
fn both(test: impl Fn(&dyn View)) {
    let volume = new_volume();
    test(&volume.base());
    assert_clean(&volume);
    let volume = new_volume();
    let tx = volume.begin();
    test(&tx);
    tx.commit(Durability::Durable).unwrap();
    assert_clean(&volume);
}

#[test]
fn names_come_and_go_with_the_right_errors() {
    both(|view| {
        let file = view.make_file(ROOT_INO, b"file", 0o640, 1, 2).unwrap();
        assert_eq!((file.kind, file.mode, file.uid, file.gid, file.nlink), (NodeKind::File, 0o640, 1, 2, 1));
        let dir = view.make_directory(ROOT_INO, b"dir", 0o755, 0, 0).unwrap();
        assert_eq!(dir.nlink, 2);
        assert_eq!(view.attributes(ROOT_INO).unwrap().nlink, 3);

        assert_eq!(errno(view.make_file(ROOT_INO, b"file", 0o600, 0, 0)), EEXIST);
        assert_eq!(errno(view.make_file(ROOT_INO, b"dir", 0o600, 0, 0)), EEXIST);
        assert_eq!(errno(view.make_file(ROOT_INO, b".", 0o600, 0, 0)), EEXIST);
        assert_eq!(errno(view.make_file(file.ino, b"x", 0o600, 0, 0)), ENOTDIR);
        assert_eq!(errno(view.make_file(ROOT_INO, &[b'n'; 256], 0o600, 0, 0)), ENAMETOOLONG);
        assert_eq!(errno(view.make_file(ROOT_INO, b"a/b", 0o600, 0, 0)), EINVAL);
        assert_eq!(errno(view.make_file(ROOT_INO, b"a\0b", 0o600, 0, 0)), EINVAL);
        view.make_file(ROOT_INO, &[b'n'; 255], 0o600, 0, 0).unwrap();
        assert_eq!(errno(view.lookup(ROOT_INO, b"nothing")), ENOENT);
        assert_eq!(errno(view.lookup(file.ino, b"x")), ENOTDIR);
        assert_eq!(errno(view.lookup(ROOT_INO, &[b'n'; 256])), ENAMETOOLONG);
        assert_eq!(errno(view.lookup(4711, b"x")), 116);
        assert_eq!(view.lookup(dir.ino, b"..").unwrap().ino, ROOT_INO);
        assert_eq!(view.lookup(dir.ino, b".").unwrap().ino, dir.ino);
        assert_eq!(view.lookup(ROOT_INO, b"..").unwrap().ino, ROOT_INO);

        assert_eq!(errno(view.unlink(ROOT_INO, b"dir")), EISDIR);
        assert_eq!(errno(view.unlink(ROOT_INO, b"nothing")), ENOENT);
        assert_eq!(errno(view.remove_directory(ROOT_INO, b"file")), ENOTDIR);
        assert_eq!(errno(view.remove_directory(ROOT_INO, b"nothing")), ENOENT);
        assert_eq!(errno(view.remove_directory(ROOT_INO, b".")), EINVAL);
        assert_eq!(errno(view.remove_directory(ROOT_INO, b"..")), ENOTEMPTY);
        view.make_file(dir.ino, b"inside", 0o600, 0, 0).unwrap();
        assert_eq!(errno(view.remove_directory(ROOT_INO, b"dir")), ENOTEMPTY);
        view.unlink(dir.ino, b"inside").unwrap();
        view.remove_directory(ROOT_INO, b"dir").unwrap();
        assert_eq!(view.attributes(ROOT_INO).unwrap().nlink, 2);
        view.unlink(ROOT_INO, b"file").unwrap();
        assert_eq!(errno(view.lookup(ROOT_INO, b"file")), ENOENT);
    });
}

#[test]
fn a_removed_directory_takes_no_names() {
    let volume = new_volume();
    let tx = volume.begin();
    let dir = tx.make_directory(ROOT_INO, b"dir", 0o755, 0, 0).unwrap().ino;
    tx.remove_directory(ROOT_INO, b"dir").unwrap();
    assert_eq!(errno(tx.make_file(dir, b"x", 0o600, 0, 0)), ENOENT);
    let base = volume.base();
    let dir = base.make_directory(ROOT_INO, b"dir", 0o755, 0, 0).unwrap().ino;
    volume.retain(dir).unwrap();
    base.remove_directory(ROOT_INO, b"dir").unwrap();
    assert_eq!(base.attributes(dir).unwrap().nlink, 0);
    assert_eq!(errno(base.make_file(dir, b"x", 0o600, 0, 0)), ENOENT);
    assert_clean(&volume);
    volume.release(dir, 1);
    assert_eq!(errno(base.attributes(dir)), 116);
    assert_clean(&volume);
}

#[test]
fn hard_links_share_one_node() {
    both(|view| {
        let file = view.make_file(ROOT_INO, b"one", 0o600, 0, 0).unwrap().ino;
        let dir = view.make_directory(ROOT_INO, b"dir", 0o755, 0, 0).unwrap().ino;
        assert_eq!(view.link(file, dir, b"two").unwrap().nlink, 2);
        assert_eq!(errno(view.link(file, dir, b"two")), EEXIST);
        assert_eq!(errno(view.link(dir, ROOT_INO, b"dir2")), EPERM);
        assert_eq!(errno(view.link(file, file, b"x")), ENOTDIR);
        view.write(file, 0, b"shared").unwrap();
        assert_eq!(view.read(view.lookup(dir, b"two").unwrap().ino, 0, 100).unwrap(), b"shared");
        view.unlink(ROOT_INO, b"one").unwrap();
        assert_eq!(view.attributes(file).unwrap().nlink, 1);
        assert_eq!(view.read(file, 0, 100).unwrap(), b"shared");
    });
}

#[test]
fn symlinks_and_special_nodes() {
    both(|view| {
        let link = view.make_symlink(ROOT_INO, b"link", b"some/where", 0, 0).unwrap();
        assert_eq!((link.kind, link.size, link.mode), (NodeKind::Symlink, 10, 0o777));
        assert_eq!(view.read_link(link.ino).unwrap(), b"some/where");
        assert_eq!(errno(view.read_link(ROOT_INO)), EINVAL);
        assert_eq!(errno(view.make_symlink(ROOT_INO, b"empty", b"", 0, 0)), ENOENT);
        assert_eq!(errno(view.make_symlink(ROOT_INO, b"long", &[b'x'; 4096], 0, 0)), ENAMETOOLONG);
        view.make_symlink(ROOT_INO, b"long", &[b'x'; 4095], 0, 0).unwrap();
        assert_eq!(errno(view.read(link.ino, 0, 10)), EINVAL);
        let fifo = NewNode { kind: NodeKind::Fifo, mode: 0o600, uid: 0, gid: 0, rdev: 7, target: None };
        assert_eq!(view.make_node(ROOT_INO, b"fifo", &fifo).unwrap().rdev, 0);
        let device = NewNode { kind: NodeKind::CharacterDevice, ..fifo };
        assert_eq!(view.make_node(ROOT_INO, b"null", &device).unwrap().rdev, 7);
        view.unlink(ROOT_INO, b"fifo").unwrap();
    });
}

#[test]
fn attributes_change_one_by_one() {
    both(|view| {
        let file = view.make_file(ROOT_INO, b"file", 0o600, 1, 1).unwrap();
        let set = SetAttributes { mode: Some(0o104_755), ..SetAttributes::default() };
        let after = view.set_attributes(file.ino, &set).unwrap();
        assert_eq!((after.mode, after.uid, after.mtime), (0o4755, 1, file.mtime));
        assert!(after.ctime > file.ctime);
        let moment = Timestamp::new(-5, 999_999_999);
        let set = SetAttributes {
            uid: Some(77),
            atime: Some(SetTime::At(moment)),
            mtime: Some(SetTime::Now),
            ..SetAttributes::default()
        };
        let after = view.set_attributes(file.ino, &set).unwrap();
        assert_eq!((after.uid, after.gid, after.atime), (77, 1, moment));
        assert!(after.mtime > file.mtime);
        let bad = SetAttributes {
            mtime: Some(SetTime::At(Timestamp::new(0, 1_000_000_000))),
            ..SetAttributes::default()
        };
        assert_eq!(errno(view.set_attributes(file.ino, &bad)), EINVAL);
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        assert_eq!(errno(view.set_attributes(ROOT_INO, &cut)), EISDIR);
        assert_eq!(file.btime, view.attributes(file.ino).unwrap().btime);
    });
}

#[test]
fn changes_move_the_right_times() {
    both(|view| {
        let root = || view.attributes(ROOT_INO).unwrap();
        let before = root();
        let file = view.make_file(ROOT_INO, b"file", 0o600, 0, 0).unwrap();
        assert!(root().mtime > before.mtime && root().ctime > before.ctime);
        let before = root();
        view.write(file.ino, 0, b"x").unwrap();
        let written = view.attributes(file.ino).unwrap();
        assert!(written.mtime > file.mtime && written.ctime == written.mtime);
        assert_eq!(root().mtime, before.mtime);
        view.write(file.ino, 0, b"").unwrap();
        assert_eq!(view.attributes(file.ino).unwrap(), written);
        view.link(file.ino, ROOT_INO, b"again").unwrap();
        let linked = view.attributes(file.ino).unwrap();
        assert!(linked.ctime > written.ctime && linked.mtime == written.mtime);
        view.unlink(ROOT_INO, b"again").unwrap();
        assert!(view.attributes(file.ino).unwrap().ctime > linked.ctime);
        // A write after the time was set into the future moves it back to the present.
        let future = SetAttributes {
            mtime: Some(SetTime::At(Timestamp::new(i64::MAX / 2, 0))),
            ..SetAttributes::default()
        };
        view.set_attributes(file.ino, &future).unwrap();
        view.write(file.ino, 0, b"y").unwrap();
        assert!(view.attributes(file.ino).unwrap().mtime < Timestamp::new(i64::MAX / 2, 0));
    });
}

#[test]
fn set_gid_directories_hand_on_their_group() {
    both(|view| {
        let dir = view.make_directory(ROOT_INO, b"dir", 0o2775, 5, 50).unwrap().ino;
        let file = view.make_file(dir, b"file", 0o600, 6, 60).unwrap();
        assert_eq!((file.uid, file.gid, file.mode), (6, 50, 0o600));
        let sub = view.make_directory(dir, b"sub", 0o755, 6, 60).unwrap();
        assert_eq!((sub.gid, sub.mode), (50, 0o2755));
    });
}

#[test]
fn extended_attributes() {
    both(|view| {
        let file = view.make_file(ROOT_INO, b"file", 0o600, 0, 0).unwrap().ino;
        assert_eq!(errno(view.get_xattr(file, b"user.a")), ENODATA);
        assert_eq!(errno(view.set_xattr(file, b"user.a", b"1", XattrMode::Replace)), ENODATA);
        view.set_xattr(file, b"user.a", b"1", XattrMode::Create).unwrap();
        assert_eq!(errno(view.set_xattr(file, b"user.a", b"2", XattrMode::Create)), EEXIST);
        view.set_xattr(file, b"user.a", b"2", XattrMode::Replace).unwrap();
        view.set_xattr(file, b"security.b", &[7; 65_536], XattrMode::Set).unwrap();
        assert_eq!(view.get_xattr(file, b"user.a").unwrap(), b"2");
        assert_eq!(view.get_xattr(file, b"security.b").unwrap().len(), 65_536);
        assert_eq!(view.list_xattrs(file).unwrap(), [b"security.b".to_vec(), b"user.a".to_vec()]);
        view.remove_xattr(file, b"user.a").unwrap();
        assert_eq!(errno(view.remove_xattr(file, b"user.a")), ENODATA);
        assert_eq!(view.list_xattrs(file).unwrap(), [b"security.b".to_vec()]);
        assert_eq!(errno(view.set_xattr(file, b"system.posix_acl_access", b"", XattrMode::Set)), ENOTSUP);
        assert_eq!(errno(view.set_xattr(file, b"user.", b"", XattrMode::Set)), ENOTSUP);
        assert_eq!(errno(view.set_xattr(file, b"user.big", &[0; 65_537], XattrMode::Set)), E2BIG);
        let long = [b"user.".as_slice(), &[b'x'; 251]].concat();
        assert_eq!(errno(view.set_xattr(file, &long, b"", XattrMode::Set)), ERANGE);
        let fifo = NewNode { kind: NodeKind::Fifo, mode: 0, uid: 0, gid: 0, rdev: 0, target: None };
        let fifo = view.make_node(ROOT_INO, b"fifo", &fifo).unwrap().ino;
        assert_eq!(errno(view.set_xattr(fifo, b"user.a", b"", XattrMode::Set)), EPERM);
        view.unlink(ROOT_INO, b"file").unwrap();
    });
}

#[test]
fn a_long_directory_is_listed_once_each() {
    both(|view| {
        let dir = view.make_directory(ROOT_INO, b"dir", 0o755, 0, 0).unwrap().ino;
        for number in 0..1000 {
            view.make_file(dir, format!("{number}").as_bytes(), 0o600, 0, 0).unwrap();
        }
        let mut names: Vec<Vec<u8>> = view.list_directory(dir).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names.len(), 1000);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 1000);
        let cookies: Vec<u64> = view.list_directory(dir).unwrap().iter().map(|e| e.cookie).collect();
        assert!(cookies.is_sorted() && cookies[0] >= 16 && cookies[999] <= i64::MAX as u64);
    });
}

#[test]
fn paths_follow_symlinks_within_the_volume() {
    both(|view| {
        view.create_dir_all("/a/b").unwrap();
        view.write_file("a/b/file", b"content").unwrap();
        view.symlink("b/file", "a/relative").unwrap();
        view.symlink("/a/b", "absolute").unwrap();
        view.symlink("../../a/b/../b", "a/b/up").unwrap();
        for path in ["a/relative", "/absolute/file", "absolute/up/file", "a/./b//file", "a/../a/b/file"] {
            assert_eq!(view.read_file(path).unwrap(), b"content", "{path}");
        }
        view.symlink("loop", "loop").unwrap();
        assert_eq!(errno(view.read_file("loop")), ELOOP);
        assert_eq!(view.symlink_stat("loop").unwrap().kind, NodeKind::Symlink);
        assert_eq!(errno(view.read_file("a/b/file/x")), ENOTDIR);
        assert_eq!(errno(view.read_file("a")), EISDIR);
        assert!(!view.exists("a/b/nothing").unwrap() && view.exists("").unwrap());
        let error = view.read_file("a/b/nothing").unwrap_err().to_string();
        assert_eq!(error, "cannot read a/b/nothing: no such file or directory");
        // A dangling symlink is created through.
        view.symlink("b/new", "a/dangling").unwrap();
        view.write_file("a/dangling", b"x").unwrap();
        assert_eq!(view.read_file("a/b/new").unwrap(), b"x");
        assert_eq!(errno(view.write_file("loop", b"x")), ELOOP);
        let mut walked = Vec::new();
        view.walk("a", &mut |entry| {
            walked.push(entry.path.display().to_string());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(walked, ["a", "a/b", "a/b/file", "a/b/new", "a/b/up", "a/dangling", "a/relative"]);
        view.remove_all("a").unwrap();
        assert!(!view.exists("a").unwrap());
    });
}

#[test]
fn open_files_read_write_and_seek() {
    use std::io::{Read, Seek, SeekFrom, Write};
    both(|view| {
        let options = FileOptions::new().write(true).create(true).mode(0o600);
        let mut file = view.open("file", &options).unwrap();
        file.write_all(b"hello world").unwrap();
        file.seek(SeekFrom::Start(6)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "world");
        assert_eq!(file.seek(SeekFrom::End(-11)).unwrap(), 0);
        assert!(file.seek(SeekFrom::Current(-1)).is_err());
        file.set_len(5).unwrap();
        let mut log = view.open("file", &FileOptions::new().append(true)).unwrap();
        log.write_all(b"!").unwrap();
        log.write_all(b"?").unwrap();
        assert_eq!(view.read_file("file").unwrap(), b"hello!?");
        let reader = view.open("file", &FileOptions::new()).unwrap();
        assert_eq!(errno(reader.write_at(0, b"x")), 9);
        assert_eq!(errno(view.open("file", &FileOptions::new().create_new(true))), EEXIST);
        assert_eq!(errno(view.open("nothing", &FileOptions::new())), ENOENT);
        assert_eq!(errno(view.open("", &FileOptions::new())), EISDIR);
        file.sync().unwrap();
        assert_eq!(file.attributes().unwrap().mode, 0o600);
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("file", b"still here").unwrap();
    let file = base.open("file", &FileOptions::new().write(true)).unwrap();
    base.remove("file").unwrap();
    assert_eq!(file.attributes().unwrap().nlink, 0);
    file.write_at(10, b"!").unwrap();
    let mut content = [0; 11];
    file.read_at(0, &mut content).unwrap();
    assert_eq!(&content, b"still here!");
    assert_eq!(volume.check().unwrap().orphans, 1);
    assert_clean(&volume);
    drop(file);
    assert_eq!(volume.check().unwrap().orphans, 0);
    assert_eq!(volume.stat().unwrap().engine.live_bytes, 0);
    assert_clean(&volume);
}

#[test]
fn a_snapshot_is_read_only_and_does_not_move() {
    let volume: Volume = new_volume();
    let base = volume.base();
    base.write_file("file", b"old").unwrap();
    let snapshot = volume.snapshot();
    base.write_file("file", b"new").unwrap();
    base.write_file("other", b"").unwrap();
    assert_eq!(snapshot.read_file("file").unwrap(), b"old");
    assert!(!snapshot.exists("other").unwrap());
    assert_eq!(errno(snapshot.write_file("file", b"x")), EROFS);
    assert_eq!(errno(snapshot.create_dir("dir")), EROFS);
    assert_eq!(errno(snapshot.remove("file")), EROFS);
    assert_eq!(errno(snapshot.rename_path("file", "file2")), EROFS);
    assert_eq!(errno(snapshot.set_mode("file", 0)), EROFS);
    let ino = snapshot.resolve("file").unwrap();
    assert_eq!(errno(snapshot.set_xattr(ino, b"user.a", b"", XattrMode::Set)), EROFS);
    assert_eq!(errno(snapshot.append(ino, b"x")), EROFS);
}

#[test]
fn an_ended_transaction_refuses_everything() {
    let volume = new_volume();
    let tx = volume.begin();
    tx.write_file("file", b"x").unwrap();
    tx.abort();
    assert!(!tx.is_open());
    assert_eq!(errno(tx.read_file("file")), EINVAL);
    assert_eq!(errno(tx.commit(Durability::Durable)), EINVAL);
    tx.abort();
    assert!(!volume.base().exists("file").unwrap());
    let tx = volume.begin();
    tx.commit(Durability::Durable).unwrap();
    assert!(tx.commit(Durability::Durable).unwrap_err().to_string().contains("committed"));
    assert_eq!(volume.stat().unwrap().transactions_open, 0);
}
