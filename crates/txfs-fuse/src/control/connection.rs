//! One client: greets it, carries out its requests, and aborts its transaction when it goes.
//! What becomes of the transaction is in `transaction`.

use super::conflict::to_report;
use super::history::{logged, named_snapshot, restored};
use super::{credentials, stat};
use crate::session::{MountHandle, Shared, look_at};
use crate::views::{Beginner, MountView};
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use txfs::{Attempts, ChangeKind, CleanOptions, NodeKind, TransactionOptions};
use txfs_protocol::{
    Change, Cleaned, GroupMember, OpenTransaction, PROTOCOL_VERSION, PathText, ProtocolError, Request,
    Response, SNAPSHOTS_DIRECTORY, Welcome, mounts, read_frame, write_frame,
};

/// How much text a label or command line may have.
const TEXT_BYTES_MAX: usize = 4096;

/// About how many bytes of changes one response holds; far below the frame's limit.
const CHANGES_BYTES_MAX: usize = 1 << 20;

/// How many recorded commits one response holds at most; their texts are bounded.
const LOGGED_TOGETHER: u64 = 200;

pub(super) struct Connection {
    pub(super) handle: MountHandle,
    pub(super) peer: Beginner,
    greeted: bool,
    pub(super) open: Option<Arc<MountView>>,
    /// The attempts of which that is the last one.
    pub(super) attempts: Option<Attempts>,
    /// The list of changes that is being sent.
    pub(super) changes: Vec<Change>,
    /// The list of a file group's members that is being sent.
    pub(super) members: Vec<GroupMember>,
}

/// Serves a client until it goes.
pub(super) fn serve(mut stream: UnixStream, handle: MountHandle) {
    let peer = match credentials::peer(&stream) {
        Ok(peer) => Beginner { pid: peer.pid, uid: peer.uid, command: String::new() },
        Err(error) => {
            log::warn!("a client without credentials: {error}");
            return;
        }
    };
    let mut connection = Connection {
        handle,
        peer,
        greeted: false,
        open: None,
        attempts: None,
        changes: Vec::new(),
        members: Vec::new(),
    };
    if let Err(error) = connection.converse(&mut stream) {
        log::debug!("client {}: {error}", connection.peer.pid);
        let farewell = Response::Error { errno: error.errno(), message: error.to_string() };
        // It may be gone; then nobody needs to know.
        let _ = write_frame(&mut stream, &farewell);
    }
    connection.leave();
}

impl Connection {
    fn converse(&mut self, stream: &mut UnixStream) -> Result<(), ProtocolError> {
        let mut requests = BufReader::new(stream.try_clone()?);
        while let Some(request) = read_frame::<Request>(&mut requests)? {
            let response = self.answer(request);
            write_frame(stream, &response)?;
        }
        Ok(())
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.handle.0
    }

    fn answer(&mut self, request: Request) -> Response {
        if let Request::Hello { protocol, command, .. } = request {
            return self.greet(protocol, command);
        }
        if !self.greeted {
            return refuse(rustix::io::Errno::PROTO, "the first message must be a hello");
        }
        match request {
            Request::Hello { protocol, command, .. } => self.greet(protocol, command),
            Request::Begin { isolation, label, command, policy, retry, recorded, late_conflicts } => {
                let options = self.options(isolation, label, command, policy);
                let options = TransactionOptions { recorded, late_conflicts, ..options };
                self.begin(options, retry)
            }
            Request::Commit { durability, or_keep } => self.commit(durability, or_keep.as_deref()),
            Request::Abort => self.abort(),
            Request::Status => self.status(),
            Request::Join { view } => self.join(&view),
            Request::Leave => self.leave(),
            Request::GroupCreate => self.create_group(),
            Request::GroupDelete { key } => self.delete_group(key),
            Request::GroupList => self.list_groups(),
            Request::GroupStart { key, isolation, label, policy } => {
                let options = self.options(isolation, label, String::new(), policy);
                self.start_group(key, options)
            }
            Request::GroupMembers { key, start } => self.group_members(key, start),
            Request::Changes { start } => self.changes(start),
            Request::List => Response::List { transactions: self.list() },
            Request::Stat => match stat::of(self.shared()) {
                Ok(stat) => Response::Stat { stat },
                Err(error) => failed(&error),
            },
            Request::Log { before, limit } => {
                let limit = limit.min(LOGGED_TOGETHER) as usize;
                match self.shared().filesystem.views.volume().history(before, limit) {
                    Ok(commits) => Response::Log { commits: commits.into_iter().map(logged).collect() },
                    Err(error) => failed(&error),
                }
            }
            Request::Undo { sequence } => self.undo(sequence),
            Request::Diff { after, up_to, start } => {
                if start == 0 {
                    match self.shared().filesystem.views.volume().diff(after, up_to) {
                        Ok(changes) => self.changes = changes.into_iter().map(to_change).collect(),
                        Err(error) => return failed(&error),
                    }
                }
                self.page_of_changes(start)
            }
            Request::Sync => match self.shared().filesystem.views.volume().sync() {
                Ok(()) => Response::Done,
                Err(error) => failed(&error),
            },
            Request::Clean { segments_max, live_percent_max, give_back } => {
                let gentle = false;
                self.clean(&CleanOptions { segments_max, live_percent_max, give_back, gentle })
            }
            Request::Unmount { lazy } => self.unmount(lazy),
            Request::Keep { .. }
            | Request::Kept
            | Request::CommitKept { .. }
            | Request::CommitKeptOnly { .. }
            | Request::AbortKept { .. }
            | Request::KeptConflicts { .. }
            | Request::OpenKept { .. } => self.answer_kept(request),
            Request::Snapshots => match self.volume().snapshots() {
                Ok(found) => {
                    Response::Snapshots { snapshots: found.into_iter().map(named_snapshot).collect() }
                }
                Err(error) => failed(&error),
            },
            Request::CreateSnapshot { .. } | Request::DeleteSnapshot { .. } | Request::Restore { .. }
                if !self.is_owner() =>
            {
                refuse(
                    rustix::io::Errno::PERM,
                    "only the user who mounted the volume and root may make, delete and restore snapshots",
                )
            }
            Request::CreateSnapshot { name } => {
                match self.volume().create_snapshot(&name, txfs::Durability::Durable) {
                    Ok(made) => Response::Snapshots { snapshots: vec![named_snapshot(made)] },
                    Err(error) => failed(&error),
                }
            }
            Request::DeleteSnapshot { name } => {
                self.drop_snapshot(&name);
                match self.volume().delete_snapshot(&name) {
                    Ok(()) => Response::Done,
                    Err(error) => failed(&error),
                }
            }
            Request::Restore { name, paths } => {
                let paths: Vec<_> = paths.iter().map(PathText::to_path_buf).collect();
                match self.volume().restore_all(&name, &paths, txfs::Durability::Durable) {
                    Ok(done) => Response::Restored(restored(done)),
                    Err(error) => failed(&error),
                }
            }
        }
    }

    /// The kernel remembers of a named snapshot what nobody uses any more.
    fn drop_snapshot(&self, name: &str) {
        let shared = self.shared();
        let views = &shared.filesystem.views;
        if views.known_snapshot(name.as_bytes()).is_some() {
            // Names that a deletion in vain has taken from the kernel come back.
            look_at(&shared.mountpoint.join(SNAPSHOTS_DIRECTORY).join(name));
            shared.filesystem.invalidator.drop_snapshot(name.as_bytes());
        }
    }

    fn greet(&mut self, protocol: u32, command: String) -> Response {
        let shared = self.shared();
        let owner = rustix::process::getuid().as_raw();
        if self.peer.uid != 0 && self.peer.uid != owner && !shared.options.allow_other {
            return refuse(
                rustix::io::Errno::ACCESS,
                "only the user who mounted the volume and root may use it",
            );
        }
        let mountpoints = mounts::of_volume(&shared.volume_path)
            .map(|found| found.into_iter().map(|mount| mount.mountpoint).collect())
            .unwrap_or_else(|_| vec![shared.mountpoint.clone()]);
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").into(),
            volume: shared.volume_path.as_path().into(),
            mountpoints: mountpoints.into_iter().map(Into::into).collect(),
            owner_pid: std::process::id(),
        };
        if protocol == PROTOCOL_VERSION {
            self.greeted = true;
            self.peer.command = shortened(command);
        }
        Response::Welcome(welcome)
    }

    pub(super) fn volume(&self) -> &txfs::Volume {
        self.shared().filesystem.views.volume()
    }

    fn changes(&mut self, start: u64) -> Response {
        let Some(view) = self.open.clone() else { return no_transaction() };
        let Some(transaction) = view.transaction() else { return no_transaction() };
        if let Some(ended) = self.ended_by_other() {
            return ended;
        }
        if start == 0 {
            self.shared().filesystem.invalidator.write_back(&view);
            match transaction.transaction.changes() {
                Ok(changes) => self.changes = changes.into_iter().map(to_change).collect(),
                Err(error) => {
                    return error
                        .conflicts()
                        .map_or_else(|| failed(&error), |report| Response::Conflicted(to_report(report)));
                }
            }
        }
        self.page_of_changes(start)
    }

    fn page_of_changes(&self, start: u64) -> Response {
        let mut room = CHANGES_BYTES_MAX;
        let page: Vec<Change> = self
            .changes
            .iter()
            .skip(usize::try_from(start).unwrap_or(usize::MAX))
            .take_while(|change| {
                let from = change.from.as_ref().map_or(0, |from| from.0.len());
                // Bytes that are not text take up to four characters each.
                let bytes = 200 + 4 * (change.path.0.len() + from);
                let fits = room > 0;
                room = room.saturating_sub(bytes);
                fits
            })
            .cloned()
            .collect();
        Response::Changes { changes: page, total: self.changes.len() as u64 }
    }

    fn list(&self) -> Vec<OpenTransaction> {
        self.shared()
            .filesystem
            .views
            .transactions()
            .iter()
            .filter_map(|view| view.transaction())
            .map(|open| OpenTransaction {
                transaction: open.transaction.id(),
                age_ms: age_ms(open.began),
                pid: open.beginner.pid,
                uid: open.beginner.uid,
                command: open.beginner.command.clone(),
                dirty_bytes: open.written_bytes.load(Ordering::Relaxed),
                participants: open.sharing.participants(),
                group: open.group,
            })
            .collect()
    }

    fn clean(&self, options: &CleanOptions) -> Response {
        if !self.is_owner() {
            return refuse(
                rustix::io::Errno::PERM,
                "only the user who mounted the volume and root may clean it",
            );
        }
        match self.shared().filesystem.views.volume().clean(options, &mut |_, _| {}) {
            Ok(report) => Response::Cleaned(Cleaned {
                segments: report.segments,
                moved_bytes: report.bytes_moved,
                gained_bytes: report.bytes_gained,
                segments_damaged: report.segments_damaged,
                segments_removed: report.segments_removed,
            }),
            Err(error) => failed(&error),
        }
    }

    /// True for whoever mounted the volume, and for root.
    pub(super) fn is_owner(&self) -> bool {
        [0, rustix::process::getuid().as_raw()].contains(&self.peer.uid)
    }

    fn unmount(&self, lazy: bool) -> Response {
        if !self.is_owner() {
            return refuse(
                rustix::io::Errno::PERM,
                "only the user who mounted the volume and root may unmount it",
            );
        }
        match self.handle.unmount(lazy) {
            Ok(()) => Response::Done,
            Err(error) => Response::Error { errno: error.errno(), message: error.to_string() },
        }
    }
}

pub(super) fn age_ms(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn shortened(mut text: String) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

pub(super) fn refuse(errno: rustix::io::Errno, message: &str) -> Response {
    Response::Error { errno: errno.raw_os_error(), message: message.into() }
}

pub(super) fn no_transaction() -> Response {
    refuse(rustix::io::Errno::INVAL, "no transaction is open on this connection; begin one first")
}

pub(super) fn conflicted(error: &txfs::Error) -> Response {
    error.conflicts().map_or_else(|| failed(error), |report| Response::Conflicted(to_report(report)))
}

pub(super) fn failed(error: &txfs::Error) -> Response {
    Response::Error { errno: error.errno(), message: error.to_string() }
}

/// A change, as a mount's owner sends it.
pub fn to_change(change: txfs::Change) -> Change {
    let (kind, from) = match change.kind {
        ChangeKind::Created => (txfs_protocol::ChangeKind::Created, None),
        ChangeKind::Modified => (txfs_protocol::ChangeKind::Modified, None),
        ChangeKind::Attributes => (txfs_protocol::ChangeKind::Attributes, None),
        ChangeKind::Deleted => (txfs_protocol::ChangeKind::Removed, None),
        ChangeKind::Renamed { from, .. } => (txfs_protocol::ChangeKind::Renamed, Some(from.into())),
    };
    Change {
        path: change.path.into(),
        from,
        kind,
        directory: change.node == NodeKind::Directory,
        bytes_before: change.old_size,
        bytes_after: change.new_size,
    }
}
