//! Claims: what open transactions say beforehand that they use, so that others who are in their way find out early, or
//! give way.
//!
//! * An **eager** transaction claims what it writes when it writes it. Another eager one that writes the same fails
//!   there and then, instead of both going on until the second one fails at its commit.
//! * An **elder** is a transaction that was refused several times. It claims what it reads and writes, and keeps its
//!   claims from one attempt to the next. A younger transaction that would commit a change of what an elder has claimed
//!   is refused; of two elders the one whose first attempt was earlier wins. So the oldest wins in the end. Who was
//!   refused very often claims **everything** there is, for a short time: younger transactions that are not in its way
//!   otherwise wait for its end with their commits.
//!
//! Calls outside of transactions neither claim nor look. The claims of an elder last for a limited time, so that one that
//! hangs does not keep everybody else from committing. Who waits holds no lock, and only ever waits for who is older.
//!
//! Locking: the table belongs to the sequencer. Claims are made, and commits compared with them, under its lock: so a
//! commit either sees a claim, or is itself seen by whoever made it. Without claims that comparison is a branch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::conflict::{ConflictRange, ConflictSet};
use super::kept::KeptTable;
use super::origin::Origin;
use crate::engine::{Engine, Shared};
use crate::error::{ConflictReport, EngineError, Opponent, Result};

/// How long a commit waits for somebody who has claimed everything.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a claim means to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Another eager claim of the same fails.
    Eager,
    /// A younger transaction that would write it is refused.
    Elder,
    /// So is a younger transaction that would write anything, if this lasts for longer than it can wait.
    Everything,
}

#[derive(Debug)]
struct Claim {
    number: u64,
    kind: ClaimKind,
    /// Smaller is older.
    age: u64,
    origin: Origin,
    set: ConflictSet,
    /// Until then it is all that there is.
    everything: Option<Instant>,
    /// It counts for nothing from then on.
    until: Option<Instant>,
}

/// All claims of a volume.
#[derive(Debug, Default)]
pub(crate) struct ClaimTable {
    next: u64,
    list: Vec<Claim>,
    elders: usize,
    /// What kept and prepared transactions have read and written.
    pub(crate) kept: KeptTable,
}

impl ClaimTable {
    /// True when a commit need not be compared with anything.
    pub(crate) fn is_free(&self) -> bool {
        self.elders == 0
    }

    /// The claims of elders that a younger transaction would violate.
    pub(crate) fn violated(&self, writes: &ConflictSet, age: u64, report: &mut ConflictReport) {
        for claim in self.older_elders(age) {
            for range in writes.iter() {
                for part in claim.set.overlapping(&range) {
                    report.add_with(part, true, || claim.opponent(claim.kind));
                }
                if report.is_full() {
                    return;
                }
            }
        }
        if report.is_empty()
            && let Some((_, claim)) = self.everything(age)
        {
            for range in writes.iter().take(1) {
                report.add_with(range, true, || claim.opponent(ClaimKind::Everything));
            }
        }
    }

    fn older_elders(&self, age: u64) -> impl Iterator<Item = &Claim> {
        let counts = |claim: &Claim| claim.until.is_none_or(|until| Instant::now() <= until);
        let older = move |claim: &Claim| claim.kind == ClaimKind::Elder && claim.age < age;
        self.list.iter().filter(move |claim| older(claim) && counts(claim))
    }

    /// Who claims everything, and until when.
    fn everything(&self, age: u64) -> Option<(Instant, &Claim)> {
        let now = Instant::now();
        self.older_elders(age).find_map(|claim| Some((claim.everything.filter(|until| *until > now)?, claim)))
    }

    fn claim(&mut self, number: u64, ranges: impl Iterator<Item = ConflictRange>) -> ConflictReport {
        let mut report = ConflictReport::default();
        let Some(at) = self.list.iter().position(|claim| claim.number == number) else { return report };
        let eager = self.list[at].kind == ClaimKind::Eager;
        for range in ranges {
            if eager {
                let others = self.list.iter().filter(|claim| claim.number != number);
                for other in others.filter(|claim| claim.kind == ClaimKind::Eager) {
                    for part in other.set.overlapping(&range) {
                        report.add_with(part, true, || other.opponent(other.kind));
                    }
                }
            }
            self.list[at].set.insert(range.space, range.object, range.first, range.last);
        }
        report
    }

    fn get(&mut self, number: u64) -> Option<&mut Claim> {
        self.list.iter_mut().find(|claim| claim.number == number)
    }
}

impl Claim {
    fn opponent(&self, kind: ClaimKind) -> Opponent {
        Opponent::Claim { kind, origin: self.origin.clone() }
    }
}

/// Holds claims until it is dropped. Not to be dropped inside an apply function: it takes the sequencer's lock.
pub struct ClaimHolder {
    shared: Arc<Shared>,
    number: u64,
}

impl Engine {
    /// Begins to claim. `age` decides who is older, a smaller one is; `origin` is whom others are told about.
    pub fn hold(&self, kind: ClaimKind, age: u64, origin: Origin) -> ClaimHolder {
        let claims = &mut self.shared.sequencer.lock().claims;
        let number = claims.next;
        claims.next += 1;
        claims.elders += usize::from(kind == ClaimKind::Elder);
        let set = ConflictSet::new();
        claims.list.push(Claim { number, kind, age, origin, set, everything: None, until: None });
        ClaimHolder { shared: self.shared.clone(), number }
    }
}

impl ClaimHolder {
    /// Claims these ranges as well. Fails with a conflict when the claim is eager and others have claimed some of them.
    pub fn claim(&self, ranges: impl Iterator<Item = ConflictRange>) -> Result<()> {
        let report = self.shared.sequencer.lock().claims.claim(self.number, ranges);
        if report.is_empty() { Ok(()) } else { Err(EngineError::Conflict(Box::new(report))) }
    }

    /// Claims everything there is, for so long.
    pub fn claim_everything(&self, time: Duration) {
        let until = Instant::now().checked_add(time);
        if let Some(claim) = self.shared.sequencer.lock().claims.get(self.number) {
            claim.everything = until;
        }
    }

    /// From now on the claims last for so long.
    pub fn expire_after(&self, time: Duration) {
        let until = Instant::now().checked_add(time);
        if let Some(claim) = self.shared.sequencer.lock().claims.get(self.number) {
            claim.until = until;
        }
    }
}

impl Shared {
    /// Carries out a commit, and again when somebody has claimed everything and has ended.
    pub(crate) fn giving_way<T>(&self, age: Option<u64>, mut commit: impl FnMut() -> Result<T>) -> Result<T> {
        let mut deadline = None;
        loop {
            match commit() {
                Err(EngineError::Conflict(report)) if report.is_about_everything() => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                    if !self.wait_for_elders(age.unwrap_or(0), deadline) {
                        return Err(EngineError::Conflict(report));
                    }
                }
                other => return other,
            }
        }
    }

    /// False when somebody who is older still claims everything.
    fn wait_for_elders(&self, age: u64, deadline: Instant) -> bool {
        let mut sequencer = self.sequencer.lock();
        while let Some((until, _)) = sequencer.claims.everything(age) {
            if Instant::now() >= deadline {
                return false;
            }
            self.claims_ended.wait_until(&mut sequencer, until.min(deadline));
        }
        true
    }
}

impl Drop for ClaimHolder {
    fn drop(&mut self) {
        // What it claimed is given back outside of the lock.
        let _claim = {
            let claims = &mut self.shared.sequencer.lock().claims;
            let at = claims.list.iter().position(|claim| claim.number == self.number);
            at.map(|at| {
                let claim = claims.list.swap_remove(at);
                claims.elders -= usize::from(claim.kind == ClaimKind::Elder);
                claim
            })
        };
        self.shared.claims_ended.notify_all();
    }
}

impl std::fmt::Debug for ClaimHolder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ClaimHolder").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(claims: &[(ClaimKind, u64)]) -> ClaimTable {
        let mut table = ClaimTable::default();
        for (number, &(kind, age)) in claims.iter().enumerate() {
            let (number, set, origin) = (number as u64, ConflictSet::new(), Origin::default());
            table.elders += usize::from(kind == ClaimKind::Elder);
            table.list.push(Claim { number, kind, age, origin, set, everything: None, until: None });
        }
        table
    }

    fn range(first: u64, last: u64) -> ConflictRange {
        ConflictRange { space: 1, object: 1, first, last }
    }

    fn violated(table: &ClaimTable, first: u64, last: u64, age: u64) -> Vec<(u64, u64)> {
        let (mut writes, mut report) = (ConflictSet::new(), ConflictReport::default());
        writes.insert(1, 1, first, last);
        table.violated(&writes, age, &mut report);
        report.clashes.iter().map(|clash| (clash.range.first, clash.range.last)).collect()
    }

    #[test]
    fn eager_claims_exclude_each_other() {
        let mut table = table(&[(ClaimKind::Eager, 1), (ClaimKind::Eager, 2), (ClaimKind::Elder, 3)]);
        assert!(table.claim(0, [range(0, 9)].into_iter()).is_empty());
        assert!(table.claim(0, [range(5, 12)].into_iter()).is_empty(), "its own");
        assert!(table.claim(2, [range(0, 99)].into_iter()).is_empty(), "an elder looks at nobody");
        let report = table.claim(1, [range(12, 20), range(30, 40)].into_iter());
        assert_eq!(report.clashes.iter().map(|clash| clash.range).collect::<Vec<_>>(), [range(12, 12)]);
    }

    #[test]
    fn elders_are_given_way_by_those_who_are_younger() {
        let mut table = table(&[(ClaimKind::Elder, 5), (ClaimKind::Eager, 1)]);
        assert!(!table.is_free());
        table.claim(0, [range(10, 19)].into_iter());
        table.claim(1, [range(0, 99)].into_iter());
        assert_eq!(violated(&table, 0, 12, 6), [(10, 12)]);
        assert_eq!(violated(&table, 0, 9, 6), []);
        assert_eq!(violated(&table, 0, 99, 5), [], "its own");
        assert_eq!(violated(&table, 0, 99, 4), [], "older");
        table.list[0].everything = Some(Instant::now() + Duration::from_secs(100));
        assert_eq!(violated(&table, 0, 3, 6), [(0, 3)]);
        assert_eq!(violated(&table, 0, 12, 6), [(10, 12)], "that is worse");
        table.list[0].until = Some(Instant::now() - Duration::from_millis(1));
        assert_eq!(violated(&table, 0, 3, 6), [], "over");
    }
}
