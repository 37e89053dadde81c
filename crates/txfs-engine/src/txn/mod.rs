//! Transactions as the engine sees them: a snapshot, the ranges read and written, and a function that turns the
//! current state into mutations. What the ranges and keys mean is the business of the layer above.

pub mod claims;
pub mod commit;
pub mod conflict;
pub(crate) mod deferred;
pub mod history;
pub mod kept;
pub mod origin;
pub(crate) mod prepared;
pub(crate) mod registry;
pub(crate) mod sequencing;
pub mod snapshot;

pub use claims::{ClaimHolder, ClaimKind};
pub use commit::{Applied, Chunk, Commit, Durability, ExtentKey, Piece, Placed, Receipt};
pub use conflict::{ConflictRange, ConflictSet};
pub use history::CommitNote;
pub use kept::{KEPT_NOTES_MAX, KeptClaim, KeptStep, Meeting, Witness};
pub use origin::{Committer, Origin, TransactionOrigin};
pub use snapshot::Snapshot;
