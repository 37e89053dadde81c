//! What happens after a flush: it is counted, and the calling thread sleeps for the delay.

use std::cell::Cell;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use crate::control::Control;
use crate::layout::{CONTROL_BYTES, CONTROL_VARIABLE, Call, DELAY_VARIABLE};

static PRIVATE: Control = Control::new();
static CONTROL: OnceLock<&'static Control> = OnceLock::new();

thread_local! {
    static EXACT: Cell<bool> = const { Cell::new(false) };
}

fn control() -> &'static Control {
    CONTROL.get_or_init(|| {
        let control = std::env::var_os(CONTROL_VARIABLE)
            .and_then(|path| map(std::os::unix::ffi::OsStringExt::into_vec(path)))
            .unwrap_or(&PRIVATE);
        control.count_program();
        let delay = std::env::var(DELAY_VARIABLE).ok().and_then(|text| text.trim().parse::<u64>().ok());
        if let Some(delay_us) = delay {
            control.set_delay_ns(delay_us.saturating_mul(1000));
        }
        control
    })
}

/// Maps the control file for the rest of the program's life.
fn map(path: Vec<u8>) -> Option<&'static Control> {
    let path = std::ffi::CString::new(path).ok()?;
    // SAFETY: the path is a terminated string; open has no other memory effects.
    let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: open just returned it, so nobody else owns it.
    let _descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: fstat fills the whole struct, for which zeros are a valid value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `status` is writable.
    let told = unsafe { libc::fstat(descriptor, &mut status) };
    if told != 0 || status.st_size < CONTROL_BYTES as i64 {
        return None;
    }
    // SAFETY: a new mapping at an address of the kernel's choice, of a descriptor that is open.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            CONTROL_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            descriptor,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is page-aligned, as long as a Control at least, never unmapped, and holds only atomics, which
    // other processes may change at any time.
    Some(unsafe { &*address.cast::<Control>() })
}

/// Counts a flush that has succeeded, and prolongs it.
pub(crate) fn after(call: Call) {
    let control = control();
    control.count(call);
    let delay_ns = control.delay_ns();
    if delay_ns == 0 {
        return;
    }
    EXACT.with(|exact| {
        if !exact.replace(true) {
            // The kernel may wake a sleeper up to 50 us late by default, to save power.
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
        }
    });
    let mut left = libc::timespec {
        tv_sec: (delay_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (delay_ns % 1_000_000_000) as libc::c_long,
    };
    loop {
        let request = left;
        // SAFETY: both timespecs live until the call returns.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &request, &mut left as *mut libc::timespec)
        };
        if result != libc::EINTR {
            return;
        }
    }
}
