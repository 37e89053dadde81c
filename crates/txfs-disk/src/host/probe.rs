//! Finds out how log writes are best made in a directory: past the page cache, in which units, and with or without a
//! flush of their own.
//!
//! A nameless temporary file is written to; where the host has none, one with a fixed name, whose name is removed
//! before anything is written, and removed first where a crash left it. Nothing that fails here is an error: the
//! answer is then the plain way, which every file system has.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FsWord, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::file::write_all;
use super::{FILE_MODE, HostOptions};
use crate::{AlignedBuffer, Capabilities, SECTOR_BYTES_MIN};

/// The name used where nameless files do not exist.
pub(super) const PROBE_NAME: &str = ".txfs-probe";
/// No unit is larger than this.
const SECTOR_BYTES_MAX: usize = 4096;

/// Probes a directory.
pub(super) fn probe(directory: &OwnedFd, options: HostOptions) -> Capabilities {
    // a leftover from a crash
    let _ = rustix::fs::unlinkat(directory, PROBE_NAME, AtFlags::empty());
    let mut found = Capabilities {
        sector_bytes: SECTOR_BYTES_MIN,
        direct: false,
        data_sync_writes: false,
        description: file_system_name(directory),
    };
    let Ok(file) = temporary_file(directory) else {
        return found;
    };
    if options.direct
        && let Some(sector_bytes) = probe_direct(&file)
    {
        found.direct = true;
        found.sector_bytes = sector_bytes;
    }
    found.data_sync_writes = options.data_sync_writes && probe_data_sync(&file, &found);
    found
}

/// A file that is gone when it is closed, or when the machine stops.
fn temporary_file(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, FILE_MODE) {
        Ok(file) => Ok(file),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(directory, PROBE_NAME, flags, Mode::RUSR | Mode::WUSR)?;
            let _ = rustix::fs::unlinkat(directory, PROBE_NAME, AtFlags::empty());
            Ok(file)
        }
        Err(error) => Err(error),
    }
}

/// The smallest unit in which direct writes work and show at once to readers through the page cache.
fn probe_direct(file: &OwnedFd) -> Option<usize> {
    let told = told_alignment(file);
    if told == Some(0) {
        return None; // the file system says: no direct I/O on this file
    }
    let plain_flags = rustix::fs::fcntl_getfl(file).ok()?;
    // cached pages in the way, as a file that is read and written has them
    match rustix::io::pwrite(file, &[0; 2 * SECTOR_BYTES_MAX], 0) {
        Ok(_) => {}
        Err(error) if is_full(error) => return told, // nothing can be tried: take the file system's word
        Err(_) => return None,
    }
    let mut sector_bytes = told.unwrap_or(SECTOR_BYTES_MIN);
    let mut found = None;
    while sector_bytes <= SECTOR_BYTES_MAX && found.is_none() {
        rustix::fs::fcntl_setfl(file, plain_flags | OFlags::DIRECT).ok()?;
        let mut data = AlignedBuffer::new();
        data.extend_from_slice(&vec![sector_bytes.trailing_zeros() as u8; sector_bytes]);
        // at the offset of one unit: an offset that only this unit allows
        let written = write_all(
            file.as_fd(),
            sector_bytes as u64,
            &[data.as_slice()],
            ReadWriteFlags::empty(),
            sector_bytes,
        );
        rustix::fs::fcntl_setfl(file, plain_flags).ok()?;
        match written {
            Ok(()) => {
                let mut read = vec![0; sector_bytes];
                let count = rustix::io::pread(file, &mut read[..], sector_bytes as u64).ok()?;
                if count < sector_bytes || read != data.as_slice() {
                    return None; // readers do not see direct writes here: not usable
                }
                found = Some(sector_bytes);
            }
            Err(Errno::INVAL) => sector_bytes *= 2,
            Err(_) => return None,
        }
    }
    found
}

/// The unit of direct writes as the file system tells it (Linux 6.1 and later): 0 for none, `None` for unknown.
fn told_alignment(file: &OwnedFd) -> Option<usize> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if told.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    if told.stx_dio_mem_align as usize > SECTOR_BYTES_MAX
        || told.stx_dio_offset_align as usize > SECTOR_BYTES_MAX
    {
        return Some(0); // more than our buffers offer
    }
    match told.stx_dio_offset_align as usize {
        0 => Some(0),
        bytes => Some(bytes.next_power_of_two().max(SECTOR_BYTES_MIN)),
    }
}

/// Whether a write may carry its own flush.
fn probe_data_sync(file: &OwnedFd, found: &Capabilities) -> bool {
    let write = || {
        let plain_flags = rustix::fs::fcntl_getfl(file)?;
        if found.direct {
            rustix::fs::fcntl_setfl(file, plain_flags | OFlags::DIRECT)?;
        }
        let mut data = AlignedBuffer::new();
        data.extend_zeros(found.sector_bytes);
        // Where few file systems have room: the flag is looked at before the place, and nothing is written. A write that
        // succeeds makes the host commit its journal, which costs more than most of an opening.
        let far_away = i64::MAX as u64 / 2 + 1;
        write_all(file.as_fd(), far_away, &[data.as_slice()], ReadWriteFlags::DSYNC, found.sector_bytes)
    };
    // likewise a full disk refuses the data only after it has accepted the flag
    let refused = |error| error == Errno::FBIG || is_full(error);
    write().map_or_else(refused, |()| true)
}

fn is_full(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT)
}

/// The host file system's name, for people.
fn file_system_name(directory: &OwnedFd) -> String {
    let Ok(statistics) = rustix::fs::fstatfs(directory) else {
        return "unknown".to_owned();
    };
    const NAMES: [(FsWord, &str); 14] = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x0102_1994, "tmpfs"),
        (0x794c_7630, "overlay"),
        (0xf2f5_2010, "f2fs"),
        (0xca45_1a4e, "bcachefs"),
        (0x2fc1_2fc1, "zfs"),
        (0x6969, "nfs"),
        (0xff53_4d42, "cifs"),
        (0x6573_5546, "fuse"),
        (0x0102_1997, "9p"),
        (0x8584_58f6, "ramfs"),
        (0x4d44, "vfat"),
    ];
    let name = NAMES.iter().find(|(kind, _)| *kind == statistics.f_type).map(|(_, name)| *name);
    name.map_or_else(|| format!("type {:#x}", statistics.f_type), str::to_owned)
}
