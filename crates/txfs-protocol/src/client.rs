//! The client's end of a connection. Blocking; one request in flight.
//!
//! The connection is the transaction: when its last descriptor is closed, an open transaction is aborted. The
//! descriptor may be passed on (`AsFd`, `From<Client> for OwnedFd`, `Client::from_stream`), but only one holder may
//! use it at a time.

use crate::message::Cleaned;
use crate::{
    Begun, Change, ConflictReport, Durability, Isolation, KeptPart, KeptSide, KeptTransaction, Logged,
    NamedSnapshot, OpenTransaction, PROTOCOL_VERSION, PathText, ProtocolError, Request, Response, Restored,
    SOCKET_NAME, TransactionStatus, Welcome, read_frame, write_frame,
};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The longest path that fits into a socket address, without the closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// How a commit ended, where it ended properly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It is done.
    Committed {
        /// Its place in the volume's order.
        sequence: u64,
    },
    /// Another commit was first, and nothing of the transaction is left.
    Conflicted(ConflictReport),
}

/// How the commit of a part of a kept transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartOutcome {
    /// It is done.
    Committed(KeptPart),
    /// Others have changed something that the part needs; nothing has happened.
    Conflicted(ConflictReport),
}

/// A connection to the owner of a mounted volume.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    welcome: Option<Welcome>,
}

impl Client {
    /// Connects to the owner of the volume, naming this process by its command line.
    pub fn connect(volume: &Path) -> Result<Client, ProtocolError> {
        let command: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Client::connect_as(volume, &command.join(" "))
    }

    /// Connects under the given command line, which `txfs tx list` shows.
    pub fn connect_as(volume: &Path, command: &str) -> Result<Client, ProtocolError> {
        let stream = connect_socket(volume).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => ProtocolError::NotAllowed { volume: volume.to_path_buf() },
            _ => ProtocolError::NotMounted { volume: volume.to_path_buf(), source },
        })?;
        let mut client = Client { stream, welcome: None };
        let hello = Request::Hello {
            protocol: PROTOCOL_VERSION,
            command: command.to_string(),
            pid: std::process::id(),
        };
        match client.call(&hello)? {
            Response::Welcome(welcome) if welcome.protocol == PROTOCOL_VERSION => {
                client.welcome = Some(welcome)
            }
            Response::Welcome(welcome) => {
                return Err(ProtocolError::Version { ours: PROTOCOL_VERSION, theirs: welcome.protocol });
            }
            _ => return Err(ProtocolError::Unexpected { request: "hello" }),
        }
        Ok(client)
    }

    /// Takes over a connection that somebody else has opened and greeted on.
    pub fn from_stream(stream: UnixStream) -> Client {
        Client { stream, welcome: None }
    }

    /// What the owner said about itself; none on a connection taken over.
    pub fn welcome(&self) -> Option<&Welcome> {
        self.welcome.as_ref()
    }

    /// Starts a transaction.
    pub fn begin(&mut self, isolation: Isolation, label: &str) -> Result<Begun, ProtocolError> {
        let (label, command) = (label.to_owned(), String::new());
        let (policy, retry, recorded, late_conflicts) = (None, false, false, false);
        self.begin_as(Request::Begin { isolation, label, command, policy, retry, recorded, late_conflicts })
    }

    /// Starts a transaction as a `Request::Begin` says.
    pub fn begin_as(&mut self, request: Request) -> Result<Begun, ProtocolError> {
        match self.call(&request)? {
            Response::Begun(begun) => Ok(begun),
            _ => Err(ProtocolError::Unexpected { request: "begin" }),
        }
    }

    /// Commits the transaction. A conflict is an outcome, not an error.
    pub fn commit(&mut self, durability: Durability) -> Result<CommitOutcome, ProtocolError> {
        self.commit_or_keep(durability, None)
    }

    /// As `commit`; after a conflict it is kept under this name, if there is one.
    pub fn commit_or_keep(
        &mut self,
        durability: Durability,
        or_keep: Option<String>,
    ) -> Result<CommitOutcome, ProtocolError> {
        self.expect_commit(&Request::Commit { durability, or_keep })
    }

    /// Keeps the transaction under a name, or prepares it; the conflict, if it cannot be prepared because of one.
    pub fn keep(&mut self, name: &str, prepare: bool) -> Result<Option<ConflictReport>, ProtocolError> {
        self.expect_conflict(&Request::Keep { name: name.to_owned(), prepare })
    }

    /// Kept and prepared transactions, oldest first.
    pub fn kept(&mut self) -> Result<Vec<KeptTransaction>, ProtocolError> {
        match self.call(&Request::Kept)? {
            Response::Kept { transactions } => Ok(transactions),
            _ => Err(ProtocolError::Unexpected { request: "kept" }),
        }
    }

    /// Commits a kept transaction; after a conflict it stays.
    pub fn commit_kept(&mut self, name: &str) -> Result<CommitOutcome, ProtocolError> {
        self.expect_commit(&Request::CommitKept { name: name.to_owned() })
    }

    /// Commits what a kept transaction changes at or below some paths.
    pub fn commit_kept_only(
        &mut self,
        name: &str,
        paths: Vec<PathText>,
    ) -> Result<PartOutcome, ProtocolError> {
        match self.call(&Request::CommitKeptOnly { name: name.to_owned(), paths })? {
            Response::PartCommitted(part) => Ok(PartOutcome::Committed(part)),
            Response::Conflicted(report) => Ok(PartOutcome::Conflicted(report)),
            _ => Err(ProtocolError::Unexpected { request: "commit_kept_only" }),
        }
    }

    /// Drops a kept transaction.
    pub fn abort_kept(&mut self, name: &str) -> Result<(), ProtocolError> {
        self.expect_done(&Request::AbortKept { name: name.to_owned() })
    }

    /// What keeps a kept transaction from being committed, if anything does.
    pub fn kept_conflicts(&mut self, name: &str) -> Result<Option<ConflictReport>, ProtocolError> {
        self.expect_conflict(&Request::KeptConflicts { name: name.to_owned() })
    }

    /// Opens a kept transaction as this connection's, to be looked at.
    pub fn open_kept(&mut self, name: &str, side: KeptSide) -> Result<Begun, ProtocolError> {
        self.begin_as(Request::OpenKept { name: name.to_owned(), side })
    }

    fn expect_commit(&mut self, request: &Request) -> Result<CommitOutcome, ProtocolError> {
        match self.call(request)? {
            Response::Committed { sequence } => Ok(CommitOutcome::Committed { sequence }),
            Response::Conflicted(report) => Ok(CommitOutcome::Conflicted(report)),
            _ => Err(ProtocolError::Unexpected { request: request.name() }),
        }
    }

    fn expect_conflict(&mut self, request: &Request) -> Result<Option<ConflictReport>, ProtocolError> {
        match self.call(request)? {
            Response::Done => Ok(None),
            Response::Conflicted(report) => Ok(Some(report)),
            _ => Err(ProtocolError::Unexpected { request: request.name() }),
        }
    }

    /// Drops the transaction, if there is one.
    pub fn abort(&mut self) -> Result<(), ProtocolError> {
        match self.call(&Request::Abort)? {
            Response::Aborted => Ok(()),
            _ => Err(ProtocolError::Unexpected { request: "abort" }),
        }
    }

    /// How the transaction stands.
    pub fn status(&mut self) -> Result<TransactionStatus, ProtocolError> {
        match self.call(&Request::Status)? {
            Response::Status(status) => Ok(status),
            _ => Err(ProtocolError::Unexpected { request: "status" }),
        }
    }

    /// Starts a transaction in which a recorded commit is undone. A conflict is an error here.
    pub fn undo(&mut self, sequence: u64) -> Result<Begun, ProtocolError> {
        match self.call(&Request::Undo { sequence })? {
            Response::Begun(begun) => Ok(begun),
            Response::Conflicted(report) => Err(ProtocolError::Conflict(Box::new(report))),
            _ => Err(ProtocolError::Unexpected { request: "undo" }),
        }
    }

    /// What the recorded commits after `after` up to `up_to` have changed, sorted by path.
    pub fn diff(&mut self, after: u64, up_to: u64) -> Result<Vec<Change>, ProtocolError> {
        self.all_changes(|start| Request::Diff { after, up_to, start })
    }

    /// Everything that the transaction would change, sorted by path.
    pub fn changes(&mut self) -> Result<Vec<Change>, ProtocolError> {
        self.all_changes(|start| Request::Changes { start })
    }

    fn all_changes(&mut self, request: impl Fn(u64) -> Request) -> Result<Vec<Change>, ProtocolError> {
        let mut all = Vec::new();
        loop {
            match self.call(&request(all.len() as u64))? {
                Response::Changes { changes, total } => {
                    let got = changes.len();
                    all.extend(changes);
                    if got == 0 || all.len() as u64 >= total {
                        return Ok(all);
                    }
                }
                Response::Conflicted(report) => return Err(ProtocolError::Conflict(Box::new(report))),
                _ => return Err(ProtocolError::Unexpected { request: "changes" }),
            }
        }
    }

    /// All open transactions of the volume, oldest first.
    pub fn list(&mut self) -> Result<Vec<OpenTransaction>, ProtocolError> {
        match self.call(&Request::List)? {
            Response::List { transactions } => Ok(transactions),
            _ => Err(ProtocolError::Unexpected { request: "list" }),
        }
    }

    /// Recorded commits before the number `before`, or all, newest first, `limit` at most.
    pub fn log(&mut self, mut before: Option<u64>, limit: u64) -> Result<Vec<Logged>, ProtocolError> {
        let mut all: Vec<Logged> = Vec::new();
        while (all.len() as u64) < limit {
            let left = limit - all.len() as u64;
            match self.call(&Request::Log { before, limit: left })? {
                Response::Log { commits } => match commits.last() {
                    Some(last) => {
                        before = Some(last.sequence);
                        all.extend(commits);
                    }
                    None => break,
                },
                _ => return Err(ProtocolError::Unexpected { request: "log" }),
            }
        }
        Ok(all)
    }

    /// Named snapshots of the volume, oldest first.
    pub fn snapshots(&mut self) -> Result<Vec<NamedSnapshot>, ProtocolError> {
        match self.call(&Request::Snapshots)? {
            Response::Snapshots { snapshots } => Ok(snapshots),
            _ => Err(ProtocolError::Unexpected { request: "snapshots" }),
        }
    }

    /// Makes a named snapshot.
    pub fn create_snapshot(&mut self, name: &str) -> Result<NamedSnapshot, ProtocolError> {
        match self.call(&Request::CreateSnapshot { name: name.into() })? {
            Response::Snapshots { mut snapshots } if snapshots.len() == 1 => Ok(snapshots.remove(0)),
            _ => Err(ProtocolError::Unexpected { request: "create_snapshot" }),
        }
    }

    /// Deletes a named snapshot.
    pub fn delete_snapshot(&mut self, name: &str) -> Result<(), ProtocolError> {
        self.expect_done(&Request::DeleteSnapshot { name: name.into() })
    }

    /// Makes paths as they were in a named snapshot.
    pub fn restore(&mut self, name: &str, paths: Vec<PathText>) -> Result<Restored, ProtocolError> {
        match self.call(&Request::Restore { name: name.into(), paths })? {
            Response::Restored(restored) => Ok(restored),
            _ => Err(ProtocolError::Unexpected { request: "restore" }),
        }
    }

    /// Statistics of volume and mount.
    pub fn stat(&mut self) -> Result<serde_json::Value, ProtocolError> {
        match self.call(&Request::Stat)? {
            Response::Stat { stat } => Ok(stat),
            _ => Err(ProtocolError::Unexpected { request: "stat" }),
        }
    }

    /// Makes everything committed so far durable.
    pub fn sync(&mut self) -> Result<(), ProtocolError> {
        self.expect_done(&Request::Sync)
    }

    /// Cleans up to `segments_max` segments of which at most `live_percent_max` percent are live.
    pub fn clean(
        &mut self,
        segments_max: u64,
        live_percent_max: u8,
        give_back: bool,
    ) -> Result<Cleaned, ProtocolError> {
        match self.call(&Request::Clean { segments_max, live_percent_max, give_back })? {
            Response::Cleaned(cleaned) => Ok(cleaned),
            _ => Err(ProtocolError::Unexpected { request: "clean" }),
        }
    }

    /// Unmounts the volume; its owner ends soon after.
    pub fn unmount(&mut self, lazy: bool) -> Result<(), ProtocolError> {
        self.expect_done(&Request::Unmount { lazy })
    }

    /// Waits until the owner has closed the connection: after `unmount`, until the volume is closed.
    pub fn wait_closed(mut self) -> Result<(), ProtocolError> {
        while read_frame::<Response>(&mut self.stream)?.is_some() {}
        Ok(())
    }

    /// Sends one request and takes its response; `Response::Error` becomes an error.
    pub fn call(&mut self, request: &Request) -> Result<Response, ProtocolError> {
        write_frame(&mut self.stream, request)?;
        match read_frame(&mut self.stream)? {
            None => Err(ProtocolError::Closed),
            Some(Response::Error { errno, message }) => Err(ProtocolError::Remote { errno, message }),
            Some(Response::EndedByOther { sequence, message }) => {
                Err(ProtocolError::EndedByOther { sequence, message })
            }
            Some(response) => Ok(response),
        }
    }

    pub(crate) fn expect_done(&mut self, request: &Request) -> Result<(), ProtocolError> {
        match self.call(request)? {
            Response::Done => Ok(()),
            _ => Err(ProtocolError::Unexpected { request: request.name() }),
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl From<Client> for OwnedFd {
    fn from(client: Client) -> OwnedFd {
        client.stream.into()
    }
}

/// Whether somebody listens on the volume's socket.
pub fn is_accepting(volume: &Path) -> bool {
    connect_socket(volume).is_ok()
}

/// Connects to `VOLUME/socket`, however long the path is.
pub fn connect_socket(volume: &Path) -> io::Result<UnixStream> {
    let (directory, _guard) = socket_directory(volume)?;
    UnixStream::connect(directory.join(SOCKET_NAME))
}

/// A path of the volume's directory that is short enough for a socket address: the directory itself, or a descriptor
/// of it under /proc, which must then be kept open.
pub fn socket_directory(volume: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    if volume.as_os_str().len() + 1 + SOCKET_NAME.len() <= SOCKET_PATH_BYTES_MAX {
        return Ok((volume.to_path_buf(), None));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(volume, flags, Mode::empty())?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())), Some(directory)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn long_paths_connect() {
        let mut path = std::env::temp_dir().join(format!("txfs-protocol-{}", std::process::id()));
        for _ in 0..3 {
            path.push("a-rather-long-directory-name-that-fills-the-socket-address");
        }
        std::fs::create_dir_all(&path).unwrap();
        assert!(!is_accepting(&path));
        let (directory, guard) = socket_directory(&path).unwrap();
        assert!(guard.is_some());
        let listener = UnixListener::bind(directory.join(SOCKET_NAME)).unwrap();
        assert!(is_accepting(&path));
        drop(listener);
        assert!(matches!(Client::connect(&path), Err(ProtocolError::NotMounted { .. })));
        std::fs::remove_dir_all(std::env::temp_dir().join(format!("txfs-protocol-{}", std::process::id())))
            .unwrap();
    }
}
