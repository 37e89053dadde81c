//! Random work of many clients at once, whose history is then checked ([`crate::history`]).
//!
//! [`worker`] is one client, [`layout`] the few things that all of them work on, [`access`] what they do to these;
//! [`embedded`] does it through the library, and the end-to-end tests do it on a mount. [`run`] has many threads on one
//! volume, with the engine's own threads at work, a full disk's cleaning included.

pub mod access;
pub mod embedded;
pub mod layout;
pub mod run;
pub mod worker;
