//! The reference model: what POSIX files and transactions should do, written for being obviously right.
//!
//! [`tree`] is one state of a file system, cheap to clone; [`namespace`] and [`content`] are its operations;
//! [`history`] is the sequence of commits with the open transactions; [`footprint`] says what a transaction touched,
//! to judge whether a conflict was fair; [`kept`] holds kept and prepared transactions, [`part`] divides them,
//! [`named`] are named snapshots; [`undo`] says what undoing a commit leads to. Nothing here knows the engine.

pub mod content;
pub mod footprint;
pub mod history;
pub mod kept;
pub mod lost_update;
pub mod named;
pub mod namespace;
pub mod part;
pub mod tree;
pub mod undo;

pub use footprint::{Footprint, Touch};
pub use history::{History, ModelTransaction};
pub use kept::ModelKept;
pub use tree::{Node, Tree};
