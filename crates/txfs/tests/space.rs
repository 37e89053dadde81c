//! A volume with a size limit, nearly full: overwriting goes on, whatever the size of the transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use txfs::{CreateOptions, Durability, OpenOptions, Paths, View, Volume};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

/// The volume of most tests.
const SMALL: Size = Size { segments: 12, segment_bytes: 4 << 20 };
const PAGE_BYTES: u64 = 4096;

#[derive(Clone, Copy)]
struct Size {
    segments: u64,
    segment_bytes: u64,
}

fn limited(size: Size, background: bool) -> Volume {
    let disk = SimulatedDisk::new(SimOptions::default());
    let create = CreateOptions {
        segment_bytes: size.segment_bytes,
        size_bytes_max: Some(size.segments * size.segment_bytes),
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

/// Fills the volume and overwrites all of it by transactions of `large_bytes`, which are written ahead of their commits,
/// and much of it page by page; with `between`, by some more large ones then.
fn overwrite(size: Size, background: bool, percents: &[u64], large_bytes: usize, between: bool) {
    let volume = limited(size, background);
    volume.base().write_file("file", b"").unwrap();
    let ino = volume.base().resolve("file").unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for &percent in percents {
        let bytes = usable(&volume) * percent / 100 / PAGE_BYTES * PAGE_BYTES;
        let large = vec![percent as u8; large_bytes];
        let write_large = |at: u64| {
            let transaction = volume.begin();
            let len = (large.len() as u64).min(bytes - at) as usize;
            let written = transaction.write(ino, at, &large[..len]);
            written.unwrap_or_else(|error| panic!("{percent} % full, at {at}: {error}"));
            transaction.commit(Durability::Ordered).unwrap();
        };
        for at in (0..bytes).step_by(large.len()) {
            write_large(at);
        }
        for number in 0..bytes / PAGE_BYTES / 6 {
            let page = random.u64(0..bytes / PAGE_BYTES);
            let transaction = volume.begin();
            transaction.write(ino, page * PAGE_BYTES, &[percent as u8; PAGE_BYTES as usize]).unwrap();
            transaction
                .commit(Durability::Ordered)
                .unwrap_or_else(|error| panic!("{percent} % full: {error}"));
            if between && number % 500 == 499 {
                write_large(random.u64(0..bytes / large_bytes as u64) * large_bytes as u64);
            }
        }
        let content = volume.base().read_file("file").unwrap();
        assert!(content.len() as u64 == bytes && content.iter().all(|byte| *byte == percent as u8));
    }
    let stat = volume.stat().unwrap().engine;
    assert!(stat.segments <= size.segments && stat.conflicts == 0, "{stat:?}");
    assert!(volume.check().unwrap().is_clean());
}

#[test]
fn small_and_large_overwrites_go_on_in_a_nearly_full_volume() {
    overwrite(SMALL, false, &[80, 90], 4 << 20, false);
    overwrite(SMALL, true, &[90], 4 << 20, false);
}

#[test]
fn so_do_larger_ones() {
    for background in [false, true] {
        overwrite(SMALL, background, &[40, 55], 8 << 20, true);
        overwrite(Size { segments: 16, segment_bytes: 8 << 20 }, background, &[50, 75], 12 << 20, true);
    }
}

/// Makes a file that fills so much of what `statfs` shows.
fn fill(volume: &Volume, percent: u64) -> (u64, u64) {
    let bytes = usable(volume) * percent / 100 / PAGE_BYTES * PAGE_BYTES;
    volume.base().write_file("file", b"").unwrap();
    let ino = volume.base().resolve("file").unwrap();
    let piece = vec![1; 512 << 10];
    for at in (0..bytes).step_by(piece.len()) {
        let len = (piece.len() as u64).min(bytes - at) as usize;
        volume.base().write(ino, at, &piece[..len]).unwrap();
    }
    (ino, bytes / PAGE_BYTES)
}

#[test]
fn writers_wait_for_readers_instead_of_finding_no_space() {
    let volume = limited(SMALL, true);
    let (ino, pages) = fill(&volume, 70);
    let (over, left) = (AtomicBool::new(false), AtomicU64::new(12_000));
    std::thread::scope(|scope| {
        // Somebody always sees what was there 60 to 120 ms ago, as on a machine whose processors have much to do.
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let snapshot = volume.snapshot();
                        std::thread::sleep(Duration::from_millis(120));
                        snapshot.read(ino, 0, PAGE_BYTES as usize).unwrap();
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..3)
            .map(|seed| {
                let (volume, left) = (&volume, &left);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    while left.fetch_sub(1, Ordering::Relaxed) as i64 > 0 {
                        let page = random.u64(0..pages);
                        let content = [random.u8(..); PAGE_BYTES as usize];
                        let write = volume.base().write(ino, page * PAGE_BYTES, &content);
                        write.map_err(|error| format!("{error}: {:?}", volume.stat().unwrap().engine))?;
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    });
    assert!(volume.check().unwrap().is_clean());
}
