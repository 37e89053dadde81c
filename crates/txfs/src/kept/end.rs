//! The end of a kept transaction: its commit or its abort.
//!
//! A commit applies the intents to the state as it is then, as every commit does, in one commit that also marks the
//! transaction as going. An abort only marks it. Either way what is left of it is removed afterwards, in bounded
//! pieces ([`super::sweep`]); after a crash the next opening does that.

use std::ops::ControlFlow;
use std::sync::Arc;

use txfs_engine::{
    Applied, Apply, Clash, Commit, ConflictReport as EngineReport, ConflictSet, Durability, KeptStep, Origin,
    Read, TransactionOrigin,
};

use super::{Reserved, conflicts, load};
use crate::conflict::ConflictReport;
use crate::error::{Error, Result};
use crate::records::kept::{Header, Stage};
use crate::records::key;
use crate::shared::Shared;
use crate::transaction::apply::put;
use crate::transaction::plan::Plan;
use crate::transaction::session::Session;
use crate::transaction::{CommitReceipt, tell_observers};
use crate::types::Ino;

/// A report lists so many conflicts at most.
const LISTED_MAX: usize = 100;

/// Commits one, durably.
pub(crate) fn commit(shared: &Arc<Shared>, name: &str) -> Result<CommitReceipt> {
    commit_reserved(shared, shared.kept.take(shared, name)?)
}

pub(super) fn commit_reserved(shared: &Arc<Shared>, reserved: Reserved) -> Result<CommitReceipt> {
    let id = reserved.id();
    let mut session = Session::new(shared);
    session.now();
    let header = load::header(&session.snapshot, id)?;
    session.origin = Some(origin(shared, &header));
    session.recorded = header.recorded;
    if let Some(report) = report(&session, id)? {
        return Err(Error::Conflict(Box::new(report)));
    }
    let overlay = load::overlay(&session.snapshot, id)?;
    let touched: Vec<Ino> = overlay.inodes.keys().copied().collect();
    // In use: its data is there already, and whether a node goes is decided when the plan is applied.
    let plan = Plan::new(overlay, ConflictSet::new(), &shared.hasher, |_| true, session.undo_number()?);
    let step = KeptStep::end(id, header.stage == Stage::Prepared);
    let committed = session.commit_plan(plan, Durability::Durable, Some(&step), &|read, applied| {
        if has_conflicts(read, id)? {
            return Err(Error::Conflict(Box::new(ConflictReport { conflicts: Vec::new(), more: 0 })));
        }
        applied.mutations.push(going(id, &header));
        Ok(())
    });
    match committed {
        Ok(changes) => {
            tell_observers(shared, &changes);
            drop(session);
            end(shared, reserved, &touched);
            if header.recorded {
                shared.expire_history();
            }
            Ok(CommitReceipt { sequence: changes.sequence })
        }
        Err(Error::Conflict(met)) => {
            // Noted by a commit that came in between; the report says all of it.
            let mut later = Session::new(shared);
            later.origin = session.origin.clone();
            Err(Error::Conflict(report(&later, id)?.map(Box::new).unwrap_or(met)))
        }
        Err(error) => Err(error),
    }
}

/// Aborts one, durably.
pub(crate) fn abort(shared: &Arc<Shared>, name: &str) -> Result<()> {
    let reserved = shared.kept.take(shared, name)?;
    let id = reserved.id();
    let snapshot = shared.engine.snapshot();
    let header = load::header(&snapshot, id)?;
    let mut touched = Vec::new();
    super::each(&snapshot, id, key::kept::INODE, &mut |rest, _| {
        touched.extend(key::long_at(rest, 0));
        Ok(())
    })?;
    let step = KeptStep::end(id, header.stage == Stage::Prepared);
    let apply: Apply<'_> = &|_, _| Ok(Applied { mutations: vec![going(id, &header)], ..Applied::default() });
    let commit = Commit::quiet(&snapshot, Durability::Durable, apply);
    shared.engine.commit_step(commit, Default::default(), Some(&step))?;
    drop(snapshot);
    end(shared, reserved, &touched);
    Ok(())
}

/// The conflicts that keep one from being committed.
pub(crate) fn noted(shared: &Arc<Shared>, name: &str) -> Result<Option<ConflictReport>> {
    let id = shared.kept.id(name)?;
    let mut session = Session::read_only(shared, shared.engine.snapshot());
    session.origin = Some(Origin::default());
    report(&session, id)
}

fn report(session: &Session, id: u64) -> Result<Option<ConflictReport>> {
    report_of(session, conflicts(&session.snapshot, id)?)
}

/// The conflicts in words; nothing when there are none.
pub(super) fn report_of(session: &Session, mut clashes: Vec<Clash>) -> Result<Option<ConflictReport>> {
    if clashes.is_empty() {
        return Ok(None);
    }
    clashes.sort_by_key(|clash| !clash.written);
    let more = clashes.len().saturating_sub(LISTED_MAX) as u64;
    clashes.truncate(LISTED_MAX);
    Ok(Some(session.explain_all(&EngineReport { clashes, more })))
}

/// On whose behalf it commits: the one who made it, under the name that it has now.
pub(super) fn origin(shared: &Shared, header: &Header) -> Origin {
    let number = shared.next_transaction.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let Header { process, command, message, .. } = header.clone();
    let transaction = Some(Arc::new(TransactionOrigin { number, command, label: message }));
    Origin { process, time: (0, 0), transaction }
}

fn has_conflicts(read: &dyn Read, id: u64) -> Result<bool> {
    let (from, to) = key::kept_range(id, key::kept::CONFLICT);
    let mut found = false;
    read.scan(&from, &to, &mut |_, _| {
        found = true;
        ControlFlow::Break(())
    })?;
    Ok(found)
}

fn going(id: u64, header: &Header) -> txfs_engine::Mutation {
    let header = Header { stage: Stage::Going, ..header.clone() };
    put(key::kept(id, key::kept::HEADER, &[]), header.encode())
}

/// It has ended: its name is free, and what is left of it goes.
fn end(shared: &Arc<Shared>, reserved: Reserved, touched: &[Ino]) {
    let id = reserved.id();
    reserved.free();
    super::sweep::finish_all(shared, &[id]);
    // Nodes without a name may have stayed because it needed them.
    shared.reclaim_or_warn(touched);
}
