//! libtxfs: the three calls of TxFS around unmodified system calls, file groups, and a C API for embedding.
//!
//! `trap` catches the system calls of a thread in a transaction, `calls` decides what becomes of each
//! (docs/decisions/0017-transactions-around-system-calls.md). `embedded` is the API over the crate `txfs`.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "libtxfs catches system calls of Linux on x86-64 only; build the rest with --exclude txfs-capi"
);

mod api;
mod bound;
mod calls;
mod connection;
mod embedded;
mod groups;
mod kernel;
mod transaction;
mod trap;
