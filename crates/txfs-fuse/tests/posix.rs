//! POSIX operations through the mount, in the base view and in a transaction's view alike.

mod common;

use common::{Fixture, names, read, write};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Runs a test in the base view and in a transaction's view.
fn in_both_views(test: impl Fn(&Path)) {
    let Some(fixture) = Fixture::new() else { return };
    test(&fixture.root);
    let open = fixture.begin();
    for name in names(&open.view) {
        let path = open.path(&name);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    test(&open.view);
    open.commit();
    fixture.finish();
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn files_are_written_read_and_truncated() {
    in_both_views(|root| {
        let path = root.join("file");
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        fs::write(&path, &data).unwrap();
        assert_eq!(fs::read(&path).unwrap(), data);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(b"hello", 1_000_003).unwrap();
        let mut out = [0; 7];
        file.read_exact_at(&mut out, 1_000_002).unwrap();
        assert_eq!(&out[1..6], b"hello");
        file.set_len(10).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 10);
        file.set_len(5000).unwrap();
        let back = fs::read(&path).unwrap();
        assert_eq!((&back[..10], &back[10..]), (&data[..10], &[0; 4990][..]));
        drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"");
    });
}

#[test]
fn appending_goes_to_the_end() {
    in_both_views(|root| {
        let path = root.join("log");
        let mut one = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let mut two = OpenOptions::new().append(true).open(&path).unwrap();
        for round in 0..50 {
            writeln!(one, "one {round}").unwrap();
            writeln!(two, "two {round}").unwrap();
        }
        let lines: Vec<_> = read(&path).lines().map(str::to_string).collect();
        assert_eq!(lines.len(), 100);
        assert_eq!((lines[98].as_str(), lines[99].as_str()), ("one 49", "two 49"));
    });
}

#[test]
fn directories_list_what_is_in_them() {
    in_both_views(|root| {
        let directory = root.join("many");
        fs::create_dir(&directory).unwrap();
        let mut expected: Vec<String> = (0..3000).map(|i| format!("file-with-a-name-{i:05}")).collect();
        for name in &expected {
            File::create(directory.join(name)).unwrap();
        }
        expected.sort();
        assert_eq!(names(&directory), expected);
        for name in expected.drain(..2000) {
            fs::remove_file(directory.join(name)).unwrap();
        }
        assert_eq!(names(&directory), expected);
        assert_eq!(errno(fs::remove_dir(&directory)), 39, "not empty");
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(fs::metadata(root).unwrap().nlink(), 2);
    });
}

#[test]
fn listed_inode_numbers_are_those_of_stat() {
    use std::os::unix::fs::DirEntryExt;
    in_both_views(|root| {
        fs::create_dir(root.join("d")).unwrap();
        write(&root.join("d/f"), "x");
        for directory in [root.to_path_buf(), root.join("d")] {
            for entry in fs::read_dir(&directory).unwrap() {
                let entry = entry.unwrap();
                assert_eq!(entry.ino(), entry.metadata().unwrap().ino(), "{:?}", entry.path());
            }
        }
        let file = File::create(root.join("created")).unwrap();
        assert_eq!(file.metadata().unwrap().ino(), fs::metadata(root.join("created")).unwrap().ino());
        assert!(file.metadata().unwrap().ino() < 1 << 48);
    });
}

#[test]
fn renames_replace_refuse_and_exchange() {
    in_both_views(|root| {
        let path = |name: &str| root.join(name);
        write(&path("a"), "a");
        write(&path("b"), "b");
        let rename = |flags| rustix::fs::renameat_with(CWD, path("a"), CWD, path("b"), flags);
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!((read(&path("a")), read(&path("b"))), ("b".into(), "a".into()));
        fs::rename(path("a"), path("b")).unwrap();
        assert_eq!(names(root), ["b"]);
        assert_eq!(read(&path("b")), "b");
        fs::create_dir_all(path("d/e")).unwrap();
        fs::rename(path("b"), path("d/e/c")).unwrap();
        fs::rename(path("d/e"), path("f")).unwrap();
        assert_eq!(read(&path("f/c")), "b");
        assert_eq!(errno(fs::rename(path("f"), path("f/c/g"))), 20);
        fs::create_dir(path("f/in")).unwrap();
        assert_eq!(errno(fs::rename(path("f"), path("f/in/x"))), 22, "into itself");
    });
}

#[test]
fn links_and_symlinks_work() {
    in_both_views(|root| {
        let path = |name: &str| root.join(name);
        write(&path("file"), "content");
        fs::hard_link(path("file"), path("other")).unwrap();
        assert_eq!(fs::metadata(path("file")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(path("other")).unwrap().ino(), fs::metadata(path("file")).unwrap().ino());
        fs::remove_file(path("file")).unwrap();
        assert_eq!(fs::metadata(path("other")).unwrap().nlink(), 1);
        assert_eq!(read(&path("other")), "content");
        symlink("other", path("symlink")).unwrap();
        assert_eq!(fs::read_link(path("symlink")).unwrap(), Path::new("other"));
        assert_eq!(read(&path("symlink")), "content");
        fs::remove_file(path("other")).unwrap();
        assert_eq!(errno(fs::read(path("symlink"))), 2);
    });
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    in_both_views(|root| {
        let path = root.join("gone");
        let mut file =
            OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path).unwrap();
        file.write_all(b"before ").unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(b"after").unwrap();
        file.rewind().unwrap();
        let mut back = String::new();
        file.read_to_string(&mut back).unwrap();
        assert_eq!(back, "before after");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        write(&path, "a new one");
        assert_eq!(file.metadata().unwrap().len(), 12);
    });
}

#[test]
fn nameless_files_can_be_given_a_name() {
    in_both_views(|root| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = match rustix::fs::open(root, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::OPNOTSUPP) => {
                eprintln!("O_TMPFILE needs Linux 6.2");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        file.write_all_at(b"secret", 0).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(names(root), Vec::<String>::new());
        let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, from, CWD, root.join("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(read(&root.join("named")), "secret");
    });
}

#[test]
fn attributes_are_set_and_kept() {
    in_both_views(|root| {
        let path = root.join("file");
        write(&path, "x");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode(), 0o104_751);
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_234_567_890, 123_456_789));
        assert!(metadata.ctime() > 1_600_000_000);
        let old = metadata.ctime_nsec();
        std::thread::sleep(Duration::from_millis(2));
        std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
        assert_eq!(metadata.mode() & 0o7777, 0o751, "a change of owner takes the set-user-id bit");
        assert_ne!(metadata.ctime_nsec(), old);
        std::thread::sleep(Duration::from_millis(2));
        write(&path, "y");
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > time);
    });
}

#[test]
fn new_files_in_a_set_group_id_directory_get_its_group() {
    in_both_views(|root| {
        let directory = root.join("shared");
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, None, Some(77)).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o2775)).unwrap();
        File::create(directory.join("file")).unwrap();
        fs::create_dir(directory.join("sub")).unwrap();
        assert_eq!(fs::metadata(directory.join("file")).unwrap().gid(), 77);
        let sub = fs::metadata(directory.join("sub")).unwrap();
        assert_eq!((sub.gid(), sub.mode() & 0o2000), (77, 0o2000));
    });
}

#[test]
fn extended_attributes_are_kept() {
    in_both_views(|root| {
        let path = root.join("file");
        write(&path, "");
        let set = |value: &[u8], flags| rustix::fs::setxattr(&path, "user.colour", value, flags);
        assert_eq!(set(b"red", XattrFlags::REPLACE), Err(rustix::io::Errno::NODATA));
        set(b"red", XattrFlags::CREATE).unwrap();
        assert_eq!(set(b"red", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
        set(b"blue", XattrFlags::empty()).unwrap();
        let mut value = [0; 100];
        let len = rustix::fs::getxattr(&path, "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"blue");
        assert_eq!(
            rustix::fs::getxattr(&path, "user.colour", &mut value[..2]),
            Err(rustix::io::Errno::RANGE)
        );
        let len = rustix::fs::listxattr(&path, &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"user.colour\0");
        rustix::fs::removexattr(&path, "user.colour").unwrap();
        assert_eq!(rustix::fs::listxattr(&path, &mut value[..]).unwrap(), 0);
        let acl = rustix::fs::setxattr(&path, "system.posix_acl_access", b"x", XattrFlags::empty());
        assert!(acl.is_err(), "what is not enforced is not stored");
    });
}

#[test]
fn sparse_files_have_holes() {
    in_both_views(|root| {
        let path = root.join("sparse");
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[1; 8192], 1 << 20).unwrap();
        file.set_len(4 << 20).unwrap();
        let seek = |to| rustix::fs::seek(&file, to);
        assert_eq!(seek(SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 8192));
        assert_eq!(seek(SeekFrom::Data(2 << 20)), Err(rustix::io::Errno::NXIO));
        assert!(file.metadata().unwrap().blocks() <= 64);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 1 << 20, 4096).unwrap();
        let mut out = [9; 4097];
        file.read_exact_at(&mut out, 1 << 20).unwrap();
        assert_eq!((&out[..4096], out[4096]), (&[0; 4096][..], 1));
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8 << 20);
        rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 20) + 4096, 4096).unwrap();
        file.read_exact_at(&mut out, (1 << 20) + 4000).unwrap();
        assert_eq!(out, [0; 4097]);
    });
}

#[test]
fn ranges_are_copied_between_files() {
    in_both_views(|root| {
        let data: Vec<u8> = (0..1_000_000u32).map(|i| ((i * 31) >> 8) as u8).collect();
        fs::write(root.join("from"), &data).unwrap();
        let from = File::open(root.join("from")).unwrap();
        let to = File::create(root.join("to")).unwrap();
        let (mut at_from, mut at_to) = (0, 0);
        loop {
            let count =
                rustix::fs::copy_file_range(&from, Some(&mut at_from), &to, Some(&mut at_to), 1 << 30)
                    .unwrap();
            if count == 0 {
                break;
            }
        }
        assert_eq!(fs::read(root.join("to")).unwrap(), data);
    });
}

#[test]
fn special_files_and_locks() {
    in_both_views(|root| {
        let make = |name: &str, kind, device| {
            rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o600), device).unwrap();
            fs::symlink_metadata(root.join(name)).unwrap()
        };
        use rustix::fs::FileType;
        assert_eq!(make("fifo", FileType::Fifo, 0).mode(), 0o010_600);
        assert_eq!(make("socket", FileType::Socket, 0).mode(), 0o140_600);
        if rustix::process::geteuid().is_root() {
            let device = rustix::fs::makedev(1, 3);
            assert_eq!(make("null", FileType::CharacterDevice, device).rdev(), device);
        }
        let one = File::create(root.join("locked")).unwrap();
        let two = File::open(root.join("locked")).unwrap();
        one.lock().unwrap();
        assert!(two.try_lock_shared().is_err());
        drop(one);
        two.try_lock_shared().unwrap();
    });
}

#[test]
fn the_file_system_tells_its_size() {
    let Some(fixture) = Fixture::new() else { return };
    let statfs = rustix::fs::statvfs(&fixture.root).unwrap();
    assert!(statfs.f_blocks > 0 && statfs.f_bavail > 0 && statfs.f_bavail <= statfs.f_blocks);
    assert_eq!(statfs.f_namemax, 255);
    let long = "x".repeat(256);
    assert_eq!(errno(File::create(fixture.path(&long))), 36);
    File::create(fixture.path(&long[1..])).unwrap();
    fixture.finish();
}

#[test]
fn the_mounts_own_directory_is_hidden_and_cannot_be_changed() {
    let Some(fixture) = Fixture::new() else { return };
    assert_eq!(names(&fixture.root), Vec::<String>::new());
    assert!(fixture.path(".txfs/tx").is_dir());
    assert_eq!(names(&fixture.path(".txfs/tx")), Vec::<String>::new());
    assert_eq!(errno(fs::create_dir(fixture.path(".txfs"))), 17);
    assert_eq!(errno(File::create(fixture.path(".txfs/x"))), 1);
    assert_eq!(errno(fs::create_dir(fixture.path(".txfs/tx/1"))), 1);
    assert_eq!(errno(fs::remove_dir(fixture.path(".txfs/tx"))), 1);
    assert_eq!(errno(fs::remove_dir(fixture.path(".txfs"))), 1);
    write(&fixture.path("f"), "");
    assert_eq!(errno(fs::rename(fixture.path("f"), fixture.path(".txfs/f"))), 1);
    assert_eq!(errno(fs::hard_link(fixture.path("f"), fixture.path(".txfs/f"))), 1);
    assert_eq!(errno(fs::read(fixture.path(".txfs/tx/1-0000000000000000"))), 2);
    fixture.finish();
}

#[test]
fn a_volume_keeps_its_files_over_a_remount() {
    let Some(mut fixture) = Fixture::new() else { return };
    fs::create_dir(fixture.path("d")).unwrap();
    write(&fixture.path("d/f"), "kept");
    let mounted = fixture.mounted.take().unwrap();
    common::patiently("unmounting", || mounted.unmount(false));
    mounted.wait().unwrap();
    assert_eq!(names(&fixture.root), Vec::<String>::new());
    let volume = txfs::Volume::open(&fixture.volume_path).unwrap();
    let again =
        txfs_fuse::mount(volume, &fixture.volume_path, &fixture.root, &txfs_fuse::MountOptions::default())
            .unwrap();
    assert_eq!(read(&fixture.path("d/f")), "kept");
    common::patiently("unmounting", || again.unmount(false));
    again.wait().unwrap();
}
