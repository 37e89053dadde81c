//! An open host file: a descriptor through the page cache, and where the host allows it one past it for the log.
//!
//! Both may be used on the same range: the kernel writes back and drops cached pages that a direct write replaces.

use std::fs::File;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::arguments::check_sectors;
use crate::error::at;
use crate::{AlignedBuffer, Capabilities, DiskFile};

/// Linux fetches no more for one piece of advice than the device reads ahead anyway, and forgets the rest of it.
const ADVICE_BYTES_MAX: u64 = 512 * 1024;

#[derive(Debug)]
pub(super) struct HostFile {
    buffered: File,
    direct: Option<OwnedFd>,
    data_sync_writes: bool,
    sector_bytes: usize,
    /// As it was opened, for messages.
    path: PathBuf,
}

impl HostFile {
    pub(super) fn new(
        buffered: OwnedFd,
        direct: Option<OwnedFd>,
        capabilities: &Capabilities,
        path: PathBuf,
    ) -> Self {
        HostFile {
            buffered: File::from(buffered),
            direct,
            data_sync_writes: capabilities.data_sync_writes,
            sector_bytes: capabilities.sector_bytes,
            path,
        }
    }
}

/// Most buffers that Linux takes in one call.
const BUFFERS_MAX: usize = 1024;

/// Writes all of `data`; after a short write goes on at the last whole sector, so that direct writes stay aligned.
pub(super) fn write_all(
    file: BorrowedFd<'_>,
    offset: u64,
    data: &[&[u8]],
    flags: ReadWriteFlags,
    sector_bytes: usize,
) -> Result<(), Errno> {
    let len: usize = data.iter().map(|piece| piece.len()).sum();
    let mut done = 0;
    while done < len {
        let rest: Vec<IoSlice<'_>> = behind(data, done).take(BUFFERS_MAX).map(IoSlice::new).collect();
        match rustix::io::pwritev2(file, &rest, offset + done as u64, flags) {
            Ok(written) if done + written >= len => done = len,
            Ok(written) if written < sector_bytes => return Err(Errno::IO),
            Ok(written) => done += written - written % sector_bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What the pieces hold behind their first `skip` bytes.
fn behind<'d>(data: &'d [&[u8]], mut skip: usize) -> impl Iterator<Item = &'d [u8]> {
    data.iter().filter_map(move |piece| {
        let skipped = skip.min(piece.len());
        skip -= skipped;
        Some(&piece[skipped..]).filter(|rest| !rest.is_empty())
    })
}

impl DiskFile for HostFile {
    fn len(&self) -> io::Result<u64> {
        let metadata =
            self.buffered.metadata().map_err(|error| at("find the length of", &self.path, error))?;
        Ok(metadata.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.buffered.set_len(len).map_err(|error| at("change the length of", &self.path, error))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.buffered.read_exact_at(buffer, offset).map_err(|error| at("read", &self.path, error))
    }

    fn expect_read(&self, offset: u64, len: u64) {
        let mut at = offset;
        while let Some(piece) = NonZeroU64::new((offset + len - at).min(ADVICE_BYTES_MAX)) {
            // Only advice: whoever reads finds out what is wrong, if anything is.
            let _ = rustix::fs::fadvise(&self.buffered, at, Some(piece), Advice::WillNeed);
            at += piece.get();
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.buffered.write_all_at(data, offset).map_err(|error| at("write", &self.path, error))
    }

    fn write_log_vectored(&self, offset: u64, data: &[&AlignedBuffer], durable: bool) -> io::Result<()> {
        use std::os::fd::AsFd;
        check_sectors(offset, data, self.sector_bytes)?;
        let pieces: Vec<&[u8]> = data.iter().map(|buffer| buffer.as_slice()).collect();
        let file = self.direct.as_ref().map_or(self.buffered.as_fd(), |direct| direct.as_fd());
        let one_call = durable && self.data_sync_writes;
        let flags = if one_call { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        write_all(file, offset, &pieces, flags, self.sector_bytes)
            .map_err(|error| at("write", &self.path, error))?;
        if durable && !one_call { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync carries the length too: it is needed to read the data back
        self.buffered.sync_data().map_err(|error| at("sync", &self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn a_short_write_goes_on_where_it_ended() {
        let pieces: [&[u8]; 4] = [b"ab", b"", b"cde", b"f"];
        for skip in 0..=6 {
            assert_eq!(behind(&pieces, skip).collect::<Vec<_>>().concat(), &b"abcdef"[skip..]);
        }
    }
}
