//! The simulated disk's other troubles: power lost at a chosen step, failing operations, full disks, damage.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;
use txfs_disk::sim::{Damage, Fault, Operation, PowerLost, SimOptions, SimulatedDisk};
use txfs_disk::{AlignedBuffer, Disk, DiskFile, LockOutcome, errno};

const SECTOR: usize = 512;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn sectors(byte: u8, count: usize) -> AlignedBuffer {
    AlignedBuffer::from(&vec![byte; count * SECTOR][..])
}

fn disk_with_file(count: usize) -> (SimulatedDisk, Arc<dyn DiskFile>) {
    let disk = SimulatedDisk::new(SimOptions::default());
    let file = disk.create("f").expect("create");
    file.set_len((count * SECTOR) as u64).expect("grow");
    file.sync().expect("sync");
    disk.sync_directory().expect("sync directory");
    (disk, file)
}

fn marks(disk: &SimulatedDisk) -> Vec<u8> {
    disk.file_bytes("f").unwrap_or_default().iter().step_by(SECTOR).copied().collect()
}

fn outcomes(disk: &SimulatedDisk, seeds: u64) -> HashSet<Vec<u8>> {
    (0..seeds).map(|seed| marks(&disk.crash(seed))).collect()
}

/// Saves a value the way careful programs do: write a new file, sync it, rename it, sync the directory.
fn save(disk: &SimulatedDisk, value: u8) -> io::Result<()> {
    let file = disk.create("new")?;
    file.write_at(0, &[value; 2 * SECTOR])?;
    file.sync()?;
    disk.rename("new", "f")?;
    disk.sync_directory()
}

#[test]
fn power_can_be_cut_at_every_step() {
    let whole = SimulatedDisk::new(SimOptions::default());
    save(&whole, 1).expect("save");
    save(&whole, 2).expect("save");
    assert_eq!(whole.steps(), 10);
    let mut seen = HashSet::new();
    for last_step in 0..=10 {
        let disk = SimulatedDisk::new(SimOptions::default());
        disk.power_off_after(last_step);
        let saved = (1..=2).take_while(|value| save(&disk, *value).is_ok()).count();
        assert_eq!(saved as u64, last_step / 5, "steps {last_step}");
        assert_eq!(disk.power_lost(), last_step < 10);
        for seed in 0..60 {
            let found = marks(&disk.crash(seed));
            let allowed: Vec<Vec<u8>> = (saved as u8..=2.min(saved as u8 + 1))
                .map(|value| if value == 0 { vec![] } else { vec![value; 2] })
                .collect();
            assert!(allowed.contains(&found), "step {last_step} seed {seed}: {found:?} not in {allowed:?}");
            seen.insert(found);
        }
    }
    assert_eq!(seen.len(), 3);
}

#[test]
fn without_power_everything_fails_and_nothing_changes() {
    let (disk, file) = disk_with_file(2);
    file.write_at(0, &[1; SECTOR]).expect("write");
    disk.power_off();
    let (steps, before) = (disk.steps(), disk.fingerprint());
    let errors = [
        file.write_at(0, b"x").expect_err("write"),
        file.write_log(0, &sectors(2, 1), true).expect_err("log write"),
        file.set_len(0).expect_err("set_len"),
        file.sync().expect_err("sync"),
        file.len().expect_err("len"),
        file.read_at(0, &mut [0; 1]).expect_err("read"),
        disk.create("g").expect_err("create"),
        disk.open("f").expect_err("open"),
        disk.rename("f", "g").expect_err("rename"),
        disk.remove("f").expect_err("remove"),
        disk.sync_directory().expect_err("sync directory"),
        disk.list().expect_err("list"),
        disk.free_bytes().expect_err("free bytes"),
        disk.try_lock("LOCK", "").expect_err("lock"),
    ];
    assert!(errors.iter().all(PowerLost::is), "{errors:?}");
    assert_eq!((disk.steps(), disk.fingerprint()), (steps, before));
    let after = disk.crash(0);
    assert!(!after.power_lost());
    after.open("f").expect("open").sync().expect("the new disk has power");
}

#[test]
fn the_step_that_power_interrupts_is_in_doubt() {
    let (disk, file) = disk_with_file(3);
    disk.power_off_after(disk.steps());
    let error = file.write_log(0, &sectors(5, 3), true).expect_err("interrupted");
    assert!(PowerLost::is(&error));
    assert_eq!(outcomes(&disk, 500).len(), 8, "any part of the write may have been done");

    let (disk, file) = disk_with_file(1);
    file.write_at(0, &[4; SECTOR]).expect("write");
    disk.power_off_after(disk.steps());
    file.sync().expect_err("interrupted");
    assert_eq!(outcomes(&disk, 200), HashSet::from([vec![0], vec![4]]));

    let (disk, _) = disk_with_file(1);
    disk.power_off_after(disk.steps());
    disk.rename("f", "g").expect_err("interrupted");
    let names: HashSet<Vec<String>> = (0..100).map(|seed| disk.crash(seed).list().expect("list")).collect();
    assert_eq!(names.len(), 2);
}

#[test]
fn observers_see_every_step_and_crash_there() {
    let disk = SimulatedDisk::new(SimOptions::default());
    let log = Arc::new(Mutex::new(Vec::new()));
    let torn = Arc::new(Mutex::new(HashSet::new()));
    let (log_inside, torn_inside) = (log.clone(), torn.clone());
    disk.observe(move |disk, step| {
        log_inside.lock().push(*step);
        if !step.complete {
            torn_inside.lock().extend((0..300).map(|seed| marks(&disk.crash(seed))));
        }
    });
    save(&disk, 1).expect("save");
    let file = disk.open("f").expect("open");
    file.write_log(0, &sectors(2, 2), true).expect("durable");
    disk.stop_observing();
    file.sync().expect("sync");
    let log = log.lock();
    let operations: Vec<Operation> = log.iter().map(|step| step.operation).collect();
    use Operation::*;
    let durable = LogWrite { durable: true };
    assert_eq!(operations, [Create, Write, Sync, Rename, SyncDirectory, durable, durable]);
    assert_eq!(log.iter().map(|step| step.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 6]);
    assert_eq!(log.iter().filter(|step| !step.complete).count(), 1);
    let expected = [[1, 1], [2, 1], [1, 2], [2, 2]].map(Vec::from);
    assert_eq!(*torn.lock(), HashSet::from(expected), "in the midst of the write it may be torn");
    assert_eq!(outcomes(&disk, 50), HashSet::from([vec![2, 2]]));
}

#[test]
fn a_failed_sync_loses_data_that_a_later_sync_does_not_bring_back() {
    let mut evicted = 0;
    let mut lost = 0;
    for seed in 0..40 {
        let disk = SimulatedDisk::new(SimOptions { seed, ..SimOptions::default() });
        let file = disk.create("f").expect("create");
        file.set_len(8 * SECTOR as u64).expect("grow");
        file.sync().expect("sync");
        disk.sync_directory().expect("sync directory");
        file.write_at(0, &[1; 8 * SECTOR]).expect("write");
        disk.fail_next(Fault::Sync, 1);
        assert_eq!(errno(&file.sync().expect_err("armed")), Some(EIO));
        evicted += usize::from(marks(&disk) != [1; 8]);
        file.sync().expect("the next sync claims success");
        let stable = outcomes(&disk, 20);
        assert_eq!(stable.len(), 1, "nothing is in doubt any more");
        lost += usize::from(!stable.contains(&vec![1; 8]));
        file.write_at(0, &[2; SECTOR]).expect("write");
        file.sync().expect("sync");
        assert!(outcomes(&disk, 20).iter().all(|marks| marks[0] == 2), "new writes are synced again");
    }
    assert!(lost > 30, "{lost} of 40");
    assert!((5..35).contains(&evicted), "readers may or may not notice: {evicted} of 40");
}

#[test]
fn a_failed_directory_sync_loses_names_for_good() {
    let mut kept = HashSet::new();
    for seed in 0..60 {
        let disk = SimulatedDisk::new(SimOptions { seed, ..SimOptions::default() });
        disk.create("a").expect("create");
        disk.create("b").expect("create");
        disk.fail_next(Fault::SyncDirectory, 1);
        assert_eq!(errno(&disk.sync_directory().expect_err("armed")), Some(EIO));
        disk.create("c").expect("create");
        disk.sync_directory().expect("the next one claims success");
        kept.insert(disk.crash(seed).list().expect("list").join(""));
    }
    assert_eq!(kept, HashSet::from(["c", "ac", "abc"].map(str::to_owned)));
}

#[test]
fn failing_operations_say_why() {
    let (disk, file) = disk_with_file(8);
    disk.fail_next(Fault::Read, 2);
    file.read_at(0, &mut [0; 8]).expect("the first read");
    assert_eq!(errno(&file.read_at(0, &mut [0; 8]).expect_err("the second")), Some(EIO));
    file.read_at(0, &mut [0; 8]).expect("the third");

    disk.fail_next(Fault::Write, 1);
    assert_eq!(errno(&file.write_at(0, &[1; 4 * SECTOR]).expect_err("armed")), Some(EIO));
    disk.fail_next(Fault::WriteNoSpace, 1);
    let error = file.write_log(0, &sectors(1, 4), true).expect_err("armed");
    assert_eq!((errno(&error), error.kind()), (Some(ENOSPC), ErrorKind::StorageFull));
    disk.fail_next(Fault::SetLenNoSpace, 1);
    assert_eq!(errno(&file.set_len(1 << 20).expect_err("armed")), Some(ENOSPC));
    assert_eq!(file.len().expect("len"), 8 * SECTOR as u64);
    disk.fail_next(Fault::Name, 2);
    disk.create("g").expect("the first");
    assert_eq!(errno(&disk.rename("g", "h").expect_err("the second")), Some(EIO));
    assert_eq!(disk.list().expect("list"), ["f", "g"]);

    disk.fail_from(Fault::Read, 1);
    for _ in 0..3 {
        assert!(file.read_at(0, &mut [0; 8]).is_err());
    }
    disk.clear_faults();
    file.read_at(0, &mut [0; 8]).expect("disarmed");
}

#[test]
fn a_failed_write_may_be_partly_done() {
    let mut lens = HashSet::new();
    for seed in 0..100 {
        let disk = SimulatedDisk::new(SimOptions { seed, ..SimOptions::default() });
        let file = disk.create("f").expect("create");
        disk.fail_next(Fault::Write, 1);
        file.write_at(0, &[1; 3 * SECTOR]).expect_err("armed");
        lens.insert(file.len().expect("len"));
    }
    assert_eq!(lens, HashSet::from([0, 512, 1024, 1536]));
}

#[test]
fn space_runs_out_and_comes_back() {
    const BLOCK: usize = 4096;
    let capacity_bytes = Some(10 * BLOCK as u64);
    let disk = SimulatedDisk::new(SimOptions { capacity_bytes, ..SimOptions::default() });
    let file = disk.create("f").expect("create");
    file.write_at(0, &[1; 5 * BLOCK + 1]).expect("write");
    assert_eq!(disk.free_bytes().expect("free"), 4 * BLOCK as u64);
    let other = disk.create("g").expect("create");
    let error = other.write_at(0, &[1; 4 * BLOCK + 1]).expect_err("one byte too many");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(other.len().expect("len"), 0);
    other.set_len(1 << 30).expect("holes take nothing");
    other.write_at(1 << 20, &[0; 4 * BLOCK]).expect("exactly full, zeros count");
    other.write_at(1 << 20, &[1; 4 * BLOCK]).expect("writing over what is there needs no space");
    assert_eq!(disk.free_bytes().expect("free"), 0);
    assert_eq!(file.write_at(6 * BLOCK as u64, &[1]).expect_err("full").kind(), ErrorKind::StorageFull);
    disk.remove("g").expect("remove");
    assert_eq!(disk.free_bytes().expect("free"), 0, "it is still open");
    disk.sync_directory().expect("sync");
    assert_eq!(disk.free_bytes().expect("free"), 0, "it is still open");
    drop(other);
    assert_eq!(disk.free_bytes().expect("free"), 4 * BLOCK as u64);
    file.set_len(BLOCK as u64 + 1).expect("cut");
    assert_eq!(disk.used_bytes(), 2 * BLOCK as u64);
    file.sync().expect("sync");
    assert_eq!(disk.crash(1).free_bytes().expect("free"), 8 * BLOCK as u64, "a crash keeps the capacity");
    disk.set_capacity(None);
    file.write_at(0, &[1; 20 * BLOCK]).expect("no limit");
}

#[test]
fn wild_lengths_are_errors() {
    let (_, file) = disk_with_file(1);
    assert!(file.set_len(u64::MAX).is_err());
    assert!(file.write_at(u64::MAX - 3, b"12345678").is_err());
    assert!(file.write_at(1 << 60, b"1").is_err());
    assert!(file.read_at(u64::MAX, &mut [0; 4]).is_err());
    let error = file.write_log(SECTOR as u64, &sectors(1, 1), true).expect_err("outside the file");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn flipped_bits_show_at_once_and_after_a_crash() {
    let (disk, file) = disk_with_file(1);
    file.write_at(0, &[1; SECTOR]).expect("write");
    file.sync().expect("sync");
    disk.flip_bit("f", 100, 3).expect("flip");
    for disk in [disk.clone(), disk.crash(1)] {
        let bytes = disk.file_bytes("f").expect("file");
        assert_eq!(bytes[100], 0b1001);
        assert_eq!(bytes.iter().filter(|byte| **byte != 1).count(), 1);
    }
    assert!(disk.flip_bit("f", SECTOR as u64, 0).is_err());
    assert!(disk.flip_bit("missing", 0, 0).is_err());
}

#[test]
fn random_damage_changes_one_sector_and_says_which() {
    let (disk, file) = disk_with_file(300);
    assert!(disk.corrupt(0).is_none(), "holes are not damaged");
    let mut random = fastrand::Rng::with_seed(3);
    file.write_at(50, &std::iter::repeat_with(|| random.u8(1..)).take(90_000).collect::<Vec<_>>())
        .expect("write");
    file.sync().expect("sync");
    let before = disk.file_bytes("f").expect("file");
    let mut kinds = HashSet::new();
    for seed in 0..200 {
        let damaged = disk.fork();
        let corruption = damaged.corrupt(seed).expect("there is something to damage");
        assert_eq!(disk.fork().corrupt(seed), Some(corruption.clone()), "damage repeats");
        let after = damaged.file_bytes("f").expect("file");
        assert_eq!(before.len(), after.len());
        let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        assert!(!changed.is_empty(), "seed {seed} changed nothing: {corruption:?}");
        let sector = corruption.offset as usize / SECTOR;
        assert!(changed.iter().all(|at| at / SECTOR == sector), "{corruption:?}");
        assert_eq!(damaged.crash(0).file_bytes("f"), Some(after), "damage is on stable storage");
        kinds.insert(std::mem::discriminant(&corruption.damage));
    }
    assert_eq!(kinds.len(), 4, "every kind of damage comes up");
    assert!(matches!(disk.fork().corrupt(1).expect("damage").damage, Damage::FlippedBit { .. } | _));
}

#[test]
fn a_lock_dies_with_the_power() {
    let (disk, _) = disk_with_file(1);
    let LockOutcome::Acquired(_guard) = disk.try_lock("LOCK", "owner").expect("lock") else {
        panic!("free");
    };
    disk.power_off();
    assert!(matches!(disk.crash(0).try_lock("LOCK", "next").expect("lock"), LockOutcome::Acquired(_)));
}
