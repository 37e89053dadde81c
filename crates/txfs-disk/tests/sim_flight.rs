//! Log writes in flight together: completed in any order, lost or kept independently.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use txfs_disk::sim::{Completion, PowerLost, SimOptions, SimulatedDisk};
use txfs_disk::{AlignedBuffer, Disk, DiskFile};

const SECTOR: usize = 512;
const LONG: Duration = Duration::from_secs(20);

fn log_of(count: usize) -> (SimulatedDisk, Arc<dyn DiskFile>) {
    let disk = SimulatedDisk::new(SimOptions::default());
    let file = disk.create("log").expect("create");
    file.set_len((count * SECTOR) as u64).expect("grow");
    file.sync().expect("sync");
    disk.sync_directory().expect("sync directory");
    (disk, file)
}

/// Issues a durable write of one sector, and waits until it is held. Sector n gets the byte n + 1.
fn issue<'scope>(
    scope: &'scope Scope<'scope, '_>,
    disk: &SimulatedDisk,
    file: &Arc<dyn DiskFile>,
    sector: usize,
) -> (u64, ScopedJoinHandle<'scope, std::io::Result<()>>) {
    let before = disk.held().len();
    let file = file.clone();
    let thread = scope.spawn(move || {
        let buffer = AlignedBuffer::from(&[sector as u8 + 1; SECTOR][..]);
        file.write_log((sector * SECTOR) as u64, &buffer, true)
    });
    assert!(disk.wait_for_held(before + 1, LONG));
    let write = disk.held().pop().expect("held");
    assert_eq!((write.file.as_str(), write.offset, write.durable), ("log", (sector * SECTOR) as u64, true));
    (write.number, thread)
}

fn marks(disk: &SimulatedDisk) -> Vec<u8> {
    disk.file_bytes("log").expect("log").iter().step_by(SECTOR).copied().collect()
}

fn outcomes(disk: &SimulatedDisk) -> HashSet<Vec<u8>> {
    (0..400).map(|seed| marks(&disk.crash(seed))).collect()
}

#[test]
fn writes_in_flight_are_kept_or_lost_by_themselves() {
    let (disk, file) = log_of(3);
    disk.hold_log_writes(true);
    std::thread::scope(|scope| {
        let (_, first) = issue(scope, &disk, &file, 0);
        let (second, landed) = issue(scope, &disk, &file, 1);
        let (_, third) = issue(scope, &disk, &file, 2);
        assert_eq!(marks(&disk), [0, 0, 0], "readers do not see what is in flight");
        assert_eq!(disk.unflushed().writes, 3);
        assert_eq!(outcomes(&disk).len(), 8);
        assert!(disk.release(second, Completion::Succeeds));
        landed.join().expect("no panic").expect("it succeeds");
        assert!(!disk.release(second, Completion::Succeeds), "it is gone");
        assert_eq!(marks(&disk), [0, 2, 0]);
        let expected = [[0, 2, 0], [1, 2, 0], [0, 2, 3], [1, 2, 3]].map(Vec::from);
        assert_eq!(outcomes(&disk), HashSet::from(expected));
        // a flush covers what has landed only
        file.sync().expect("sync");
        assert_eq!(outcomes(&disk).len(), 4);
        assert_eq!(marks(&disk.fork()), [1, 2, 3], "what a killed process had issued arrives");
        disk.power_off();
        for thread in [first, third] {
            assert!(PowerLost::is(&thread.join().expect("no panic").expect_err("power is gone")));
        }
        assert_eq!(outcomes(&disk).len(), 4);
    });
}

#[test]
fn a_held_write_may_fail_and_the_end_of_holding_lets_all_go() {
    let (disk, file) = log_of(2);
    disk.hold_log_writes(true);
    std::thread::scope(|scope| {
        let (number, first) = issue(scope, &disk, &file, 0);
        let (_, second) = issue(scope, &disk, &file, 1);
        disk.release(number, Completion::Fails);
        assert_eq!(first.join().expect("no panic").expect_err("fails").raw_os_error(), Some(5));
        disk.hold_log_writes(false);
        second.join().expect("no panic").expect("it succeeds");
        assert_eq!(marks(&disk.crash(1))[1], 2);
    });
    file.write_log(0, &AlignedBuffer::from(&[9; SECTOR][..]), true).expect("nothing is held any more");
}

#[test]
fn power_lost_at_a_step_ends_all_waiting() {
    let (disk, file) = log_of(2);
    disk.hold_log_writes(true);
    disk.power_off_after(disk.steps() + 1);
    std::thread::scope(|scope| {
        let (_, first) = issue(scope, &disk, &file, 0);
        file.sync().expect_err("the power fails here");
        assert!(PowerLost::is(&first.join().expect("no panic").expect_err("power is gone")));
    });
}

#[test]
fn several_buffers_are_held_as_one_write() {
    let (disk, file) = log_of(3);
    disk.hold_log_writes(true);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let buffers = [1, 2, 3].map(|byte| AlignedBuffer::from(&[byte; SECTOR][..]));
            file.write_log_vectored(0, &buffers.iter().collect::<Vec<_>>(), true)
        });
        assert!(disk.wait_for_held(1, LONG));
        let held = disk.held();
        assert_eq!((held.len(), held[0].len), (1, 3 * SECTOR));
        disk.release(held[0].number, Completion::Succeeds);
        thread.join().expect("thread").expect("write");
    });
    disk.hold_log_writes(false);
    assert_eq!(outcomes(&disk), HashSet::from([vec![1, 2, 3]]));
}
