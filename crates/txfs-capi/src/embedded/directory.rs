//! Listings of directories.

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use volume::{DirectoryEntry, Ino};

use super::arguments::{Handle, Out, Text};
use super::failure::{Failure, Result, answer, done};
use super::status::entry_type;
use super::view::{Source, ViewHandle};
use super::volumes::Use;

/// Entries that are fetched at a time: as many as the library collects in one step.
const BATCH: usize = 256;

/// `txfs_dirent`
#[repr(C)]
pub struct Entry {
    ino: u64,
    cookie: u64,
    kind: u32,
    name_length: u32,
    name: *const c_char,
}

/// `txfs_dir`
pub struct DirectoryHandle {
    source: Arc<Source>,
    ino: Ino,
    path: Box<[u8]>,
    /// One thread at a time goes on with the listing.
    listing: Mutex<Listing>,
    _use: Use,
}

struct Listing {
    ahead: VecDeque<DirectoryEntry>,
    /// Of the last entry fetched.
    cookie: u64,
    at_end: bool,
    name: CString,
    entry: Entry,
}

// SAFETY: the pointer in `entry` leads to `name` beside it, and is only given out.
unsafe impl Send for Listing {}

impl Drop for DirectoryHandle {
    fn drop(&mut self) {
        self.source.view().closed(self.ino);
    }
}

impl DirectoryHandle {
    fn fetch(&self, listing: &mut Listing) -> Result<()> {
        let (ahead, cookie) = (&mut listing.ahead, &mut listing.cookie);
        let mut taken = 0;
        let fetched = self.source.view().read_directory(self.ino, *cookie, &mut |entry| {
            *cookie = entry.cookie;
            taken += 1;
            if !matches!(entry.name.as_slice(), b"." | b"..") {
                ahead.push_back(entry);
            }
            if taken < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        fetched.map_err(|error| Failure::at("list", &self.path, error))?;
        listing.at_end = taken < BATCH;
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_opendir(
    view: Handle<ViewHandle>,
    path: Text,
    result: Out<*mut DirectoryHandle>,
) -> c_int {
    done(|| {
        result.check()?;
        let (view, path) = (view.get()?, path.path()?);
        let failed = |error| Failure::at("list", path, error);
        let found = view.place().open(path, &volume::FileOptions::new()).map_err(failed)?;
        let entry = Entry { ino: 0, cookie: 0, kind: 0, name_length: 0, name: c"".as_ptr() };
        let name = CString::default();
        let listing = Listing { ahead: VecDeque::new(), cookie: 0, at_end: false, name, entry };
        // From here on the handle gives the node back.
        let directory = DirectoryHandle {
            source: view.source.clone(),
            ino: found.ino,
            path: path.into(),
            listing: Mutex::new(listing),
            _use: Use::of(&view.core),
        };
        if !found.is_directory() {
            return Err(failed(volume::Error::NotDirectory));
        }
        result.give(directory);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_readdir(directory: Handle<DirectoryHandle>, result: Out<*const Entry>) -> c_int {
    answer(|| {
        result.check()?;
        let directory = directory.get()?;
        let mut listing = directory.listing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = loop {
            match listing.ahead.pop_front() {
                Some(next) => break next,
                None if listing.at_end => {
                    result.put(std::ptr::null());
                    return Ok(0);
                }
                None => directory.fetch(&mut listing)?,
            }
        };
        let listing = &mut *listing;
        listing.name =
            CString::new(next.name).map_err(|_| Failure::new(libc::EIO, "a name with a NUL in it"))?;
        listing.entry = Entry {
            ino: next.ino,
            cookie: next.cookie,
            kind: entry_type(next.kind),
            name_length: u32::try_from(listing.name.as_bytes().len()).unwrap_or(u32::MAX),
            name: listing.name.as_ptr(),
        };
        result.put(&raw const listing.entry);
        Ok(1)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_seekdir(directory: Handle<DirectoryHandle>, cookie: u64) -> c_int {
    done(|| {
        let mut listing = directory.get()?.listing.lock().unwrap_or_else(PoisonError::into_inner);
        (listing.cookie, listing.at_end) = (cookie, false);
        listing.ahead.clear();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_closedir(directory: Handle<DirectoryHandle>) -> c_int {
    done(|| {
        drop(directory.take());
        Ok(())
    })
}
