//! Shared transactions: joining, leaving, and ending one for all participants.

use super::connection::{Connection, no_transaction, refuse};
use crate::filesystem::FileSystem;
use crate::sharing::Ending;
use crate::views::{MountView, TransactionView};
use std::sync::Arc;
use txfs_protocol::{PathText, Response};

impl Connection {
    /// The refusal to begin another transaction, if this connection has one that is not over.
    pub(super) fn has_transaction(&mut self) -> Option<Response> {
        if self.ended_by_other().is_some() {
            // Who begins another one knows that, or need not know it.
            self.open = None;
        }
        let busy = "this connection has a transaction already; end it first";
        self.open.is_some().then(|| refuse(rustix::io::Errno::BUSY, busy))
    }

    /// How the connection's transaction was ended, if another participant has done it.
    pub(super) fn ended_by_other(&self) -> Option<Response> {
        let ending = self.open.as_ref()?.transaction()?.sharing.ending()?;
        Some(ended_by_other(&ending))
    }

    /// Takes part in a transaction. Who knows the view's name may, if he is the user who has begun it.
    pub(super) fn join(&mut self, view: &PathText) -> Response {
        if let Some(refusal) = self.has_transaction() {
            return refusal;
        }
        let name = view.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(view) = self.shared().filesystem.views.named(name) else {
            return refuse(rustix::io::Errno::STALE, "there is no such transaction, or it has ended");
        };
        let Some(open) = view.transaction() else { return no_transaction() };
        if !open.is_open_to(self.peer.uid) {
            return refuse(
                rustix::io::Errno::PERM,
                "only the user who began a transaction and root may join it",
            );
        }
        match open.sharing.join() {
            Ok(()) => {
                self.attempts = None;
                self.take_part(view.clone())
            }
            Err(ending) => ended_by_other(&ending),
        }
    }

    /// Takes part no longer. The last one aborts the transaction.
    pub(super) fn leave(&mut self) -> Response {
        self.changes.clear();
        let Some(view) = self.open.take() else { return no_transaction() };
        let Some(open) = view.transaction() else { return no_transaction() };
        let filesystem = &self.shared().filesystem;
        let before = open.sharing.leave(|| {
            open.transaction.abort();
            finish(filesystem, &view, false);
        });
        before.map_or(Response::Done, |ending| ended_by_other(&ending))
    }

    /// Lets `work` end the connection's transaction, unless another participant was faster; `work` says how it ended, if it
    /// did.
    pub(super) fn end_with(
        &mut self,
        work: impl FnOnce(&FileSystem, &Arc<MountView>, &TransactionView) -> (Response, Option<Ending>),
    ) -> Response {
        let Some(view) = self.open.clone() else { return no_transaction() };
        let Some(open) = view.transaction() else { return no_transaction() };
        let filesystem = self.shared().filesystem.clone();
        let ended = open.sharing.end(|| {
            let (response, ending) = work(&filesystem, &view, open);
            if let Some(ending) = &ending {
                finish(&filesystem, &view, ending.sequence().is_some());
            }
            (response, ending)
        });
        let response = ended.unwrap_or_else(|ending| ended_by_other(&ending));
        if open.sharing.ending().is_some() {
            self.open = None;
            self.changes.clear();
        }
        match response {
            Response::Committed { .. } | Response::Done => self.attempts = None,
            _ => {}
        }
        response
    }
}

/// Ends the view of a transaction that has ended.
pub(super) fn finish(filesystem: &FileSystem, view: &Arc<MountView>, committed: bool) {
    filesystem.groups.ended(view, committed);
    filesystem.views.end(view);
    filesystem.invalidator.drop_view(view);
}

pub(super) fn ended_by_other(ending: &Ending) -> Response {
    Response::EndedByOther { sequence: ending.sequence(), message: ending.message() }
}
