//! A connection's transaction: how it begins, and how it ends.
//!
//! A commit first makes the kernel write back what programs have changed in memory maps of the view's files; then it
//! commits (the volume then calls the invalidator, on this thread); then the view ends; then the client hears of it.

use super::conflict::to_report;
use super::connection::{Connection, age_ms, conflicted, failed, no_transaction, refuse, shortened};
use crate::views::Beginner;
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
        if self.open.is_some() {
            return refuse(
                rustix::io::Errno::BUSY,
                "this connection has a transaction already; end it first",
            );
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
        if self.open.is_some() {
            return refuse(
                rustix::io::Errno::BUSY,
                "this connection has a transaction already; end it first",
            );
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
        let filesystem = self.shared().filesystem.clone();
        let Some(view) = filesystem.views.open(transaction, beginner) else {
            return refuse(rustix::io::Errno::AGAIN, "too many transactions are open; try again later");
        };
        let Some(transaction) = view.transaction() else {
            return refuse(rustix::io::Errno::IO, "a transaction's view without a transaction");
        };
        let mut path = VIEWS_DIRECTORY.as_bytes().to_vec();
        path.push(b'/');
        path.extend(&transaction.name);
        let begun = Begun { transaction: transaction.transaction.id(), view: path.into() };
        self.open = Some(view);
        Response::Begun(begun)
    }

    /// Ends the connection's transaction by keeping it.
    pub(super) fn keep(&mut self, name: &str, prepare: bool) -> Response {
        let Some(view) = self.open.clone() else { return no_transaction() };
        let Some(transaction) = view.transaction() else { return no_transaction() };
        self.shared().filesystem.invalidator.write_back_before_commit(&view);
        let kept = match prepare {
            true => transaction.transaction.prepare(name),
            false => transaction.transaction.keep(name),
        };
        if transaction.transaction.is_open() {
            // It was about the name; another one may do.
            return kept.map_or_else(|error| failed(&error), |()| Response::Done);
        }
        self.end();
        match kept {
            Ok(()) => {
                self.attempts = None;
                Response::Done
            }
            Err(error) => conflicted(&error),
        }
    }

    pub(super) fn open_kept(&mut self, name: &str, side: KeptSide) -> Response {
        if self.open.is_some() {
            return refuse(
                rustix::io::Errno::BUSY,
                "this connection has a transaction already; end it first",
            );
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
        let Some(view) = self.open.clone() else { return no_transaction() };
        let Some(transaction) = view.transaction() else { return no_transaction() };
        let durability = match durability {
            Durability::Durable => txfs::Durability::Durable,
            Durability::Ordered => txfs::Durability::Ordered,
            Durability::Deferred => txfs::Durability::Deferred,
        };
        self.shared().filesystem.invalidator.write_back_before_commit(&view);
        let committed = match or_keep {
            Some(name) => transaction.transaction.commit_or_keep(durability, name),
            None => transaction.transaction.commit(durability),
        };
        if transaction.transaction.is_open() {
            // The name was wrong; another one may do.
            return committed.map_or_else(|error| failed(&error), |_| no_transaction());
        }
        self.end();
        match committed {
            Ok(receipt) => {
                self.attempts = None;
                Response::Committed { sequence: receipt.sequence }
            }
            Err(error) => conflicted(&error),
        }
    }

    pub(super) fn abort(&mut self) {
        if let Some(view) = &self.open {
            if let Some(transaction) = view.transaction() {
                transaction.transaction.abort();
            }
            self.end();
        }
    }

    /// Ends the view of a transaction that has ended.
    fn end(&mut self) {
        self.changes.clear();
        if let Some(view) = self.open.take() {
            let filesystem = &self.shared().filesystem;
            filesystem.views.end(&view);
            filesystem.invalidator.drop_view(&view);
        }
    }

    pub(super) fn status(&self) -> TransactionStatus {
        match self.open.as_ref().and_then(|view| view.transaction()) {
            None => TransactionStatus::default(),
            Some(open) => TransactionStatus {
                transaction: Some(open.transaction.id()),
                age_ms: age_ms(open.began),
                dirty_bytes: open.written_bytes.load(Ordering::Relaxed),
                conflict: open.transaction.conflict().as_ref().map(to_report),
            },
        }
    }
}
