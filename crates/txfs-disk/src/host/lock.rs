//! The volume's lock: an exclusive `flock` that the kernel releases however its process ends, and a note inside the
//! file that tells others who holds it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use rustix::fs::FlockOperation;

use crate::{LockGuard, LockOutcome};

/// Notes are read up to this length.
const NOTE_BYTES_MAX: u64 = 4096;

/// Dropping it empties the file and releases the lock.
#[derive(Debug)]
struct HostLock {
    file: File,
}

impl LockGuard for HostLock {}

impl Drop for HostLock {
    fn drop(&mut self) {
        // The note is for people, and stale ones only mislead them; the lock itself goes with the descriptor.
        let _ = self.file.set_len(0);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Takes the lock on an open file, or reads who holds it.
pub(super) fn try_lock(mut file: File, note: &str) -> io::Result<LockOutcome> {
    let locked =
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive));
    match locked {
        Ok(()) => {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(note.as_bytes())?;
            Ok(LockOutcome::Acquired(Box::new(HostLock { file })))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut owner = Vec::new();
            file.take(NOTE_BYTES_MAX).read_to_end(&mut owner)?;
            Ok(LockOutcome::Held { owner: String::from_utf8_lossy(&owner).trim().to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}
