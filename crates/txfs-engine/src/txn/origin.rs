//! Who commits, as conflict reports tell it. The engine only keeps it beside the ranges that the commit wrote, for as
//! long as somebody may conflict with them.

use std::sync::Arc;

/// Who made a commit, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The process that it was made for; 0 when nobody knows.
    pub process: u32,
    /// Seconds since 1970, and nanoseconds.
    pub time: (i64, u32),
    /// More of it, if it is a transaction; calls outside of transactions have none, so that they allocate nothing.
    pub transaction: Option<Arc<TransactionOrigin>>,
}

/// What is known of a transaction beside its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionOrigin {
    /// Its number.
    pub number: u64,
    /// The command that it runs; empty when nobody knows.
    pub command: String,
    /// What it is for, in the words of whoever began it; may be empty.
    pub label: String,
}

/// On whose behalf [`crate::Engine::commit_by`] commits.
#[derive(Clone, Debug, Default)]
pub struct Committer {
    /// For the conflict reports of others.
    pub origin: Origin,
    /// How old it is: the claims of an elder with a smaller number refuse it. `None` for a call outside of transactions,
    /// which no claim refuses.
    pub age: Option<u64>,
}
