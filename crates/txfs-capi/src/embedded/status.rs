//! What `stat` and `statvfs` fill in.

use volume::{Attributes, NodeKind, SetTime, Statistics, Timestamp};

use super::arguments::Times;
use super::failure::{Failure, Result};
use super::volumes::Core;

pub fn stat(core: &Core, node: &Attributes) -> libc::stat {
    // SAFETY: integers only.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = core.device;
    stat.st_ino = node.ino;
    stat.st_mode = node.st_mode();
    stat.st_nlink = node.nlink.into();
    stat.st_uid = node.uid;
    stat.st_gid = node.gid;
    stat.st_rdev = node.rdev.into();
    stat.st_size = i64::try_from(node.size).unwrap_or(i64::MAX);
    stat.st_blksize = volume::PAGE_BYTES as i64;
    stat.st_blocks = i64::try_from(node.blocks).unwrap_or(i64::MAX);
    (stat.st_atime, stat.st_atime_nsec) = (node.atime.seconds, node.atime.nanoseconds.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (node.mtime.seconds, node.mtime.nanoseconds.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (node.ctime.seconds, node.ctime.nanoseconds.into());
    stat
}

pub fn statvfs(core: &Core, statistics: &Statistics) -> libc::statvfs {
    // SAFETY: integers only.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    stat.f_bsize = statistics.block_bytes.into();
    stat.f_frsize = statistics.block_bytes.into();
    stat.f_blocks = statistics.blocks_total;
    stat.f_bfree = statistics.blocks_free;
    stat.f_bavail = statistics.blocks_available;
    stat.f_files = statistics.files_total.saturating_add(statistics.files_free);
    stat.f_ffree = statistics.files_free;
    stat.f_favail = statistics.files_free;
    stat.f_fsid = core.device;
    stat.f_flag = if core.read_only { libc::ST_RDONLY } else { 0 };
    stat.f_namemax = statistics.name_bytes_max.into();
    stat
}

/// `d_type` of a node.
pub fn entry_type(kind: NodeKind) -> u32 {
    // As in Linux, the type is the kind's bits of the mode.
    kind.mode_bits() >> 12
}

/// Access and modification time as `utimensat` has them.
pub fn times(times: &Times) -> Result<[Option<SetTime>; 2]> {
    let Some(times) = times.get() else { return Ok([Some(SetTime::Now); 2]) };
    let mut set = [None; 2];
    for (set, time) in set.iter_mut().zip(times) {
        *set = match time.tv_nsec {
            libc::UTIME_NOW => Some(SetTime::Now),
            libc::UTIME_OMIT => None,
            nanoseconds @ 0..1_000_000_000 => {
                Some(SetTime::At(Timestamp::new(time.tv_sec, nanoseconds as u32)))
            }
            _ => return Err(Failure::invalid("the nanoseconds of a time are not below 1,000,000,000")),
        };
    }
    Ok(set)
}
