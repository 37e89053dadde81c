//! What both disks promise, checked by the same functions on every kind of disk that this machine has.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use txfs_disk::host::{HostDisk, HostOptions};
use txfs_disk::sim::{SimOptions, SimulatedDisk};
use txfs_disk::{AlignedBuffer, Disk, DiskFile, LockOutcome};

/// Runs a check on simulated disks and on host directories, in every way that log writes can be made there.
fn on_every_disk(check: impl Fn(&Arc<dyn Disk>)) {
    for sector_bytes in [512, 4096] {
        let simulated = SimulatedDisk::new(SimOptions { sector_bytes, ..SimOptions::default() });
        check(&simulated.as_disk());
    }
    let places = [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"];
    for place in places.iter().map(Path::new).filter(|place| place.is_dir()) {
        for (direct, data_sync_writes) in [(true, true), (true, false), (false, true), (false, false)] {
            let directory = tempfile::tempdir_in(place).expect("a temporary directory");
            let options = HostOptions { direct, data_sync_writes };
            let disk: Arc<dyn Disk> = Arc::new(HostDisk::open_with(directory.path(), options).expect("open"));
            assert!(direct || !disk.capabilities().direct);
            assert!(data_sync_writes || !disk.capabilities().data_sync_writes);
            check(&disk);
        }
    }
}

fn filled(byte: u8, len: usize) -> AlignedBuffer {
    AlignedBuffer::from(&vec![byte; len][..])
}

fn contents(file: &Arc<dyn DiskFile>) -> Vec<u8> {
    let mut bytes = vec![0xee; file.len().expect("len") as usize];
    file.read_at(0, &mut bytes).expect("read");
    bytes
}

fn sorted_names(disk: &Arc<dyn Disk>) -> Vec<String> {
    let mut names = disk.list().expect("list");
    names.sort();
    names
}

#[test]
fn names_come_and_go() {
    on_every_disk(|disk| {
        assert!(sorted_names(disk).is_empty(), "nothing is left by opening");
        assert_eq!(disk.open("a").expect_err("missing").kind(), ErrorKind::NotFound);
        let file = disk.create("a").expect("create");
        assert!(file.is_empty().expect("len"));
        file.write_at(0, b"first").expect("write");
        assert_eq!(disk.create("a").expect_err("taken").kind(), ErrorKind::AlreadyExists);
        assert_eq!(contents(&disk.open("a").expect("open")), b"first", "a failed create changes nothing");
        disk.create("b").expect("create").write_at(0, b"second").expect("write");
        assert_eq!(sorted_names(disk), ["a", "b"]);

        disk.rename("b", "a").expect("rename over");
        disk.sync_directory().expect("sync directory");
        assert_eq!(sorted_names(disk), ["a"]);
        assert_eq!(contents(&disk.open("a").expect("open")), b"second");
        assert_eq!(contents(&file), b"first", "an open file outlives its name");
        file.write_at(5, b" more").expect("write to a file without a name");
        assert_eq!(contents(&file), b"first more");

        disk.rename("a", "c").expect("rename");
        assert_eq!(disk.rename("a", "d").expect_err("gone").kind(), ErrorKind::NotFound);
        disk.remove("c").expect("remove");
        assert_eq!(disk.remove("c").expect_err("gone").kind(), ErrorKind::NotFound);
        assert!(sorted_names(disk).is_empty());
    });
}

#[test]
fn odd_names_are_refused() {
    on_every_disk(|disk| {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "nul\0", &"x".repeat(256)] {
            assert_eq!(disk.create(name).expect_err(name).kind(), ErrorKind::InvalidInput);
            assert_eq!(disk.open(name).expect_err(name).kind(), ErrorKind::InvalidInput);
            assert_eq!(disk.remove(name).expect_err(name).kind(), ErrorKind::InvalidInput);
            assert_eq!(disk.rename("a", name).expect_err(name).kind(), ErrorKind::InvalidInput);
            assert_eq!(disk.rename(name, "a").expect_err(name).kind(), ErrorKind::InvalidInput);
            assert!(disk.try_lock(name, "").is_err());
        }
    });
}

#[test]
fn lengths_change_with_zeros() {
    on_every_disk(|disk| {
        let file = disk.create("f").expect("create");
        file.set_len(3 << 20).expect("grow");
        assert_eq!(file.len().expect("len"), 3 << 20);
        assert!(contents(&file).iter().all(|byte| *byte == 0));
        file.write_at(0, &[1; 10_000]).expect("write");
        file.set_len(5000).expect("cut");
        file.set_len(20_000).expect("grow");
        let bytes = contents(&file);
        assert!(bytes[..5000].iter().all(|byte| *byte == 1));
        assert!(bytes[5000..].iter().all(|byte| *byte == 0), "what was cut off does not come back");
        file.write_at(30_000, b"x").expect("write past the end");
        assert_eq!(file.len().expect("len"), 30_001);
        file.sync().expect("sync");
        file.write_at(30_001, b"").expect("an empty write");
        assert_eq!(file.len().expect("len"), 30_001);
    });
}

#[test]
fn reads_past_the_end_fail() {
    on_every_disk(|disk| {
        let file = disk.create("f").expect("create");
        file.write_at(0, &[7; 100]).expect("write");
        let mut buffer = [0; 50];
        file.read_at(50, &mut buffer).expect("up to the end");
        assert_eq!(file.read_at(51, &mut buffer).expect_err("past").kind(), ErrorKind::UnexpectedEof);
        assert_eq!(file.read_at(1 << 30, &mut buffer).expect_err("past").kind(), ErrorKind::UnexpectedEof);
        file.read_at(100, &mut []).expect("nothing, at the end");
    });
}

#[test]
fn log_writes_are_whole_sectors() {
    on_every_disk(|disk| {
        let sector_bytes = disk.capabilities().sector_bytes;
        assert!(sector_bytes.is_power_of_two() && (512..=4096).contains(&sector_bytes));
        let file = disk.create("log").expect("create");
        file.set_len(1 << 20).expect("grow");
        let sector = filled(1, sector_bytes);
        for durable in [false, true] {
            let misplaced = file.write_log(7, &sector, durable).expect_err("offset");
            assert_eq!(misplaced.kind(), ErrorKind::InvalidInput);
            let cut = file.write_log(0, &filled(1, sector_bytes - 1), durable).expect_err("length");
            assert_eq!(cut.kind(), ErrorKind::InvalidInput);
            file.write_log(sector_bytes as u64, &sector, durable).expect("one sector");
            file.write_log((1 << 20) - sector_bytes as u64, &sector, durable).expect("the last sector");
            file.write_log(0, &filled(2, 256 << 10), durable).expect("many sectors");
        }
        assert_eq!(file.len().expect("len"), 1 << 20);
    });
}

#[test]
fn several_buffers_are_one_write_one_behind_the_other() {
    on_every_disk(|disk| {
        let sector_bytes = disk.capabilities().sector_bytes;
        let file = disk.create("log").expect("create");
        file.set_len(1 << 20).expect("grow");
        for durable in [false, true] {
            let buffers = [filled(1, sector_bytes), filled(2, 64 << 10), filled(3, 2 * sector_bytes)];
            let buffers: Vec<_> = buffers.iter().collect();
            file.write_log_vectored(sector_bytes as u64, &buffers, durable).expect("write");
            let expected: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.as_slice()).copied().collect();
            let mut read = vec![0; expected.len()];
            file.read_at(sector_bytes as u64, &mut read).expect("read");
            assert!(read == expected);
            let cut = [&filled(1, sector_bytes), &filled(2, sector_bytes - 1)];
            let cut = file.write_log_vectored(0, &cut, durable).expect_err("length of the second");
            assert_eq!(cut.kind(), ErrorKind::InvalidInput);
        }
        // more than Linux takes in one call
        let buffers: Vec<_> = (0..1500).map(|index| filled(index as u8, 512)).collect();
        if sector_bytes == 512 {
            file.write_log_vectored(0, &buffers.iter().collect::<Vec<_>>(), true).expect("write");
            let mut read = vec![0; 1500 * 512];
            file.read_at(0, &mut read).expect("read");
            assert!(read.chunks(512).zip(&buffers).all(|(read, buffer)| read == buffer.as_slice()));
        }
    });
}

#[test]
fn readers_see_every_kind_of_write_at_once() {
    on_every_disk(|disk| {
        let sector_bytes = disk.capabilities().sector_bytes;
        let mut random = fastrand::Rng::with_seed(11);
        let file = disk.create("f").expect("create");
        const LEN: usize = 128 << 10;
        file.set_len(LEN as u64).expect("grow");
        let reader = disk.open("f").expect("a second handle");
        let mut model = vec![0u8; LEN];
        for round in 0..120 {
            let byte = random.u8(..);
            if random.bool() {
                let offset = random.usize(0..LEN - 9000);
                let len = random.usize(0..9000);
                file.write_at(offset as u64, &vec![byte; len]).expect("write");
                model[offset..offset + len].fill(byte);
            } else {
                let sectors = random.usize(1..5);
                let offset = random.usize(0..LEN / sector_bytes - sectors) * sector_bytes;
                let data = filled(byte, sectors * sector_bytes);
                file.write_log(offset as u64, &data, round % 8 == 0).expect("log write");
                model[offset..offset + data.len()].fill(byte);
            }
            if round % 40 == 0 {
                file.sync().expect("sync");
            }
            let offset = random.usize(0..LEN - 5000);
            let mut bytes = vec![0; random.usize(0..5000)];
            reader.read_at(offset as u64, &mut bytes).expect("read");
            assert_eq!(
                bytes,
                model[offset..offset + bytes.len()],
                "round {round} on {:?}",
                disk.capabilities()
            );
        }
        assert_eq!(contents(&reader), model);
    });
}

#[test]
fn threads_share_a_file() {
    on_every_disk(|disk| {
        let sector_bytes = disk.capabilities().sector_bytes;
        let file = disk.create("f").expect("create");
        file.set_len(32 * 4096).expect("grow");
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let file = file.clone();
                scope.spawn(move || {
                    for round in 0..8 {
                        let offset = (round * 4 + u64::from(thread)) * sector_bytes as u64;
                        file.write_log(offset, &filled(thread + 1, sector_bytes), round == 7).expect("write");
                    }
                });
            }
        });
        for (index, sector) in contents(&file).chunks(sector_bytes).take(32).enumerate() {
            assert!(sector.iter().all(|byte| usize::from(*byte) == index % 4 + 1), "sector {index}");
        }
    });
}

#[test]
fn one_owner_at_a_time() {
    on_every_disk(|disk| {
        let LockOutcome::Acquired(guard) = disk.try_lock("LOCK", "pid 41").expect("lock") else {
            panic!("a new lock is free");
        };
        assert_eq!(sorted_names(disk), ["LOCK"]);
        match disk.try_lock("LOCK", "pid 42").expect("try") {
            LockOutcome::Held { owner } => assert_eq!(owner, "pid 41"),
            LockOutcome::Acquired(_) => panic!("two owners"),
        }
        drop(guard);
        let LockOutcome::Acquired(_guard) = disk.try_lock("LOCK", "pid 43").expect("lock") else {
            panic!("dropping the guard releases the lock");
        };
    });
}

#[test]
fn free_space_is_told() {
    on_every_disk(|disk| assert!(disk.free_bytes().expect("free bytes") > 0));
}
