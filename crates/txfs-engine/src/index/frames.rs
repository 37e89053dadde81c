//! The index file's outermost layer: every page of the B-tree library stands in a frame with a checksum.
//!
//! redb verifies its own page checksums only when it repairs, and trusts what it reads otherwise; so a flipped bit
//! could come out as a wrong value or a panic. This backend puts a CRC-32C under every page instead, and turns any
//! damage into an I/O error before redb sees the bytes.
//!
//! # Format
//! The file is an array of frames of nine 512-byte sectors; frame *n* holds redb's 4096-byte page *n*.
//! * Frame 0 is the header, and only its first sector is used: what redb keeps at the start of its file (up to
//!   [`HEADER_BYTES_MAX`] bytes, then zeros), at byte 496 the number of pages (8 bytes, little-endian), zeros, and in the
//!   last four bytes the CRC (little-endian) of volume id, 0 and the 508 bytes before it. One sector is atomic, so a
//!   torn header write leaves the old or the new header, which is what redb's commit protocol asks for.
//! * Any other frame holds the page in its first eight sectors; the ninth starts with the CRC of volume id, *n* and
//!   the 4096 bytes, and ends with 508 zeros. The CRC covers the whole page, so that a mixture of sectors from two
//!   writes of one page does not pass either.
//!
//! # Why frames and not a checksum in each sector's last bytes
//! redb's pages would straddle such sectors: each page write would read and rewrite sectors that it shares with its
//! neighbours, under a lock against readers of those. Frames share no sector, so there is no read-modify-write, no
//! lock, and damage stays in one page. The price is 12.5 % of the file's size.
//!
//! # Length
//! redb doubles its file ahead of need and is unusable once that fails. So its length is a number in the header, and
//! the host file grows only as far as pages are written; it may end in the midst of a frame after a crash. redb reads
//! only pages that a commit refers to, and a commit (always in two phases, see `store.rs`) refers to pages only after
//! they were written and flushed. So new pages need no formatting, and a page that lies behind the end of the host
//! file, or is all zeros, is damage like any other.
//!
//! # Locking
//! A mutex guards the header sector; pages need none, as redb does not read a page while it writes it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use txfs_disk::DiskFile;

/// Bytes of a page as redb sees it.
pub(super) const PAGE_BYTES: usize = 4096;
/// Bytes of a page with its checksum sector, as it lies in the file.
pub(super) const FRAME_BYTES: usize = 4608;
/// What of page 0 can be stored; redb's header takes 320 bytes.
pub(super) const HEADER_BYTES_MAX: usize = 496;

const SECTOR_BYTES: usize = 512;
const CHECKSUM_BYTES: usize = 4;
/// Where in the header sector the number of pages is.
const PAGES_AT: usize = HEADER_BYTES_MAX;
/// Where in the header sector its checksum is.
const HEADER_CHECKSUM_AT: usize = SECTOR_BYTES - CHECKSUM_BYTES;
/// Frames that go into one read or write of the file at most, to bound the buffer.
const BATCH_FRAMES_MAX: usize = 64;

/// A file of checksummed pages; see the module's documentation.
pub(super) struct FramedFile {
    file: Arc<dyn DiskFile>,
    name: String,
    /// CRC-32C of the volume id, which every checksum continues from: pages of another volume do not pass.
    seed: u32,
    header: Mutex<Header>,
    /// Bytes written to the file.
    written: Arc<AtomicU64>,
}

/// The contents of the header sector.
#[derive(Clone)]
struct Header {
    data: [u8; HEADER_BYTES_MAX],
    /// Length of the file as redb sees it, in pages; 0 before redb has sized it, when there is no sector yet.
    pages: u64,
}

impl fmt::Debug for FramedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FramedFile").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FramedFile {
    /// For a new, empty file.
    pub(super) fn create(file: Arc<dyn DiskFile>, name: &str, volume_id: &[u8; 16]) -> FramedFile {
        let header = Mutex::new(Header { data: [0; HEADER_BYTES_MAX], pages: 0 });
        FramedFile {
            file,
            name: name.to_owned(),
            seed: crc32c::crc32c(volume_id),
            header,
            written: Arc::default(),
        }
    }

    /// For a file with a header.
    pub(super) fn open(file: Arc<dyn DiskFile>, name: &str, volume_id: &[u8; 16]) -> io::Result<FramedFile> {
        let framed = FramedFile::create(file, name, volume_id);
        let header = framed.read_header()?;
        *framed.header.lock() = header;
        Ok(framed)
    }

    fn checksum(&self, page: u64, data: &[u8]) -> [u8; CHECKSUM_BYTES] {
        let seeded = crc32c::crc32c_append(self.seed, &page.to_le_bytes());
        crc32c::crc32c_append(seeded, data).to_le_bytes()
    }

    fn damaged(&self, page: u64, what: &str) -> io::Error {
        let (name, at) = (&self.name, page.saturating_mul(FRAME_BYTES as u64));
        io::Error::new(io::ErrorKind::InvalidData, format!("page {page} of {name:?}, at byte {at}, {what}"))
    }

    fn misuse(&self, doing: &str, offset: u64, len: usize) -> io::Error {
        let name = &self.name;
        let message = format!("cannot {doing} {len} bytes at {offset} of {name:?}: not whole pages");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    }

    fn read_header(&self) -> io::Result<Header> {
        let mut sector = [0; SECTOR_BYTES];
        self.file.read_at(0, &mut sector)?;
        if sector[HEADER_CHECKSUM_AT..] != self.checksum(0, &sector[..HEADER_CHECKSUM_AT]) {
            return Err(self.damaged(0, "the header, does not match its checksum"));
        }
        let mut header = Header { data: [0; HEADER_BYTES_MAX], pages: 0 };
        header.data.copy_from_slice(&sector[..HEADER_BYTES_MAX]);
        let mut pages = [0; 8];
        pages.copy_from_slice(&sector[PAGES_AT..PAGES_AT + 8]);
        header.pages = u64::from_le_bytes(pages);
        if header.pages == 0 || header.pages > u64::MAX / FRAME_BYTES as u64 {
            return Err(self.damaged(0, "the header, has an impossible number of pages"));
        }
        Ok(header)
    }

    fn write_header(&self, header: &Header) -> io::Result<()> {
        let mut sector = [0; SECTOR_BYTES];
        sector[..HEADER_BYTES_MAX].copy_from_slice(&header.data);
        sector[PAGES_AT..PAGES_AT + 8].copy_from_slice(&header.pages.to_le_bytes());
        let checksum = self.checksum(0, &sector[..HEADER_CHECKSUM_AT]);
        sector[HEADER_CHECKSUM_AT..].copy_from_slice(&checksum);
        self.write_file(0, &sector)
    }

    /// Counts the bytes written to the file from now on in `written`.
    pub(super) fn counting(self, written: &Arc<AtomicU64>) -> FramedFile {
        FramedFile { written: written.clone(), ..self }
    }

    fn write_file(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.file.write_at(offset, data)
    }

    /// Takes the page out of its frame, if it is what was written there.
    fn unframe(&self, page: u64, frame: &[u8], out: &mut [u8]) -> io::Result<()> {
        let (data, trailer) = frame.split_at(PAGE_BYTES);
        let (checksum, padding) = trailer.split_at(CHECKSUM_BYTES);
        if checksum != self.checksum(page, data) {
            let what = if frame.iter().all(|byte| *byte == 0) {
                "is all zeros: it was never written, or its contents were lost"
            } else {
                "does not match its checksum"
            };
            return Err(self.damaged(page, what));
        }
        if padding.iter().any(|byte| *byte != 0) {
            return Err(self.damaged(page, "has bytes after its checksum that nobody wrote"));
        }
        out.copy_from_slice(data);
        Ok(())
    }

    fn frame(&self, page: u64, data: &[u8], frame: &mut [u8]) {
        frame[..PAGE_BYTES].copy_from_slice(data);
        frame[PAGE_BYTES..].fill(0);
        frame[PAGE_BYTES..PAGE_BYTES + CHECKSUM_BYTES].copy_from_slice(&self.checksum(page, data));
    }

    /// The first page of a request for whole pages after the header.
    fn first_page(&self, doing: &str, offset: u64, len: usize) -> io::Result<u64> {
        let whole = offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES);
        let page = offset / PAGE_BYTES as u64;
        let end =
            page.checked_add((len / PAGE_BYTES) as u64).and_then(|end| end.checked_mul(FRAME_BYTES as u64));
        if !whole || page == 0 || end.is_none() {
            return Err(self.misuse(doing, offset, len));
        }
        Ok(page)
    }
}

impl redb::StorageBackend for FramedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.header.lock().pages * PAGE_BYTES as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset == 0 && out.len() <= HEADER_BYTES_MAX {
            // From the file, not from memory: redb reads its header when it wants to know what is on the disk.
            out.copy_from_slice(&self.read_header()?.data[..out.len()]);
            return Ok(());
        }
        let mut page = self.first_page("read", offset, out.len())?;
        if out.len() == PAGE_BYTES {
            // Nearly every read is of one page: no allocation for those.
            let mut frame = [0; FRAME_BYTES];
            self.file.read_at(page * FRAME_BYTES as u64, &mut frame)?;
            return self.unframe(page, &frame, out);
        }
        let batch_frames = BATCH_FRAMES_MAX.min(out.len() / PAGE_BYTES);
        let mut buffer = vec![0; batch_frames * FRAME_BYTES];
        for batch in out.chunks_mut(batch_frames.max(1) * PAGE_BYTES) {
            let frames = &mut buffer[..batch.len() / PAGE_BYTES * FRAME_BYTES];
            self.file.read_at(page * FRAME_BYTES as u64, frames)?;
            for (frame, out) in frames.chunks(FRAME_BYTES).zip(batch.chunks_mut(PAGE_BYTES)) {
                self.unframe(page, frame, out)?;
                page += 1;
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let pages = len / PAGE_BYTES as u64;
        let Some(frames_end) = pages.checked_mul(FRAME_BYTES as u64).filter(|end| *end > 0) else {
            return Err(self.misuse("set the length to", len, 0));
        };
        if !len.is_multiple_of(PAGE_BYTES as u64) {
            return Err(self.misuse("set the length to", len, 0));
        }
        let mut header = self.header.lock();
        let resized = Header { pages, ..header.clone() };
        self.write_header(&resized)?;
        *header = resized;
        if self.file.len()? > frames_end {
            self.file.set_len(frames_end)?;
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset == 0 && data.len() <= HEADER_BYTES_MAX {
            let mut header = self.header.lock();
            let mut changed = header.clone();
            changed.data.fill(0);
            changed.data[..data.len()].copy_from_slice(data);
            self.write_header(&changed)?;
            *header = changed;
            return Ok(());
        }
        let mut page = self.first_page("write", offset, data.len())?;
        if data.len() == PAGE_BYTES {
            let mut frame = [0; FRAME_BYTES];
            self.frame(page, data, &mut frame);
            return self.write_file(page * FRAME_BYTES as u64, &frame);
        }
        let batch_frames = BATCH_FRAMES_MAX.min(data.len() / PAGE_BYTES);
        let mut buffer = vec![0; batch_frames * FRAME_BYTES];
        for batch in data.chunks(batch_frames.max(1) * PAGE_BYTES) {
            let frames = &mut buffer[..batch.len() / PAGE_BYTES * FRAME_BYTES];
            let start = page * FRAME_BYTES as u64;
            for (data, frame) in batch.chunks(PAGE_BYTES).zip(frames.chunks_mut(FRAME_BYTES)) {
                self.frame(page, data, frame);
                page += 1;
            }
            self.write_file(start, frames)?;
        }
        Ok(())
    }
}
