//! Snapshots: of this moment, and those that have names.

use std::ffi::{CString, c_char, c_int, c_void};

use super::arguments::{Handle, Out, Text};
use super::failure::{Failure, Result, done};
use super::options;
use super::view::{Source, ViewHandle};
use super::volumes::VolumeHandle;

/// `txfs_snapshot_info`
#[repr(C)]
pub struct Info {
    size: usize,
    name: *const c_char,
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
    sequence: u64,
    data_bytes: u64,
    metadata_bytes: u64,
}

/// The caller's function: 0 to go on, anything else to stop.
type Visit = Option<extern "C" fn(*mut c_void, *const Info) -> c_int>;

#[unsafe(no_mangle)]
pub extern "C" fn txfs_snapshot_create(volume: Handle<VolumeHandle>, name: Text, durability: c_int) -> c_int {
    done(|| {
        let core = &volume.get()?.core;
        core.check_writable()?;
        core.volume.create_snapshot(name.utf8()?, options::durability(durability)?)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_snapshot_delete(volume: Handle<VolumeHandle>, name: Text) -> c_int {
    done(|| {
        let core = &volume.get()?.core;
        core.check_writable()?;
        Ok(core.volume.delete_snapshot(name.utf8()?)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_snapshot_open(
    volume: Handle<VolumeHandle>,
    name: Text,
    result: Out<*mut ViewHandle>,
) -> c_int {
    done(|| {
        result.check()?;
        let core = &volume.get()?.core;
        let view = match name.optional() {
            None => core.volume.snapshot(),
            Some(_) => core.volume.open_snapshot(name.utf8()?)?,
        };
        result.give(ViewHandle::new(core, Source::Snapshot(view)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_snapshot_list(
    volume: Handle<VolumeHandle>,
    visit: Visit,
    context: *mut c_void,
) -> c_int {
    done(|| -> Result<()> {
        let visit = visit.ok_or_else(|| Failure::invalid("the function to call is null"))?;
        for snapshot in volume.get()?.core.volume.snapshots()?.into_iter().filter(|snapshot| !snapshot.going)
        {
            let name = CString::new(snapshot.name).unwrap_or_default();
            let info = Info {
                size: size_of::<Info>(),
                name: name.as_ptr(),
                seconds: snapshot.time.seconds,
                nanoseconds: snapshot.time.nanoseconds,
                reserved: 0,
                sequence: snapshot.sequence,
                data_bytes: snapshot.data_bytes,
                metadata_bytes: snapshot.metadata_bytes,
            };
            if visit(context, &info) != 0 {
                break;
            }
        }
        Ok(())
    })
}
