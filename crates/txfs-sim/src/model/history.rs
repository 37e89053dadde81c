//! The commits of a volume's life in order, and the transactions that are open on it.
//!
//! The model does not predict conflicts. It takes the volume's verdict and judges it: a commit must still mean the
//! same when its operations are run again on the current state (that is what serializable says); a refusal must be
//! due to something that a commit since the snapshot wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::footprint::{Footprint, Group, Touch};
use super::kept::{self, ModelKept};
use super::lost_update::changed_by_both;
use super::tree::Tree;
use super::{named, undo};
use crate::compare::{grew_by_zeros, still_holds};
use crate::operation::{Ino, Name, Operation, Outcome};

/// One commit, or the state that a recovered volume started with.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The state after it.
    pub tree: Arc<Tree>,
    /// Digest of the state's dump.
    pub digest: u64,
    /// Kept and prepared transactions, by name.
    pub kept: Arc<Vec<ModelKept>>,
    /// Named snapshots, and digests of the trees that they show.
    pub named: Arc<BTreeMap<String, u64>>,
    /// What it touched.
    pub footprint: Arc<Footprint>,
    /// The step of the scenario that made it.
    pub step: usize,
    /// Its number in the volume, if the volume was asked to record it.
    pub recorded: Option<u64>,
}

/// A transaction as the model sees it.
#[derive(Clone, Debug)]
pub struct ModelTransaction {
    /// Its snapshot with its own changes.
    pub view: Tree,
    /// Number of commits that its snapshot covers.
    snapshot: usize,
    /// What it did, with what came of it.
    operations: Vec<Ran>,
    footprint: Footprint,
    /// Its reads are validated, too.
    serializable: bool,
    /// The volume is asked to record its commit.
    recorded: bool,
    /// Names that it has changed.
    touched: BTreeSet<(Ino, Name)>,
    /// Its view, and how much it had done, at each of its savepoints.
    savepoints: Vec<(Tree, usize)>,
    let_through: Option<LetThrough>,
}

/// What the last operation that was carried out says: a doomed transaction fails at its next operation, so no commit up to
/// then was in the way of what came before it.
#[derive(Clone, Debug)]
struct LetThrough {
    /// Index of the newest commit when it began.
    newest: usize,
    /// The transaction's view before it.
    before: Tree,
    /// What it touched itself.
    own: Footprint,
}

/// An operation of a transaction, and what came of it.
#[derive(Clone, Debug)]
struct Ran {
    operation: Operation,
    outcome: Outcome,
    /// What a copy has read.
    copied: Vec<u8>,
}

/// The names that an operation changes.
fn names_of(operation: &Operation) -> impl Iterator<Item = (Ino, &Name)> {
    use Operation as O;
    let (first, second) = match operation {
        O::MakeFile { parent, name, .. }
        | O::MakeDirectory { parent, name, .. }
        | O::MakeSymlink { parent, name, .. }
        | O::MakeFifo { parent, name, .. }
        | O::Unlink { parent, name }
        | O::RemoveDirectory { parent, name }
        | O::Link { parent, name, .. } => (Some((*parent, name)), None),
        O::Rename { parent, name, new_parent, new_name, .. } => {
            (Some((*parent, name)), Some((*new_parent, new_name)))
        }
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

impl Committed {
    /// Digest of the state with its kept transactions and named snapshots.
    pub fn state_digest(&self) -> u64 {
        let seen = |kept: &ModelKept| (kept.name.clone(), kept.prepared, kept.conflicted);
        let seen: Vec<kept::Seen> = self.kept.iter().map(seen).collect();
        named::state_digest(kept::state_digest(self.digest, kept::digest(&seen)), &self.named)
    }
}

impl ModelTransaction {
    /// All that it touched.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// The volume has carried out an operation while `newest` was the newest commit. To be told before `run`.
    pub fn was_let_through(&mut self, operation: &Operation, actual: &Outcome, newest: usize) {
        let own = Footprint::of(operation, &self.view, actual);
        self.let_through = Some(LetThrough { newest, before: self.view.clone(), own });
    }

    /// Runs an operation in the transaction and returns what should come of it.
    pub fn run(&mut self, operation: &Operation, actual: &Outcome) -> Outcome {
        let touched = Footprint::of(operation, &self.view, actual);
        if !self.serializable && self.view.renames_nothing(operation) {
            return Outcome::Done;
        }
        let copied = self.view.source_of(operation);
        let expected = self.view.run(operation, actual.ino());
        let copied_nothing =
            matches!((operation, &expected), (Operation::CopyRange { .. }, Outcome::Number(0)));
        if !self.serializable && copied_nothing {
            return expected;
        }
        if self.serializable || operation.mutates() {
            self.footprint.add(touched);
        }
        self.touched.extend(names_of(operation).map(|(parent, name)| (parent, name.clone())));
        self.operations.push(Ran { operation: operation.clone(), outcome: expected.clone(), copied });
        expected
    }

    /// An operation failed for reasons outside the model; it may still count as having looked.
    pub fn note_attempt(&mut self, operation: &Operation) {
        self.footprint.add(Footprint::of(operation, &self.view, &Outcome::Failed(libc::EIO)));
    }

    /// True when it validates its reads.
    pub fn is_serializable(&self) -> bool {
        self.serializable
    }

    /// True when the operation changes a name that it has changed before. What a transaction does in between leaves
    /// no trace, so without validated reads nobody can tell what the same operations would do later.
    pub fn changes_again(&self, operation: &Operation) -> bool {
        names_of(operation).any(|(parent, name)| self.touched.contains(&(parent, name.clone())))
    }

    /// Marks the present moment.
    pub fn save(&mut self) {
        self.savepoints.push((self.view.clone(), self.operations.len()));
    }

    /// Goes back to a savepoint; later ones are gone. What was read in between may still make it conflict.
    pub fn roll_back(&mut self, savepoint: usize) {
        self.savepoints.truncate(savepoint + 1);
        if let Some((view, len)) = self.savepoints.last() {
            self.view = view.clone();
            self.operations.truncate(*len);
            // What it had undone since may be back, and nobody has looked at that yet.
            self.let_through = None;
        }
    }

    /// Number of its savepoints.
    pub fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Number of operations so far.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True before the first operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }
}

/// The commits so far, and what may have survived a power cut.
#[derive(Clone, Debug)]
pub struct History {
    commits: Vec<Committed>,
    /// Index of the last commit that the volume acknowledged as durable.
    durable: usize,
    /// Index of the last commit that the volume has handed to the host: it survives the death of the process.
    handed: usize,
    retained: BTreeSet<Ino>,
}

impl Default for History {
    fn default() -> Self {
        Self::starting_with(Tree::new())
    }
}

impl History {
    /// A volume that has just been made or recovered with this content, all of it durable.
    pub fn starting_with(tree: Tree) -> Self {
        let digest = tree.dump().digest();
        let first = Committed {
            tree: Arc::new(tree),
            digest,
            kept: Arc::default(),
            named: Arc::default(),
            footprint: Arc::new(Footprint::default()),
            step: 0,
            recorded: None,
        };
        History { commits: vec![first], durable: 0, handed: 0, retained: BTreeSet::new() }
    }

    /// The state that everyone sees now.
    pub fn current(&self) -> &Tree {
        &self.commits[self.commits.len() - 1].tree
    }

    /// All commits; the first is the state at the start.
    pub fn commits(&self) -> &[Committed] {
        &self.commits
    }

    /// Index of the newest commit.
    pub fn newest(&self) -> usize {
        self.commits.len() - 1
    }

    /// Index of the newest commit known to be durable.
    pub fn durable(&self) -> usize {
        self.durable
    }

    /// Index of the newest commit that the death of the process cannot undo.
    pub fn handed(&self) -> usize {
        self.handed
    }

    /// Everything so far was acknowledged as durable.
    pub fn mark_durable(&mut self) {
        self.durable = self.newest();
        self.handed = self.newest();
    }

    /// Everything so far was handed to the host.
    pub fn mark_handed(&mut self) {
        self.handed = self.newest();
    }

    /// The history of a volume that was recovered with the state after commit `index`: what came later never was,
    /// and nobody holds inodes any more. `durable` says how much another power cut cannot undo.
    pub fn recovered(&self, index: usize, durable: usize) -> History {
        let mut history = History {
            commits: self.commits[..=index].to_vec(),
            durable: durable.min(index),
            handed: durable.min(index),
            retained: BTreeSet::new(),
        };
        let mut tree = history.current().clone();
        tree.reclaim(&history.retained);
        history.commits[index].tree = Arc::new(tree);
        history
    }

    /// What should come of an operation outside transactions, without doing it.
    pub fn expect(&self, operation: &Operation, actual: &Outcome) -> Outcome {
        self.current().clone().run(operation, actual.ino())
    }

    /// The kernel holds this inode: it outlives its last name.
    pub fn retain(&mut self, ino: Ino) {
        self.retained.insert(ino);
    }

    /// The kernel lets go of it.
    pub fn release(&mut self, ino: Ino) {
        self.retained.remove(&ino);
        let newest = self.commits.len() - 1;
        let mut tree = self.current().clone();
        tree.reclaim(&self.retained);
        self.commits[newest].tree = Arc::new(tree);
    }

    /// Inodes that the kernel holds.
    pub fn retained(&self) -> &BTreeSet<Ino> {
        &self.retained
    }

    pub(super) fn push(&mut self, mut tree: Tree, footprint: Footprint, step: usize) {
        tree.reclaim(&self.retained);
        let digest = tree.dump().digest();
        let (tree, footprint) = (Arc::new(tree), Arc::new(footprint));
        let Committed { kept, named, .. } = &self.commits[self.newest()];
        let (kept, named) = (kept.clone(), named.clone());
        self.commits.push(Committed { tree, digest, kept, named, footprint, step, recorded: None });
    }

    /// The kept and prepared transactions of the present state, by name.
    pub fn kept(&self) -> &[ModelKept] {
        &self.commits[self.newest()].kept
    }

    /// The named snapshots of the present state.
    pub fn named(&self) -> &BTreeMap<String, u64> {
        &self.commits[self.newest()].named
    }

    /// A commit that changes nothing but these.
    pub(super) fn push_named(&mut self, named: BTreeMap<String, u64>, step: usize) {
        self.push(self.current().clone(), Footprint::default(), step);
        let newest = self.newest();
        self.commits[newest].named = Arc::new(named);
    }

    /// A commit that changes nothing but these.
    pub(super) fn push_kept(&mut self, kept: Vec<ModelKept>, step: usize) {
        self.push(self.current().clone(), Footprint::default(), step);
        self.set_kept(kept);
    }

    /// The newest commit has changed these as well.
    pub(super) fn set_kept(&mut self, kept: Vec<ModelKept>) {
        let newest = self.newest();
        self.commits[newest].kept = Arc::new(kept);
    }

    /// What a transaction has begun with.
    pub fn snapshot_of(&self, transaction: &ModelTransaction) -> &Tree {
        &self.commits[transaction.snapshot].tree
    }

    /// What was committed since a transaction's snapshot.
    pub fn changes_since(&self, transaction: &ModelTransaction) -> Footprint {
        let mut all = Footprint::default();
        for commit in &self.commits[transaction.snapshot + 1..] {
            all.add((*commit.footprint).clone());
        }
        all
    }

    /// The volume has given a commit this number. A lost one that nobody missed, since it made no difference, may have had
    /// it before.
    fn take_number(&mut self, sequence: u64) {
        for commit in &mut self.commits {
            if commit.recorded.is_some_and(|known| known >= sequence) {
                commit.recorded = None;
            }
        }
    }

    /// The volume has recorded the newest commit under this number.
    fn record(&mut self, sequence: u64) {
        // One that changed nothing has the number of what it saw.
        if self.commits[self.newest() - 1].digest == self.commits[self.newest()].digest {
            return;
        }
        let newest = self.newest();
        self.commits[newest].recorded = Some(sequence);
    }

    /// Commits that can be undone as far as the model knows: their indexes, the newest last.
    pub fn recorded(&self) -> Vec<usize> {
        (1..self.commits.len()).filter(|index| self.commits[*index].recorded.is_some()).collect()
    }

    /// The volume has undone commit `index`, in one that it recorded under `sequence`.
    pub fn undone(&mut self, index: usize, sequence: u64, step: usize) -> Result<(), String> {
        let (before, after) = (&self.commits[index - 1].tree, &self.commits[index].tree);
        let tree = undo::undo(before, after, self.current())
            .map_err(|what| format!("commit {index} was undone, although {what}"))?;
        let footprint = undo::footprint(&self.commits[index].footprint);
        let changes = tree.dump().digest() != self.commits[self.newest()].digest;
        self.take_number(sequence);
        if changes {
            self.push(tree, footprint, step);
            self.record(sequence);
        }
        Ok(())
    }

    /// The volume refused to undo commit `index`. Fails when nothing since could be in the way.
    pub fn check_not_undone(&self, index: usize) -> Result<(), String> {
        let undone = &self.commits[index].footprint;
        if self.commits[index + 1..].iter().any(|since| undo::meet(undone, &since.footprint)) {
            return Ok(());
        }
        Err(format!(
            "commit {index} was not undone, although nothing since ({} commits) has touched the same; it touched {undone:?}",
            self.newest() - index
        ))
    }

    /// Runs an operation outside transactions: a commit of its own if it changes something. Returns what should
    /// come of it.
    pub fn run(&mut self, operation: &Operation, actual: &Outcome, step: usize) -> Outcome {
        if !operation.mutates() {
            return self.current().clone().run(operation, None);
        }
        let touched = Footprint::of(operation, self.current(), actual);
        let mut tree = self.current().clone();
        let expected = tree.run(operation, actual.ino());
        if expected.errno().is_none() {
            self.push(tree, touched, step);
        }
        expected
    }

    /// Opens a transaction on the current state.
    pub fn begin(&self, serializable: bool, recorded: bool) -> ModelTransaction {
        ModelTransaction {
            view: self.current().clone(),
            snapshot: self.newest(),
            operations: Vec::new(),
            footprint: Footprint::default(),
            serializable,
            recorded,
            touched: BTreeSet::new(),
            savepoints: Vec::new(),
            let_through: None,
        }
    }

    /// The volume committed the transaction. Fails when it should have been refused.
    pub fn commit(
        &mut self,
        transaction: ModelTransaction,
        step: usize,
        sequence: u64,
    ) -> Result<(), String> {
        let recorded = transaction.recorded;
        if recorded {
            self.take_number(sequence);
        }
        let snapshot = &self.commits[transaction.snapshot].tree;
        if let Some(what) = changed_by_both(snapshot, &transaction.view, self.current()) {
            return Err(format!(
                "committed although {what} had been changed by another transaction since its snapshot"
            ));
        }
        let left_as_it_was = transaction.view.dump().digest() == self.commits[transaction.snapshot].digest;
        match self.replay(transaction) {
            // What changes nothing in the end may as well have run when its snapshot was taken.
            Err(_) if left_as_it_was => Ok(()),
            Err(problem) => Err(problem),
            Ok(None) => Ok(()),
            Ok(Some((tree, _)))
                if left_as_it_was && tree.dump().digest() != self.commits[self.newest()].digest =>
            {
                Ok(())
            }
            Ok(Some((tree, footprint))) => {
                self.push(tree, footprint, step);
                if recorded {
                    self.record(sequence);
                }
                Ok(())
            }
        }
    }

    /// Runs a transaction again on the current state; the result if it changes something.
    fn replay(&self, transaction: ModelTransaction) -> Result<Option<(Tree, Footprint)>, String> {
        let mut tree = self.current().clone();
        let mut footprint = Footprint::default();
        let mut changed = false;
        for Ran { operation, outcome: seen, copied } in &transaction.operations {
            let succeeded = seen.errno().is_none();
            if !(transaction.serializable || operation.mutates() && succeeded) {
                continue;
            }
            let touched = Footprint::of(operation, &tree, seen);
            if transaction.serializable && !grew_by_zeros(copied, &tree.source_of(operation)) {
                return Err(format!(
                    "committed although it should have conflicted: {operation:?} read something that changed"
                ));
            }
            let replayed = match operation {
                Operation::Append { .. } if transaction.serializable => tree.run(operation, seen.ino()),
                _ => tree.run_with_old_reads(operation, seen, copied),
            };
            if !still_holds(operation, seen, &replayed) {
                return Err(format!(
                    "committed although it should have conflicted: {operation:?} returned {seen:?} in the \
                     transaction and returns {replayed:?} when the transaction runs after all others"
                ));
            }
            if operation.mutates() && succeeded {
                changed = true;
                footprint.add(touched);
            }
        }
        Ok(changed.then_some((tree, footprint)))
    }

    /// The volume refused the transaction. Fails when nothing since its snapshot could have been in its way.
    pub fn check_refusal(
        &self,
        transaction: &ModelTransaction,
        next: Option<&Operation>,
    ) -> Result<(), String> {
        let mut footprint = transaction.footprint.clone();
        if let Some(operation) = next {
            footprint.add(Footprint::of(operation, &transaction.view, &Outcome::Done));
        }
        let since = &self.commits[transaction.snapshot + 1..];
        if since.iter().any(|commit| footprint.may_conflict_with(&commit.footprint)) {
            return Ok(());
        }
        Err(format!(
            "refused although no commit since its snapshot ({} of them) overlaps it; it touched {footprint:?}",
            since.len()
        ))
    }

    /// The volume refused to commit the transaction. Fails when it should not have, or when it should have found that out
    /// at an operation before.
    pub fn check_late_refusal(&self, transaction: &ModelTransaction) -> Result<(), String> {
        self.check_refusal(transaction, None)?;
        let Some(last) = &transaction.let_through else { return Ok(()) };
        if last.before.dump().digest() == self.commits[transaction.snapshot].digest {
            // It had changed nothing yet.
            return Ok(());
        }
        let meets = |footprint: &Footprint, since: usize| {
            self.commits[since + 1..].iter().any(|commit| footprint.may_conflict_with(&commit.footprint))
        };
        if meets(&transaction.footprint, last.newest) || meets(&last.own, transaction.snapshot) {
            return Ok(());
        }
        // It took what seemed the last name of a node, and others had given that another one: whether the data is needed
        // that it then left out is only known when it is applied.
        let mut links = Footprint::default();
        let is_links = |touch: &&Touch| matches!(touch, Touch::Attribute { group: Group::Links, .. });
        links.reads.extend(transaction.footprint.reads.iter().filter(is_links).cloned());
        if meets(&links, transaction.snapshot) {
            return Ok(());
        }
        Err(format!(
            "refused for what was committed before its last operation began (commits {} to {}), which should have \
             failed then; that one touched {:?}",
            transaction.snapshot + 1,
            last.newest,
            last.own
        ))
    }

    /// The newest state between `oldest` and `newest` (indexes of commits, inclusive) that has this digest.
    pub fn find(&self, digest: u64, oldest: usize, newest: usize) -> Option<usize> {
        let newest = newest.min(self.newest());
        (oldest..=newest).rev().find(|index| self.commits[*index].state_digest() == digest)
    }
}
