//! What the end-to-end tests share: a volume, its mount and the processes on it, all of them real, all gone when the
//! test ends.
//!
//! The tests need /dev/fuse and the `txfs` command (`$TXFS`, else the one beside the test's own executable, else
//! `target/release/txfs`). Volumes are made under `$TXFS_WORK` (default /var/tmp).

mod fixture;
mod library;
mod mounted;
mod process;

pub use fixture::{Fixture, txfs_binary, work_directory};
pub use library::c_program;
pub use mounted::{Mounted, monotonic};
pub use process::{Answer, Background, answer_of, contents, signal, sleep_ms, wait_for};

/// True for root; some tests need to switch users, mount other file systems, or hide devices.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
