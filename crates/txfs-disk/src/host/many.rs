//! Files of which there may be thousands: each is opened when it is first used, and closed again when many others have
//! been used since, so that a large volume neither takes long to open nor needs more descriptors than a process may
//! have.
//!
//! A file with writes that were not synced stays open: an error of writing back is reported through descriptors that
//! were open when it happened.
//!
//! Locking: the mutex of [`OpenFiles`] before that of one file; neither is held during an operation on a file.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};

use super::Opener;
use super::file::HostFile;
use crate::{AlignedBuffer, DiskFile};

/// Files kept open at least, and at most.
const OPEN_FILES: std::ops::RangeInclusive<u64> = 16..=1024;

/// The files that are open, in the order in which they were opened or last spared.
#[derive(Debug)]
pub(super) struct OpenFiles {
    files: Mutex<VecDeque<Weak<OneOfMany>>>,
    count_max: usize,
}

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        // Each takes two descriptors, and half of what the process may have is for others.
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let count_max = (allowed / 4).clamp(*OPEN_FILES.start(), *OPEN_FILES.end());
        OpenFiles { files: Mutex::default(), count_max: count_max as usize }
    }
}

impl OpenFiles {
    /// Notes that `file` is open, and closes others where there are too many.
    fn opened(&self, file: &Weak<OneOfMany>) {
        let mut files = self.files.lock();
        files.push_back(file.clone());
        let mut left = files.len();
        while files.len() > self.count_max && left > 0 {
            left -= 1;
            let Some(oldest) = files.pop_front() else { return };
            let Some(candidate) = oldest.upgrade() else { continue };
            if !candidate.close_if_idle() {
                files.push_back(oldest);
            }
        }
    }
}

/// A file that is open only while it is in use; see [`crate::Disk::open_one_of_many`].
#[derive(Debug)]
pub(super) struct OneOfMany {
    opener: Arc<Opener>,
    open_files: Arc<OpenFiles>,
    name: String,
    this: Weak<OneOfMany>,
    file: Mutex<Option<Arc<HostFile>>>,
    /// Since it was last considered for closing.
    used: AtomicBool,
    unsynced: AtomicBool,
}

impl OneOfMany {
    pub(super) fn new(
        opener: &Arc<Opener>,
        open_files: &Arc<OpenFiles>,
        name: &str,
        file: Option<HostFile>,
    ) -> Arc<OneOfMany> {
        let is_open = file.is_some();
        let made = Arc::new_cyclic(|this| OneOfMany {
            opener: opener.clone(),
            open_files: open_files.clone(),
            name: name.to_owned(),
            this: this.clone(),
            file: Mutex::new(file.map(Arc::new)),
            used: AtomicBool::new(true),
            unsynced: AtomicBool::new(is_open),
        });
        if is_open {
            open_files.opened(&made.this);
        }
        made
    }

    fn file(&self) -> io::Result<Arc<HostFile>> {
        self.used.store(true, Ordering::Relaxed);
        let mut slot = self.file.lock();
        if let Some(file) = &*slot {
            return Ok(file.clone());
        }
        let file = Arc::new(self.opener.open(&self.name)?);
        *slot = Some(file.clone());
        drop(slot);
        self.open_files.opened(&self.this);
        Ok(file)
    }

    /// True when it is closed now.
    fn close_if_idle(&self) -> bool {
        let mut slot = self.file.lock();
        let spared = self.used.swap(false, Ordering::Relaxed) || self.unsynced.load(Ordering::Acquire);
        // In the midst of an operation it counts as used, whatever the mark says.
        if spared || slot.as_ref().is_some_and(|file| Arc::strong_count(file) > 1) {
            return false;
        }
        *slot = None;
        true
    }

    /// The file, which from now on has something to sync.
    fn written(&self) -> io::Result<Arc<HostFile>> {
        let file = self.file()?;
        self.unsynced.store(true, Ordering::Release);
        Ok(file)
    }
}

impl DiskFile for OneOfMany {
    fn len(&self) -> io::Result<u64> {
        let open = self.file.lock().clone();
        match open {
            Some(file) => file.len(),
            None => self.opener.len(&self.name),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written()?.set_len(len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file()?.read_at(offset, buffer)
    }

    fn expect_read(&self, offset: u64, len: u64) {
        if let Ok(file) = self.file() {
            file.expect_read(offset, len);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.written()?.write_at(offset, data)
    }

    fn write_log_vectored(&self, offset: u64, data: &[&AlignedBuffer], durable: bool) -> io::Result<()> {
        // A durable write leaves nothing to sync, and where it fails nobody asks again.
        let file = if durable { self.file()? } else { self.written()? };
        file.write_log_vectored(offset, data, durable)
    }

    fn sync(&self) -> io::Result<()> {
        let file = self.file()?;
        // Before the sync: what is written meanwhile may not be part of it.
        self.unsynced.store(false, Ordering::Release);
        file.sync().inspect_err(|_| self.unsynced.store(true, Ordering::Release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk;
    use crate::host::HostDisk;

    #[test]
    fn many_files_need_few_descriptors() {
        let directory = tempfile::tempdir().expect("directory");
        let mut disk = HostDisk::open(directory.path()).expect("disk");
        disk.open_files = Arc::new(OpenFiles { files: Mutex::default(), count_max: 4 });
        let open = |files: &[Arc<dyn DiskFile>]| {
            assert_eq!(files.len(), 40);
            disk.open_files.files.lock().len()
        };
        let files: Vec<Arc<dyn DiskFile>> = (0..40)
            .map(|number| disk.create_one_of_many(&format!("file-{number}")).expect("create"))
            .collect();
        assert_eq!(open(&files), 40, "nothing is closed before it is synced");
        for (number, file) in files.iter().enumerate() {
            file.write_at(0, format!("{number:04}").as_bytes()).expect("write");
            file.sync().expect("sync");
        }
        drop(files);
        let files: Vec<Arc<dyn DiskFile>> =
            (0..40).map(|number| disk.open_one_of_many(&format!("file-{number}")).expect("open")).collect();
        for round in 0..3 {
            for (number, file) in files.iter().enumerate() {
                let mut content = [0; 4];
                file.read_at(0, &mut content).expect("read");
                assert_eq!(content, *format!("{number:04}").as_bytes());
                assert_eq!(file.len().expect("length"), 4);
            }
            assert!(open(&files) <= 5, "round {round}: {} are open", open(&files));
        }
        let missing = disk.open_one_of_many("missing").expect_err("there is no such file");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
