//! A connection's transaction: how it begins, and how it ends.
//!
//! A commit first makes the kernel write back what programs have changed in memory maps of the view's files; then it
//! commits (the volume then calls the invalidator, on this thread); then the view ends; then the client hears of it. Of
//! several participants only one can do so at a time (`join`).

use super::conflict::to_report;
use super::connection::{Connection, age_ms, conflicted, failed, no_transaction, refuse, shortened};
use crate::groups::Key;
use crate::sharing::Ending;
use crate::views::{Beginner, MountView};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txfs::TransactionOptions;
use txfs_protocol::{
    Begun, Durability, Isolation, KeptSide, Policy, Response, TransactionStatus, VIEWS_DIRECTORY,
};

impl Connection {
    pub(super) fn options(
        &self,
        isolation: Isolation,
        label: String,
        command: String,
        policy: Option<Policy>,
    ) -> TransactionOptions {
        let command = if command.is_empty() { self.peer.command.clone() } else { shortened(command) };
        TransactionOptions {
            isolation: match isolation {
                Isolation::Serializable => txfs::Isolation::Serializable,
                Isolation::Snapshot => txfs::Isolation::Snapshot,
            },
            policy: Some(match policy {
                Some(Policy::FirstCommitter) => txfs::Policy::FirstCommitter,
                Some(Policy::Eager) => txfs::Policy::Eager,
                None => self.shared().options.policy,
            }),
            label: shortened(label),
            process: Some(self.peer.pid),
            command: Some(command),
            recorded: false,
            late_conflicts: false,
        }
    }

    pub(super) fn begin(&mut self, options: TransactionOptions, retry: bool) -> Response {
        if let Some(refusal) = self.has_transaction() {
            return refusal;
        }
        let mut beginner = self.peer.clone();
        // What a list of transactions shows.
        beginner.command = match options.label.is_empty() {
            true => options.command.clone().unwrap_or_default(),
            false => options.label.clone(),
        };
        let filesystem = self.shared().filesystem.clone();
        if !retry {
            // The claims of those before end before this one begins.
            self.attempts = None;
        }
        let attempts = self.attempts.get_or_insert_with(|| filesystem.views.volume().attempts(options));
        let transaction = attempts.begin();
        self.show(transaction, beginner)
    }

    pub(super) fn undo(&mut self, sequence: u64) -> Response {
        if let Some(refusal) = self.has_transaction() {
            return refusal;
        }
        if self.shared().options.read_only {
            return refuse(rustix::io::Errno::ROFS, "the volume is mounted read-only");
        }
        // Whatever it touches, nobody asks the kernel who may.
        if !self.is_owner() {
            return refuse(
                rustix::io::Errno::PERM,
                "only the user who mounted the volume and root may undo commits",
            );
        }
        let options = self.options(Isolation::default(), String::new(), String::new(), None);
        self.attempts = None;
        let beginner = Beginner { command: format!("undo {sequence}"), ..self.peer.clone() };
        match self.shared().filesystem.views.volume().begin_undo(sequence, options) {
            Ok(transaction) => self.show(transaction, beginner),
            Err(txfs::Error::UndoConflict { report, .. }) => Response::Conflicted(to_report(&report)),
            Err(error) => match error.conflicts() {
                Some(report) => Response::Conflicted(to_report(report)),
                None => failed(&error),
            },
        }
    }

    /// Opens the view of the connection's transaction.
    fn show(&mut self, transaction: txfs::Transaction, beginner: Beginner) -> Response {
        match self.show_as(transaction, beginner, None) {
            Ok(view) => self.take_part(view),
            Err(refusal) => refusal,
        }
    }

    /// Opens the view of a transaction, perhaps that of a file group.
    pub(super) fn show_as(
        &self,
        transaction: txfs::Transaction,
        beginner: Beginner,
        group: Option<Key>,
    ) -> Result<Arc<MountView>, Response> {
        let opened = self.shared().filesystem.views.open(transaction, beginner, group);
        opened.ok_or_else(|| {
            refuse(rustix::io::Errno::AGAIN, "too many transactions are open; try again later")
        })
    }

    /// A view becomes that of the connection's transaction.
    pub(super) fn take_part(&mut self, view: Arc<MountView>) -> Response {
        match begun(&view) {
            Some(begun) => {
                self.open = Some(view);
                Response::Begun(begun)
            }
            None => refuse(rustix::io::Errno::IO, "a transaction's view without a transaction"),
        }
    }

    /// Ends the connection's transaction by keeping it.
    pub(super) fn keep(&mut self, name: &str, prepare: bool) -> Response {
        self.end_with(|filesystem, view, open| {
            filesystem.invalidator.write_back_before_commit(view);
            let kept = match prepare {
                true => open.transaction.prepare(name),
                false => open.transaction.keep(name),
            };
            if open.transaction.is_open() {
                // It was about the name; another one may do.
                return (kept.map_or_else(|error| failed(&error), |()| Response::Done), None);
            }
            match kept {
                Ok(()) => (Response::Done, Some(Ending::KEPT)),
                Err(error) => (conflicted(&error), Some(Ending::CONFLICTED)),
            }
        })
    }

    pub(super) fn open_kept(&mut self, name: &str, side: KeptSide) -> Response {
        if let Some(refusal) = self.has_transaction() {
            return refusal;
        }
        let side = match side {
            KeptSide::Base => txfs::KeptSide::Base,
            KeptSide::Ours => txfs::KeptSide::Ours,
            KeptSide::Theirs => txfs::KeptSide::Theirs,
        };
        match self.volume().kept_view(name, side) {
            Ok(transaction) => self.show(transaction, self.peer.clone()),
            Err(error) => failed(&error),
        }
    }

    pub(super) fn commit(&mut self, durability: Durability, or_keep: Option<&str>) -> Response {
        if or_keep.is_some() && !self.is_owner() {
            return refuse(
                rustix::io::Errno::PERM,
                "only the user who mounted the volume and root may keep transactions",
            );
        }
        let durability = match durability {
            Durability::Durable => txfs::Durability::Durable,
            Durability::Ordered => txfs::Durability::Ordered,
            Durability::Deferred => txfs::Durability::Deferred,
        };
        self.end_with(|filesystem, view, open| {
            filesystem.invalidator.write_back_before_commit(view);
            let committed = match or_keep {
                Some(name) => open.transaction.commit_or_keep(durability, name),
                None => open.transaction.commit(durability),
            };
            if open.transaction.is_open() {
                // The name was wrong; another one may do.
                return (committed.map_or_else(|error| failed(&error), |_| no_transaction()), None);
            }
            match committed {
                Ok(receipt) => {
                    let sequence = receipt.sequence;
                    (Response::Committed { sequence }, Some(Ending::Committed(sequence)))
                }
                Err(error) => (conflicted(&error), Some(Ending::CONFLICTED)),
            }
        })
    }

    pub(super) fn abort(&mut self) -> Response {
        if self.open.is_none() {
            return Response::Aborted;
        }
        let response = self.end_with(|_, _, open| {
            open.transaction.abort();
            (Response::Aborted, Some(Ending::ABORTED))
        });
        match response {
            // It is as was wished.
            Response::EndedByOther { sequence: None, .. } => Response::Aborted,
            response => response,
        }
    }

    pub(super) fn status(&self) -> Response {
        if let Some(ended) = self.ended_by_other() {
            return ended;
        }
        Response::Status(match self.open.as_ref().and_then(|view| view.transaction()) {
            None => TransactionStatus::default(),
            Some(open) => TransactionStatus {
                transaction: Some(open.transaction.id()),
                age_ms: age_ms(open.began),
                dirty_bytes: open.written_bytes.load(Ordering::Relaxed),
                conflict: open.transaction.conflict().as_ref().map(to_report),
            },
        })
    }
}

/// What a participant is told of a transaction's view.
pub(super) fn begun(view: &MountView) -> Option<Begun> {
    let open = view.transaction()?;
    let path = [VIEWS_DIRECTORY.as_bytes(), b"/", &open.name].concat();
    Some(Begun { transaction: open.transaction.id(), view: path.into() })
}
