//! Plants every kind of damage and expects the examination to find it.

use std::sync::Arc;

use txfs_disk::sim::{SimOptions, SimulatedDisk};
use txfs_engine::{Applied, Commit, ConflictSet, Durability, Mutation, MutationList, Read};

use super::{ProblemKind, check};
use crate::records::{Bucket, Dirent, InodeRecord, key, small};
use crate::shared::Shared;
use crate::transaction::apply::{delete, put};
use crate::transaction::session::load_inode;
use crate::{CreateOptions, Ino, NodeKind, OpenOptions, Paths, ROOT_INO, View, Volume, XattrMode};

struct Planted {
    volume: Volume,
    directory: Ino,
    file: Ino,
    symlink: Ino,
}

fn sound() -> Planted {
    let disk = SimulatedDisk::new(SimOptions::default());
    Volume::create_on(disk.as_disk(), &CreateOptions::default()).unwrap();
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let base = volume.base();
    base.create_dir_all("a/b/c").unwrap();
    base.write_file("a/file", &[7; 10_000]).unwrap();
    base.hard_link("a/file", "a/b/again").unwrap();
    base.symlink("a/file", "link").unwrap();
    let (directory, file) = (base.resolve("a/b").unwrap(), base.resolve("a/file").unwrap());
    base.set_xattr(file, b"user.colour", b"red", XattrMode::Set).unwrap();
    let symlink = base.symlink_stat("link").unwrap().ino;
    Planted { volume, directory, file, symlink }
}

impl Planted {
    fn shared(&self) -> &Arc<Shared> {
        self.volume.shared()
    }

    fn plant(&self, mutations: Vec<Mutation>) {
        let engine = &self.shared().engine;
        let nothing = ConflictSet::new();
        engine
            .commit(Commit {
                snapshot: &engine.snapshot(),
                reads: &nothing,
                writes: &nothing,
                data: Vec::new(),
                prepared: &MutationList::new(),
                durability: Durability::Ordered,
                apply: &|_, _| Ok(Applied { mutations: mutations.clone(), ..Applied::default() }),
            })
            .unwrap();
    }

    fn record(&self, ino: Ino) -> InodeRecord {
        load_inode(&self.shared().engine.snapshot(), ino).unwrap().unwrap()
    }

    fn change(&self, ino: Ino, change: impl FnOnce(&mut InodeRecord)) {
        let mut record = self.record(ino);
        change(&mut record);
        self.plant(vec![put(key::inode(ino), record.encode())]);
    }

    fn entry(&self, directory: Ino, name: &[u8], ino: Ino, kind: NodeKind) -> Mutation {
        let bucket = Bucket(vec![Dirent { ino, kind, slot: 0, name: name.to_vec() }]);
        put(key::dirent(directory, self.shared().hasher.hash(name)), bucket.encode())
    }

    fn no_entry(&self, directory: Ino, name: &[u8]) -> Mutation {
        delete(key::dirent(directory, self.shared().hasher.hash(name)))
    }

    #[track_caller]
    fn expect(&self, kinds: &[ProblemKind]) {
        let report = check(self.shared(), &mut |_, _| {}).unwrap();
        for kind in kinds {
            assert!(report.problems.iter().any(|problem| problem.kind == *kind), "{kind:?} in {report:#?}");
        }
        assert_eq!(kinds.is_empty(), report.is_clean(), "{report:#?}");
    }
}

#[test]
fn a_sound_volume_is_clean() {
    let planted = sound();
    planted.expect(&[]);
    let report = planted.volume.check().unwrap();
    assert_eq!((report.directories, report.files, report.others, report.orphans), (4, 1, 1, 0));
    assert!(report.extents > 0 && report.data_bytes == 10_000);
}

#[test]
fn wrong_link_counts_and_paths() {
    let planted = sound();
    planted.change(planted.file, |record| record.nlink = 3);
    planted.change(planted.directory, |record| record.nlink = 2);
    planted.expect(&[ProblemKind::LinkCount]);
    let report = planted.volume.check().unwrap();
    let path = report.problems.iter().find(|problem| problem.ino == Some(planted.directory)).unwrap();
    assert_eq!(path.path.as_deref(), Some(std::path::Path::new("a/b")));
    assert!(path.to_string().starts_with("/a/b (inode "), "{path}");
}

#[test]
fn recorded_commits_that_do_not_decode() {
    for (key, value) in [(key::history(3).to_vec(), vec![9]), (vec![key::HISTORY_TAG, 1], vec![1])] {
        let planted = sound();
        planted.plant(vec![put(key, value)]);
        planted.expect(&[ProblemKind::Record]);
        let error = planted.volume.history(None, 10).unwrap_err();
        assert!(error.errno() == 5 && error.to_string().contains("the history of commits"), "{error}");
    }
}

#[test]
fn entries_and_nodes_that_do_not_match() {
    let planted = sound();
    planted.plant(vec![planted.entry(ROOT_INO, b"ghost", 999, NodeKind::File)]);
    planted.expect(&[ProblemKind::Entry]);

    let planted = sound();
    planted.plant(vec![planted.entry(ROOT_INO, b"liar", planted.file, NodeKind::Fifo)]);
    planted.expect(&[ProblemKind::Entry, ProblemKind::LinkCount]);

    let planted = sound();
    let bucket =
        Bucket(vec![Dirent { ino: planted.file, kind: NodeKind::File, slot: 0, name: b"x".to_vec() }]);
    planted.plant(vec![put(key::dirent(ROOT_INO, 4096), bucket.encode())]);
    planted.expect(&[ProblemKind::Entry]);

    let planted = sound();
    planted.plant(vec![planted.entry(planted.file, b"inside", planted.symlink, NodeKind::Symlink)]);
    planted.expect(&[ProblemKind::Entry]);

    let planted = sound();
    planted.plant(vec![delete(key::inode(planted.file))]);
    planted.expect(&[ProblemKind::Entry, ProblemKind::Attachment]);
}

#[test]
fn lost_nodes_and_cycles() {
    let planted = sound();
    planted.plant(vec![planted.no_entry(ROOT_INO, b"link")]);
    planted.expect(&[ProblemKind::Unreachable, ProblemKind::LinkCount]);

    let planted = sound();
    // `b` moves below its own child: nothing leads there any more.
    let base = planted.volume.base();
    let (a, c) = (base.resolve("a").unwrap(), base.resolve("a/b/c").unwrap());
    planted.plant(vec![
        planted.no_entry(a, b"b"),
        planted.entry(c, b"b", planted.directory, NodeKind::Directory),
    ]);
    planted.change(planted.directory, |record| record.parent = c);
    planted.expect(&[ProblemKind::Tree]);

    let planted = sound();
    planted.plant(vec![planted.entry(ROOT_INO, b"second", planted.directory, NodeKind::Directory)]);
    planted.expect(&[ProblemKind::Tree]);

    let planted = sound();
    planted.change(planted.directory, |record| record.parent = ROOT_INO);
    planted.expect(&[ProblemKind::Tree]);
}

#[test]
fn damaged_extents() {
    // Extents that do not decode cannot even be planted: the engine refuses them.
    let extent_of = |planted: &Planted| {
        let snapshot = planted.shared().engine.snapshot();
        snapshot.get(&key::extent(planted.file, 0)).unwrap().unwrap()
    };

    let planted = sound();
    planted.plant(vec![put(key::extent(planted.file, 1), extent_of(&planted))]);
    planted.expect(&[ProblemKind::Extent, ProblemKind::Blocks, ProblemKind::Storage]);

    let planted = sound();
    planted.change(planted.file, |record| {
        record.size = 100;
        record.pages = 1;
    });
    planted.expect(&[ProblemKind::Extent, ProblemKind::Blocks]);

    let planted = sound();
    let moved = extent_of(&planted);
    planted.plant(vec![delete(key::extent(planted.file, 0)), put(key::extent(planted.directory, 0), moved)]);
    planted.expect(&[ProblemKind::Extent, ProblemKind::Blocks]);

    let planted = sound();
    planted.plant(vec![delete(key::extent(planted.file, 0))]);
    planted.expect(&[ProblemKind::Blocks]);
}

#[test]
fn damaged_attachments_and_records() {
    let planted = sound();
    planted.plant(vec![put(key::xattr(4711, b"user.x"), small::encode_bytes(b"y"))]);
    planted.expect(&[ProblemKind::Attachment]);

    let planted = sound();
    planted.plant(vec![put(key::orphan(planted.file), small::orphan())]);
    planted.expect(&[ProblemKind::Attachment]);

    let planted = sound();
    planted.plant(vec![delete(key::symlink(planted.symlink))]);
    planted.expect(&[ProblemKind::Attachment]);

    for tag in [key::inode(1).to_vec(), key::inode(2).to_vec(), key::symlink(2).to_vec()] {
        let planted = sound();
        planted.plant(vec![put(tag, vec![9, 9, 9])]);
        let report = check(planted.shared(), &mut |_, _| {}).unwrap();
        assert!(!report.is_clean());
    }

    let planted = sound();
    planted.plant(vec![put(key::NEXT_INO, small::encode_number(3))]);
    planted.expect(&[ProblemKind::Counter]);

    let planted = sound();
    planted.plant(vec![delete(key::NEXT_INO)]);
    planted.expect(&[ProblemKind::Storage]);
}

#[test]
fn operations_on_damaged_records_are_errors_not_panics() {
    let planted = sound();
    planted.plant(vec![put(key::inode(planted.file), vec![1, 2, 3])]);
    let base = planted.volume.base();
    assert_eq!(base.attributes(planted.file).unwrap_err().errno(), 5);
    let error = base.read_file("a/file").unwrap_err();
    assert_eq!(error.errno(), 5);
    assert!(error.to_string().contains("a/file"), "{error}");
    base.write(planted.file, 0, b"x").unwrap_err();
    base.unlink(base.resolve("a").unwrap(), b"file").unwrap_err();
}
