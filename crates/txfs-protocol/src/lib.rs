//! Messages between the owner of a mounted TxFS volume and its clients.
//!
//! The owner listens on the Unix stream socket `VOLUME/socket`. A connection carries at most one transaction: it
//! begins, commits or aborts it, and when the last descriptor of the connection is closed an open transaction is
//! aborted, unless other connections have joined it. Frames are a little-endian 32-bit length and that many bytes of
//! JSON (`frame`); one request is in flight at a time. This crate depends on neither the engine nor FUSE, so that any
//! client can use it; with the feature `library` it knows the library's reports.

mod bytes;
mod client;
mod conflict;
mod error;
mod frame;
mod group;
pub mod ioctl;
mod kept;
mod message;
pub mod mounts;
#[cfg(feature = "library")]
mod report;
mod shared;

pub use bytes::PathText;
pub use client::{Client, CommitOutcome, PartOutcome, connect_socket, is_accepting, socket_directory};
pub use conflict::{Access, Conflict, ConflictKind, ConflictReport, Other, OtherState};
pub use error::ProtocolError;
pub use frame::{FRAME_BYTES_MAX, read_frame, write_frame};
pub use group::{FileGroup, GroupMember, GroupStarted};
pub use kept::{KeptPart, KeptSide, KeptState, KeptTransaction, Logged, NamedSnapshot, Restored, Undoable};
pub use message::{
    Begun, Change, ChangeKind, Cleaned, Durability, Isolation, OpenTransaction, Policy, Request, Response,
    TransactionStatus, Welcome,
};
#[cfg(feature = "library")]
pub use report::rfc_3339;

/// The version of these messages; both sides refuse another one.
pub const PROTOCOL_VERSION: u32 = 5;

/// The name of the owner's socket inside the volume's directory.
pub const SOCKET_NAME: &str = "socket";

/// The FUSE subtype of a TxFS mount: `fuse.txfs` in mountinfo.
pub const MOUNT_SUBTYPE: &str = "txfs";

/// The directory of the transaction views under a mount's root; it is looked up, never listed.
pub const VIEWS_DIRECTORY: &str = ".txfs/tx";

/// The directory under a mount's root in which `TXFS_IOC_NODE` gives names; they are looked up, never listed.
pub const NODES_DIRECTORY: &str = ".txfs/node";

/// The directory of the named snapshots under a mount's root; it is looked up, never listed.
pub const SNAPSHOTS_DIRECTORY: &str = ".txfs/snapshots";
