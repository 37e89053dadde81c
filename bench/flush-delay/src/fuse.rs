//! Whether a descriptor lies on a FUSE mount. Asking a FUSE server costs a message, so each mount is asked once.

use std::sync::atomic::{AtomicU64, Ordering};

const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
/// A mount id that the kernel never uses again.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
const KNOWN: usize = 16;

/// Mounts that were asked: the id twice over, plus one for FUSE. Full, the rest is asked each time.
static MOUNTS: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];

pub(crate) fn is_on_fuse(descriptor: libc::c_int) -> bool {
    // SAFETY: statx fills the struct, for which zeros are a valid value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a terminated string and `status` is writable.
    let told = unsafe {
        libc::statx(
            descriptor,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC,
            STATX_MNT_ID_UNIQUE,
            &mut status,
        )
    };
    // FUSE has no block device: most flushes end here
    if told != 0 || status.stx_dev_major != 0 {
        return false;
    }
    if status.stx_mask & STATX_MNT_ID_UNIQUE == 0 {
        return ask(descriptor);
    }
    let mount = status.stx_mnt_id << 1;
    for known in &MOUNTS {
        let mut entry = known.load(Ordering::Relaxed);
        if entry == 0 {
            let found = mount | u64::from(ask(descriptor));
            match known.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => entry = found,
                Err(other) => entry = other,
            }
        }
        if entry & !1 == mount {
            return entry & 1 == 1;
        }
    }
    ask(descriptor)
}

fn ask(descriptor: libc::c_int) -> bool {
    // SAFETY: fstatfs fills the struct, for which zeros are a valid value.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is writable.
    let told = unsafe { libc::fstatfs(descriptor, &mut status) };
    told == 0 && status.f_type as u64 == FUSE_SUPER_MAGIC
}
