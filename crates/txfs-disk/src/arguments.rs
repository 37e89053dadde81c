//! Checks of arguments that both disks share.

use std::io;

use crate::AlignedBuffer;

/// Longest name that every host file system takes, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// `InvalidInput` unless `name` is a plain file name.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    if plain && name.len() <= NAME_BYTES_MAX {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a plain file name")))
    }
}

/// `InvalidInput` unless `offset` and the length of each buffer are multiples of the sector size.
pub(crate) fn check_sectors(offset: u64, data: &[&AlignedBuffer], sector_bytes: usize) -> io::Result<()> {
    if offset.is_multiple_of(sector_bytes as u64)
        && data.iter().all(|buffer| buffer.len().is_multiple_of(sector_bytes))
    {
        return Ok(());
    }
    let lens: Vec<usize> = data.iter().map(|buffer| buffer.len()).collect();
    let message =
        format!("log write of {lens:?} bytes at {offset} is not in whole sectors of {sector_bytes} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
