//! Open files. All functions may be called from several threads at once on the same handle.

use std::ffi::c_int;
use std::sync::Arc;

use volume::{AllocateMode, Attributes, FileOptions, Ino, NodeKind, SetAttributes, View};

use super::arguments::{Handle, Input, Out, Output, Pieces, Text, Times};
use super::failure::{Failure, Result, answer, done};
use super::view::{Source, ViewHandle};
use super::volumes::{Core, Use};
use super::{paths, status};

/// Flags that mean nothing here: no terminals, no descriptors, and all I/O is as good as direct.
const IGNORED: c_int = libc::O_CLOEXEC
    | libc::O_NOCTTY
    | libc::O_NONBLOCK
    | libc::O_LARGEFILE
    | libc::O_NOATIME
    | libc::O_DIRECT;
const KNOWN: c_int = IGNORED
    | libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NOFOLLOW
    | libc::O_DIRECTORY
    | libc::O_SYNC
    | libc::O_DSYNC;

/// `txfs_file`
pub struct FileHandle {
    core: Arc<Core>,
    source: Arc<Source>,
    ino: Ino,
    path: Box<[u8]>,
    reads: bool,
    writes: bool,
    appends: bool,
    /// Every write is followed by a flush.
    syncs: bool,
    _use: Use,
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        self.view().closed(self.ino);
    }
}

impl FileHandle {
    fn open(view: &ViewHandle, path: &[u8], flags: c_int, mode: u32) -> Result<FileHandle> {
        if flags & !KNOWN != 0 {
            return Err(Failure::invalid("flags of open that are not supported here"));
        }
        let (reads, writes) = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => (true, false),
            libc::O_WRONLY => (false, true),
            libc::O_RDWR => (true, true),
            _ => return Err(Failure::invalid("neither O_RDONLY nor O_WRONLY nor O_RDWR")),
        };
        let has = |flag: c_int| flags & flag == flag;
        if has(libc::O_CREAT) && has(libc::O_DIRECTORY) {
            return Err(Failure::invalid("O_CREAT makes files, not directories"));
        }
        let (uid, gid) = view.core.owner;
        let options = FileOptions::new()
            .create(has(libc::O_CREAT))
            .create_new(has(libc::O_CREAT | libc::O_EXCL))
            .follow(!has(libc::O_NOFOLLOW))
            .mode(mode & 0o7777)
            .owner(uid, gid);
        let failed = |error| Failure::at("open", path, error);
        let found = view.place().open(path, &options).map_err(failed)?;
        // From here on the handle gives the node back.
        let file = FileHandle {
            core: view.core.clone(),
            source: view.source.clone(),
            ino: found.ino,
            path: path.into(),
            reads,
            writes,
            appends: has(libc::O_APPEND),
            syncs: has(libc::O_DSYNC),
            _use: Use::of(&view.core),
        };
        let changes = writes || has(libc::O_CREAT) || has(libc::O_TRUNC);
        match found.kind {
            NodeKind::Directory if changes => return Err(failed(volume::Error::IsDirectory)),
            NodeKind::Directory => {}
            _ if has(libc::O_DIRECTORY) => return Err(failed(volume::Error::NotDirectory)),
            NodeKind::File => {}
            _ => return Err(failed(volume::Error::NotSupported("only files and directories can be opened"))),
        }
        if writes && matches!(*view.source, Source::Snapshot(_)) {
            return Err(failed(volume::Error::ReadOnly));
        }
        if has(libc::O_TRUNC) && writes {
            let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
            file.named("truncate", file.view().set_attributes(file.ino, &empty))?;
        }
        Ok(file)
    }

    fn view(&self) -> &dyn View {
        self.source.view()
    }

    fn named<T>(&self, doing: &'static str, result: volume::Result<T>) -> Result<T> {
        result.map_err(|error| Failure::at(doing, &self.path, error))
    }

    fn check_reads(&self, doing: &'static str) -> Result<()> {
        let result = if self.reads { Ok(()) } else { Err(volume::Error::NotOpenFor("reading")) };
        self.named(doing, result)
    }

    fn check_writes(&self, doing: &'static str) -> Result<()> {
        let result = if self.writes { Ok(()) } else { Err(volume::Error::NotOpenFor("writing")) };
        self.named(doing, result)
    }

    /// Writes, or appends whatever the offset. Where it went.
    fn write(&self, offset: Option<u64>, data: &[u8]) -> Result<u64> {
        self.check_writes("write to")?;
        let at = match offset.filter(|_| !self.appends) {
            Some(offset) => {
                self.named("write to", self.view().write(self.ino, offset, data))?;
                offset
            }
            None => self.named("append to", self.view().append(self.ino, data))?,
        };
        if self.syncs {
            self.sync()?;
        }
        Ok(at)
    }

    fn sync(&self) -> Result<()> {
        self.named("sync", self.view().sync(self.ino))
    }

    fn set(&self, doing: &'static str, set: &SetAttributes) -> Result<()> {
        self.named(doing, self.view().set_attributes(self.ino, set).map(drop))
    }

    fn attributes(&self) -> Result<Attributes> {
        self.named("stat", self.view().attributes(self.ino))
    }
}

fn position(offset: libc::off_t) -> Result<u64> {
    u64::try_from(offset).map_err(|_| Failure::invalid("the offset is negative"))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_open(
    view: Handle<ViewHandle>,
    path: Text,
    flags: c_int,
    mode: libc::mode_t,
    result: Out<*mut FileHandle>,
) -> c_int {
    done(|| {
        result.check()?;
        result.give(FileHandle::open(view.get()?, path.path()?, flags, mode)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_close(file: Handle<FileHandle>) -> c_int {
    done(|| {
        drop(file.take());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_pread(
    file: Handle<FileHandle>,
    mut buffer: Output,
    size: usize,
    offset: libc::off_t,
) -> isize {
    answer(|| {
        let (file, buffer, offset) = (file.get()?, buffer.slice(size)?, position(offset)?);
        file.check_reads("read")?;
        let count = file.named("read", file.view().read_into(file.ino, offset, buffer))?;
        Ok(count as isize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_pwrite(
    file: Handle<FileHandle>,
    buffer: Input,
    size: usize,
    offset: libc::off_t,
) -> isize {
    answer(|| {
        let (file, data, offset) = (file.get()?, buffer.slice(size)?, position(offset)?);
        file.write(Some(offset), data)?;
        Ok(data.len() as isize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_preadv(
    file: Handle<FileHandle>,
    pieces: Pieces,
    count: c_int,
    offset: libc::off_t,
) -> isize {
    answer(|| {
        let (file, length, offset) = (file.get()?, pieces.length(count)?, position(offset)?);
        file.check_reads("read")?;
        // In one step, so that all of it is of one moment.
        let content = file.named("read", file.view().read(file.ino, offset, length))?;
        pieces.scatter(count, &content)?;
        Ok(content.len() as isize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_pwritev(
    file: Handle<FileHandle>,
    pieces: Pieces,
    count: c_int,
    offset: libc::off_t,
) -> isize {
    answer(|| {
        let (file, data, offset) = (file.get()?, pieces.gather(count)?, position(offset)?);
        file.write(Some(offset), &data)?;
        Ok(data.len() as isize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_append(
    file: Handle<FileHandle>,
    buffer: Input,
    size: usize,
    offset: Out<libc::off_t>,
) -> isize {
    answer(|| {
        let (file, data) = (file.get()?, buffer.slice(size)?);
        let at = file.write(None, data)?;
        offset.put(libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX));
        Ok(data.len() as isize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_seek(file: Handle<FileHandle>, offset: libc::off_t, whence: c_int) -> i64 {
    answer(|| {
        let (file, offset) = (file.get()?, position(offset)?);
        let found = match whence {
            libc::SEEK_DATA => file.view().seek_data(file.ino, offset),
            libc::SEEK_HOLE => file.view().seek_hole(file.ino, offset),
            _ => return Err(Failure::invalid("neither SEEK_DATA nor SEEK_HOLE")),
        };
        let found = file.named("seek in", found)?;
        Ok(i64::try_from(found).unwrap_or(i64::MAX))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_copy_range(
    from: Handle<FileHandle>,
    from_offset: libc::off_t,
    to: Handle<FileHandle>,
    to_offset: libc::off_t,
    size: usize,
) -> isize {
    answer(|| {
        let (from, to) = (from.get()?, to.get()?);
        let (from_offset, to_offset) = (position(from_offset)?, position(to_offset)?);
        if !Arc::ptr_eq(&from.source, &to.source) {
            return Err(Failure::new(libc::EXDEV, "the two files are not open in the same view"));
        }
        from.check_reads("copy from")?;
        to.check_writes("copy to")?;
        let size = u64::try_from(size.min(isize::MAX as usize)).unwrap_or(u64::MAX);
        let copied = to.view().copy_range(from.ino, from_offset, to.ino, to_offset, size);
        Ok(to.named("copy to", copied)? as isize)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_ftruncate(file: Handle<FileHandle>, size: libc::off_t) -> c_int {
    done(|| {
        let file = file.get()?;
        let size = paths::new_size(size)?;
        file.check_writes("truncate")?;
        file.set("truncate", &size)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_fallocate(
    file: Handle<FileHandle>,
    mode: c_int,
    offset: libc::off_t,
    length: libc::off_t,
) -> c_int {
    const KEEP: c_int = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: c_int = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: c_int = ZERO | KEEP;
    done(|| {
        let (file, offset) = (file.get()?, position(offset)?);
        let length = u64::try_from(length).ok().filter(|length| *length > 0);
        let length = length.ok_or_else(|| Failure::invalid("the length is not positive"))?;
        let mode = match mode {
            0 => AllocateMode::Reserve { keep_size: false },
            KEEP => AllocateMode::Reserve { keep_size: true },
            PUNCH => AllocateMode::PunchHole,
            ZERO => AllocateMode::ZeroRange { keep_size: false },
            ZERO_KEEP => AllocateMode::ZeroRange { keep_size: true },
            _ => return Err(Failure::new(libc::EOPNOTSUPP, "this mode of fallocate is not supported")),
        };
        file.check_writes("allocate in")?;
        file.named("allocate in", file.view().allocate(file.ino, mode, offset, length))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_fsync(file: Handle<FileHandle>) -> c_int {
    done(|| file.get()?.sync())
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_fstat(file: Handle<FileHandle>, result: Out<libc::stat>) -> c_int {
    done(|| {
        result.check()?;
        let file = file.get()?;
        result.put(status::stat(&file.core, &file.attributes()?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_size(file: Handle<FileHandle>) -> i64 {
    answer(|| Ok(i64::try_from(file.get()?.attributes()?.size).unwrap_or(i64::MAX)))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_fchmod(file: Handle<FileHandle>, mode: libc::mode_t) -> c_int {
    done(|| file.get()?.set("change the mode of", &paths::new_mode(mode)))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_fchown(file: Handle<FileHandle>, uid: libc::uid_t, gid: libc::gid_t) -> c_int {
    done(|| file.get()?.set("change the owner of", &paths::new_owner(uid, gid)))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_futimens(file: Handle<FileHandle>, times: Times) -> c_int {
    done(|| file.get()?.set("change the times of", &paths::new_times(&times)?))
}
