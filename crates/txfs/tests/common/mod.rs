//! What the tests of this crate share: volumes on a simulated disk with a clock of their own.
#![allow(dead_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use txfs::{Clock, CreateOptions, OpenOptions, Timestamp, Volume};
use txfs_disk::sim::{SimOptions, SimulatedDisk};

/// A clock that moves on by one microsecond with every look at it. All clocks of a test program are one.
pub fn clock() -> Clock {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    Clock::new(move || {
        let tick = TICKS.fetch_add(1, Ordering::Relaxed);
        Timestamp::new(1_000_000 + (tick / 1_000_000) as i64, (tick % 1_000_000) as u32 * 1000)
    })
}

pub fn open_options() -> OpenOptions {
    OpenOptions { background: false, clock: clock(), ..OpenOptions::default() }
}

pub fn new_disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new(SimOptions::default());
    let options = CreateOptions {
        segment_bytes: 8 << 20,
        identity: Some(([1; 16], [2; 16])),
        clock: clock(),
        ..CreateOptions::default()
    };
    Volume::create_on(disk.as_disk(), &options).unwrap();
    disk
}

pub fn open(disk: &SimulatedDisk) -> Volume {
    Volume::open_on(disk.as_disk(), &open_options()).unwrap()
}

pub fn new_volume() -> Volume {
    open(&new_disk())
}

#[track_caller]
pub fn assert_clean(volume: &Volume) {
    let report = volume.check().unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

/// The POSIX number of an operation that must fail.
#[track_caller]
pub fn errno<T: std::fmt::Debug>(result: txfs::Result<T>) -> i32 {
    result.unwrap_err().errno()
}

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const ENXIO: i32 = 6;
pub const E2BIG: i32 = 7;
pub const EEXIST: i32 = 17;
pub const ENOTDIR: i32 = 20;
pub const EISDIR: i32 = 21;
pub const EINVAL: i32 = 22;
pub const EFBIG: i32 = 27;
pub const EROFS: i32 = 30;
pub const ERANGE: i32 = 34;
pub const ENAMETOOLONG: i32 = 36;
pub const ENOTEMPTY: i32 = 39;
pub const ELOOP: i32 = 40;
pub const ENODATA: i32 = 61;
pub const ENOTSUP: i32 = 95;
pub const ECANCELED: i32 = 125;
