//! The TxFS mount: a thin FUSE adapter over the `txfs` crate.
//!
//! [`mount`] ties an open volume to a directory and serves it until it is unmounted. Everybody sees the base view;
//! each open transaction has a view of its own under `.txfs/tx`, with nodes of its own, so that the kernel's caches
//! (memory maps included) work inside transactions and leak nothing. Transactions are begun and committed over the
//! volume's socket (`txfs-protocol`), by programs that hold a connection.
//!
//! * `wire`: the FUSE protocol, bytes only.
//! * `filesystem`: requests to operations. `nodes`, `views`: what node ids mean. `invalidate`: cache coherence.
//!   `forgotten`: what the kernel uses no more. `tokens`: names for files that are open. `groups`: file groups.
//!   `sharing`: who takes part in a transaction.
//! * `control`: the socket. `attach`: mount(2) and fusermount3. `session`: threads, and an orderly end.
//!
//! # Locks
//! All locks here are leaves: nothing waits for the kernel or calls the volume while one is held. The exception is
//! `sharing`, a lock between connections. A thread that serves
//! requests never waits for a control thread, and never touches the mount.

mod attach;
mod control;
mod errno;
mod error;
mod filesystem;
mod forgotten;
mod groups;
mod invalidate;
mod nodes;
mod options;
mod session;
mod sharing;
mod tokens;
mod views;
mod wire;

pub use attach::{bind_read_only, unmount};
pub use control::{
    change, conflict_report, kept_part, kept_transaction, logged, named_snapshot, restored, volume_stat,
};
pub use error::MountError;
pub use options::MountOptions;
pub use session::{MountHandle, MountedVolume, mount};
