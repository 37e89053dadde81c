//! A volume with a size limit, nearly full: overwriting goes on, whatever the size of the transactions.

use std::sync::Arc;

use txfs::{CreateOptions, Durability, OpenOptions, Paths, View, Volume};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

const SEGMENTS: u64 = 12;
const SEGMENT_BYTES: u64 = 4 << 20;
const PAGE_BYTES: u64 = 4096;

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

fn usable(volume: &Volume) -> u64 {
    let space = volume.stat().unwrap().statistics;
    space.blocks_total * u64::from(space.block_bytes)
}

#[test]
fn small_and_large_overwrites_go_on_in_a_nearly_full_volume() {
    for (background, percents) in [(false, &[80, 90][..]), (true, &[90])] {
        let volume = limited(background);
        volume.base().write_file("file", b"").unwrap();
        let ino = volume.base().resolve("file").unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        for &percent in percents {
            let bytes = usable(&volume) * percent / 100 / PAGE_BYTES * PAGE_BYTES;
            // In transactions that are written ahead of their commits.
            let large = vec![percent as u8; 4 << 20];
            for at in (0..bytes).step_by(large.len()) {
                let transaction = volume.begin();
                let len = (large.len() as u64).min(bytes - at) as usize;
                let written = transaction.write(ino, at, &large[..len]);
                written.unwrap_or_else(|error| panic!("{percent} % full, at {at}: {error}"));
                transaction.commit(Durability::Ordered).unwrap();
            }
            for _ in 0..bytes / PAGE_BYTES / 6 {
                let page = random.u64(0..bytes / PAGE_BYTES);
                let transaction = volume.begin();
                transaction.write(ino, page * PAGE_BYTES, &[percent as u8; PAGE_BYTES as usize]).unwrap();
                transaction
                    .commit(Durability::Ordered)
                    .unwrap_or_else(|error| panic!("{percent} % full: {error}"));
            }
            let content = volume.base().read_file("file").unwrap();
            assert!(content.len() as u64 == bytes && content.iter().all(|byte| *byte == percent as u8));
        }
        let stat = volume.stat().unwrap().engine;
        assert!(stat.segments <= SEGMENTS && stat.conflicts == 0, "{stat:?}");
        assert!(volume.check().unwrap().is_clean());
    }
}
