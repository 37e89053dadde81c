//! What transactions see of each other, and which of them conflict.

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex};

use common::*;
use txfs::{
    CommitChanges, CommitObserver, ConflictKind, Durability, Isolation, Paths, ROOT_INO, Transaction,
    TransactionOptions, View, Volume, XattrMode,
};

fn snapshot_isolation(volume: &Volume) -> Transaction {
    volume.begin_with(TransactionOptions {
        isolation: Isolation::Snapshot,
        label: "snapshot".into(),
        ..Default::default()
    })
}

#[track_caller]
fn commits(tx: &Transaction) {
    tx.commit(Durability::Durable).unwrap();
}

#[track_caller]
fn conflicts(tx: &Transaction) -> txfs::Conflict {
    let error = tx.commit(Durability::Durable).unwrap_err();
    assert_eq!(error.errno(), ECANCELED);
    error.conflict().unwrap().clone()
}

/// A volume with a file of ten pages and a few directories.
fn prepared() -> (Volume, u64) {
    let volume = new_volume();
    let base = volume.base();
    base.write_file("file", &[1; 40_960]).unwrap();
    base.create_dir_all("a/b").unwrap();
    base.create_dir_all("c/d").unwrap();
    let file = base.resolve("file").unwrap();
    (volume, file)
}

/// Runs two transactions side by side; the first commits, and the second does or does not.
#[track_caller]
fn side_by_side(first: impl Fn(&Transaction, u64), second: impl Fn(&Transaction, u64), both: bool) {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (volume, file) = prepared();
        let options = TransactionOptions { isolation, ..Default::default() };
        let (one, two) = (volume.begin_with(options.clone()), volume.begin_with(options));
        first(&one, file);
        second(&two, file);
        one.commit(Durability::Durable).unwrap();
        let result = two.commit(Durability::Durable);
        assert_eq!(result.is_ok(), both, "{isolation:?}: {result:?}");
        assert_clean(&volume);
    }
}

#[test]
fn different_pages_and_names_commit_and_the_same_do_not() {
    let write = |page: u64| {
        move |tx: &Transaction, file| {
            let _ = tx.write(file, page * 4096, &[9; 4096]).unwrap();
        }
    };
    side_by_side(write(1), write(2), true);
    side_by_side(write(1), write(1), false);
    // Pages behind the end: the file grows to the larger end, whoever commits last.
    side_by_side(write(20), write(30), true);
    side_by_side(write(30), write(20), true);
    let part = |at: u64| {
        move |tx: &Transaction, file| {
            let _ = tx.write(file, at, b"x").unwrap();
        }
    };
    side_by_side(part(0), part(4095), false);
    side_by_side(part(4095), part(4096), true);

    let create = |name: &'static str| move |tx: &Transaction, _| tx.write_file(name, b"x").unwrap();
    side_by_side(create("a/one"), create("a/two"), true);
    side_by_side(create("a/one"), create("a/one"), false);
    let remove = |name: &'static str| move |tx: &Transaction, _| tx.remove(name).unwrap();
    side_by_side(remove("a/b"), remove("c/d"), true);
    side_by_side(remove("a/b"), remove("a/b"), false);
    side_by_side(remove("file"), create("other"), true);
}

#[test]
fn what_merges_and_what_does_not() {
    let chmod = |mode| move |tx: &Transaction, _: u64| tx.set_mode("file", mode).unwrap();
    let write = |tx: &Transaction, file| {
        let _ = tx.write(file, 8192, b"x").unwrap();
    };
    let append = |tx: &Transaction, file| {
        let _ = tx.append(file, b"tail").unwrap();
    };
    let cut = |size| move |tx: &Transaction, _: u64| tx.truncate("file", size).unwrap();
    let link = |name: &'static str| move |tx: &Transaction, _: u64| tx.hard_link("file", name).unwrap();
    let remove = |tx: &Transaction, _: u64| tx.remove("file").unwrap();
    let grow = |tx: &Transaction, _: u64| tx.truncate("file", 1 << 20).unwrap();
    let xattr = |name: &'static [u8]| {
        move |tx: &Transaction, file| tx.set_xattr(file, name, b"v", XattrMode::Set).unwrap()
    };

    side_by_side(chmod(0o600), write, true);
    side_by_side(chmod(0o600), chmod(0o640), false);
    side_by_side(link("one"), link("two"), true);
    side_by_side(write, link("one"), true);
    side_by_side(append, write, true);
    side_by_side(append, append, false);
    side_by_side(grow, write, true);
    side_by_side(cut(40_000), append, false);
    side_by_side(cut(4096), write, false);
    side_by_side(cut(30_000), write, true);
    side_by_side(cut(30_000), cut(20_000), false);
    side_by_side(remove, write, false);
    side_by_side(remove, chmod(0o600), false);
    side_by_side(remove, link("one"), false);
    side_by_side(xattr(b"user.a"), xattr(b"user.b"), true);
    side_by_side(xattr(b"user.a"), xattr(b"user.a"), false);
    side_by_side(xattr(b"user.a"), chmod(0o600), true);
    // A file of two names may lose both at once.
    let (volume, file) = prepared();
    volume.base().hard_link("file", "second").unwrap();
    let (one, two) = (volume.begin(), volume.begin());
    one.remove("file").unwrap();
    two.remove("second").unwrap();
    commits(&one);
    commits(&two);
    assert_eq!(errno(volume.base().attributes(file)), 116);
    assert_clean(&volume);
}

#[test]
fn directories_stay_a_tree() {
    let rename = |from: &'static str, to: &'static str| {
        move |tx: &Transaction, _: u64| tx.rename_path(from, to).unwrap()
    };
    let create = |name: &'static str| move |tx: &Transaction, _: u64| tx.write_file(name, b"x").unwrap();
    let remove = |name: &'static str| move |tx: &Transaction, _: u64| tx.remove(name).unwrap();
    // Each alone is fine; both would make a cycle.
    side_by_side(rename("a", "c/d/a"), rename("c", "a/b/c"), false);
    side_by_side(rename("a/b", "b"), rename("c/d", "d"), true);
    side_by_side(remove("a/b"), create("a/b/x"), false);
    side_by_side(create("a/b/x"), remove("a/b"), false);
    side_by_side(rename("c/d", "a/b/d"), remove("a/b"), false);
    side_by_side(remove("a/b"), rename("c/d", "a/b/d"), false);
    side_by_side(create("a/one"), rename("a", "renamed"), true);
}

#[test]
fn nobody_sees_anything_before_the_commit() {
    let (volume, file) = prepared();
    let base = volume.base();
    let tx = volume.begin();
    let other = volume.begin();
    tx.write(file, 0, b"secret").unwrap();
    tx.write_file("a/new", b"x").unwrap();
    tx.remove("c/d").unwrap();
    tx.set_mode("file", 0o111).unwrap();
    tx.truncate("file", 10).unwrap();
    for view in [&base as &dyn View, &other, &volume.snapshot()] {
        assert_eq!(view.read_file("file").unwrap(), [1; 40_960]);
        assert!(!view.exists("a/new").unwrap() && view.exists("c/d").unwrap());
        assert_eq!(view.stat("file").unwrap().mode, 0o644);
        assert_eq!(view.list_directory(view.resolve("a").unwrap()).unwrap().len(), 1);
    }
    assert_eq!(&tx.read_file("file").unwrap(), b"secret\x01\x01\x01\x01");
    commits(&tx);
    // The snapshot of the other stays; the base view has moved on.
    assert_eq!(other.read_file("file").unwrap().len(), 40_960);
    assert!(!other.exists("a/new").unwrap() && other.exists("c/d").unwrap());
    assert_eq!(&base.read_file("file").unwrap(), b"secret\x01\x01\x01\x01");
    assert!(base.exists("a/new").unwrap() && !base.exists("c/d").unwrap());
    // It has read what was changed, but it changes nothing itself: as if it had come first.
    commits(&other);
}

#[test]
fn an_abort_leaves_no_trace() {
    let (volume, file) = prepared();
    let before = volume.base().attributes(file).unwrap();
    let sequence = volume.stat().unwrap().sequence;
    let tx = volume.begin();
    tx.write(file, 0, &[5; 100_000]).unwrap();
    tx.remove_all("a").unwrap();
    tx.abort();
    drop(volume.begin().write(file, 0, b"dropped"));
    assert_eq!(volume.base().attributes(file).unwrap(), before);
    assert_eq!(volume.stat().unwrap().sequence, sequence);
    assert!(volume.base().exists("a/b").unwrap());
    assert_clean(&volume);
}

#[test]
fn reads_are_validated_in_serializable_transactions() {
    // Write skew: each reads the page that the other writes.
    let skew = |isolation: Isolation| {
        let (volume, file) = prepared();
        let options = TransactionOptions { isolation, ..Default::default() };
        let (one, two) = (volume.begin_with(options.clone()), volume.begin_with(options));
        one.read(file, 0, 10).unwrap();
        one.write(file, 4096, b"x").unwrap();
        two.read(file, 4096, 10).unwrap();
        two.write(file, 0, b"x").unwrap();
        one.commit(Durability::Durable).unwrap();
        two.commit(Durability::Durable).map_err(|error| error.errno()).map(drop)
    };
    assert_eq!(skew(Isolation::Snapshot), Ok(()));
    assert_eq!(skew(Isolation::Serializable), Err(ECANCELED));

    // Each read, the change by somebody else, and whether they are in each other's way.
    type Step<'a> = (&'a dyn Fn(&dyn View, u64), &'a dyn Fn(&dyn View, u64), bool);
    let chmod = |view: &dyn View, _| view.set_mode("file", 0o600).unwrap();
    let cut = |view: &dyn View, _| view.truncate("file", 5000).unwrap();
    let write = |view: &dyn View, file| {
        let _ = view.write(file, 0, b"x").unwrap();
    };
    let append = |view: &dyn View, file| {
        let _ = view.append(file, b"x").unwrap();
    };
    let create = |view: &dyn View, _| view.write_file("a/new", b"x").unwrap();
    let remove = |view: &dyn View, _| view.remove("file").unwrap();
    let xattr = |view: &dyn View, file| view.set_xattr(file, b"user.a", b"x", XattrMode::Set).unwrap();
    let stat = |view: &dyn View, file| assert_eq!(view.attributes(file).unwrap().uid, 0);
    let read = |view: &dyn View, file| drop(view.read(file, 0, 10).unwrap());
    let read_end = |view: &dyn View, file| drop(view.read(file, 40_000, 10_000).unwrap());
    let look = |view: &dyn View, _| assert!(!view.exists("a/new").unwrap());
    let find = |view: &dyn View, _| assert!(view.exists("file").unwrap());
    let list = |view: &dyn View, _| drop(view.read_dir("a").unwrap());
    let list_xattrs = |view: &dyn View, file| drop(view.list_xattrs(file).unwrap());
    // What is learned about the end of a file by a read that gets less than asked for, or by a look for holes: the file
    // is one page longer now, or much longer.
    let append_far = |view: &dyn View, file| {
        let _ = view.write(file, 1 << 20, b"x").unwrap();
    };
    let read_into_end =
        |view: &dyn View, file| assert_eq!(view.read_into(file, 40_000, &mut [0; 4096]).unwrap(), 960);
    let copy_end = |view: &dyn View, file| {
        let to = view.resolve("c").and_then(|c| view.make_file(c, b"copy", 0o600, 0, 0)).unwrap().ino;
        assert_eq!(view.copy_range(file, 40_000, to, 0, 4096).unwrap(), 960);
    };
    let read_behind = |view: &dyn View, file| assert!(view.read(file, 50_000, 1).unwrap().is_empty());
    let read_to_end = |view: &dyn View, file| assert_eq!(view.read(file, 40_000, 960).unwrap().len(), 960);
    let seek_hole = |view: &dyn View, file| assert_eq!(view.seek_hole(file, 0).unwrap(), 40_960);
    let seek_behind =
        |view: &dyn View, file| assert_eq!(view.seek_data(file, 40_960).unwrap_err().errno(), ENXIO);
    let steps: [Step<'_>; 25] = [
        (&read_end, &append_far, false),
        (&read_into_end, &append_far, false),
        (&copy_end, &append_far, false),
        (&read_behind, &append_far, false),
        (&read_to_end, &append_far, true),
        (&seek_hole, &append_far, false),
        (&seek_hole, &append, false),
        (&seek_behind, &append_far, false),
        (&seek_behind, &append, false),
        (&stat, &chmod, false),
        (&stat, &cut, false),
        (&stat, &remove, false),
        (&stat, &write, true),
        (&stat, &append, true),
        (&read, &write, false),
        (&read, &append, true),
        (&read, &cut, true),
        (&read_end, &append, false),
        (&read_end, &cut, false),
        (&read, &remove, false),
        (&look, &create, false),
        (&find, &remove, false),
        (&find, &chmod, true),
        (&list, &create, false),
        (&list_xattrs, &xattr, false),
    ];
    for (index, (reading, change, fine)) in steps.iter().enumerate() {
        let (volume, file) = prepared();
        let tx = volume.begin();
        reading(&tx, file);
        tx.write_file("c/unrelated", b"x").unwrap();
        change(&volume.base(), file);
        let result = tx.commit(Durability::Durable);
        assert_eq!(result.is_ok(), *fine, "step {index}: {result:?}");
        let (volume, file) = prepared();
        let tx = snapshot_isolation(&volume);
        reading(&tx, file);
        tx.write_file("c/unrelated", b"x").unwrap();
        change(&volume.base(), file);
        commits(&tx);
        assert_clean(&volume);
    }
}

#[test]
fn conflicts_say_what_about_whom_and_where() {
    let (volume, file) = prepared();
    let base = volume.base();
    let tx = volume.begin();
    tx.write(file, 8192, b"x").unwrap();
    base.write(file, 8192, b"y").unwrap();
    let sequence = volume.stat().unwrap().sequence;
    let conflict = conflicts(&tx);
    assert_eq!(conflict.path.as_deref(), Some(Path::new("file")));
    assert_eq!(conflict.kind, ConflictKind::Pages { first: 2, last: 2 });
    assert_eq!((conflict.ino, conflict.other.sequence), (file, Some(sequence)));
    let expected = format!("file: bytes 8192 to 12287 (changed by commit {sequence} at ");
    assert!(conflict.to_string().starts_with(&expected), "{conflict}");
    let own = format!(" by process {}, `", std::process::id());
    assert!(conflict.to_string().contains(&own), "{conflict}");
    assert!(!tx.is_open());

    let tx = volume.begin();
    tx.write_file("a/b/new", b"x").unwrap();
    base.write_file("a/b/new", b"y").unwrap();
    let conflict = conflicts(&tx);
    assert_eq!(conflict.path.as_deref(), Some(Path::new("a/b/new")));
    assert_eq!(conflict.kind, ConflictKind::Name { name: Some(b"new".to_vec()) });

    let tx = volume.begin();
    tx.set_mode("file", 0o600).unwrap();
    base.set_mode("file", 0o640).unwrap();
    assert_eq!(conflicts(&tx).kind, ConflictKind::Permissions);
    assert_eq!(base.stat("file").unwrap().mode, 0o640);
    assert_clean(&volume);
}

#[test]
fn the_base_view_never_conflicts() {
    let (volume, _) = prepared();
    let counter = volume.base().make_file(ROOT_INO, b"log", 0o600, 0, 0).unwrap().ino;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let base = volume.base();
            scope.spawn(move || {
                for round in 0..50u8 {
                    base.append(counter, &[thread]).unwrap();
                    base.write_file(format!("a/{}", round % 5), &[thread]).unwrap();
                    base.set_mode("file", u32::from(thread)).unwrap();
                    let own = format!("c/{thread}-{round}");
                    base.write_file(&own, b"x").unwrap();
                    base.rename_path(&own, format!("c/{}", round % 3)).unwrap();
                }
            });
        }
    });
    let mut log = volume.base().read_file("log").unwrap();
    assert_eq!(log.len(), 200);
    log.sort_unstable();
    assert!((0..4u8).all(|thread| log.iter().filter(|&&byte| byte == thread).count() == 50));
    assert_clean(&volume);
}

#[test]
fn concurrent_increments_add_up() {
    let volume = new_volume();
    volume.base().write_file("counter", &0u64.to_le_bytes()).unwrap();
    let retries = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    loop {
                        let tx = volume.begin();
                        let value = u64::from_le_bytes(tx.read_file("counter").unwrap().try_into().unwrap());
                        let ino = tx.resolve("counter").unwrap();
                        tx.write(ino, 0, &(value + 1).to_le_bytes()).unwrap();
                        match tx.commit(Durability::Ordered) {
                            Ok(_) => break,
                            Err(error) if error.is_conflict() => *retries.lock().unwrap() += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    let value = volume.base().read_file("counter").unwrap();
    assert_eq!(value, 100u64.to_le_bytes(), "after {} retries", retries.lock().unwrap());
    assert_clean(&volume);
}

#[derive(Default)]
struct Recorder(Mutex<Vec<CommitChanges>>);

impl CommitObserver for Recorder {
    fn committed(&self, changes: &CommitChanges) {
        self.0.lock().unwrap().push(changes.clone());
    }
}

#[test]
fn observers_are_told_what_transactions_changed() {
    let (volume, file) = prepared();
    let recorder = Arc::new(Recorder::default());
    volume.observe(recorder.clone());
    let base = volume.base();
    base.write(file, 0, b"not reported").unwrap();
    let a = base.resolve("a").unwrap();
    let tx = volume.begin();
    tx.write(file, 4096, &[1; 8192]).unwrap();
    tx.write_file("a/new", b"x").unwrap();
    tx.write_file("a/never", b"x").unwrap();
    tx.remove("a/never").unwrap();
    let new = tx.resolve("a/new").unwrap();
    let receipt = tx.commit(Durability::Durable).unwrap();
    volume.begin().write(file, 0, b"aborted").unwrap();
    let empty = volume.begin();
    empty.read_file("file").unwrap();
    empty.commit(Durability::Durable).unwrap();

    let seen = recorder.0.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].sequence, receipt.sequence);
    let mut inodes = vec![file, a, new];
    inodes.sort_unstable();
    assert_eq!(seen[0].inodes, inodes);
    assert_eq!(seen[0].names, [(a, b"new".to_vec())]);
    assert_eq!(seen[0].data, [(file, 4096, 8192), (new, 0, 4096)]);
}
