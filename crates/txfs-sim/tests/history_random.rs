//! The checker of histories itself, with random ones: of a small database in memory that is right, which must pass, and
//! of the same database broken in one way, or with one read changed afterwards, which must be found out.

use std::collections::{BTreeMap, BTreeSet};

use txfs_sim::history::{
    ABSENT, Action, Class, History, Item, Kind, Level, Outcome, Record, Report, Value, check,
};

/// How the database is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Reads are not validated: snapshot isolation.
    ReadsUnchecked,
    /// Listings are not validated.
    ListingsUnchecked,
    /// Neither reads nor writes are validated.
    WritesUnchecked,
    /// Reads see the newest commit, not the snapshot.
    ReadsNewest,
    /// Reads see what others have not committed yet.
    ReadsUncommitted,
    /// A transaction does not see its own writes.
    ForgetsOwn,
    /// Sometimes a snapshot is one commit older than it could be.
    OldSnapshot,
}

struct Open {
    record: Record,
    snapshot: u64,
    reads: BTreeSet<Item>,
    lists: BTreeSet<u64>,
    writes: BTreeMap<Item, Value>,
}

/// Many versions of each item: sequence number and value, ascending.
struct Database {
    fault: Fault,
    versions: BTreeMap<Item, Vec<(u64, Value)>>,
    sequence: u64,
    clock: u64,
    next_value: u64,
    open: Vec<Open>,
    records: Vec<Record>,
}

const DIRECTORIES: u64 = 2;
const NAMES: u64 = 4;

fn any_item(random: &mut fastrand::Rng) -> Item {
    match random.u8(0..3) {
        0 => Item::new(Kind::Name, random.u64(0..DIRECTORIES), random.u64(0..NAMES)),
        1 => Item::new(Kind::Page, 1, random.u64(0..4)),
        _ => Item::new(Kind::Permissions, random.u64(0..3), 0),
    }
}

impl Database {
    fn at(&self, item: Item, snapshot: u64) -> Value {
        let versions = self.versions.get(&item).map_or(&[][..], Vec::as_slice);
        versions.iter().rev().find(|(sequence, _)| *sequence <= snapshot).map_or(ABSENT, |(_, value)| *value)
    }

    fn changed_since(&self, item: Item, snapshot: u64) -> bool {
        self.versions.get(&item).and_then(|all| all.last()).is_some_and(|(sequence, _)| *sequence > snapshot)
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn begin(&mut self, random: &mut fastrand::Rng) {
        let began = self.now();
        let old = self.fault == Fault::OldSnapshot && random.u8(0..4) == 0;
        let snapshot = self.sequence.saturating_sub(u64::from(old));
        let record = Record {
            process: self.open.len() as u32,
            began,
            seen: self.now(),
            committing: 0,
            ended: 0,
            snapshot: Some(snapshot),
            outcome: Outcome::Aborted,
            actions: Vec::new(),
        };
        let (reads, lists, writes) = Default::default();
        self.open.push(Open { record, snapshot, reads, lists, writes });
    }

    fn value_for(&self, open: &Open, item: Item) -> Value {
        if self.fault != Fault::ForgetsOwn
            && let Some(value) = open.writes.get(&item)
        {
            return *value;
        }
        if self.fault == Fault::ReadsUncommitted
            && let Some(value) = self.open.iter().find_map(|other| other.writes.get(&item))
        {
            return *value;
        }
        let newest = self.fault == Fault::ReadsNewest;
        self.at(item, if newest { self.sequence } else { open.snapshot })
    }

    fn step(&mut self, index: usize, random: &mut fastrand::Rng) {
        let mut open = self.open.swap_remove(index);
        match random.u8(0..10) {
            0..=3 => {
                let item = any_item(random);
                let value = self.value_for(&open, item);
                open.record.actions.push(Action::Read(item, value));
                open.reads.insert(item);
            }
            4..=6 => {
                let item = any_item(random);
                self.next_value += 1;
                let removes = item.kind == Kind::Name && random.bool();
                let value = if removes { ABSENT } else { self.next_value };
                open.record.actions.push(Action::Write(item, value));
                open.writes.insert(item, value);
            }
            7 => {
                let directory = random.u64(0..DIRECTORIES);
                let names = (0..NAMES).map(|name| (name, Item::new(Kind::Name, directory, name)));
                let found = names.map(|(name, item)| (name, self.value_for(&open, item)));
                let found: Vec<_> = found.filter(|(_, value)| *value != ABSENT).collect();
                open.record.actions.push(Action::List(Kind::Name, directory, found.into()));
                open.lists.insert(directory);
            }
            end => return self.end(open, end == 9 && random.bool()),
        }
        self.open.push(open);
    }

    fn end(&mut self, mut open: Open, gives_up: bool) {
        open.record.committing = self.now();
        let since = open.snapshot;
        let mut conflict = false;
        if self.fault != Fault::WritesUnchecked {
            conflict |= open.writes.keys().any(|&item| self.changed_since(item, since));
            if self.fault != Fault::ReadsUnchecked && !open.writes.is_empty() {
                conflict |= open.reads.iter().any(|&item| self.changed_since(item, since));
                if self.fault != Fault::ListingsUnchecked {
                    let mut names = open.lists.iter().flat_map(|&directory| {
                        (0..NAMES).map(move |name| Item::new(Kind::Name, directory, name))
                    });
                    conflict |= names.any(|item| self.changed_since(item, since));
                }
            }
        }
        if !conflict && !gives_up {
            let sequence = match open.writes.is_empty() {
                true => open.snapshot,
                false => {
                    self.sequence += 1;
                    self.sequence
                }
            };
            for (item, value) in open.writes {
                self.versions.entry(item).or_default().push((sequence, value));
            }
            open.record.outcome = Outcome::Committed(Some(sequence));
        }
        open.record.ended = self.now();
        self.records.push(open.record);
    }
}

/// What the checker is told.
#[derive(Clone, Copy, Debug)]
enum Told {
    Everything,
    /// No snapshots: as on a mount.
    Commits,
    /// No sequence numbers at all: the clock and the values.
    Times,
}

fn history(seed: u64, fault: Fault, clients: usize, transactions: usize) -> History {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut database = Database {
        fault,
        versions: BTreeMap::new(),
        sequence: 0,
        clock: 0,
        next_value: 0,
        open: Vec::new(),
        records: Vec::new(),
    };
    while database.records.len() < transactions {
        if database.open.len() < clients {
            database.begin(&mut random);
        }
        let index = random.usize(0..database.open.len());
        database.step(index, &mut random);
    }
    // What is still open aborts: its values are nobody's but its own.
    let left: Vec<Open> = database.open.drain(..).collect();
    left.into_iter().for_each(|open| database.end(open, true));
    History { records: database.records }
}

fn told(history: &History, told: Told) -> History {
    let mut history = history.clone();
    for record in &mut history.records {
        if !matches!(told, Told::Everything) {
            record.snapshot = None;
        }
        if matches!((told, record.outcome), (Told::Times, Outcome::Committed(_))) {
            record.outcome = Outcome::Committed(None);
        }
    }
    history
}

const TOLD: [Told; 3] = [Told::Everything, Told::Commits, Told::Times];

#[track_caller]
fn must_be_good(report: &Report, what: &str) {
    assert!(report.is_good(), "{what}: {}", report.anomalies[0]);
}

#[test]
fn correct_histories_pass() {
    for seed in 0..60 {
        for clients in [1, 3, 8] {
            let history = history(seed, Fault::None, clients, 300);
            for what in TOLD {
                let report = check(&told(&history, what), Level::Serializable);
                must_be_good(&report, &format!("seed {seed}, {clients} clients, {what:?}"));
            }
        }
    }
}

#[test]
fn snapshot_isolation_has_write_skew_and_phantoms_and_nothing_else() {
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        let history = history(seed, Fault::ReadsUnchecked, 6, 300);
        for what in TOLD {
            let report = check(&told(&history, what), Level::Snapshot);
            must_be_good(&report, &format!("seed {seed}, {what:?}"));
            seen.extend(report.permitted.iter().map(|anomaly| anomaly.class));
            assert!(!check(&told(&history, what), Level::Serializable).is_good(), "seed {seed}, {what:?}");
        }
    }
    assert_eq!(seen, [Class::WriteSkew, Class::Phantom].into());
}

/// Every broken database is caught, whatever the checker is told, and by the anomaly that it has.
#[test]
fn broken_databases_are_caught() {
    for (fault, level, expected) in [
        (Fault::ReadsUnchecked, Level::Serializable, Class::WriteSkew),
        (Fault::ListingsUnchecked, Level::Serializable, Class::Phantom),
        (Fault::WritesUnchecked, Level::Snapshot, Class::LostUpdate),
        (Fault::ReadsNewest, Level::Snapshot, Class::ReadSkew),
        (Fault::ReadsUncommitted, Level::Snapshot, Class::AbortedRead),
        (Fault::ReadsUncommitted, Level::Snapshot, Class::IntermediateRead),
        (Fault::ForgetsOwn, Level::Snapshot, Class::Internal),
        (Fault::OldSnapshot, Level::Snapshot, Class::ReadSkew),
    ] {
        for what in TOLD {
            let mut classes = BTreeSet::new();
            for seed in 0..12 {
                let report = check(&told(&history(seed, fault, 6, 400), what), level);
                assert!(!report.is_good(), "{fault:?}, {what:?}, seed {seed}");
                classes.extend(report.classes().into_keys());
            }
            assert!(classes.contains(&expected), "{fault:?}, {what:?}: only {classes:?}");
        }
    }
}

/// All reads of a history that are not of the transaction's own writes: record, action, item and value.
fn external_reads(history: &History) -> Vec<(usize, usize, Item, Value)> {
    let mut found = Vec::new();
    for (index, record) in history.records.iter().enumerate() {
        let mut own = BTreeSet::new();
        for (at, action) in record.actions.iter().enumerate() {
            match action {
                Action::Write(item, _) => {
                    own.insert(*item);
                }
                Action::Read(item, value) if !own.contains(item) => found.push((index, at, *item, *value)),
                _ => {}
            }
        }
    }
    found
}

/// One transaction after the other, one read afterwards replaced by another version of the same item: whatever it is,
/// and however little the checker is told, it is found.
#[test]
fn one_changed_read_of_a_serial_history_is_found() {
    let mut random = fastrand::Rng::with_seed(5);
    for seed in 0..40 {
        let good = history(seed, Fault::None, 1, 120);
        for what in TOLD {
            must_be_good(&check(&told(&good, what), Level::Serializable), "a serial history");
        }
        let reads = external_reads(&good);
        let mut written: BTreeMap<Item, BTreeSet<Value>> = BTreeMap::new();
        for record in good.records.iter().filter(|record| record.is_committed()) {
            for (item, left) in record.installed() {
                written.entry(item).or_insert_with(|| [ABSENT].into()).insert(left.value);
            }
        }
        for _ in 0..20 {
            let (index, at, item, value) = reads[random.usize(0..reads.len())];
            let others: Vec<Value> =
                written.get(&item).into_iter().flatten().copied().filter(|other| *other != value).collect();
            if others.is_empty() {
                continue;
            }
            let mut bad = good.clone();
            let wrong = others[random.usize(0..others.len())];
            bad.records[index].actions[at] = Action::Read(item, wrong);
            for what in TOLD {
                let report = check(&told(&bad, what), Level::Serializable);
                assert!(
                    !report.is_good(),
                    "seed {seed}, {what:?}: T{index} reads {wrong} of {item} instead of {value}"
                );
            }
        }
    }
}

/// With many at once a changed read can be harmless (another moment would have done as well), but not where the
/// snapshot is known.
#[test]
fn one_changed_read_of_a_concurrent_history_is_found_where_the_snapshot_is_known() {
    let mut random = fastrand::Rng::with_seed(6);
    for seed in 0..20 {
        let good = history(seed, Fault::None, 6, 200);
        let reads = external_reads(&good);
        for _ in 0..20 {
            let (index, at, item, value) = reads[random.usize(0..reads.len())];
            let (_, _, other, wrong) = reads[random.usize(0..reads.len())];
            if other != item || wrong == value {
                continue;
            }
            let mut bad = good.clone();
            bad.records[index].actions[at] = Action::Read(item, wrong);
            assert!(!check(&bad, Level::Snapshot).is_good(), "seed {seed}: T{index} reads {wrong} of {item}");
        }
    }
}

#[test]
fn a_hundred_thousand_transactions_take_seconds() {
    let history = history(1, Fault::None, 8, 100_000);
    let began = std::time::Instant::now();
    let report = check(&history, Level::Serializable);
    must_be_good(&report, "a large history");
    println!("{} transactions, {} edges: {:?}", report.transactions, report.edges, began.elapsed());
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}
