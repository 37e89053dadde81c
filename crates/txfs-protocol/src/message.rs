//! The messages themselves.
//!
//! Every request is answered by exactly one response: the one named at the request, or `Response::Error`. A
//! connection starts with `Hello`.

use crate::{ConflictReport, PathText};
use serde::{Deserialize, Serialize};

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// First on every connection; answered by `Welcome`.
    Hello {
        /// `PROTOCOL_VERSION` of the client.
        protocol: u32,
        /// The client's command line, shown by `txfs tx list`.
        command: String,
        /// The client's process id as it sees itself; the owner trusts the peer credentials instead.
        pid: u32,
    },
    /// Starts a transaction; answered by `Begun`. One per connection at a time.
    Begin {
        /// Which reads are validated at commit.
        isolation: Isolation,
        /// What the transaction is for, shown by `txfs tx list` and in conflict reports; may be empty.
        label: String,
        /// The command that it runs, shown there as well; may be empty.
        #[serde(default)]
        command: String,
        /// When a conflict is one; by default as the volume was mounted.
        #[serde(default)]
        policy: Option<Policy>,
        /// It is the same once more as the transaction before on this connection, which conflicted: it counts as old as
        /// that one was, and wins in the end.
        #[serde(default)]
        retry: bool,
        /// Its commit leaves an entry in the volume's history.
        #[serde(default)]
        recorded: bool,
    },
    /// Commits it; answered by `Committed` or `Conflicted`. Either way the connection has no transaction afterwards.
    Commit {
        /// When the commit counts as done.
        durability: Durability,
    },
    /// Drops it; answered by `Aborted`. Without a transaction it does nothing.
    Abort,
    /// How the connection's transaction stands; answered by `Status`.
    Status,
    /// What the transaction would change; answered by `Changes`, a page at a time. The list is made anew when
    /// `start` is 0.
    Changes {
        /// The index of the first change wanted.
        start: u64,
    },
    /// All open transactions of the volume; answered by `List`.
    List,
    /// Statistics of volume and mount; answered by `Stat`.
    Stat,
    /// Recorded commits, newest first; answered by `Log`, some at a time.
    Log {
        /// Only commits with a smaller number.
        #[serde(default)]
        before: Option<u64>,
        /// How many at most; the owner may send fewer, but none only when there are no more.
        limit: u64,
    },
    /// Makes everything committed so far durable; answered by `Done`.
    Sync,
    /// Moves live data together and frees the space between; answered by `Cleaned`.
    Clean {
        /// Segments to clean at most, the emptiest first.
        segments_max: u64,
        /// Segments of which at most so many percent are live are cleaned.
        live_percent_max: u8,
        /// Gives the host the space that is not needed then.
        give_back: bool,
    },
    /// Unmounts; answered by `Done` before the owner ends.
    Unmount {
        /// Detach even while files are in use; the owner ends when the last of them is closed.
        lazy: bool,
    },
}

impl Request {
    /// The request's name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Hello { .. } => "hello",
            Request::Begin { .. } => "begin",
            Request::Commit { .. } => "commit",
            Request::Abort => "abort",
            Request::Status => "status",
            Request::Changes { .. } => "changes",
            Request::List => "list",
            Request::Stat => "stat",
            Request::Log { .. } => "log",
            Request::Sync => "sync",
            Request::Clean { .. } => "clean",
            Request::Unmount { .. } => "unmount",
        }
    }
}

/// What the owner answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// To `Hello`.
    Welcome(Welcome),
    /// To `Begin`.
    Begun(Begun),
    /// To `Commit`: done.
    Committed {
        /// The commit's place in the volume's order.
        sequence: u64,
    },
    /// To `Commit`, and to `Changes` of a transaction that is doomed: another commit was first. After a commit nothing of
    /// this transaction is left.
    Conflicted(ConflictReport),
    /// To `Abort`.
    Aborted,
    /// To `Status`.
    Status(TransactionStatus),
    /// To `Changes`.
    Changes {
        /// Some of the changes, from `start` on, sorted by path.
        changes: Vec<Change>,
        /// How many there are in all.
        total: u64,
    },
    /// To `List`.
    List {
        /// Oldest first.
        transactions: Vec<OpenTransaction>,
    },
    /// To `Stat`.
    Stat {
        /// Named numbers and texts; what is in it may grow with versions.
        stat: serde_json::Value,
    },
    /// To `Log`.
    Log {
        /// Newest first.
        commits: Vec<Logged>,
    },
    /// To `Clean`.
    Cleaned(Cleaned),
    /// To `Sync` and `Unmount`.
    Done,
    /// To anything that failed.
    Error {
        /// A Linux error number.
        errno: i32,
        /// One sentence: what failed, on what, and what to do.
        message: String,
    },
}

/// A commit in the volume's history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Its place in the order of commits.
    pub sequence: u64,
    /// When it was made, as in RFC 3339.
    pub time: String,
    /// The process that it was made for; 0 when nobody knew.
    pub process: u32,
    /// The command that it was made for; may be empty.
    pub command: String,
    /// What it was for; may be empty.
    pub message: String,
    /// Files, directories and other nodes that it made, changed or removed.
    pub nodes: u64,
    /// Names that it added, changed or removed.
    pub names: u64,
    /// Bytes of new file data, whole pages.
    pub data_bytes: u64,
}

/// What cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaned {
    /// Segments out of which everything was moved.
    pub segments: u64,
    /// File data that was moved.
    pub moved_bytes: u64,
    /// Dead bytes that were in those segments.
    pub gained_bytes: u64,
    /// Segments left alone because data in them cannot be read.
    pub segments_damaged: u64,
    /// Segment files removed from the host.
    pub segments_removed: u64,
}

/// Who answers, and for which volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// `PROTOCOL_VERSION` of the owner.
    pub protocol: u32,
    /// The owner's TxFS version.
    pub version: String,
    /// The volume's directory, absolute.
    pub volume: PathText,
    /// Where the volume is mounted.
    pub mountpoints: Vec<PathText>,
    /// The owner's process id.
    pub owner_pid: u32,
}

/// A transaction has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Its number, unique while the volume stays mounted.
    pub transaction: u64,
    /// The directory of its view, relative to the root of the mount: `.txfs/tx/…`. Its last part is not guessable,
    /// so only who is told it gets in.
    pub view: PathText,
}

/// Which conflicts a transaction can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Its reads are validated at commit.
    #[default]
    Serializable,
    /// It reads one snapshot, and only its writes are validated.
    Snapshot,
}

/// When a conflict between two transactions is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The first to commit wins.
    #[default]
    FirstCommitter,
    /// Of two eager transactions the first to write wins.
    Eager,
}

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When it is on the device.
    #[default]
    Durable,
    /// At once; a crash keeps a prefix of the commit order.
    Ordered,
    /// As ordered, and it may be held back for a bounded time.
    Deferred,
}

/// How a connection's transaction stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionStatus {
    /// Its number; none when there is no transaction.
    pub transaction: Option<u64>,
    /// How long it has been open.
    pub age_ms: u64,
    /// How much changed data it holds.
    pub dirty_bytes: u64,
    /// Why one of its operations has failed, and why all that follow will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict: Option<ConflictReport>,
}

/// One line of `txfs tx list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTransaction {
    /// Its number.
    pub transaction: u64,
    /// How long it has been open.
    pub age_ms: u64,
    /// The process that began it, from the peer credentials.
    pub pid: u32,
    /// The user who began it.
    pub uid: u32,
    /// The label given at begin, or the client's command line.
    pub command: String,
    /// How much changed data it holds.
    pub dirty_bytes: u64,
}

/// One path that a transaction changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Relative to the volume's root.
    pub path: PathText,
    /// The old path of something renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PathText>,
    /// What happens to it.
    pub kind: ChangeKind,
    /// Whether it is a directory.
    #[serde(default)]
    pub directory: bool,
    /// Its size before, where it is a file that existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_before: Option<u64>,
    /// Its size after, where it is a file that will exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_after: Option<u64>,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// Its content changes.
    Modified,
    /// Its mode, owner, times or extended attributes change.
    Attributes,
    /// It goes away.
    Removed,
    /// It moves here from `from`.
    Renamed,
}
