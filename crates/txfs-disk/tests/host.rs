//! The host disk: what probing finds and leaves, how creating fails, and what errors say.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use txfs_disk::host::{HostDisk, HostOptions};
use txfs_disk::{AlignedBuffer, Disk, HostError, errno};

fn temporary() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).expect("read").count()
}

#[test]
fn create_takes_new_and_empty_directories() {
    let place = temporary();
    let new = place.path().join("new");
    let disk = HostDisk::create(&new).expect("create");
    assert_eq!(disk.path(), new);
    drop(disk);
    HostDisk::create(&new).expect("an empty directory will do");
    fs::write(new.join("something"), b"x").expect("write");
    let error = HostDisk::create(&new).expect_err("not empty");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("not empty"), "{error}");
    assert!(error.to_string().contains(&new.display().to_string()), "{error}");
    HostDisk::open(&new).expect("opening takes it as it is");
}

#[test]
fn create_fails_clearly() {
    let place = temporary();
    let file = place.path().join("file");
    fs::write(&file, b"precious").expect("write");
    let error = HostDisk::create(&file).expect_err("a file is in the way");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("not a directory"), "{error}");
    assert_eq!(fs::read(&file).expect("read"), b"precious");

    let orphan = place.path().join("missing/volume");
    let error = HostDisk::create(&orphan).expect_err("no parent");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("missing/volume"), "{error}");
    assert_eq!(HostDisk::open(&orphan).expect_err("nothing there").kind(), ErrorKind::NotFound);
    assert_eq!(HostDisk::open(&file).expect_err("a file").kind(), ErrorKind::NotADirectory);
}

#[test]
fn a_relative_path_in_the_current_directory_will_do() {
    let place = temporary();
    // `create` syncs the parent, which such a path does not name
    let name = place.path().file_name().expect("a name").to_owned();
    let relative = Path::new("target-that-does-not-exist").join(&name);
    assert_eq!(HostDisk::create(&relative).expect_err("no parent").kind(), ErrorKind::NotFound);
    let plain = format!("volume-{}", std::process::id());
    HostDisk::create(&plain).expect("create in the current directory");
    fs::remove_dir(&plain).expect("remove");
}

#[test]
fn errors_name_the_file_and_keep_the_number() {
    let place = temporary();
    let disk = HostDisk::open(place.path()).expect("open");
    let error = disk.open("segment-7").expect_err("missing");
    assert!(error.to_string().contains("segment-7"), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(errno(&error), Some(2));
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<HostError>()).expect("typed");
    assert_eq!(inner.path, place.path().join("segment-7"));
}

#[test]
fn links_are_not_followed() {
    let place = temporary();
    let outside = place.path().join("outside");
    fs::write(&outside, b"precious").expect("write");
    let volume = place.path().join("volume");
    let disk = HostDisk::create(&volume).expect("create");
    std::os::unix::fs::symlink(&outside, volume.join("segment")).expect("symlink");
    assert!(disk.open("segment").is_err());
    assert!(disk.try_lock("segment", "note").is_err());
    assert_eq!(fs::read(&outside).expect("read"), b"precious");
}

#[test]
fn probing_is_cheap_and_leaves_nothing() {
    let place = temporary();
    // as a crash would leave it on a file system without nameless files
    fs::write(place.path().join(".txfs-probe"), b"leftover").expect("write");
    let start = Instant::now();
    let disk = HostDisk::open(place.path()).expect("open");
    println!("{:?} in {:?}", disk.capabilities(), start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(entries(place.path()), 0);
}

#[test]
fn ext4_takes_direct_data_sync_writes() {
    let place = temporary();
    let capabilities = HostDisk::open(place.path()).expect("open").capabilities();
    if capabilities.description == "ext4" {
        assert!(capabilities.direct && capabilities.data_sync_writes, "{capabilities:?}");
    }
}

#[test]
fn options_and_memory_file_systems_fall_back() {
    let mut places = vec![temporary()];
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let disk = HostDisk::open(memory.path()).expect("open");
        println!("{:?}", disk.capabilities());
        assert_eq!(disk.capabilities().description, "tmpfs");
        places.push(memory);
    }
    for place in places {
        let options = HostOptions { direct: false, data_sync_writes: false };
        let disk = HostDisk::open_with(place.path(), options).expect("open");
        let capabilities = disk.capabilities();
        assert!(!capabilities.direct && !capabilities.data_sync_writes);
        assert_eq!(capabilities.sector_bytes, 512);
        let file = disk.create("log").expect("create");
        file.set_len(8192).expect("grow");
        let mut data = AlignedBuffer::new();
        data.extend_from_slice(&[5; 1024]);
        file.write_log(512, &data, true).expect("durable");
        file.write_log(4096, &data, false).expect("not durable");
        file.sync().expect("sync");
        let bytes = fs::read(place.path().join("log")).expect("read");
        assert_eq!(bytes.len(), 8192);
        assert_eq!(bytes.iter().filter(|byte| **byte == 5).count(), 2048);
    }
}

#[test]
fn a_directory_without_write_permission_still_opens() {
    // root ignores permissions, so what is checked is that nothing depends on the probe
    let place = temporary();
    fs::write(place.path().join("file"), b"here").expect("write");
    let mut permissions = fs::metadata(place.path()).expect("metadata").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(place.path(), permissions).expect("chmod");
    let disk = HostDisk::open(place.path()).expect("open");
    assert_eq!(disk.list().expect("list"), ["file"]);
}

#[test]
fn a_moved_volume_keeps_working() {
    let place = temporary();
    let (before, after) = (place.path().join("before"), place.path().join("after"));
    let disk = HostDisk::create(&before).expect("create");
    fs::rename(&before, &after).expect("rename");
    disk.create("file").expect("create").write_at(0, b"x").expect("write");
    assert_eq!(fs::read(after.join("file")).expect("read"), b"x");
}

#[test]
fn the_lock_tells_its_owner_and_dies_with_it() {
    let place = temporary();
    let disk = HostDisk::open(place.path()).expect("open");
    let other = HostDisk::open(place.path()).expect("open");
    let guard = disk.try_lock("LOCK", "4711").expect("lock");
    assert_eq!(fs::read_to_string(place.path().join("LOCK")).expect("read"), "4711");
    let held = format!("{:?}", other.try_lock("LOCK", "4712").expect("try"));
    assert!(held.contains("4711"), "{held}");
    drop(guard);
    assert_eq!(fs::read_to_string(place.path().join("LOCK")).expect("read"), "", "no stale note");
    let again = format!("{:?}", other.try_lock("LOCK", "4712").expect("try"));
    assert!(again.starts_with("Acquired"), "{again}");
}
