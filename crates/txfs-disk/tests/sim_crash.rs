//! The simulated disk's power cuts: what must survive, what may be lost, and that every such outcome comes up.

use std::collections::HashSet;
use std::sync::Arc;

use txfs_disk::sim::{FragmentKind, SimOptions, SimulatedDisk, Unflushed};
use txfs_disk::{AlignedBuffer, Disk, DiskFile};

const SECTOR: usize = 512;

fn new_disk() -> SimulatedDisk {
    SimulatedDisk::new(SimOptions::default())
}

fn sectors(byte: u8, count: usize) -> AlignedBuffer {
    AlignedBuffer::from(&vec![byte; count * SECTOR][..])
}

/// A disk with one durable file `f` of the given number of sectors, filled with zeros.
fn disk_with_file(count: usize) -> (SimulatedDisk, Arc<dyn DiskFile>) {
    let disk = new_disk();
    let file = disk.create("f").expect("create");
    file.set_len((count * SECTOR) as u64).expect("grow");
    file.sync().expect("sync");
    disk.sync_directory().expect("sync directory");
    (disk, file)
}

/// The first byte of each sector of `f` after a crash; empty when the file is gone.
fn marks(disk: &SimulatedDisk) -> Vec<u8> {
    let bytes = disk.file_bytes("f").unwrap_or_default();
    for sector in bytes.chunks(SECTOR) {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never a mixture");
    }
    bytes.iter().step_by(SECTOR).copied().collect()
}

fn outcomes(disk: &SimulatedDisk, seeds: u64) -> HashSet<Vec<u8>> {
    (0..seeds).map(|seed| marks(&disk.crash(seed))).collect()
}

#[test]
fn synced_data_survives_every_crash() {
    let (disk, file) = disk_with_file(8);
    file.write_at(0, &[1; 3 * SECTOR]).expect("write");
    file.sync().expect("sync");
    assert_eq!(disk.unflushed(), Unflushed::default());
    assert_eq!(outcomes(&disk, 200), HashSet::from([vec![1, 1, 1, 0, 0, 0, 0, 0]]));
}

#[test]
fn unsynced_sectors_survive_in_every_combination() {
    let (disk, file) = disk_with_file(4);
    file.write_at(0, &[1; 2 * SECTOR]).expect("write");
    file.write_log(2 * SECTOR as u64, &sectors(2, 2), false).expect("write");
    let expected: HashSet<Vec<u8>> = (0..16u8)
        .map(|mask| (0..4).map(|index| if mask >> index & 1 == 1 { index / 2 + 1 } else { 0 }).collect())
        .collect();
    assert_eq!(outcomes(&disk, 2000), expected);
    assert_eq!(marks(&disk), [1, 1, 2, 2], "readers see everything meanwhile");
}

#[test]
fn versions_of_a_sector_survive_one_by_one() {
    let (disk, file) = disk_with_file(1);
    for byte in 1..=3 {
        file.write_at(0, &[byte; SECTOR]).expect("write");
    }
    assert_eq!(outcomes(&disk, 500), HashSet::from([vec![0], vec![1], vec![2], vec![3]]));
}

#[test]
fn small_writes_share_their_sector() {
    let (disk, file) = disk_with_file(1);
    file.write_at(0, b"A").expect("write");
    file.write_at(1, b"B").expect("write");
    let starts: HashSet<Vec<u8>> =
        (0..500).map(|seed| disk.crash(seed).file_bytes("f").expect("file")[..2].to_vec()).collect();
    let expected = [b"\0\0", b"A\0", b"AB"].map(|start| start.to_vec());
    assert_eq!(starts, HashSet::from(expected), "the page cache writes what stands in the sector");
}

#[test]
fn a_durable_log_write_flushes_itself_only() {
    let (disk, file) = disk_with_file(4);
    file.write_at(0, &[1; SECTOR]).expect("write");
    file.write_log(SECTOR as u64, &sectors(2, 1), true).expect("durable");
    file.write_log(3 * SECTOR as u64, &sectors(3, 1), false).expect("write");
    let found = outcomes(&disk, 500);
    let expected = [[0, 2, 0, 0], [1, 2, 0, 0], [0, 2, 0, 3], [1, 2, 0, 3]].map(Vec::from);
    assert_eq!(found, HashSet::from(expected));
}

#[test]
fn a_durable_log_write_beats_older_writes_to_its_sectors() {
    let (disk, file) = disk_with_file(4);
    file.write_at(0, &[1; 4 * SECTOR]).expect("write");
    file.write_log(SECTOR as u64, &sectors(2, 2), true).expect("durable");
    assert_eq!(disk.unflushed().sectors, 2);
    let found = outcomes(&disk, 500);
    let expected = [[0, 2, 2, 0], [1, 2, 2, 0], [0, 2, 2, 1], [1, 2, 2, 1]].map(Vec::from);
    assert_eq!(found, HashSet::from(expected));
    file.write_at(SECTOR as u64, &[4; SECTOR]).expect("a later write is in doubt again");
    assert!(outcomes(&disk, 500).contains(&vec![0, 4, 2, 0]));
}

#[test]
fn a_durable_log_write_keeps_the_length_it_needs() {
    let disk = new_disk();
    let file = disk.create("f").expect("create");
    disk.sync_directory().expect("sync directory");
    file.set_len(8 * SECTOR as u64).expect("grow");
    file.write_log(SECTOR as u64, &sectors(7, 1), true).expect("durable");
    let found = outcomes(&disk, 500);
    assert_eq!(found, HashSet::from([vec![0, 7], vec![0, 7, 0, 0, 0, 0, 0, 0]]));
}

#[test]
fn a_durable_log_write_after_a_cut_is_not_cut_off() {
    let (disk, file) = disk_with_file(4);
    file.write_at(0, &[1; 4 * SECTOR]).expect("write");
    file.set_len(0).expect("cut");
    file.set_len(4 * SECTOR as u64).expect("grow");
    file.write_log(2 * SECTOR as u64, &sectors(7, 1), true).expect("durable");
    assert_eq!(outcomes(&disk, 300), HashSet::from([vec![0, 0, 7, 0]]));
}

#[test]
fn lengths_are_lost_in_order() {
    let (disk, file) = disk_with_file(2);
    file.write_at(0, &[1; 2 * SECTOR]).expect("write");
    file.sync().expect("sync");
    file.set_len(SECTOR as u64).expect("cut");
    file.set_len(3 * SECTOR as u64).expect("grow");
    let expected = HashSet::from([vec![1, 1], vec![1], vec![1, 0, 0]]);
    assert_eq!(outcomes(&disk, 500), expected, "a cut is never lost while the growth after it is kept");
}

#[test]
fn an_extending_write_may_lose_its_length_or_its_data() {
    let disk = new_disk();
    let file = disk.create("f").expect("create");
    disk.sync_directory().expect("sync directory");
    file.write_at(0, &[1; 2 * SECTOR]).expect("write");
    let expected = HashSet::from([vec![], vec![0, 0], vec![1, 0], vec![0, 1], vec![1, 1]]);
    assert_eq!(outcomes(&disk, 1000), expected);
}

#[test]
fn nothing_hides_behind_the_end() {
    let disk = new_disk();
    let file = disk.create("f").expect("create");
    disk.sync_directory().expect("sync directory");
    file.write_at(0, &[1; 100]).expect("write");
    file.sync().expect("sync");
    file.write_at(100, &[2; 100]).expect("append in the same sector");
    for seed in 0..200 {
        let after = disk.crash(seed);
        let file = after.open("f").expect("open");
        let len = file.len().expect("len");
        assert!(len == 100 || len == 200);
        file.set_len(300).expect("grow");
        let mut tail = vec![9; (300 - len) as usize];
        file.read_at(len, &mut tail).expect("read");
        assert!(tail.iter().all(|byte| *byte == 0), "seed {seed}: bytes that were never in the file");
    }
}

#[test]
fn unsynced_names_are_lost_in_order() {
    let disk = new_disk();
    disk.create("a").expect("create").sync().expect("sync");
    assert_eq!(disk.unflushed().name_changes, 1, "syncing a file does not sync its name");
    disk.create("b").expect("create");
    disk.rename("a", "c").expect("rename");
    disk.remove("b").expect("remove");
    let found: HashSet<Vec<String>> = (0..500).map(|seed| disk.crash(seed).list().expect("list")).collect();
    let expected = [vec![], vec!["a"], vec!["a", "b"], vec!["b", "c"], vec!["c"]];
    let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
    assert_eq!(found, HashSet::from(expected));
    disk.sync_directory().expect("sync directory");
    for seed in 0..100 {
        assert_eq!(disk.crash(seed).list().expect("list"), ["c"]);
    }
}

#[test]
fn a_rename_may_be_kept_without_the_data() {
    let disk = new_disk();
    let old = disk.create("f").expect("create");
    old.write_at(0, &[1; SECTOR]).expect("write");
    old.sync().expect("sync");
    disk.sync_directory().expect("sync directory");
    let new = disk.create("new").expect("create");
    new.write_at(0, &[2; SECTOR]).expect("write");
    disk.rename("new", "f").expect("rename");
    let found = outcomes(&disk, 1000);
    assert_eq!(found, HashSet::from([vec![1], vec![], vec![0], vec![2]]), "the classic lost file");
    new.sync().expect("sync");
    assert_eq!(outcomes(&disk, 1000), HashSet::from([vec![1], vec![2]]));
}

#[test]
fn a_lost_removal_brings_the_file_back() {
    let (disk, file) = disk_with_file(1);
    file.write_at(0, &[3; SECTOR]).expect("write");
    file.sync().expect("sync");
    disk.remove("f").expect("remove");
    assert_eq!(outcomes(&disk, 100), HashSet::from([vec![3], vec![]]));
    disk.sync_directory().expect("sync directory");
    assert_eq!(outcomes(&disk, 100), HashSet::from([vec![]]));
}

#[test]
fn fragments_enumerate_every_outcome() {
    let (disk, file) = disk_with_file(2);
    file.write_at(0, &[1; 2 * SECTOR]).expect("write");
    file.write_at(2 * SECTOR as u64, &[2; SECTOR]).expect("extend");
    disk.create("g").expect("create");
    let unflushed = disk.unflushed();
    assert_eq!(unflushed, Unflushed { name_changes: 1, length_changes: 1, writes: 2, sectors: 3 });
    let count = unflushed.fragments();
    let mut kinds = vec![None; count];
    let mut found = HashSet::new();
    for mask in 0..1u32 << count {
        let after = disk.crash_where(|fragment| {
            kinds[fragment.index] = Some(fragment.kind);
            mask >> fragment.index & 1 == 1
        });
        found.insert(after.fingerprint());
    }
    // the extending write's sector makes no difference where its length is lost: 2 names * (4 + 4 * 2)
    assert_eq!(found.len(), 24);
    assert_eq!(kinds[0], Some(FragmentKind::Name));
    assert!(kinds.iter().all(Option::is_some), "every fragment was asked for: {kinds:?}");
    for seed in 0..3000 {
        assert!(
            found.contains(&disk.crash(seed).fingerprint()),
            "seed {seed} made an outcome that cannot be"
        );
    }
    let drawn: HashSet<u64> = (0..3000).map(|seed| disk.crash(seed).fingerprint()).collect();
    assert_eq!(drawn.len(), 24, "seeds reach every outcome");
}

#[test]
fn a_crash_is_a_disk_of_its_own_and_repeats() {
    let (disk, file) = disk_with_file(8);
    file.write_at(0, &[1; 8 * SECTOR]).expect("write");
    for seed in 0..50 {
        let (first, second) = (disk.crash(seed), disk.crash(seed));
        assert_eq!(first.snapshot_files(), second.snapshot_files(), "seed {seed}");
        assert_eq!(first.fingerprint(), second.fingerprint(), "seed {seed}");
        let before = marks(&first);
        assert_eq!(first.unflushed(), Unflushed::default(), "what survived is on stable storage");
        first.open("f").expect("open").write_at(0, &[9; SECTOR]).expect("write");
        assert_eq!(marks(&second), before, "copies do not share changes");
    }
    assert_eq!(marks(&disk), [1; 8]);
}

#[test]
fn a_fork_keeps_what_is_in_doubt() {
    let (disk, file) = disk_with_file(2);
    file.write_at(0, &[1; 2 * SECTOR]).expect("write");
    let _guard = disk.try_lock("LOCK", "first").expect("lock");
    let fork = disk.fork();
    assert_eq!(fork.unflushed(), disk.unflushed());
    assert_eq!(outcomes(&fork, 300), outcomes(&disk, 300));
    assert!(format!("{:?}", fork.try_lock("LOCK", "second")).contains("Acquired"), "its owner was killed");
    fork.open("f").expect("open").sync().expect("sync");
    assert_eq!(outcomes(&fork, 100), HashSet::from([vec![1, 1]]));
    assert_eq!(outcomes(&disk, 300).len(), 4, "the original is as it was");
}

#[test]
fn larger_sectors_are_atomic_too() {
    let disk = SimulatedDisk::new(SimOptions { sector_bytes: 4096, ..SimOptions::default() });
    let file = disk.create("f").expect("create");
    file.set_len(8192).expect("grow");
    file.sync().expect("sync");
    disk.sync_directory().expect("sync directory");
    file.write_at(0, &[1; 8192]).expect("write");
    let found: HashSet<Vec<u8>> =
        (0..300).map(|seed| disk.crash(seed).file_bytes("f").expect("file")).collect();
    assert_eq!(found.len(), 4);
    for bytes in &found {
        assert!(bytes.chunks(4096).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
    }
}

#[test]
fn a_lying_drive_loses_what_it_confirmed() {
    let disk = SimulatedDisk::new(SimOptions { lying_flush: true, ..SimOptions::default() });
    let file = disk.create("f").expect("create");
    disk.sync_directory().expect("sync directory");
    file.set_len(SECTOR as u64).expect("grow");
    file.write_log(0, &sectors(1, 1), true).expect("durable");
    file.sync().expect("sync");
    assert!(outcomes(&disk, 100).contains(&vec![]), "not even the file is there");
    disk.set_lying_flush(false);
    file.sync().expect("sync");
    disk.sync_directory().expect("sync directory");
    assert_eq!(outcomes(&disk, 100), HashSet::from([vec![1]]));
}

/// The seeded crash against the contract, over random histories: every sector holds its last durable version or one
/// written after it, and names and lengths are ones that were.
#[test]
fn random_histories_keep_the_contract() {
    const SECTORS: usize = 24;
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (disk, file) = disk_with_file(SECTORS);
        let mut possible: Vec<Vec<u8>> = vec![vec![0]; SECTORS];
        for step in 1..=60u8 {
            let count = random.usize(1..6);
            let start = random.usize(0..SECTORS - count);
            match random.u8(0..8) {
                0 => {
                    file.sync().expect("sync");
                    possible.iter_mut().for_each(|versions| *versions = vec![versions[versions.len() - 1]]);
                }
                kind => {
                    let durable = kind < 3;
                    file.write_log((start * SECTOR) as u64, &sectors(step, count), durable).expect("write");
                    for versions in &mut possible[start..start + count] {
                        if durable {
                            versions.clear();
                        }
                        versions.push(step);
                    }
                }
            }
            let found = marks(&disk.crash(random.u64(..)));
            for (sector, mark) in found.iter().enumerate() {
                assert!(
                    possible[sector].contains(mark),
                    "seed {seed} step {step} sector {sector}: {found:?}"
                );
            }
            let current: Vec<u8> = possible.iter().map(|versions| versions[versions.len() - 1]).collect();
            assert_eq!(marks(&disk), current);
        }
    }
}
