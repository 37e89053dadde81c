//! The transactional log store under TxFS.
//!
//! It knows keys, extents and commits, and no paths. A volume is a directory of segment files (the log, which is
//! where file data lives), one index file and a manifest. A commit appends one record and is durable after one
//! flush; a snapshot is one reference count. `docs/ARCHITECTURE.md` walks through both, `docs/FORMAT.md` has the
//! bytes.
//!
//! The engine does all its I/O through [`txfs_disk::Disk`] and, with [`EngineOptions::background`] off, does nothing
//! by itself: so the simulator can replay a run from a seed and cut the power at every write.

mod background;
pub mod broken;
mod check;
mod checkpoint;
mod cleaning;
mod data;
mod engine;
mod error;
mod format;
mod index;
mod latency;
mod log;
mod manifest_file;
mod named;
mod options;
mod placing;
mod recovery;
mod replay;
mod sequencer;
mod space;
mod stat;
mod txn;

pub use check::{CheckProblem, CheckReport};
pub use cleaning::{CleanOptions, CleanReport};
pub use engine::Engine;
pub use error::{Clash, ConflictReport, EngineError, Opponent, Result};
pub use format::extent::{CHUNK_BYTES_MAX, Extent, PAGE_BYTES};
pub use format::mutation::{KEY_BYTES_MAX, Mutation, MutationList, VALUE_BYTES_MAX};
pub use format::named::{NamedSnapshot, STATE_KEY_TAGS};
pub use format::saved::{read_saved_value, saved_key, saved_value, split_saved_key};
pub use format::{EXTENT_KEY_TAG, FORMAT_VERSION, FormatError, SAVED_KEY_TAGS};
pub use index::{IndexError, Read};
pub use latency::LatencyStat;
pub use named::SavedStat;
pub use options::{EngineOptions, FormatOptions, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN};
pub use recovery::RecoveryReport;
pub use space::SpaceStat;
pub use stat::EngineStat;
pub use txn::commit::Apply;
pub use txn::{
    Applied, Chunk, ClaimHolder, ClaimKind, Commit, CommitNote, Committer, ConflictRange, ConflictSet,
    Durability, ExtentKey, KEPT_NOTES_MAX, KeptClaim, KeptStep, Meeting, Origin, Piece, Placed, Receipt,
    Snapshot, TransactionOrigin, Witness,
};
