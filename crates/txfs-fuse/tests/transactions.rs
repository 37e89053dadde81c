//! Transactions on a real mount: isolation, what the caches show after a commit, and how transactions end.

mod common;

use common::{Fixture, eventually, names, read, write};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use txfs_protocol::{Change, ChangeKind, CommitOutcome, ConflictKind, Durability, Isolation, ProtocolError};

#[test]
fn nobody_sees_a_transaction_before_its_commit() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("old"), "old");
    let one = fixture.begin();
    let two = fixture.begin();
    let three = fixture.begin();
    write(&one.path("one"), "1");
    assert_eq!(names(&three.view), ["old"]);
    write(&one.path("old"), "changed by one");
    write(&two.path("two"), "2");
    fs::remove_file(two.path("old")).unwrap();
    assert_eq!(names(&fixture.root), ["old"]);
    assert_eq!(read(&fixture.path("old")), "old");
    assert_eq!(names(&one.view), ["old", "one"]);
    assert_eq!(names(&two.view), ["two"]);
    assert_eq!(read(&one.path("old")), "changed by one");
    assert_eq!(
        fs::metadata(one.path("old")).unwrap().ino(),
        fs::metadata(fixture.path("old")).unwrap().ino(),
        "the same inode numbers in all views"
    );
    one.commit();
    assert_eq!(names(&fixture.root), ["old", "one"]);
    assert_eq!(read(&fixture.path("old")), "changed by one");
    assert_eq!(names(&three.view), ["old"], "a snapshot stays as it is");
    assert_eq!(read(&three.path("old")), "old");
    // The one has removed what has changed. The other has listed what has, and is doomed once it changes something.
    let doomed = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(125), "{error}");
    doomed(fs::write(two.path("more"), "more").unwrap_err());
    doomed(fs::write(three.path("more"), "more").unwrap_err());
    two.abort();
    three.abort();
    assert_eq!(names(&fixture.root), ["old", "one"]);
    fixture.finish();
}

#[test]
fn a_commit_reaches_everything_that_the_kernel_has_cached() {
    let Some(fixture) = Fixture::new() else { return };
    let path = |name: &str| fixture.path(name);
    fs::create_dir_all(path("d/sub")).unwrap();
    write(&path("d/changed"), &"a".repeat(100_000));
    write(&path("d/shrunk"), &"b".repeat(100_000));
    write(&path("d/grown"), "c");
    write(&path("d/removed"), "gone soon");
    write(&path("d/renamed"), "moved soon");
    write(&path("d/mode"), "");
    write(&path("d/target"), "to be replaced");
    let held = File::open(path("d/changed")).unwrap();
    let held_removed = File::open(path("d/removed")).unwrap();
    let held_target = File::open(path("d/target")).unwrap();
    // Fill all caches: pages, attributes, names, absent names, listings.
    for name in ["changed", "shrunk", "grown", "removed", "renamed", "mode", "target"] {
        read(&path("d").join(name));
    }
    for name in ["d/created", "d/moved", "d/sub/deep"] {
        assert!(!path(name).exists());
    }
    names(&path("d"));
    names(&path("d"));

    let open = fixture.begin();
    OpenOptions::new()
        .write(true)
        .open(open.path("d/changed"))
        .unwrap()
        .write_all_at(b"XYZ", 50_000)
        .unwrap();
    OpenOptions::new().write(true).open(open.path("d/shrunk")).unwrap().set_len(10).unwrap();
    OpenOptions::new().append(true).open(open.path("d/grown")).unwrap().write_all(b"more").unwrap();
    fs::remove_file(open.path("d/removed")).unwrap();
    fs::rename(open.path("d/renamed"), open.path("d/moved")).unwrap();
    fs::set_permissions(open.path("d/mode"), fs::Permissions::from_mode(0o600)).unwrap();
    write(&open.path("d/created"), "new");
    write(&open.path("d/sub/deep"), "deep");
    fs::rename(open.path("d/created"), open.path("d/target")).unwrap();
    write(&open.path("d/created"), "new again");
    // And once more, with the transaction open.
    assert!(!path("d/created").exists());
    assert_eq!(read(&path("d/target")), "to be replaced");
    open.commit();

    assert_eq!(&read(&path("d/changed"))[49_999..50_004], "aXYZa");
    let mut out = [0; 5];
    held.read_exact_at(&mut out, 49_999).unwrap();
    assert_eq!(&out, b"aXYZa", "through a descriptor that was open before");
    assert_eq!(fs::metadata(path("d/shrunk")).unwrap().len(), 10);
    assert_eq!(read(&path("d/shrunk")), "b".repeat(10));
    assert_eq!(read(&path("d/grown")), "cmore");
    assert!(!path("d/removed").exists());
    assert_eq!(held_removed.metadata().unwrap().nlink(), 0);
    let mut gone = String::new();
    (&held_removed).read_to_string(&mut gone).unwrap();
    assert_eq!(gone, "gone soon");
    assert!(!path("d/renamed").exists());
    assert_eq!(read(&path("d/moved")), "moved soon");
    assert_eq!(fs::metadata(path("d/mode")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(read(&path("d/created")), "new again");
    assert_eq!(read(&path("d/target")), "new");
    let mut replaced = String::new();
    (&held_target).read_to_string(&mut replaced).unwrap();
    assert_eq!(replaced, "to be replaced");
    assert_eq!(read(&path("d/sub/deep")), "deep");
    assert_eq!(
        names(&path("d")),
        ["changed", "created", "grown", "mode", "moved", "shrunk", "sub", "target"]
    );
    drop((held, held_removed, held_target));
    fixture.finish();
}

#[test]
fn an_abort_leaves_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "before");
    let open = fixture.begin();
    write(&open.path("file"), "after");
    write(&open.path("new"), "new");
    let held = File::open(open.path("file")).unwrap();
    let view = open.view.clone();
    open.abort();
    assert_eq!(read(&fixture.path("file")), "before");
    assert_eq!(names(&fixture.root), ["file"]);
    assert!(!view.exists());
    assert_eq!(held.metadata().unwrap_err().raw_os_error(), Some(116), "stale");
    drop(held);
    fixture.finish();
}

#[test]
fn the_second_of_two_writers_of_a_page_conflicts() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), &"x".repeat(20_000));
    let at = |open: &common::Open, offset, data: &str| {
        OpenOptions::new()
            .write(true)
            .open(open.path("file"))
            .unwrap()
            .write_all_at(data.as_bytes(), offset)
            .unwrap();
    };
    let (one, two, three) = (fixture.begin(), fixture.begin(), fixture.begin());
    at(&one, 0, "one");
    at(&two, 8192, "two");
    at(&three, 100, "three");
    one.commit();
    two.commit();
    match three.try_commit() {
        CommitOutcome::Conflicted(conflict) => {
            let first = &conflict.conflicts[0];
            assert!(matches!(first.kind, ConflictKind::Pages { .. }), "{first:?}");
            assert_eq!(first.path.as_path(), std::path::Path::new("file"));
            assert!(conflict.message.contains("file"), "{}", conflict.message);
        }
        outcome => panic!("{outcome:?}"),
    }
    let content = read(&fixture.path("file"));
    assert_eq!((&content[..3], &content[8192..8195], &content[100..105]), ("one", "two", "xxxxx"));
    fixture.finish();
}

#[test]
fn names_in_one_directory_conflict_only_when_they_are_the_same() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("d")).unwrap();
    let (one, two, three) = (fixture.begin(), fixture.begin(), fixture.begin());
    write(&one.path("d/a"), "one");
    write(&two.path("d/b"), "two");
    write(&three.path("d/a"), "three");
    one.commit();
    two.commit();
    match three.try_commit() {
        CommitOutcome::Conflicted(conflict) => assert_eq!(conflict.conflicts[0].kind, ConflictKind::Name),
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(names(&fixture.path("d")), ["a", "b"]);
    assert_eq!(read(&fixture.path("d/a")), "one");
    fixture.finish();
}

#[test]
fn a_client_that_goes_away_aborts() {
    let Some(fixture) = Fixture::new() else { return };
    let open = fixture.begin();
    write(&open.path("file"), "x");
    let copy = std::os::fd::AsFd::as_fd(&open.client).try_clone_to_owned().unwrap();
    drop(open);
    assert_eq!(fixture.client().list().unwrap().len(), 1, "a copy of the descriptor keeps it open");
    drop(copy);
    eventually("the transaction is aborted", || fixture.client().list().unwrap().is_empty());
    assert_eq!(names(&fixture.root), Vec::<String>::new());
    fixture.finish();
}

#[test]
fn memory_maps_are_part_of_the_transaction() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), &"m".repeat(8192));
    let open = fixture.begin();
    let file = OpenOptions::new().read(true).write(true).open(open.path("file")).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh shared mapping of a whole file; nothing else refers to it.
    let map = unsafe { mmap(std::ptr::null_mut(), 8192, protection, MapFlags::SHARED, &file, 0) }.unwrap();
    let bytes: *mut u8 = map.cast();
    // SAFETY: inside the mapping above, which lives until the end of the test.
    unsafe { bytes.add(4100).write_volatile(b'!') };
    assert_eq!(read(&fixture.path("file")), "m".repeat(8192), "not outside");
    let mut open = open;
    let changes = open.client.changes().unwrap();
    open.commit();
    assert_eq!(changes.len(), 1, "{changes:?}");
    let after = read(&fixture.path("file"));
    assert_eq!((&after[..4100], &after[4100..4101]), (&*"m".repeat(4100), "!"));
    // SAFETY: nothing uses the mapping any more.
    unsafe { munmap(map, 8192) }.unwrap();
    drop(file);
    assert_eq!(read(&fixture.path("file")), after);
    fixture.finish();
}

#[test]
fn a_base_memory_map_sees_a_commit() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), &"m".repeat(8192));
    let file = File::open(fixture.path("file")).unwrap();
    // SAFETY: a fresh shared read-only mapping of a whole file.
    let map =
        unsafe { mmap(std::ptr::null_mut(), 8192, ProtFlags::READ, MapFlags::SHARED, &file, 0) }.unwrap();
    let bytes: *const u8 = map.cast();
    // SAFETY: inside the mapping above.
    assert_eq!(unsafe { bytes.add(5000).read_volatile() }, b'm');
    let open = fixture.begin();
    OpenOptions::new().write(true).open(open.path("file")).unwrap().write_all_at(b"N", 5000).unwrap();
    open.commit();
    // SAFETY: inside the mapping above.
    assert_eq!(unsafe { bytes.add(5000).read_volatile() }, b'N');
    // SAFETY: nothing uses the mapping any more.
    unsafe { munmap(map, 8192) }.unwrap();
    drop(file);
    fixture.finish();
}

#[test]
fn a_base_memory_map_that_was_first_wins() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), &"m".repeat(8192));
    let file = OpenOptions::new().read(true).write(true).open(fixture.path("file")).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh shared mapping of a whole file.
    let map = unsafe { mmap(std::ptr::null_mut(), 8192, protection, MapFlags::SHARED, &file, 0) }.unwrap();
    let bytes: *mut u8 = map.cast();
    let change_inside = |offset| {
        let open = fixture.begin();
        OpenOptions::new()
            .write(true)
            .open(open.path("file"))
            .unwrap()
            .write_all_at(b"inside", offset)
            .unwrap();
        open
    };
    let (same_page, other_page) = (change_inside(100), change_inside(5000));
    // SAFETY: inside the mapping above.
    unsafe { bytes.add(10).write_volatile(b'!') };
    assert!(matches!(same_page.try_commit(), CommitOutcome::Conflicted(_)));
    other_page.commit();
    // SAFETY: nothing uses the mapping any more.
    unsafe { munmap(map, 8192) }.unwrap();
    drop(file);
    let content = read(&fixture.path("file"));
    assert_eq!((&content[10..11], &content[100..106], &content[5000..5006]), ("!", "mmmmmm", "inside"));
    fixture.finish();
}

#[test]
fn appending_after_a_commit_that_changed_the_size() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("log"), "first\n");
    let mut log = OpenOptions::new().append(true).open(fixture.path("log")).unwrap();
    log.write_all(b"second\n").unwrap();
    let open = fixture.begin();
    let mut inside = OpenOptions::new().append(true).open(open.path("log")).unwrap();
    inside.write_all(b"third, from a transaction\n").unwrap();
    drop(inside);
    open.commit();
    log.write_all(b"fourth\n").unwrap();
    let expected = "first\nsecond\nthird, from a transaction\nfourth\n";
    eventually("the cache is right", || read(&fixture.path("log")) == expected);
    let open = fixture.begin();
    OpenOptions::new().write(true).open(open.path("log")).unwrap().set_len(6).unwrap();
    open.commit();
    log.write_all(b"2nd\n").unwrap();
    eventually("the cache is right", || read(&fixture.path("log")) == "first\n2nd\n");
    drop(log);
    fixture.finish();
}

#[test]
fn changes_are_listed() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("d")).unwrap();
    write(&fixture.path("d/old"), "12345");
    write(&fixture.path("d/gone"), "1");
    let mut open = fixture.begin();
    write(&open.path("d/old"), "123");
    write(&open.path("new"), "1234");
    fs::remove_file(open.path("d/gone")).unwrap();
    let changes = open.client.changes().unwrap();
    let find = |path: &str| -> &Change {
        changes.iter().find(|change| change.path.to_string() == path).unwrap_or_else(|| panic!("{changes:?}"))
    };
    assert_eq!(find("d/old").kind, ChangeKind::Modified);
    assert_eq!((find("d/old").bytes_before, find("d/old").bytes_after), (Some(5), Some(3)));
    assert_eq!(find("new").kind, ChangeKind::Created);
    assert_eq!(find("d/gone").kind, ChangeKind::Removed);
    open.abort();
    fixture.finish();
}

#[test]
fn many_changes_come_in_pages() {
    let Some(fixture) = Fixture::new() else { return };
    let mut open = fixture.begin();
    for i in 0..6000 {
        File::create(open.path(&format!("file-{i}"))).unwrap();
    }
    let changes = open.client.changes().unwrap();
    assert!(changes.len() >= 6000, "{}", changes.len());
    open.commit();
    assert_eq!(names(&fixture.root).len(), 6000);
    fixture.finish();
}

#[test]
fn a_connection_has_one_transaction_at_a_time() {
    let Some(fixture) = Fixture::new() else { return };
    let mut client = fixture.client();
    assert_eq!(client.status().unwrap().transaction, None);
    let refused = |result: Result<_, ProtocolError>| matches!(result, Err(ProtocolError::Remote { .. }));
    assert!(refused(client.commit(Durability::Durable).map(|_| ())));
    let first = client.begin(Isolation::Snapshot, "one").unwrap();
    assert!(refused(client.begin(Isolation::Snapshot, "two").map(|_| ())));
    assert_eq!(client.status().unwrap().transaction, Some(first.transaction));
    let list = fixture.client().list().unwrap();
    assert_eq!((list.len(), list[0].transaction, list[0].command.as_str()), (1, first.transaction, "one"));
    assert_eq!(list[0].pid, std::process::id());
    client.abort().unwrap();
    client.abort().unwrap();
    let second = client.begin(Isolation::Serializable, "").unwrap();
    assert_ne!(first.view, second.view);
    assert!(matches!(client.commit(Durability::Durable).unwrap(), CommitOutcome::Committed { .. }));
    fixture.finish();
}

#[test]
fn malformed_messages_close_the_connection_only() {
    use std::os::unix::net::UnixStream;
    let Some(fixture) = Fixture::new() else { return };
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{}", b"\x05\0\0\0hello", b"\x01\0\0\0", b"\0\0\0\0"] {
        let mut stream = UnixStream::connect(fixture.volume_path.join("socket")).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("error"), "{bytes:?}");
    }
    fixture.client().sync().unwrap();
    fixture.finish();
}

#[test]
fn views_do_not_mix() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "content");
    let open = fixture.begin();
    let crossed = fs::rename(fixture.path("file"), open.path("moved")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(18));
    let crossed = fs::hard_link(fixture.path("file"), open.path("linked")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(18));
    fs::copy(fixture.path("file"), open.path("copied")).unwrap();
    assert_eq!(read(&open.path("copied")), "content");
    assert!(!open.path(".txfs").exists());
    assert!(File::create(open.path(".txfs")).is_err());
    open.commit();
    assert_eq!(read(&fixture.path("copied")), "content");
    fixture.finish();
}

#[test]
fn views_come_and_go() {
    let Some(fixture) = Fixture::new() else { return };
    for round in 0..300 {
        let open = fixture.begin();
        write(&open.path("counter"), &round.to_string());
        assert_eq!(read(&open.path("counter")), round.to_string());
        if round % 3 == 0 {
            open.abort()
        } else {
            open.commit()
        }
        let last = if round == 0 {
            continue;
        } else if round % 3 == 0 {
            round - 1
        } else {
            round
        };
        assert_eq!(read(&fixture.path("counter")), last.to_string());
    }
    common::eventually("ended views are forgotten", || {
        fixture.client().stat().unwrap()["mount"]["views_known"] == 0
    });
    fixture.finish();
}

/// The kernel keeps the name of a file that is open while the view ends, and the view's number with it.
#[test]
fn a_view_is_forgotten_when_the_last_file_in_it_is_closed() {
    let Some(fixture) = Fixture::new() else { return };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 18) {
        println!("skipped: Linux {} keeps such names until it needs memory", release.trim());
        return;
    }
    for commits in [true, false] {
        let open = fixture.begin();
        write(&open.path("file"), "content");
        let kept = std::fs::File::open(open.path("file")).unwrap();
        if commits {
            open.commit()
        } else {
            open.abort()
        }
        let known = || fixture.client().stat().unwrap()["mount"]["views_known"].as_u64().unwrap();
        assert_eq!(known(), 1, "it is in use");
        drop(kept);
        common::eventually("the ended view is forgotten", || known() == 0);
    }
    fixture.finish();
}

/// The kernel answers reads at the end of a file without asking: what it answers is a read all the same.
#[test]
fn where_a_file_ends_is_read_on_a_mount_too() {
    let Some(fixture) = Fixture::new() else { return };
    for (round, content) in ["", "x", &"y".repeat(4096), &"z".repeat(8192)].into_iter().enumerate() {
        let name = |which: &str| format!("{which}-{round}");
        let append = |path: &std::path::Path| {
            OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
        };
        write(&fixture.path(&name("one")), content);
        write(&fixture.path(&name("two")), content);
        // Write skew: each reads the file that the other one makes longer.
        let (first, second) = (fixture.begin(), fixture.begin());
        assert_eq!(read(&first.path(&name("one"))), content);
        assert_eq!(read(&second.path(&name("two"))), content);
        append(&first.path(&name("two")));
        append(&second.path(&name("one")));
        first.commit();
        assert!(matches!(second.try_commit(), CommitOutcome::Conflicted(_)), "{} bytes", content.len());
    }
    fixture.finish();
}
