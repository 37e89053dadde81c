//! `txfs mkfs`.

use txfs::{CreateOptions, Volume};

use crate::cli::Mkfs;
use crate::error::Error;

/// Makes the volume; its root directory belongs to who makes it.
pub fn run(arguments: Mkfs) -> Result<(), Error> {
    let options = CreateOptions {
        segment_bytes: arguments.segment_size.unwrap_or_else(|| segment_bytes(arguments.size)),
        size_bytes_max: arguments.size,
        preallocate_bytes: arguments.preallocate,
        root_uid: rustix::process::geteuid().as_raw(),
        root_gid: rustix::process::getegid().as_raw(),
        ..CreateOptions::default()
    };
    Volume::create_with(&arguments.volume, &options)
        .map_err(|source| Error::volume(&arguments.volume, source))
}

/// As large as usual, unless that would make too few of them: a few are always reserved. Not small, either: up to 256 KiB
/// stay unused at the end of each.
fn segment_bytes(size: Option<u64>) -> u64 {
    const USUAL: u64 = 32 << 20;
    const SEGMENTS_WANTED: u64 = 64;
    match size {
        None => USUAL,
        Some(size) => (size / SEGMENTS_WANTED).next_power_of_two().clamp(4 << 20, USUAL),
    }
}
