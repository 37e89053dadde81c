//! Creating, opening and closing volumes.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use volume::Volume;

use super::arguments::{Handle, Options, Out, Text};
use super::creation;
use super::failure::{Failure, Result, done};
use super::options::{Create, Open};
use super::view::{Source, ViewHandle};

/// An open volume, as all handles of it share it.
pub struct Core {
    pub volume: Volume,
    pub read_only: bool,
    /// Who owns what is created: the process's user and group when the volume was opened.
    pub owner: (u32, u32),
    /// Stands for the volume in `st_dev`.
    pub device: u64,
    uses: AtomicUsize,
}

impl Core {
    pub fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Failure::new(libc::EROFS, "the volume is open for reading only")),
            false => Ok(()),
        }
    }
}

/// A handle that keeps the volume from being closed.
pub struct Use(Arc<Core>);

impl Use {
    pub fn of(core: &Arc<Core>) -> Use {
        core.uses.fetch_add(1, Ordering::Relaxed);
        Use(core.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}

/// `txfs_volume`
pub struct VolumeHandle {
    pub core: Arc<Core>,
    base: ViewHandle,
}

fn owner() -> (u32, u32) {
    // SAFETY: these cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn create(path: &Text, options: &Options<Create>) -> Result<()> {
    let path = path.host_path()?;
    creation::create(path, &options.get()?.decode(owner())?)
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_volume_create(path: Text, options: Options<Create>) -> c_int {
    done(|| create(&path, &options))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_volume_open(
    path: Text,
    options: Options<Open>,
    result: Out<*mut VolumeHandle>,
) -> c_int {
    done(|| {
        result.check()?;
        let host_path = path.host_path()?;
        let given = options.get()?;
        let options = given.decode()?;
        if given.creates() {
            match create(&path, &given.create_options()) {
                Err(failure) if failure.errno() == libc::EEXIST => {}
                created => created?,
            }
        }
        let volume = Volume::open_with(host_path, &options)
            .map_err(|error| Failure::on_host("open the volume", host_path, &error))?;
        let id = volume.volume_id();
        let device = u64::from_le_bytes([id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]]);
        let read_only = given.read_only();
        let core =
            Core { volume, read_only, owner: owner(), device: device.max(1), uses: AtomicUsize::new(0) };
        let source = match read_only {
            // Nobody else can change it: one moment of it is all there is.
            true => Source::Snapshot(core.volume.snapshot()),
            false => Source::Base(core.volume.base()),
        };
        let core = Arc::new(core);
        result.give(VolumeHandle { base: ViewHandle::of_volume(&core, source), core });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_volume_close(volume: Handle<VolumeHandle>) -> c_int {
    done(|| {
        let Ok(open) = volume.get() else { return Ok(()) };
        match open.core.uses.load(Ordering::Acquire) {
            0 => {}
            count => {
                let what =
                    format!("{count} transactions, files, directories or other views of the volume are open");
                return Err(Failure::new(libc::EBUSY, what));
            }
        }
        let closed = open.core.volume.close();
        drop(volume.take());
        Ok(closed?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_volume_sync(volume: Handle<VolumeHandle>) -> c_int {
    done(|| Ok(volume.get()?.core.volume.sync()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_volume_base(volume: Handle<VolumeHandle>) -> Handle<ViewHandle> {
    volume.get().map_or_else(|_| Handle::null(), |volume| Handle::of(&volume.base))
}
