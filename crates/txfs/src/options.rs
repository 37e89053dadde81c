//! Options for creating and opening volumes and for beginning transactions.

use std::fmt;
use std::sync::Arc;

use txfs_engine::{Origin, TransactionOrigin};

use crate::types::Timestamp;

/// What a transaction is isolated from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// As if transactions ran one after the other: what it read is validated when it commits.
    #[default]
    Serializable,
    /// It reads one snapshot; only its changes are validated.
    Snapshot,
}

/// When a conflict between two transactions is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Both may go on until one of them commits: that one wins, and the other one fails at its next operation.
    #[default]
    FirstCommitter,
    /// Between two eager transactions that write the same, the one that writes second fails when it does, whether the
    /// first one commits later on or not. Against everybody else as above.
    Eager,
}

/// How to begin a transaction.
#[derive(Clone, Debug, Default)]
pub struct TransactionOptions {
    /// What it is isolated from.
    pub isolation: Isolation,
    /// When a conflict is one; by default what the volume was opened with.
    pub policy: Option<Policy>,
    /// What it is for, in a few words for people: conflict reports, logs and status lists show them.
    pub label: String,
    /// The process that it is made for; this one by default. For the conflict reports of others.
    pub process: Option<u32>,
    /// The command that it is made for; by default that of the process.
    pub command: Option<String>,
    /// Its commit leaves an entry in the volume's history ([`crate::Volume::history`]).
    pub recorded: bool,
    /// It does not hear of a conflict before its commit: so it can be kept then ([`crate::Transaction::commit_or_keep`]). It is never
    /// eager, and claims nothing.
    pub late_conflicts: bool,
}

impl TransactionOptions {
    /// Whom others are told about, for the transaction with this number that begins now.
    pub(crate) fn origin(&self, number: u64, now: Timestamp) -> Origin {
        let process = self.process.unwrap_or_else(crate::origin::caller);
        let (command, label) = (self.command.clone().unwrap_or_default(), self.label.clone());
        let transaction = Some(Arc::new(TransactionOrigin { number, command, label }));
        Origin { process, time: (now.seconds, now.nanoseconds), transaction }
    }
}

/// Where a volume takes its time from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock of one's own, for reproducible runs.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The system's clock.
    pub fn system() -> Clock {
        Clock::new(|| std::time::SystemTime::now().into())
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}

/// How to create a volume.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Size of a segment file, in bytes.
    pub segment_bytes: u64,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// Where the first timestamps come from.
    pub clock: Clock,
    /// Volume id and name-hash key, for reproducible runs; `None` takes them from the operating system's random
    /// generator.
    pub identity: Option<([u8; 16], [u8; 16])>,
    /// What file data may take on the host at most, dead data included, in bytes; `None` leaves it to the host.
    pub size_bytes_max: Option<u64>,
    /// Space that is allocated and written with zeros at once, in bytes: commits that fit into it never pay for that.
    pub preallocate_bytes: u64,
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where timestamps come from.
    pub clock: Clock,
    /// When a conflict is one, for transactions that do not say it themselves.
    pub policy: Policy,
    /// A transaction with more unwritten data than this writes it early, outside of the commit.
    pub transaction_memory_bytes: usize,
    /// All transactions together; above it, whoever writes next writes its data early.
    pub volume_memory_bytes: usize,
    /// Background work (checkpoints, cleaning, flushing of ordered commits) runs in threads of its own. Off, it is
    /// done only when asked for, so that a run can be reproduced exactly.
    pub background: bool,
    /// How much log may lie between two checkpoints, in bytes, where each change of the index counts as
    /// `checkpoint_change_bytes` more: bounds the time that recovery takes.
    pub checkpoint_distance_bytes: u64,
    /// What a change of the index counts for in that distance.
    pub checkpoint_change_bytes: u64,
    /// How long a change that finds no space waits for snapshots and open transactions that still see what was deleted
    /// or overwritten: it fails when none of them has ended for so long.
    pub reader_patience: std::time::Duration,
    /// How many recorded commits the volume's history keeps.
    pub history_commits_max: u64,
    /// What the history keeps for undoing them, in bytes: old content, removed files, and what says what was where. The
    /// oldest goes first. 0: nothing; by default a tenth of the space, and no more than 1 GiB.
    pub history_bytes_max: Option<u64>,
}

impl Default for CreateOptions {
    fn default() -> CreateOptions {
        CreateOptions {
            segment_bytes: 32 << 20,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            clock: Clock::default(),
            identity: None,
            size_bytes_max: None,
            preallocate_bytes: 0,
        }
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            clock: Clock::default(),
            policy: Policy::default(),
            transaction_memory_bytes: 64 << 20,
            volume_memory_bytes: 256 << 20,
            background: true,
            checkpoint_distance_bytes: 9 << 20,
            checkpoint_change_bytes: 256,
            reader_patience: std::time::Duration::from_secs(5),
            history_commits_max: 1000,
            history_bytes_max: None,
        }
    }
}
