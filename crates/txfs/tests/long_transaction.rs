//! A transaction that stays open while others write many times what the volume holds: it sees what it saw, they find
//! space as if it were not there, and at its end nothing is left of it.

use std::sync::Arc;

use txfs::{CreateOptions, Durability, OpenOptions, Paths, View, Volume};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

const SEGMENT_BYTES: u64 = 1 << 20;
const SEGMENTS: u64 = 32;
const PAGE_BYTES: u64 = 4096;
/// As the transaction sees it, the file lies in so many segments that cleaning them for it alone would fill the volume.
const FILE_BYTES: u64 = 8 << 20;

fn limited(background: bool) -> Volume {
    let disk = SimulatedDisk::new(SimOptions::default());
    let create = CreateOptions {
        segment_bytes: SEGMENT_BYTES,
        size_bytes_max: Some(SEGMENTS * SEGMENT_BYTES),
        ..CreateOptions::default()
    };
    Volume::create_on(Arc::new(disk.clone()), &create).unwrap();
    let open = OpenOptions { background, ..OpenOptions::default() };
    Volume::open_on(Arc::new(disk), &open).unwrap()
}

/// Overwrites pages of the file in small transactions.
fn overwrite(volume: &Volume, random: &mut fastrand::Rng, commits: u64) {
    let file = volume.base().resolve("file").unwrap();
    for number in 0..commits {
        let page = random.u64(0..FILE_BYTES / PAGE_BYTES);
        let transaction = volume.begin();
        transaction.write(file, page * PAGE_BYTES, &[random.u8(..); PAGE_BYTES as usize]).unwrap();
        let durability = if number % 3 == 0 { Durability::Deferred } else { Durability::Ordered };
        transaction.commit(durability).unwrap_or_else(|error| panic!("commit {number}: {error}"));
    }
}

#[test]
fn a_long_transaction_does_not_hold_what_others_write_meanwhile() {
    for background in [false, true] {
        let volume = limited(background);
        let mut random = fastrand::Rng::with_seed(5);
        let before: Vec<u8> = (0..FILE_BYTES).map(|_| random.u8(..)).collect();
        volume.base().write_file("file", &before).unwrap();
        volume.base().write_file("own", b"mine").unwrap();
        let long = volume.begin();
        assert_eq!(long.read_file("own").unwrap(), b"mine");
        let view = volume.snapshot();
        overwrite(&volume, &mut random, 4 * SEGMENTS * SEGMENT_BYTES / PAGE_BYTES);
        // What is open sees what was there, page for page.
        assert!(view.read_file("file").unwrap() == before);
        let ranges = volume.stat().unwrap().engine.conflict_ranges;
        assert!(ranges <= FILE_BYTES / PAGE_BYTES + 10, "{ranges} ranges for {FILE_BYTES} bytes");
        long.write_file("own", b"changed").unwrap();
        long.commit(Durability::Durable).unwrap();
        drop(view);
        let after = volume.base().read_file("file").unwrap();
        volume.checkpoint().unwrap();
        volume.clean(&txfs::CleanOptions::default(), &mut |_, _| {}).unwrap();
        let stat = volume.stat().unwrap().engine;
        assert_eq!((stat.segments_retired, stat.segments_pinned), (0, 0), "{stat:?}");
        assert!(volume.base().read_file("file").unwrap() == after);
        assert!(volume.check().unwrap().is_clean());
    }
}
