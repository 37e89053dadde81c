//! Named snapshots: they show their moment, paths are restored from them, and they go without a trace.

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use common::*;
use txfs::{
    AllocateMode, CreateOptions, Durability, Error, OpenOptions, Paths, Restored, SetAttributes,
    SnapshotView, View, Volume, XattrMode,
};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

/// All paths with kind, mode, content or target, and extended attributes.
fn tree(view: &impl Paths) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut entries = Vec::new();
    let mut visit = |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    };
    view.walk("", &mut visit).unwrap();
    for entry in entries {
        let attributes = &entry.attributes;
        let content = match attributes.kind {
            txfs::NodeKind::File => format!("{:?}", view.read(attributes.ino, 0, 1 << 22).unwrap()),
            txfs::NodeKind::Symlink => format!("{:?}", view.read_link(attributes.ino).unwrap()),
            _ => String::new(),
        };
        let xattrs: Vec<_> = view
            .list_xattrs(attributes.ino)
            .unwrap()
            .into_iter()
            .map(|name| (name.clone(), view.get_xattr(attributes.ino, &name).unwrap()))
            .collect();
        let (kind, mode, size) = (attributes.kind, attributes.mode, attributes.size);
        let line = format!("{kind:?} {mode:o} {size} {:?} {content} {xattrs:?}", attributes.mtime);
        found.insert(entry.path, line);
    }
    found
}

fn durable(volume: &Volume, name: &str) -> u64 {
    volume.create_snapshot(name, Durability::Durable).unwrap().sequence
}

fn filled() -> (SimulatedDisk, Volume) {
    let disk = new_disk();
    let volume = open(&disk);
    let base = volume.base();
    base.create_dir_all("d/sub/deep").unwrap();
    for number in 0..20 {
        base.write_file(format!("d/file{number}"), &vec![number as u8; 1000 * number]).unwrap();
    }
    base.write_file("d/sub/large", &vec![7; 300_000]).unwrap();
    let large = base.resolve("d/sub/large").unwrap();
    base.link(large, base.resolve("d").unwrap(), b"other name").unwrap();
    base.set_xattr(large, b"user.note", b"first", XattrMode::Set).unwrap();
    base.make_symlink(base.resolve("d").unwrap(), b"link", b"sub/large", 0, 0).unwrap();
    (disk, volume)
}

/// Changes something of everything.
fn disturb(volume: &Volume) {
    let base = volume.base();
    let large = base.resolve("d/sub/large").unwrap();
    base.write(large, 100_000, &[9; 50]).unwrap();
    base.allocate(large, AllocateMode::PunchHole, 200_000, 20_000).unwrap();
    base.set_xattr(large, b"user.note", b"second", XattrMode::Set).unwrap();
    base.set_xattr(large, b"user.more", b"more", XattrMode::Set).unwrap();
    base.remove("d/file3").unwrap();
    base.write_file("d/file4", b"short").unwrap();
    base.set_attributes(
        base.resolve("d/file5").unwrap(),
        &SetAttributes { mode: Some(0o600), ..Default::default() },
    )
    .unwrap();
    base.rename_path("d/file6", "d/sub/file6").unwrap();
    base.rename_path("d/file7", "d/file8").unwrap();
    base.remove("d/link").unwrap();
    base.create_dir_all("d/link/new").unwrap();
    base.write_file("d/link/new/file", b"new").unwrap();
    base.remove("d/sub/deep").unwrap();
    base.write_file("d/sub/deep", b"now a file").unwrap();
    base.remove("d/other name").unwrap();
}

#[test]
fn a_snapshot_shows_its_moment_and_outlives_restarts() {
    let (disk, volume) = filled();
    let before = tree(&volume.base());
    durable(&volume, "one");
    disturb(&volume);
    let between = tree(&volume.base());
    assert_ne!(before, between);
    volume.create_snapshot("two", Durability::Ordered).unwrap();
    volume.base().remove_all("d").unwrap();
    volume.checkpoint().unwrap();
    let verify = |volume: &Volume| {
        assert_eq!(tree(&volume.open_snapshot("one").unwrap()), before);
        assert_eq!(tree(&volume.open_snapshot("two").unwrap()), between);
        assert_clean(volume);
        assert_eq!(volume.check().unwrap().snapshots, 2);
    };
    verify(&volume);
    volume.clean(&Default::default(), &mut |_, _| {}).unwrap();
    verify(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&disk.crash(1));
    verify(&volume);
    let stat = volume.stat().unwrap();
    assert_eq!(stat.snapshots, 2);
    assert!(stat.snapshot_data_bytes >= 600_000 && stat.snapshot_metadata_bytes > 0, "{stat:?}");
    volume.delete_snapshot("one").unwrap();
    assert_eq!(tree(&volume.open_snapshot("two").unwrap()), between);
    volume.delete_snapshot("two").unwrap();
    assert_eq!(volume.snapshots().unwrap(), []);
    let stat = volume.stat().unwrap();
    assert_eq!((stat.snapshots, stat.snapshot_data_bytes, stat.snapshot_metadata_bytes), (0, 0, 0));
    assert_clean(&volume);
}

#[test]
fn snapshots_are_listed_and_wrong_use_has_clear_errors() {
    let (_disk, volume) = filled();
    let first = durable(&volume, "first");
    let second = durable(&volume, "second one");
    let listed = volume.snapshots().unwrap();
    let names: Vec<_> = listed.iter().map(|snapshot| (snapshot.name.as_str(), snapshot.sequence)).collect();
    assert_eq!(names, [("first", first), ("second one", second)]);
    assert!(listed[0].time < listed[1].time && listed[0].data_bytes == 0);
    let create = |name: &str| errno(volume.create_snapshot(name, Durability::Durable));
    assert_eq!(create("first"), EEXIST);
    for name in ["", ".", ".hidden", "a/b", "a\nb"] {
        assert_eq!(create(name), EINVAL, "{name:?}");
    }
    assert_eq!(create(&"x".repeat(300)), ENAMETOOLONG);
    assert!(matches!(volume.open_snapshot("third"), Err(Error::NoSuchSnapshot { .. })));
    assert_eq!(errno(volume.delete_snapshot("third")), ENOENT);
    assert_eq!(errno(volume.restore("third", "d", Durability::Durable)), ENOENT);
    assert_eq!(errno(volume.restore("first", "nothing", Durability::Durable)), ENOENT);
    assert_eq!(errno(volume.restore("first", "d/../d", Durability::Durable)), EINVAL);
    let view = volume.open_snapshot("first").unwrap();
    assert_eq!(errno(view.write_file("x", b"x")), EROFS);
    assert_eq!(errno(volume.delete_snapshot("first")), 16);
    drop(view);
    volume.delete_snapshot("first").unwrap();
    assert_eq!(durable(&volume, "first"), volume.stat().unwrap().sequence, "the name is free again");
    for number in volume.snapshots().unwrap().len()..txfs::SNAPSHOTS_MAX {
        volume.create_snapshot(&format!("{number}"), Durability::Ordered).unwrap();
    }
    assert!(matches!(volume.create_snapshot("more", Durability::Ordered), Err(Error::TooManySnapshots)));
    assert_clean(&volume);
}

#[test]
fn a_file_is_restored_in_place_and_only_what_differs_is_written() {
    let (_disk, volume) = filled();
    durable(&volume, "then");
    let before = tree(&volume.base());
    let base = volume.base();
    let ino = base.resolve("d/sub/large").unwrap();
    base.write(ino, 100_000, &[9; 50]).unwrap();
    assert_eq!(base.read_file("d/other name").unwrap()[100_000], 9);
    let restored = volume.restore("then", "d/sub/large", Durability::Durable).unwrap();
    assert_eq!(restored, Restored { changed: 1, data_bytes: 4096, ..Restored::default() });
    assert_eq!(base.resolve("d/sub/large").unwrap(), ino);
    assert_eq!(tree(&base), before);
    let again = volume.restore("then", "/d/sub/large/", Durability::Durable).unwrap();
    assert_eq!(again, Restored { unchanged: 1, ..Restored::default() });
    assert_eq!(volume.history(None, 9).unwrap().len(), 1, "what changes nothing is no commit");
    assert_eq!(volume.history(None, 9).unwrap()[0].message, "restore d/sub/large from snapshot then");
    // After cleaning the data lies elsewhere and is compared.
    volume.clean(&Default::default(), &mut |_, _| {}).unwrap();
    let again = volume.restore("then", "d/sub/large", Durability::Durable).unwrap();
    assert_eq!(again.data_bytes, 0);
}

#[test]
fn a_directory_is_restored_with_everything_below() {
    let (_disk, volume) = filled();
    let before = tree(&volume.base());
    durable(&volume, "then");
    disturb(&volume);
    volume.base().write_file("outside", b"stays").unwrap();
    let restored = volume.restore("then", "d", Durability::Durable).unwrap();
    assert!(restored.made >= 5 && restored.removed >= 5, "{restored:?}");
    let mut after = tree(&volume.base());
    assert!(after.remove(&PathBuf::from("outside")).is_some());
    let below = |tree: &BTreeMap<PathBuf, String>| -> BTreeMap<PathBuf, String> {
        tree.iter().filter(|(path, _)| path.starts_with("d")).map(|(a, b)| (a.clone(), b.clone())).collect()
    };
    assert_eq!(below(&after), below(&before));
    let base = volume.base();
    assert_eq!(base.resolve("d/sub/large").unwrap(), base.resolve("d/other name").unwrap());
    assert_clean(&volume);
    // And when all of it is gone, the root at last.
    base.remove_all("d").unwrap();
    volume.restore("then", "d/sub/large", Durability::Ordered).unwrap();
    assert_eq!(base.read_file("d/sub/large").unwrap(), vec![7; 300_000]);
    assert_eq!(base.read_dir("d").unwrap().len(), 1);
    volume.restore("then", "/", Durability::Ordered).unwrap();
    assert_eq!(tree(&base), before);
    assert_clean(&volume);
}

#[test]
fn restoring_conflicts_as_any_transaction() {
    let (_disk, volume) = filled();
    durable(&volume, "then");
    let base = volume.base();
    base.write_file("d/file9", b"changed").unwrap();
    let past: SnapshotView = volume.open_snapshot("then").unwrap();
    let tx = volume.begin();
    tx.restore(&past, "d/file9").unwrap();
    assert_eq!(tx.read_file("d/file9").unwrap(), vec![9; 9000]);
    assert_eq!(base.read_file("d/file9").unwrap(), b"changed", "nobody sees it before the commit");
    base.write_file("d/file9", b"by somebody else").unwrap();
    assert_eq!(errno(tx.commit(Durability::Durable)), ECANCELED);
    assert_eq!(base.read_file("d/file9").unwrap(), b"by somebody else");
}

#[test]
fn an_open_file_without_a_name_stays_in_the_snapshot() {
    let (disk, volume) = filled();
    let base = volume.base();
    let ino = base.resolve("d/file10").unwrap();
    volume.retain(ino).unwrap();
    base.remove("d/file10").unwrap();
    durable(&volume, "then");
    volume.release(ino, 1);
    assert_clean(&volume);
    assert_eq!(volume.open_snapshot("then").unwrap().read(ino, 0, 10).unwrap(), [10; 10]);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&disk.crash(1));
    assert_clean(&volume);
    volume.delete_snapshot("then").unwrap();
    assert_clean(&volume);
}

/// A volume of few segments.
fn limited() -> Volume {
    let disk = SimulatedDisk::new(SimOptions::default());
    let options = CreateOptions {
        segment_bytes: 1 << 20,
        size_bytes_max: Some(16 << 20),
        clock: clock(),
        ..CreateOptions::default()
    };
    Volume::create_on(disk.as_disk(), &options).unwrap();
    let options = OpenOptions {
        reader_patience: std::time::Duration::from_millis(10),
        checkpoint_distance_bytes: 1 << 20,
        ..open_options()
    };
    Volume::open_on(disk.as_disk(), &options).unwrap()
}

#[test]
fn a_full_volume_with_a_snapshot_takes_deletions_and_gets_its_space_back() {
    let volume = limited();
    let base = volume.base();
    let content = |number: usize| vec![number as u8; 20_000];
    let mut files = 0;
    while base.write_file(format!("file{files}"), &content(files)).is_ok() {
        files += 1;
    }
    assert!(files > 400, "{files}");
    base.remove(format!("file{files}")).ok();
    durable(&volume, "full");
    // What is overwritten stays, so there is no room for it.
    let refused = (0..files).find_map(|number| base.write_file(format!("file{number}"), &content(1)).err());
    assert_eq!(refused.expect("the volume is full").errno(), 28);
    // Deleting frees nothing, and works.
    for number in 0..files {
        base.remove(format!("file{number}")).unwrap_or_else(|error| panic!("file{number}: {error}"));
    }
    assert!(base.write_file("more", &vec![1; 1 << 20]).is_err(), "the snapshot has it all");
    let _ = base.remove("more");
    let past = volume.open_snapshot("full").unwrap();
    for number in (0..files).step_by(7) {
        assert!(past.exists(format!("file{number}")).unwrap());
    }
    drop(past);
    assert_clean(&volume);
    assert!(volume.stat().unwrap().snapshot_data_bytes > 8_000_000);
    volume.delete_snapshot("full").unwrap();
    for number in 0..files {
        base.write_file(format!("file{number}"), &content(number))
            .unwrap_or_else(|error| panic!("file{number} of {files}: {error}"));
    }
    assert_clean(&volume);
}

/// Numbers of nodes that were given out and never committed are given out again when the volume has been opened anew. A
/// snapshot that took them for newer than itself must not show them later on.
#[test]
fn numbers_given_out_twice_do_not_show_in_older_snapshots() {
    let disk = new_disk();
    let volume = open(&disk);
    volume.base().write_file("old", b"old").unwrap();
    let aborted = volume.begin();
    for number in 0..3000 {
        aborted.write_file(format!("aborted-{number}"), b"").unwrap();
    }
    aborted.abort();
    volume.create_snapshot("first", Durability::Durable).unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = open(&disk);
    volume.create_snapshot("second", Durability::Durable).unwrap();
    volume.base().write_file("new", b"new").unwrap();
    assert_clean(&volume);
    for name in ["first", "second"] {
        let shown = tree(&volume.open_snapshot(name).unwrap());
        assert_eq!(shown.into_keys().collect::<Vec<_>>(), [PathBuf::new(), PathBuf::from("old")]);
    }
}

/// What an overwrite of 4 KiB pays for a snapshot, in processor time: `cargo test --release -p txfs --test snapshots -- --ignored
/// --nocapture what_a_commit_pays`.
#[test]
#[ignore = "prints timings and asserts nothing: a timed test proves nothing on a shared machine"]
fn what_a_commit_pays() {
    const FILES: usize = 2000;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("vol");
    Volume::create(&path).unwrap();
    let volume = Volume::open(&path).unwrap();
    let inos: Vec<u64> = (0..FILES)
        .map(|number| {
            volume.base().write_file(format!("file{number}"), &[1; 4096]).unwrap();
            volume.base().resolve(format!("file{number}")).unwrap()
        })
        .collect();
    let round = || {
        let begun = std::time::Instant::now();
        for &ino in &inos {
            let tx = volume.begin();
            tx.write(ino, 0, &[2; 4096]).unwrap();
            tx.commit(Durability::Durable).unwrap();
        }
        begun.elapsed().as_secs_f64() * 1e6 / FILES as f64
    };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    round();
    for _ in 0..15 {
        times[0].push(round());
        volume.create_snapshot("one", Durability::Durable).unwrap();
        times[1].push(round());
        times[2].push(round());
        volume.delete_snapshot("one").unwrap();
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let [without, first, again] = times.each_mut().map(median);
    println!(
        "us for a commit: {without:.1} without a snapshot, {first:.1} the first time after one, {again:.1} again"
    );
}
