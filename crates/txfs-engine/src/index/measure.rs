//! Costs of the index, printed rather than asserted: they depend on the machine. To be run in a release build:
//! `cargo test --release -p txfs-engine index::measure -- --ignored --nocapture --test-threads 1`.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use txfs_disk::Disk;
use txfs_disk::host::HostDisk;

use super::tests::VOLUME;
use super::{IndexStore, IndexView, Memtable, Read};

const CACHE_BYTES: usize = 64 << 20;
const RUNS: usize = 20;

fn inode_key(ino: u64) -> Vec<u8> {
    [&b"i"[..], &ino.to_be_bytes()].concat()
}

fn extent_key(ino: u64, page: u64) -> Vec<u8> {
    [&b"e"[..], &ino.to_be_bytes(), &page.to_be_bytes()].concat()
}

fn dirent_key(directory: u64, hash: u64) -> Vec<u8> {
    [&b"d"[..], &directory.to_be_bytes(), &hash.to_be_bytes(), b"file-name.txt"].concat()
}

/// Microseconds per operation, of the best of some runs.
fn best(operations: usize, mut run: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / operations as f64);
    }
    best
}

/// Inodes with two extents and a name each: four entries a file.
fn fill(memtable: &mut Memtable, files: std::ops::Range<u64>, random: &mut fastrand::Rng) {
    for ino in files {
        memtable.put(&inode_key(ino), Some(&[1; 100]));
        memtable.put(&extent_key(ino, 0), Some(&[2; 40]));
        memtable.put(&extent_key(ino, 64), Some(&[3; 40]));
        memtable.put(&dirent_key(ino / 100, random.u64(..)), Some(&[4; 9]));
    }
}

#[test]
#[ignore = "prints timings and asserts nothing: a timed test proves nothing on a shared machine"]
fn memtable() {
    const FILES: u64 = 25_000;
    let mut random = fastrand::Rng::with_seed(1);
    let mut memtable = Memtable::new();
    fill(&mut memtable, 0..FILES, &mut random);
    for keys in [3, 5] {
        let mut published = Arc::new(memtable.clone());
        let local = best(2000, || {
            for _ in 0..2000 {
                let ino = random.u64(..FILES);
                memtable.put(&inode_key(ino), Some(&[5; 100]));
                memtable.put(&extent_key(ino, 0), Some(&[6; 40]));
                memtable.put(&extent_key(ino, 64), Some(&[7; 40]));
                if keys == 5 {
                    memtable.put(&dirent_key(ino / 100, random.u64(..)), Some(&[8; 9]));
                    memtable.put(&inode_key(ino / 100), Some(&[8; 100]));
                }
                published = Arc::new(memtable.clone());
            }
        });
        let scattered = best(2000, || {
            for _ in 0..2000 {
                for _ in 0..keys {
                    memtable.put(&extent_key(random.u64(..FILES), 0), Some(&[6; 40]));
                }
                published = Arc::new(memtable.clone());
            }
        });
        println!(
            "memtable of {}: put {keys} keys and publish: one file's {local:.2} µs, scattered {scattered:.2} µs",
            published.len()
        );
    }
    let get = best(10_000, || {
        for _ in 0..10_000 {
            black_box(memtable.get(&inode_key(random.u64(..FILES))));
        }
    });
    let first = best(10_000, || {
        for _ in 0..10_000 {
            let ino = random.u64(..FILES);
            black_box(memtable.range_back(&extent_key(ino, 0), &extent_key(ino, 33)).next());
        }
    });
    println!("memtable: get {get:.3} µs, first of a descending range {first:.3} µs");
}

#[test]
#[ignore = "prints timings and asserts nothing: a timed test proves nothing on a shared machine"]
fn store() {
    const FILES: u64 = 250_000;
    let directory =
        tempfile::tempdir_in(std::env::var_os("TXFS_MEASURE_DIR").unwrap_or("/var/tmp".into())).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(HostDisk::create(directory.path().join("volume")).unwrap());
    let mut random = fastrand::Rng::with_seed(2);
    let store = IndexStore::create(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    for part in 0..20 {
        let mut memtable = Memtable::new();
        fill(&mut memtable, part * FILES / 20..(part + 1) * FILES / 20, &mut random);
        let start = Instant::now();
        store.checkpoint(&memtable, b"record").unwrap();
        if part % 5 == 4 {
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "checkpoint of {} new keys: {:.2} s, {:.2} µs a key, file {} MiB",
                memtable.len(),
                seconds,
                seconds * 1e6 / memtable.len() as f64,
                store.file_bytes().unwrap() >> 20
            );
        }
    }
    for count in [100, 1000, 10_000, 50_000] {
        let mut memtable = Memtable::new();
        for _ in 0..count {
            memtable.put(&inode_key(random.u64(..FILES)), Some(&[9; 100]));
        }
        let start = Instant::now();
        store.checkpoint(&memtable, b"record").unwrap();
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "checkpoint of {count} scattered updates: {:.1} ms, file {} MiB",
            seconds * 1e3,
            store.file_bytes().unwrap() >> 20
        );
    }
    let mut frozen = Memtable::new();
    let mut active = Memtable::new();
    for _ in 0..10_000 {
        frozen.put(&inode_key(random.u64(..FILES)), Some(&[9; 100]));
        active.put(&extent_key(random.u64(..FILES), 0), Some(&[9; 40]));
    }
    let view = IndexView { active, frozen: Some(frozen), base: store.reader() };
    for (what, files) in [("hot (1000 files)", 1000), ("cold (250000 files, 64 MiB cache)", FILES)] {
        let get = best(10_000, || {
            for _ in 0..10_000 {
                black_box(view.get(&inode_key(random.u64(..files))).unwrap());
            }
        });
        let mut one = |_: &[u8], value: &[u8]| {
            black_box(value);
            ControlFlow::Break(())
        };
        let back = best(10_000, || {
            for _ in 0..10_000 {
                let ino = random.u64(..files);
                view.scan_back(&extent_key(ino, 0), &extent_key(ino, 33), &mut one).unwrap();
            }
        });
        let forward = best(10_000, || {
            for _ in 0..10_000 {
                let ino = random.u64(..files);
                view.scan(&extent_key(ino, 0), &extent_key(ino, 33), &mut one).unwrap();
            }
        });
        println!("view, {what}: get {get:.2} µs, scan_back of one {back:.2} µs, scan of one {forward:.2} µs");
    }
    let start = Instant::now();
    println!("verify of {} entries: {:.2} s", store.verify().unwrap(), start.elapsed().as_secs_f64());
    // As after kill -9: nothing is closed.
    std::mem::forget(store);
    let start = Instant::now();
    let store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    println!("open after a crash: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    store.close().unwrap();
    println!("close: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let store = IndexStore::open(&disk, "index", &VOLUME, CACHE_BYTES).unwrap();
    println!("open after a close: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    drop(store);
}
