//! The messages themselves.
//!
//! Every request is answered by exactly one response: the one named at the request, or `Response::Error`. A
//! connection starts with `Hello`.

use crate::{
    ConflictReport, FileGroup, GroupMember, GroupStarted, KeptPart, KeptSide, KeptTransaction, Logged,
    NamedSnapshot, PathText, Restored,
};
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
        /// It does not hear of conflicts before its end: so that it can be kept then.
        #[serde(default)]
        late_conflicts: bool,
    },
    /// Commits it; answered by `Committed` or `Conflicted`. Either way the connection has no transaction afterwards.
    Commit {
        /// When the commit counts as done.
        durability: Durability,
        /// After a conflict it is kept under this name, instead of being dropped.
        #[serde(default)]
        or_keep: Option<String>,
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
    /// Starts a transaction in which everything is changed back that a recorded commit has changed; answered by `Begun`, or by
    /// `Conflicted` where that commit's changes are not there any more. It ends as any other.
    Undo {
        /// The commit.
        sequence: u64,
    },
    /// What recorded commits have changed; answered by `Changes`, a page at a time. The list is made anew when `start` is 0.
    Diff {
        /// Only commits with a larger number.
        after: u64,
        /// Only commits with at most this number.
        up_to: u64,
        /// The index of the first change wanted.
        start: u64,
    },
    /// Unmounts; answered by `Done` before the owner ends.
    Unmount {
        /// Detach even while files are in use; the owner ends when the last of them is closed.
        lazy: bool,
    },
    /// Ends the connection's transaction by keeping it under a name; answered by `Done` or `Conflicted`.
    Keep {
        /// The name.
        name: String,
        /// It is prepared: validated now, and certain to commit later.
        #[serde(default)]
        prepare: bool,
    },
    /// Kept and prepared transactions of the volume; answered by `Kept`.
    Kept,
    /// Commits a kept transaction; answered by `Committed` or `Conflicted`, and then it stays.
    CommitKept {
        /// Its name.
        name: String,
    },
    /// Commits what a kept transaction changes at or below some paths; answered by `PartCommitted` or `Conflicted`,
    /// and then all of it stays.
    CommitKeptOnly {
        /// Its name.
        name: String,
        /// From the volume's root.
        paths: Vec<PathText>,
    },
    /// Drops a kept transaction; answered by `Done`.
    AbortKept {
        /// Its name.
        name: String,
    },
    /// What keeps a kept transaction from being committed; answered by `Conflicted`, or by `Done` when nothing does.
    KeptConflicts {
        /// Its name.
        name: String,
    },
    /// Opens a kept transaction as this connection's transaction, only to be looked at and aborted; answered by `Begun`.
    OpenKept {
        /// Its name.
        name: String,
        /// What to look at.
        #[serde(default)]
        side: KeptSide,
    },
    /// Named snapshots of the volume; answered by `Snapshots`.
    Snapshots,
    /// Makes a named snapshot, durably; answered by `Snapshots` with that one.
    CreateSnapshot {
        /// Its name.
        name: String,
    },
    /// Deletes a named snapshot; answered by `Done`.
    DeleteSnapshot {
        /// Its name.
        name: String,
    },
    /// Makes paths as they were in a named snapshot, in one transaction; answered by `Restored`.
    Restore {
        /// Name of the snapshot.
        name: String,
        /// From the volume's root.
        paths: Vec<PathText>,
    },
    /// Takes part in a transaction that another connection has begun; answered by `Begun`. It lives while one connection
    /// takes part; whoever commits or aborts it ends it for all.
    Join {
        /// The directory of its view, as in `Begun`, or only the last part.
        view: PathText,
    },
    /// Takes part no longer; answered by `Done`. The last one to leave aborts it.
    Leave,
    /// Makes a file group; answered by `Group`.
    GroupCreate,
    /// Deletes a file group, and aborts its transaction; answered by `Done`.
    GroupDelete {
        /// Its key.
        key: u32,
    },
    /// The file groups that this client may use; answered by `Groups`.
    GroupList,
    /// Starts the transaction of a file group, or joins it; answered by `GroupStarted`. It ends as any other.
    GroupStart {
        /// The group's key.
        key: u32,
        /// Which reads are validated at commit.
        #[serde(default)]
        isolation: Isolation,
        /// What the transaction is for; may be empty.
        #[serde(default)]
        label: String,
        /// When a conflict is one; by default as the volume was mounted.
        #[serde(default)]
        policy: Option<Policy>,
    },
    /// Members of a file group; answered by `GroupMembers`, a page at a time. The list is made anew when `start` is 0,
    /// and by `GroupStart`.
    GroupMembers {
        /// The group's key.
        key: u32,
        /// The index of the first member wanted.
        start: u64,
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
            Request::Undo { .. } => "undo",
            Request::Diff { .. } => "diff",
            Request::Unmount { .. } => "unmount",
            Request::Keep { .. } => "keep",
            Request::Kept => "kept",
            Request::CommitKept { .. } => "commit_kept",
            Request::CommitKeptOnly { .. } => "commit_kept_only",
            Request::AbortKept { .. } => "abort_kept",
            Request::KeptConflicts { .. } => "kept_conflicts",
            Request::OpenKept { .. } => "open_kept",
            Request::Snapshots => "snapshots",
            Request::CreateSnapshot { .. } => "create_snapshot",
            Request::DeleteSnapshot { .. } => "delete_snapshot",
            Request::Restore { .. } => "restore",
            Request::Join { .. } => "join",
            Request::Leave => "leave",
            Request::GroupCreate => "group_create",
            Request::GroupDelete { .. } => "group_delete",
            Request::GroupList => "group_list",
            Request::GroupStart { .. } => "group_start",
            Request::GroupMembers { .. } => "group_members",
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
    /// To `Kept`.
    Kept {
        /// Oldest first.
        transactions: Vec<KeptTransaction>,
    },
    /// To `CommitKeptOnly`.
    PartCommitted(KeptPart),
    /// To `Snapshots` and `CreateSnapshot`.
    Snapshots {
        /// Oldest first.
        snapshots: Vec<NamedSnapshot>,
    },
    /// To `Restore`.
    Restored(Restored),
    /// To anything about the connection's transaction: another participant has ended it.
    EndedByOther {
        /// The commit, if it was committed; otherwise nothing is left of it.
        sequence: Option<u64>,
        /// How it ended, in words.
        message: String,
    },
    /// To `GroupCreate`.
    Group {
        /// The new group's key.
        key: u32,
    },
    /// To `GroupList`.
    Groups {
        /// By key.
        groups: Vec<FileGroup>,
    },
    /// To `GroupStart`.
    GroupStarted(GroupStarted),
    /// To `GroupMembers`.
    GroupMembers {
        /// Some of them, from `start` on.
        members: Vec<GroupMember>,
        /// How many there are in all.
        total: u64,
    },
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
    /// How many connections take part in it.
    #[serde(default)]
    pub participants: u64,
    /// The key of its file group, if it is the transaction of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
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
