//! Kept and prepared transactions, as far as commits have to know of them: what they have read and written.
//!
//! A kept transaction is durable and not visible. Whoever commits a change of what it has read or written succeeds, and
//! notes that in the same commit: the layer above is asked for the entries ([`Witness`]). A *prepared* one is certain to
//! commit, so a commit that would change what it has read or written is refused ([`EngineError::Held`]), whoever makes it.
//!
//! Both begin and end with a commit, and count from that commit on, up to that commit ([`KeptStep`]); a commit of a part leaves
//! one of what the rest has read and written. All of this happens inside the critical section. The layer above stores
//! the ranges, and claims them again when a volume is opened.
//!
//! Locking: the table belongs to the sequencer. While it is empty, a commit pays a branch.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use super::conflict::{ConflictRange, ConflictSet};
use crate::broken::{self, Fault};
use crate::engine::{Engine, Shared};
use crate::error::{Clash, ConflictReport, EngineError, Opponent, Result};
use crate::format::Mutation;
use crate::format::mutation::Changes;
use crate::index::Read;
use crate::named::Past;
use crate::sequencer::Sequencer;
use crate::txn::Applied;
use crate::txn::Snapshot;
use crate::txn::commit::Candidate;
use crate::txn::deferred::DEFERRED_SEGMENT;
use crate::txn::prepared::Prepared;

/// So many conflicts are noted of one transaction, about: once there are as many, nothing more is. One is enough to keep it from
/// committing.
pub const KEPT_NOTES_MAX: u64 = 1000;

/// Turns what a kept transaction meets into entries of the index. Called inside the critical section, perhaps more than
/// once for a commit: pure, and quick.
pub trait Witness: Send + Sync {
    /// The entries that the commit is to leave beside its own.
    fn note(&self, meeting: &Meeting<'_>) -> Result<Vec<Mutation>>;
}

/// What a kept transaction and a commit both touch.
#[derive(Clone, Copy)]
pub struct Meeting<'a> {
    /// Parts of what the kept transaction has read or written that have been changed, for the first time; perhaps none.
    pub clashes: &'a [Clash],
    /// There are more of these than are listed.
    pub more: bool,
    /// The kept transaction's snapshot, if it is being kept: then others have changed that already.
    pub kept_from: Option<&'a dyn Read>,
    /// The state before the commit.
    pub before: &'a dyn Read,
    /// Whether something in a segment is live in that state. If not, it is about to be used again, and what older
    /// states have there can be read only by who looks at these.
    pub is_live: &'a dyn Fn(u64) -> bool,
    /// What the kept transaction has read and written.
    pub claim: &'a KeptClaim,
    /// The keys that the commit changes, and whether they go.
    pub changed: &'a [(&'a [u8], bool)],
}

/// What a kept or prepared transaction has read and written.
pub struct KeptClaim {
    /// Its number.
    pub id: u64,
    /// Its name, for those whom it is in the way of.
    pub name: Arc<str>,
    /// Nobody may change what it has read or written.
    pub prepared: bool,
    /// What it has read.
    pub reads: ConflictSet,
    /// What it has written.
    pub writes: ConflictSet,
    /// What of it others have changed, as far as it is noted.
    pub noted: ConflictSet,
    /// How many notes there are of that.
    pub notes: u64,
    /// Notes that.
    pub witness: Arc<dyn Witness>,
}

/// What a commit does with a kept transaction.
pub enum KeptStep {
    /// It makes it. One that is not prepared is kept whatever has been committed since its snapshot.
    Keep(RefCell<Option<Box<KeptClaim>>>),
    /// It ends it: what it has read and written is not in this commit's way, and then in nobody's.
    End {
        /// Its number.
        id: u64,
        /// It was prepared: the commit has its space.
        prepared: bool,
        /// The limit of live data does not hold for it: what it brings is there already.
        assured: Cell<bool>,
    },
    /// It commits a part of it: that is not in the way of the rest, which counts from this commit on.
    Divide {
        /// Its number.
        id: u64,
        /// What the rest has read, and what it has written.
        rest: RefCell<(ConflictSet, ConflictSet)>,
    },
}

impl KeptStep {
    /// Makes one.
    pub fn keep(claim: KeptClaim) -> KeptStep {
        KeptStep::Keep(RefCell::new(Some(Box::new(claim))))
    }

    /// Ends one.
    pub fn end(id: u64, prepared: bool) -> KeptStep {
        KeptStep::End { id, prepared, assured: Cell::new(false) }
    }

    /// Commits a part of one that is not prepared; of the rest, this is what it has read and written.
    pub fn divide(id: u64, reads: ConflictSet, writes: ConflictSet) -> KeptStep {
        KeptStep::Divide { id, rest: RefCell::new((reads, writes)) }
    }

    /// The one that this commit is no change for.
    fn own(&self) -> Option<u64> {
        match self {
            KeptStep::Keep(_) => None,
            KeptStep::End { id, .. } | KeptStep::Divide { id, .. } => Some(*id),
        }
    }

    /// For the commit of a prepared one that found no space: from now on the limit of live data does not hold for it. False when
    /// that was so already, or cannot be.
    pub fn assure(&self) -> bool {
        matches!(self, KeptStep::End { prepared: true, assured, .. } if !assured.replace(true))
    }

    pub(crate) fn is_assured(&self) -> bool {
        matches!(self, KeptStep::End { assured, .. } if assured.get())
    }
}

/// All kept and prepared transactions of a volume.
#[derive(Debug, Default)]
pub(crate) struct KeptTable(Vec<KeptClaim>);

/// What a commit has met, to be remembered when it is published.
#[derive(Debug, Default)]
pub(crate) struct Met(Vec<(u64, ConflictRange)>);

impl KeptTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Carries out what a commit does, now that nothing can fail any more.
    pub(crate) fn settle(&mut self, step: Option<&KeptStep>, met: Met) {
        for (id, range) in met.0 {
            if let Some(claim) = self.0.iter_mut().find(|claim| claim.id == id) {
                claim.noted.insert(range.space, range.object, range.first, range.last);
                claim.notes += 1;
            }
        }
        match step {
            None => {}
            Some(KeptStep::Keep(claim)) => self.0.extend(claim.take().map(|claim| *claim)),
            Some(KeptStep::End { id, .. }) => self.0.retain(|claim| claim.id != *id),
            Some(KeptStep::Divide { id, rest }) => {
                if let Some(claim) = self.0.iter_mut().find(|claim| claim.id == *id) {
                    // What others have changed of it stays noted.
                    (claim.reads, claim.writes) = rest.take();
                }
            }
        }
    }

    /// Refuses one that is to be prepared and could then be in the way of another one, or the other one in its.
    fn check_prepared(&self, new: &KeptClaim) -> Result<()> {
        for other in self.0.iter().filter(|other| other.prepared) {
            let met = new.writes.iter().find_map(|range| other.touched(&range).next());
            let met =
                met.or_else(|| new.reads.iter().find_map(|range| other.writes.overlapping(&range).next()));
            if let Some(range) = met {
                return Err(other.holds(range));
            }
        }
        Ok(())
    }
}

impl KeptClaim {
    /// The parts of a range that it has read or written.
    fn touched(&self, range: &ConflictRange) -> impl Iterator<Item = ConflictRange> + use<'_> {
        self.writes.overlapping(range).chain(self.reads.overlapping(range))
    }

    fn holds(&self, range: ConflictRange) -> EngineError {
        EngineError::Held { name: self.name.to_string(), range }
    }
}

impl Engine {
    /// A view of everything committed so far, but where a value was saved under this tag and number
    /// ([`crate::saved_key`]), of that.
    pub fn snapshot_with_saved(&self, tag: u8, number: u64) -> Snapshot {
        let past = Some(Arc::new(Past::saved(tag, number)));
        Snapshot { past, ..self.snapshot() }
    }

    /// Claims what a kept transaction has read and written, when a volume is opened: before anybody commits.
    pub fn restore_kept(&self, claim: KeptClaim) {
        if !broken::has(Fault::ForgetKept) {
            self.shared.sequencer.lock().claims.kept.0.push(claim);
        }
    }
}

impl Shared {
    /// What a commit that keeps a transaction has to be compared with, beside what every commit is.
    pub(crate) fn validate_kept(&self, sequencer: &Sequencer, candidate: &Candidate<'_>) -> Result<()> {
        let Some(KeptStep::Keep(claim)) = candidate.step else { return Ok(()) };
        let claim = claim.borrow();
        let Some(claim) = claim.as_deref().filter(|claim| claim.prepared) else { return Ok(()) };
        let mut report = self.overtaken_kept(claim, candidate.commit.snapshot.sequence());
        if let Some(age) = candidate.age {
            sequencer.claims.violated(&claim.writes, age, &mut report);
        }
        match report.is_empty() {
            true => sequencer.claims.kept.check_prepared(claim),
            false => Err(EngineError::Conflict(Box::new(report))),
        }
    }

    fn overtaken_kept(&self, claim: &KeptClaim, snapshot: u64) -> ConflictReport {
        let mut report = ConflictReport::default();
        let history = self.history.lock();
        history.overtaken(claim.writes.iter(), true, snapshot, &mut report);
        history.overtaken(claim.reads.iter(), false, snapshot, &mut report);
        report
    }

    /// Compares what a commit changes with what kept and prepared transactions have read and written, and adds to it what
    /// they note.
    pub(crate) fn meet_kept(
        &self,
        sequencer: &Sequencer,
        candidate: &Candidate<'_>,
        before: &dyn Read,
        prepared: &Prepared<'_>,
        applied: &mut Applied,
    ) -> Result<Met> {
        let mut met = Met::default();
        let table = &sequencer.claims.kept;
        let is_live = &|segment: u64| segment < DEFERRED_SEGMENT && sequencer.live.of(segment) > 0;
        if candidate.moves || (table.is_empty() && candidate.step.is_none()) {
            return Ok(met);
        }
        if let Some(KeptStep::Keep(claim)) = candidate.step {
            let claim = claim.borrow();
            let Some(claim) = claim.as_deref().filter(|claim| !claim.prepared) else { return Ok(met) };
            let snapshot = candidate.commit.snapshot;
            let ConflictReport { clashes, more } = self.overtaken_kept(claim, snapshot.sequence());
            let kept_from: Option<&dyn Read> = Some(snapshot);
            let more = more > 0;
            let meeting =
                Meeting { clashes: &clashes, more, kept_from, before, is_live, claim, changed: &[] };
            let notes = claim.witness.note(&meeting)?;
            applied.mutations.extend(notes);
            met.0.extend(clashes.iter().map(|clash| (claim.id, clash.range)));
            return Ok(met);
        }
        let own = candidate.step.and_then(KeptStep::own);
        let origin = candidate.note.as_ref().map(|note| note.origin.clone()).unwrap_or_default();
        let with = Opponent::Commit { sequence: sequencer.sequence + 1, origin };
        let mut notes = Vec::new();
        let mut changed: Option<Vec<(&[u8], bool)>> = None;
        for claim in table.0.iter().filter(|claim| Some(claim.id) != own) {
            let writes = || candidate.commit.writes.iter().chain(applied.also_writes.iter());
            if claim.prepared {
                if let Some(range) = writes().find_map(|range| claim.touched(&range).next()) {
                    return Err(claim.holds(range));
                }
                continue;
            }
            let mut report = ConflictReport::default();
            for written in [true, false].into_iter().filter(|_| claim.notes < KEPT_NOTES_MAX) {
                let set = if written { &claim.writes } else { &claim.reads };
                for range in writes() {
                    let new = set.overlapping(&range).filter(|part| !claim.has_noted(part));
                    new.for_each(|part| report.add(part, written, &with));
                }
            }
            let changed = changed.get_or_insert_with(|| {
                let own = applied.mutations.iter().map(|change| (change.key(), change.value().is_none()));
                let prepared = Changes::of(prepared.encoded).flatten();
                own.chain(prepared.map(|change| (change.key, change.value.is_none()))).collect()
            });
            let ConflictReport { clashes, more } = &report;
            let more = *more > 0;
            let meeting =
                Meeting { clashes, more, kept_from: None, before, is_live, claim, changed: &changed[..] };
            notes.extend(claim.witness.note(&meeting)?);
            met.0.extend(report.clashes.iter().map(|clash| (claim.id, clash.range)));
        }
        applied.mutations.extend(notes);
        Ok(met)
    }
}

impl KeptClaim {
    fn has_noted(&self, part: &ConflictRange) -> bool {
        self.noted.overlapping(part).any(|noted| noted.covers(part))
    }
}

impl fmt::Debug for KeptClaim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeptClaim")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
