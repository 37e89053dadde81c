//! What C callers pass: pointers, checked as far as pointers can be.
//!
//! Each type here is one pointer (`repr(transparent)`), null or as its documentation says; only C callers make them. That is
//! what all the SAFETY comments rest on: the contract in the header.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::failure::{Failure, Result};

/// A longer buffer is a mistake: its length does not fit into what functions return.
const BYTES_MAX: usize = isize::MAX as usize;
/// As `IOV_MAX` of Linux.
const PIECES_MAX: usize = 1024;

/// A path of the volume, for messages and for the library.
pub fn guarded_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// A handle that one of the functions gave, and that is not closed yet.
#[repr(transparent)]
pub struct Handle<T>(*const c_void, PhantomData<T>);

impl<T> Handle<T> {
    pub fn get(&self) -> Result<&T> {
        // SAFETY: null, or a live handle of this type; others have only shared references too.
        unsafe { self.0.cast::<T>().as_ref() }.ok_or_else(|| Failure::invalid("the handle is null"))
    }

    /// The handle's address, for those that are never freed by themselves.
    pub fn of(value: &T) -> Handle<T> {
        Handle(std::ptr::from_ref(value).cast(), PhantomData)
    }

    /// Takes back what [`Out::give`] gave; null gives nothing.
    pub fn take(self) -> Option<Box<T>> {
        let pointer = self.0.cast_mut().cast::<T>();
        // SAFETY: a handle that `Out::give` gave and that the caller uses for the last time.
        (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
    }

    pub fn null() -> Handle<T> {
        Handle(std::ptr::null(), PhantomData)
    }
}

/// A place for one result.
#[repr(transparent)]
pub struct Out<T>(*mut c_void, PhantomData<T>);

impl<T> Out<T> {
    pub fn check(&self) -> Result<()> {
        if self.0.is_null() { Err(Failure::invalid("the pointer for the result is null")) } else { Ok(()) }
    }

    /// Writes the result; nothing where the place is null.
    pub fn put(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so room for a T.
            unsafe { self.0.cast::<T>().write(value) };
        }
    }
}

impl<T> Out<*mut T> {
    /// Hands a new handle to the caller.
    pub fn give(&self, value: T) {
        if !self.0.is_null() {
            self.put(Box::into_raw(Box::new(value)));
        }
    }
}

/// A text that ends with NUL.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Its bytes without the NUL; `None` where there is none.
    pub fn optional(&self) -> Option<&[u8]> {
        // SAFETY: null, or a text that ends with NUL and stays as it is during the call.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    pub fn bytes(&self) -> Result<&[u8]> {
        self.optional().ok_or_else(|| Failure::invalid("the name or path is null"))
    }

    /// A path of the volume: an empty one leads nowhere.
    pub fn path(&self) -> Result<&[u8]> {
        match self.bytes()? {
            [] => Err(Failure::new(libc::ENOENT, "the path is empty")),
            path => Ok(path),
        }
    }

    /// A path of the host.
    pub fn host_path(&self) -> Result<&Path> {
        self.path().map(guarded_path)
    }

    pub fn utf8(&self) -> Result<&str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Failure::invalid("the name is not UTF-8"))
    }
}

/// Bytes to read from.
#[repr(transparent)]
pub struct Input(*const c_void);

impl Input {
    pub fn slice(&self, length: usize) -> Result<&[u8]> {
        check_buffer(self.0.is_null(), length)?;
        // SAFETY: so many readable bytes, which nobody changes during the call.
        Ok(if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.0.cast(), length) } })
    }
}

/// Bytes to write to.
#[repr(transparent)]
pub struct Output(*mut c_void);

impl Output {
    pub fn slice(&mut self, length: usize) -> Result<&mut [u8]> {
        check_buffer(self.0.is_null(), length)?;
        if length == 0 {
            return Ok(&mut []);
        }
        // SAFETY: so many writable bytes, which nobody else uses during the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), length) })
    }
}

fn check_buffer(is_null: bool, length: usize) -> Result<()> {
    match (is_null, length) {
        (_, BYTES_MAX..) => Err(Failure::invalid("the length is larger than SSIZE_MAX")),
        (true, 1..) => Err(Failure::invalid("the buffer is null")),
        _ => Ok(()),
    }
}

/// An array of buffers.
#[repr(transparent)]
pub struct Pieces(*const libc::iovec);

impl Pieces {
    fn get(&self, count: i32) -> Result<&[libc::iovec]> {
        let count = usize::try_from(count).ok().filter(|count| *count <= PIECES_MAX);
        let count =
            count.ok_or_else(|| Failure::invalid("the number of buffers is not between 0 and 1024"))?;
        check_buffer(self.0.is_null(), count)?;
        // SAFETY: so many elements, which nobody changes during the call.
        Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(self.0, count) } })
    }

    /// What all of them hold together.
    pub fn length(&self, count: i32) -> Result<usize> {
        let sum = self.get(count)?.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.iov_len));
        let sum = sum.filter(|sum| *sum < BYTES_MAX);
        sum.ok_or_else(|| Failure::invalid("the lengths add up to more than SSIZE_MAX"))
    }

    /// Their content, one behind the other.
    pub fn gather(&self, count: i32) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        let length = self.length(count)?;
        all.try_reserve_exact(length).map_err(|_| Failure::new(libc::ENOMEM, "no memory for the buffers"))?;
        for piece in self.get(count)? {
            all.extend_from_slice(Input(piece.iov_base).slice(piece.iov_len)?);
        }
        Ok(all)
    }

    /// Fills them from `content`, which is no longer than they are.
    pub fn scatter(&self, count: i32, mut content: &[u8]) -> Result<()> {
        for piece in self.get(count)? {
            let (now, later) = content.split_at(piece.iov_len.min(content.len()));
            Output(piece.iov_base).slice(now.len())?.copy_from_slice(now);
            content = later;
        }
        Ok(())
    }
}

/// Two times, as `utimensat` has them; null stands for now.
#[repr(transparent)]
pub struct Times(*const [libc::timespec; 2]);

impl Times {
    pub fn get(&self) -> Option<[libc::timespec; 2]> {
        // SAFETY: null, or two times.
        unsafe { self.0.as_ref() }.copied()
    }
}

/// A structure of options whose first field says how large it is. Null stands for all defaults.
#[repr(transparent)]
pub struct Options<T>(*const c_void, PhantomData<T>);

/// A structure of options.
///
/// # Safety
/// It is `repr(C)`, begins with a `size_t`, and all zeros are a value of it: integers and raw pointers only.
pub unsafe trait Plain: Sized {}

impl<T: Plain> Options<T> {
    /// Of a structure within another one.
    pub fn of(pointer: *const T) -> Options<T> {
        Options(pointer.cast(), PhantomData)
    }

    /// A copy. What the caller's version of the structure lacks is zero; what it has beyond ours must be.
    pub fn get(&self) -> Result<T> {
        // SAFETY: `Plain`.
        let mut options: T = unsafe { std::mem::zeroed() };
        if self.0.is_null() {
            return Ok(options);
        }
        // SAFETY: the structure begins with its size.
        let size = unsafe { self.0.cast::<usize>().read_unaligned() };
        if !(size_of::<usize>()..=4096).contains(&size) {
            return Err(Failure::invalid("the size of the options is not that of any version of them"));
        }
        // SAFETY: the structure is as large as it says.
        let given = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), size) };
        let (known, unknown) = given.split_at(size.min(size_of::<T>()));
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(Failure::new(libc::E2BIG, "options that this version of the library does not know"));
        }
        // SAFETY: no more bytes than a T has, and any bytes make one (`Plain`).
        unsafe { std::ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut options).cast(), known.len()) };
        Ok(options)
    }
}
