//! What copies of a simulated disk cost: campaigns make a million of them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use txfs_disk::sim::{SimOptions, SimulatedDisk};
use txfs_disk::{AlignedBuffer, Disk};

/// Generous, as tests run unoptimised and beside others; a copy that touched the whole 64 MiB would take minutes.
const TIME_MAX: Duration = Duration::from_secs(20);

#[test]
fn crashes_cost_what_is_in_doubt_not_what_files_hold() {
    let disk = SimulatedDisk::new(SimOptions::default());
    let mut random = fastrand::Rng::with_seed(5);
    for index in 0..8 {
        let file = disk.create(&format!("segment-{index}")).expect("create");
        file.set_len(8 << 20).expect("grow");
        let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1 << 20).collect();
        for part in 0..8 {
            file.write_at(part << 20, &data).expect("write");
        }
        file.sync().expect("sync");
    }
    disk.sync_directory().expect("sync directory");
    let file = disk.open("segment-3").expect("open");
    for index in 0..6u8 {
        let data = AlignedBuffer::from(&[index; 4608][..]);
        file.write_log(u64::from(index) * 4608, &data, index % 2 == 0).expect("write");
    }
    let start = Instant::now();
    disk.fingerprint();
    println!("first fingerprint of 64 MiB: {:?}", start.elapsed());

    let start = Instant::now();
    let rounds = 20_000;
    let mut found = HashSet::new();
    for seed in 0..rounds {
        let after = disk.crash(seed);
        found.insert(after.fingerprint());
        let file = after.open("segment-5").expect("open");
        file.write_log(0, &AlignedBuffer::from(&[1; 4608][..]), true).expect("write");
    }
    let each = start.elapsed() / rounds as u32;
    println!("crash, fingerprint, durable write: {each:?} each, {} distinct states", found.len());
    assert!(start.elapsed() < TIME_MAX, "{each:?} each");
    assert!(found.len() > 5_000, "{} distinct states", found.len());
}

#[test]
fn zeros_cost_nothing() {
    let disk = SimulatedDisk::new(SimOptions::default());
    let start = Instant::now();
    for index in 0..2_000 {
        let file = disk.create(&index.to_string()).expect("create");
        file.set_len(64 << 20).expect("grow");
        file.write_at(0, &[0; 65_536]).expect("zero-fill");
        file.sync().expect("sync");
    }
    assert!(start.elapsed() < TIME_MAX);
}
