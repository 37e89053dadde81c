//! Content of files and directories: what reads, writes, moves and sizes it.

use super::{Action, Call, Decided, at_path, descriptor, descriptors, make, on_descriptors};
use crate::transaction::Binding;

/// Calls that libc has no names for.
const CACHESTAT: libc::c_long = 451;

pub fn decide(binding: &mut Binding, call: &Call) -> Option<Decided> {
    let [path, length, ..] = call.arguments;
    Some(match call.number as libc::c_long {
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_lseek
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_fadvise64
        | libc::SYS_readahead
        | libc::SYS_getdents
        | libc::SYS_getdents64
        | CACHESTAT => on_descriptors(binding, call, &[0]),
        libc::SYS_copy_file_range | libc::SYS_splice => on_descriptors(binding, call, &[0, 2]),
        libc::SYS_sendfile | libc::SYS_tee => on_descriptors(binding, call, &[0, 1]),
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range | libc::SYS_syncfs => {
            sync(binding, call)
        }
        libc::SYS_sync if binding.known().is_some() && binding.scope().is_none() => Ok(Action::Answer(0)),
        libc::SYS_truncate => at_path(binding, libc::AT_FDCWD, path, true, |_, place| {
            let path = place.path();
            make(libc::SYS_truncate, [path.as_ptr() as usize, length, 0, 0, 0, 0])
        }),
        _ => return None,
    })
}

/// Nothing of the volume is to be made durable before the commit.
fn sync(binding: &mut Binding, call: &Call) -> Decided {
    match descriptors::class(binding, descriptor(call.arguments[0]))?.number() {
        Some(_) => Ok(Action::Answer(0)),
        None => Ok(Action::Make),
    }
}
