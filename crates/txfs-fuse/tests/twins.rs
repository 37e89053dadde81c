//! Opening an open file again in another view, with `TXFS_IOC_NODE`.

mod common;

use common::calls::{EACCES, EISDIR, ENOENT, ENOTTY, EPERM, ESTALE, NOBODY, as_user, ioctl, node_path};
use common::{Fixture, eventually, read, write};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use txfs_protocol::ioctl::{NodePath, TXFS_IOC_NODE};

/// Opens an open file again, for reading and writing, in the view of a transaction or (0) in the base view.
fn twin(root: &Path, file: &File, transaction: u64) -> File {
    let path = root.join(node_path(file, transaction).unwrap());
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn content(mut file: &File) -> String {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_open_file_is_opened_again_in_a_transaction_and_back() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "before");
    let outside = OpenOptions::new().read(true).write(true).open(fixture.path("file")).unwrap();
    let open = fixture.begin();
    let inside = twin(&fixture.root, &outside, open.number);
    assert_eq!(inside.metadata().unwrap().ino(), outside.metadata().unwrap().ino());
    inside.write_all_at(b"INSIDE", 0).unwrap();
    assert_eq!((content(&inside).as_str(), content(&outside).as_str()), ("INSIDE", "before"));
    assert_eq!(read(&open.path("file")), "INSIDE", "the twin is the view's file");
    open.commit();
    assert_eq!(content(&outside), "INSIDE");
    assert_eq!(inside.metadata().unwrap_err().raw_os_error(), Some(ESTALE));
    let back = twin(&fixture.root, &inside, 0);
    back.write_all_at(b"after ", 0).unwrap();
    assert_eq!(content(&outside), "after ");
    drop((outside, inside, back));
    fixture.finish();
}

#[test]
fn a_file_without_a_name_has_a_twin() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    write(&path, "nameless");
    let held = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let again = twin(&fixture.root, &held, 0);
    assert_eq!(content(&again), "nameless");
    let open = fixture.begin();
    let inside = twin(&fixture.root, &held, open.number);
    assert_eq!(content(&inside), "nameless");
    inside.write_all_at(b"NAME", 0).unwrap();
    assert_eq!(content(&held), "nameless");
    open.commit();
    assert_eq!(content(&held), "NAMEless");
    // A nameless temporary file, too.
    let temporary =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(&fixture.root).unwrap();
    temporary.write_all_at(b"temporary", 0).unwrap();
    let open = fixture.begin();
    assert_eq!(content(&twin(&fixture.root, &temporary, open.number)), "temporary");
    open.abort();
    drop((held, again, inside, temporary));
    fixture.finish();
}

/// The program removes a file's name, goes on in a transaction, and closes what it had open before that ends.
#[test]
fn a_nameless_file_lives_as_long_as_its_twin() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    write(&path, "nameless");
    let held = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let open = fixture.begin();
    let inside = twin(&fixture.root, &held, open.number);
    drop(held);
    let in_use = || fixture.volume.stat().unwrap().nodes_in_use;
    eventually("the kernel forgets it outside", || {
        fixture.client().stat().unwrap()["mount"]["nodes_known"] == 0
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(in_use(), 1, "what the kernel has forgotten has been given up, but for the twin's");
    inside.write_all_at(b"NAME", 0).unwrap();
    open.commit();
    let back = twin(&fixture.root, &inside, 0);
    assert_eq!(content(&back), "NAMEless");
    drop((inside, back));
    eventually("nothing of it is left", || in_use() == 0);
    fixture.finish();
}

#[test]
fn what_exists_in_one_view_only_has_no_twin_elsewhere() {
    let Some(fixture) = Fixture::new() else { return };
    let (one, two) = (fixture.begin(), fixture.begin());
    write(&fixture.path("late"), "");
    let late = File::open(fixture.path("late")).unwrap();
    assert_eq!(node_path(&late, one.number), Err(ESTALE), "made after its snapshot");
    write(&one.path("new"), "new");
    let new = File::open(one.path("new")).unwrap();
    for view in [0, two.number] {
        assert_eq!(node_path(&new, view), Err(ESTALE));
    }
    assert!(node_path(&new, one.number).is_ok());
    let number = one.number;
    one.abort();
    assert_eq!(node_path(&new, 0), Err(ESTALE), "aborted");
    assert_eq!(node_path(&late, number), Err(ESTALE), "ended");
    drop(new);
    write(&two.path("new"), "committed");
    let new = File::open(two.path("new")).unwrap();
    two.commit();
    assert_eq!(content(&twin(&fixture.root, &new, 0)), "committed");
    drop((late, new));
    fixture.finish();
}

#[test]
fn a_name_of_a_node_is_good_for_one_open() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "content");
    let file = File::open(fixture.path("file")).unwrap();
    let path = fixture.root.join(node_path(&file, 0).unwrap());
    assert_eq!(read(&path), "content");
    let absent = |path: &Path| assert_eq!(File::open(path).unwrap_err().raw_os_error(), Some(ENOENT));
    absent(&path);
    absent(&fixture.path(".txfs/node/0123456789abcdef0123456789abcdef"));
    // It dies with the view.
    let open = fixture.begin();
    let path = fixture.root.join(node_path(&file, open.number).unwrap());
    open.abort();
    assert!(File::open(&path).is_err());
    // Nobody lists them, and nobody makes any.
    assert_eq!(fs::read_dir(fixture.path(".txfs/node")).unwrap().count(), 0);
    assert!(File::create(fixture.path(".txfs/node/own")).is_err());
    drop(file);
    fixture.finish();
}

#[test]
fn the_kernel_forgets_a_name_of_a_node_at_once() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    write(&path, "content");
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    for _ in 0..10 {
        assert_eq!(content(&twin(&fixture.root, &file, 0)), "content");
    }
    drop(file);
    eventually("its space is free", || fixture.volume.stat().unwrap().nodes_in_use == 0);
    fixture.finish();
}

#[test]
fn only_regular_files_have_twins() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("directory")).unwrap();
    let asked = |path: &str| node_path(&File::open(fixture.path(path)).unwrap(), 0);
    assert_eq!(asked("directory"), Err(EISDIR));
    assert_eq!(asked("."), Err(EISDIR));
    assert_eq!(asked(".txfs"), Err(EPERM));
    assert_eq!(asked(".txfs/probe"), Err(EPERM));
    fixture.finish();
}

#[test]
fn unknown_ioctls_are_no_ioctls() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "");
    for file in [File::open(fixture.path("file")).unwrap(), File::open(&fixture.root).unwrap()] {
        let ask = |number| ioctl(file.as_raw_fd(), number, &mut [0; 4096]);
        assert_eq!(ask(TXFS_IOC_NODE + 0x42), Err(ENOTTY));
        assert_eq!(ask(0x5413), Err(ENOTTY), "TIOCGWINSZ");
        // Ours, but with another size or direction.
        for number in [TXFS_IOC_NODE ^ 1 << 16, TXFS_IOC_NODE & !(1 << 31), 0xF701] {
            assert_eq!(ask(number), Err(ENOTTY));
        }
    }
    let file = File::open(fixture.path("file")).unwrap();
    let mut wrong = NodePath::of(u64::MAX).to_bytes();
    assert_eq!(ioctl(file.as_raw_fd(), TXFS_IOC_NODE, &mut wrong), Err(ESTALE));
    drop(file);
    fixture.finish();
}

#[test]
fn a_twin_takes_the_permissions_that_the_file_takes() {
    let Some(fixture) = Fixture::for_all() else { return };
    write(&fixture.path("readable"), "for all");
    write(&fixture.path("secret"), "for root");
    fs::set_permissions(fixture.path("readable"), PermissionsExt::from_mode(0o644)).unwrap();
    fs::set_permissions(fixture.path("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let (readable, secret) =
        (File::open(fixture.path("readable")).unwrap(), File::open(fixture.path("secret")).unwrap());
    let open = fixture.begin();
    let roots = fixture.root.join(node_path(&readable, 0).unwrap());
    as_user(NOBODY, NOBODY, &[], || {
        let errno = |file: std::io::Result<File>| file.unwrap_err().raw_os_error();
        assert_eq!(errno(File::open(&roots)), Some(ENOENT), "another user's name for it");
        let own = || fixture.root.join(node_path(&readable, 0).unwrap());
        assert_eq!(content(&File::open(own()).unwrap()), "for all");
        assert_eq!(errno(OpenOptions::new().write(true).open(own())), Some(EACCES));
        let own = fixture.root.join(node_path(&secret, 0).unwrap());
        assert_eq!(errno(File::open(own)), Some(EACCES), "having a descriptor is not enough");
        assert_eq!(node_path(&readable, open.number), Err(EPERM), "another user's transaction");
    });
    assert_eq!(read(&roots), "for all", "it was not used up by the attempt");
    open.abort();
    drop((readable, secret));
    fixture.finish();
}

#[test]
fn a_twin_counts_as_used_for_what_is_done_with_it() {
    let Some(fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "content");
    let file = OpenOptions::new().read(true).write(true).open(fixture.path("file")).unwrap();
    // Finding it is no read: another one may write what was not looked at.
    let open = fixture.begin();
    let mut inside = twin(&fixture.root, &file, open.number);
    inside.seek(std::io::SeekFrom::Start(8192)).unwrap();
    inside.write_all(b"second page").unwrap();
    open.commit();
    drop(inside);
    let open = fixture.begin();
    let inside = twin(&fixture.root, &file, open.number);
    assert!(content(&inside).starts_with("content"));
    write(&open.path("new"), "");
    file.write_all_at(b"other", 0).unwrap();
    assert!(matches!(open.try_commit(), txfs_protocol::CommitOutcome::Conflicted(_)));
    drop((file, inside));
    fixture.finish();
}
