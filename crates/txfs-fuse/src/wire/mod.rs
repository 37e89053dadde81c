//! The FUSE protocol of the Linux kernel: bytes in, bytes out, no meaning.
//!
//! `abi` has the structures, `opcode` the kinds of requests, `request` takes a message apart, `reply` puts the answer
//! together, `device` moves both through /dev/fuse, and `init` negotiates at the start. Nothing here knows TxFS.
//!
//! Requests come from the kernel, yet nothing is believed: a message that is shorter than its structure is answered
//! with EINVAL.

pub(crate) mod abi;
pub(crate) mod device;
pub(crate) mod init;
pub(crate) mod opcode;
pub(crate) mod reply;
pub(crate) mod request;
