//! File data: sparse files, truncation, holes, and random operations against a plain byte vector.

mod common;

use common::*;
use txfs::{
    AllocateMode, Durability, OpenOptions, Paths, ROOT_INO, SetAttributes, Transaction, View, Volume,
};

const PAGE: u64 = 4096;

fn truncate(view: &dyn View, ino: u64, size: u64) {
    view.set_attributes(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).unwrap();
}

fn new_file(view: &dyn View) -> u64 {
    view.make_file(ROOT_INO, b"file", 0o600, 0, 0).unwrap().ino
}

#[test]
fn sparse_files_store_only_what_was_written() {
    let volume = new_volume();
    let base = volume.base();
    let file = new_file(&base);
    base.write(file, 1 << 40, b"far away").unwrap();
    let found = base.attributes(file).unwrap();
    assert_eq!((found.size, found.blocks), ((1 << 40) + 8, 8));
    assert_eq!(base.read(file, 12345, 10).unwrap(), [0; 10]);
    assert_eq!(base.read(file, (1 << 40) - 2, 100).unwrap(), b"\0\0far away");
    assert_eq!(base.seek_data(file, 0).unwrap(), 1 << 40);
    assert_eq!(base.seek_hole(file, 0).unwrap(), 0);
    assert_eq!(base.seek_hole(file, 1 << 40).unwrap(), (1 << 40) + 8);
    assert_eq!(errno(base.seek_data(file, 1 << 41)), ENXIO);
    assert_eq!(errno(base.seek_hole(file, 1 << 41)), ENXIO);
    base.write(file, 3 * PAGE, &[1; 2 * PAGE as usize]).unwrap();
    assert_eq!(base.seek_data(file, 1).unwrap(), 3 * PAGE);
    assert_eq!(base.seek_hole(file, 3 * PAGE).unwrap(), 5 * PAGE);
    assert_eq!(base.seek_data(file, 5 * PAGE).unwrap(), 1 << 40);
    assert_clean(&volume);
}

#[test]
fn sizes_have_a_limit() {
    let volume = new_volume();
    let base = volume.base();
    let file = new_file(&base);
    let max = i64::MAX as u64;
    assert_eq!(errno(base.write(file, max, b"x")), EFBIG);
    assert_eq!(errno(base.write(file, u64::MAX, b"x")), EFBIG);
    let set = SetAttributes { size: Some(max + 1), ..SetAttributes::default() };
    assert_eq!(errno(base.set_attributes(file, &set)), EFBIG);
    let reserve = AllocateMode::Reserve { keep_size: false };
    assert_eq!(errno(base.allocate(file, reserve, max, 1)), EFBIG);
    assert_eq!(errno(base.allocate(file, reserve, 0, 0)), EINVAL);
    base.write(file, max - 1, b"x").unwrap();
    assert_eq!(base.attributes(file).unwrap().size, max);
    assert_eq!(base.read(file, max - 2, 10).unwrap(), b"\0x");
    assert_eq!(base.read(file, u64::MAX, 10).unwrap(), b"");
    assert_clean(&volume);
}

#[test]
fn what_was_cut_off_never_comes_back() {
    for split in [false, true] {
        let volume = new_volume();
        let mut tx = volume.begin();
        let file = new_file(&tx);
        tx.write(file, 0, &[7; 10_000]).unwrap();
        let next = |tx: Transaction| match split {
            true => {
                tx.commit(Durability::Ordered).unwrap();
                volume.begin()
            }
            false => tx,
        };
        tx = next(tx);
        truncate(&tx, file, 5000);
        tx = next(tx);
        truncate(&tx, file, 20_000);
        tx = next(tx);
        let mut expected = vec![7; 5000];
        expected.resize(20_000, 0);
        assert_eq!(tx.read_file("file").unwrap(), expected);
        truncate(&tx, file, 0);
        tx.write(file, 4095, b"xy").unwrap();
        tx = next(tx);
        assert_eq!(tx.read_file("file").unwrap(), [&[0; 4095], b"xy".as_slice()].concat());
        tx.commit(Durability::Ordered).unwrap();
        assert_eq!(volume.base().attributes(file).unwrap().blocks, 16);
        assert_clean(&volume);
    }
}

#[test]
fn holes_are_punched_and_ranges_zeroed() {
    let volume = new_volume();
    let base = volume.base();
    let file = new_file(&base);
    let mut model = vec![9u8; 50_000];
    base.write(file, 0, &model).unwrap();
    base.allocate(file, AllocateMode::PunchHole, 5000, 20_000).unwrap();
    model[5000..25_000].fill(0);
    assert_eq!(base.read_file("file").unwrap(), model);
    assert_eq!(base.attributes(file).unwrap().blocks, 9 * 8);
    assert_eq!(base.seek_hole(file, 0).unwrap(), 2 * PAGE);
    assert_eq!(base.seek_data(file, 2 * PAGE).unwrap(), 6 * PAGE);
    // Beyond the end nothing changes, the size least of all.
    base.allocate(file, AllocateMode::PunchHole, 45_000, 1 << 30).unwrap();
    model[45_000..].fill(0);
    assert_eq!(base.read_file("file").unwrap(), model);
    base.allocate(file, AllocateMode::PunchHole, 1 << 20, 1 << 20).unwrap();
    base.allocate(file, AllocateMode::ZeroRange { keep_size: true }, 49_000, 10_000).unwrap();
    assert_eq!(base.attributes(file).unwrap().size, 50_000);
    base.allocate(file, AllocateMode::ZeroRange { keep_size: false }, 49_000, 10_000).unwrap();
    assert_eq!(base.attributes(file).unwrap().size, 59_000);
    base.allocate(file, AllocateMode::Reserve { keep_size: true }, 0, 100_000).unwrap();
    assert_eq!(base.attributes(file).unwrap().size, 59_000);
    base.allocate(file, AllocateMode::Reserve { keep_size: false }, 0, 100_000).unwrap();
    model.resize(100_000, 0);
    assert_eq!(base.read_file("file").unwrap(), model);
    assert_clean(&volume);
}

#[test]
fn ranges_are_copied() {
    let volume = new_volume();
    let base = volume.base();
    let file = new_file(&base);
    let content: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    base.write(file, 0, &content).unwrap();
    let other = base.make_file(ROOT_INO, b"other", 0o600, 0, 0).unwrap().ino;
    assert_eq!(base.copy_range(file, 1000, other, 5, u64::MAX).unwrap(), 2_999_000);
    assert_eq!(base.read_file("other").unwrap(), [&[0; 5], &content[1000..]].concat());
    assert_eq!(base.copy_range(file, 5_000_000, other, 0, 10).unwrap(), 0);
    assert_eq!(errno(base.copy_range(file, 0, file, 5, 10)), EINVAL);
    assert_eq!(base.copy_range(file, 0, file, 10, 10).unwrap(), 10);
    assert_eq!(errno(base.copy_range(ROOT_INO, 0, file, 0, 1)), EISDIR);
    assert_clean(&volume);
}

#[test]
fn a_directory_has_no_data() {
    let volume = new_volume();
    let base = volume.base();
    assert_eq!(errno(base.read(ROOT_INO, 0, 10)), EISDIR);
    assert_eq!(errno(base.write(ROOT_INO, 0, b"x")), EISDIR);
    assert_eq!(errno(base.append(ROOT_INO, b"x")), EISDIR);
    assert_eq!(errno(base.allocate(ROOT_INO, AllocateMode::PunchHole, 0, 1)), EISDIR);
}

/// One file and its model: what is committed, and what the open transaction sees.
struct Model {
    committed: Vec<u8>,
    seen: Vec<u8>,
}

fn random_step(random: &mut fastrand::Rng, view: &dyn View, file: u64, seen: &mut Vec<u8>) {
    // Offsets near page and extent boundaries are the interesting ones.
    let near = |random: &mut fastrand::Rng, max: u64| {
        let at = random.u64(0..=max);
        match random.u8(0..4) {
            0 => at / PAGE * PAGE,
            1 => (at / PAGE * PAGE).saturating_add_signed(random.i64(-3..=3)),
            _ => at,
        }
    };
    let offset = near(random, 600_000);
    let len_max = if random.u8(0..4) == 0 { 400_000 } else { 20_000 };
    let len = near(random, len_max);
    let end = offset + len;
    let resize = |seen: &mut Vec<u8>, end: u64| {
        if seen.len() < end as usize {
            seen.resize(end as usize, 0);
        }
    };
    match random.u8(0..12) {
        0..=4 => {
            let data: Vec<u8> = std::iter::repeat_with(|| random.u8(1..)).take(len as usize).collect();
            assert_eq!(view.write(file, offset, &data).unwrap(), data.len());
            if len > 0 {
                resize(seen, end);
                seen[offset as usize..end as usize].copy_from_slice(&data);
            }
        }
        5 => {
            truncate(view, file, offset);
            seen.resize(offset as usize, 0);
        }
        6 | 7 if len > 0 => {
            let mode = match random.u8(0..3) {
                0 => AllocateMode::PunchHole,
                1 => AllocateMode::ZeroRange { keep_size: true },
                _ => AllocateMode::ZeroRange { keep_size: false },
            };
            view.allocate(file, mode, offset, len).unwrap();
            if mode == (AllocateMode::ZeroRange { keep_size: false }) {
                resize(seen, end);
            }
            let behind = seen.len().min(end as usize);
            if (offset as usize) < behind {
                seen[offset as usize..behind].fill(0);
            }
        }
        8 => {
            let len = len.min(10_000);
            let data = vec![0xaa; len as usize];
            assert_eq!(view.append(file, &data).unwrap(), seen.len() as u64);
            seen.extend(data);
        }
        _ => {
            let expected_end = seen.len().min(end as usize);
            let expected = seen.get(offset as usize..expected_end).unwrap_or_default();
            assert_eq!(view.read(file, offset, len as usize).unwrap(), expected);
        }
    }
    assert_eq!(view.attributes(file).unwrap().size, seen.len() as u64);
    if !seen.is_empty() && random.u8(0..4) == 0 {
        let from = random.u64(0..seen.len() as u64);
        // What is reported as a hole must be zeros; data must not be reported behind bytes that are not zeros.
        let data = view.seek_data(file, from).unwrap_or(seen.len() as u64);
        assert!(seen[from as usize..data as usize].iter().all(|&byte| byte == 0));
        let hole = view.seek_hole(file, from).unwrap();
        assert!(hole >= from && hole <= seen.len() as u64);
    }
}

fn random_run(seed: u64, options: OpenOptions) {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = new_disk();
    let mut volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    let file = new_file(&volume.base());
    let mut model = Model { committed: Vec::new(), seen: Vec::new() };
    for _ in 0..12 {
        match random.u8(0..6) {
            0 => random_step(&mut random, &volume.base(), file, &mut model.committed),
            1 => {
                volume.close().unwrap();
                drop(volume);
                volume = Volume::open_on(disk.as_disk(), &options).unwrap();
            }
            _ => {
                let tx = volume.begin();
                model.seen = model.committed.clone();
                for _ in 0..random.u32(1..10) {
                    random_step(&mut random, &tx, file, &mut model.seen);
                }
                assert!(tx.read_file("file").unwrap() == model.seen, "seed {seed}: in the transaction");
                if random.u8(0..4) == 0 {
                    tx.abort();
                } else {
                    tx.commit(Durability::Ordered).unwrap();
                    model.committed = model.seen.clone();
                }
            }
        }
        assert!(volume.base().read_file("file").unwrap() == model.committed, "seed {seed}");
    }
    assert_clean(&volume);
    assert_eq!(volume.stat().unwrap().buffered_bytes, 0);
}

#[test]
fn random_operations_agree_with_a_byte_vector() {
    (0..40).for_each(|seed| random_run(seed, open_options()));
}

#[test]
fn random_operations_with_next_to_no_memory() {
    let options = OpenOptions { transaction_memory_bytes: 10_000, ..open_options() };
    (100..140).for_each(|seed| random_run(seed, options.clone()));
}
