//! The C API for embedding a volume in a process: `include/txfs_volume.h`, which documents every function.
//!
//! A thin adapter over the crate `txfs` (called `volume` here). Nothing in it knows what a transaction means.
//!
//! Invariants
//! * Every function goes through [`failure::answer`]: a panic becomes EIO, an error becomes -1 with `errno` and the message
//!   of the thread. Nothing unwinds into C.
//! * All `unsafe` of the arguments is in [`arguments`], which is as good as what the caller promises in the header: pointers are
//!   null or good, handles are open.
//! * Handles are reference counts of what they need: a file outlives the handle of its view, and a view that of its
//!   volume only in that the volume refuses to be closed (`EBUSY`) while there are any.
//! * No lock is held while a file operation runs, but the transaction's own.

mod arguments;
mod conflict;
mod creation;
mod directory;
mod failure;
mod file;
mod options;
mod paths;
mod snapshots;
mod status;
mod transaction;
mod view;
mod volumes;
mod xattr;
