//! The checker of histories itself: histories written by hand, each with one anomaly that has to be named, and their
//! harmless neighbours.

use txfs_sim::history::{
    ABSENT, Action, Class, History, Item, Kind, Level, Outcome, Record, Report, UNKNOWN, check,
};

const X: Item = Item { kind: Kind::Page, object: 1, member: 0 };
const Y: Item = Item { kind: Kind::Page, object: 1, member: 1 };
const Z: Item = Item { kind: Kind::Xattr, object: 2, member: 0 };

fn r(item: Item, value: u64) -> Action {
    Action::Read(item, value)
}

fn w(item: Item, value: u64) -> Action {
    Action::Write(item, value)
}

/// A transaction from `began` to `ended`, without sequence numbers; when in between its snapshot was taken and its
/// commit was called is as little known as it can be.
fn transaction(began: u64, ended: u64, actions: &[Action]) -> Record {
    Record {
        process: 0,
        began,
        seen: ended - 1,
        committing: began + 1,
        ended,
        snapshot: None,
        outcome: Outcome::Committed(None),
        actions: actions.to_vec(),
    }
}

/// One of several that all run at the same time, so that only its numbers order it.
fn numbered(snapshot: u64, sequence: u64, actions: &[Action]) -> Record {
    Record {
        snapshot: Some(snapshot),
        outcome: Outcome::Committed(Some(sequence)),
        ..transaction(100, 200, actions)
    }
}

/// As `numbered`, but the checker is not told the snapshot: what is wrong must show in a cycle.
fn ordered(sequence: u64, actions: &[Action]) -> Record {
    Record { snapshot: None, ..numbered(0, sequence, actions) }
}

fn aborted(actions: &[Action]) -> Record {
    Record { outcome: Outcome::Aborted, ..transaction(100, 200, actions) }
}

fn of(records: &[Record], level: Level) -> Report {
    check(&History { records: records.to_vec() }, level)
}

/// Both levels must refuse it, for this reason (and perhaps others).
#[track_caller]
fn refused(class: Class, records: &[Record]) {
    for level in [Level::Serializable, Level::Snapshot] {
        let report = of(records, level);
        let classes = report.classes();
        assert!(classes.contains_key(&class), "{level:?}: {class:?} is not among {:?}", report.anomalies);
    }
}

/// Serializability refuses it for this reason alone, snapshot isolation permits it.
#[track_caller]
fn refused_by_serializability_only(class: Class, records: &[Record]) {
    let report = of(records, Level::Serializable);
    assert_eq!(report.classes().into_keys().collect::<Vec<_>>(), [class], "{:?}", report.anomalies);
    let report = of(records, Level::Snapshot);
    assert!(report.is_good(), "{:?}", report.anomalies);
    assert!(report.permitted.iter().any(|anomaly| anomaly.class == class));
}

#[track_caller]
fn good(records: &[Record]) {
    for level in [Level::Serializable, Level::Snapshot] {
        let report = of(records, level);
        assert!(report.is_good() && report.permitted.is_empty(), "{:?}", report);
    }
}

#[test]
fn one_after_the_other_is_good() {
    good(&[]);
    good(&[transaction(1, 5, &[])]);
    good(&[
        transaction(1, 5, &[w(X, 1), w(Y, 2)]),
        transaction(10, 15, &[r(X, 1), w(X, 3), r(X, 3), w(X, 4)]),
        transaction(20, 25, &[r(X, 4), r(Y, 2), r(Z, ABSENT)]),
    ]);
    good(&[
        numbered(0, 1, &[w(X, 1), w(Y, 2)]),
        numbered(1, 2, &[r(X, 1), w(X, 3)]),
        // It began before that commit, and may not see it.
        numbered(1, 3, &[r(X, 1), r(Y, 2), w(Z, 7)]),
        numbered(2, 4, &[r(X, 3), w(Y, 9)]),
    ]);
}

#[test]
fn dirty_writes_are_g0() {
    // X: first 1, then 2. Y: first 4, then 3. Told by who overwrote what it had read.
    refused(
        Class::DirtyWrite,
        &[
            transaction(100, 200, &[r(Y, 4), w(X, 1), w(Y, 3)]),
            transaction(100, 200, &[r(X, 1), w(X, 2), w(Y, 4)]),
        ],
    );
    // Told by the sequence numbers on the one hand, by the clock on the other.
    let later = |record: Record| Record { began: 300, seen: 300, committing: 390, ended: 400, ..record };
    let contradiction = [ordered(2, &[w(X, 1)]), later(ordered(1, &[w(X, 2)]))];
    refused(Class::DirtyWrite, &contradiction);
    refused(Class::SequenceOrder, &contradiction);
    good(&[ordered(1, &[w(X, 1)]), later(ordered(2, &[w(X, 2)]))]);
}

#[test]
fn reads_of_aborted_writes_are_g1a() {
    refused(Class::AbortedRead, &[aborted(&[w(X, 1)]), transaction(100, 200, &[r(X, 1)])]);
    refused(Class::AbortedRead, &[aborted(&[w(X, 1)]), aborted(&[r(X, 1)])]);
    good(&[aborted(&[w(X, 1), r(X, 1)]), transaction(100, 200, &[r(X, ABSENT)])]);
}

#[test]
fn reads_of_intermediate_writes_are_g1b() {
    let writer = transaction(100, 200, &[w(X, 1), w(X, 2)]);
    refused(Class::IntermediateRead, &[writer.clone(), transaction(100, 200, &[r(X, 1)])]);
    good(&[writer, transaction(100, 200, &[r(X, 2)])]);
}

#[test]
fn values_from_nowhere_are_found() {
    refused(Class::UnwrittenRead, &[transaction(1, 5, &[w(X, 1)]), transaction(10, 20, &[r(X, 7)])]);
    let listed = Action::List(Kind::Xattr, 2, [(0, 9)].into());
    refused(Class::UnwrittenRead, &[transaction(1, 5, &[w(Z, 1)]), transaction(10, 20, &[listed])]);
}

#[test]
fn a_transaction_must_see_its_own_writes() {
    refused(Class::Internal, &[transaction(1, 5, &[w(X, 1), r(X, ABSENT)])]);
    refused(Class::Internal, &[transaction(1, 5, &[w(X, 1), w(X, 2), r(X, 1)])]);
    refused(Class::Internal, &[transaction(1, 5, &[r(X, 1), w(X, 1)])]);
    let nothing = Action::List(Kind::Xattr, 2, [].into());
    let something = Action::List(Kind::Xattr, 2, [(0, UNKNOWN)].into());
    refused(Class::Internal, &[transaction(1, 5, &[w(Z, 1), nothing.clone()])]);
    refused(Class::Internal, &[transaction(1, 5, &[w(Z, ABSENT), something.clone()])]);
    good(&[transaction(1, 5, &[w(Z, 1), something, w(Z, ABSENT), nothing])]);
}

#[test]
fn circular_information_is_g1c() {
    refused(
        Class::CircularInformation,
        &[transaction(100, 200, &[w(X, 1), r(Y, 2)]), transaction(100, 200, &[w(Y, 2), r(X, 1)])],
    );
    // By a write dependency: 3 overwrites X, and reads from who comes after it.
    refused(Class::CircularInformation, &[ordered(1, &[w(X, 1), r(Y, 2)]), ordered(2, &[w(X, 3), w(Y, 2)])]);
}

#[test]
fn lost_updates_are_g_single() {
    let seed = ordered(1, &[w(X, 1)]);
    refused(
        Class::LostUpdate,
        &[seed.clone(), ordered(2, &[r(X, 1), w(X, 2)]), ordered(3, &[r(X, 1), w(X, 3)])],
    );
    // Without sequence numbers.
    refused(
        Class::LostUpdate,
        &[
            transaction(1, 5, &[w(X, 1)]),
            transaction(100, 200, &[r(X, 1), w(X, 2)]),
            transaction(100, 200, &[r(X, 1), w(X, 3)]),
        ],
    );
    good(&[seed, ordered(2, &[r(X, 1), w(X, 2)]), ordered(3, &[r(X, 2), w(X, 3)])]);
}

#[test]
fn read_skew_is_g_single() {
    let writers = [ordered(1, &[w(X, 1), w(Y, 2)]), ordered(2, &[w(X, 3), w(Y, 4)])];
    let with = |reader: Record| [writers[0].clone(), writers[1].clone(), reader];
    refused(Class::ReadSkew, &with(transaction(100, 200, &[r(X, 1), r(Y, 4)])));
    refused(Class::ReadSkew, &with(transaction(100, 200, &[r(X, 3), r(Y, 2)])));
    // The same page twice: a fuzzy read.
    refused(Class::ReadSkew, &with(transaction(100, 200, &[r(X, 1), r(X, 3)])));
    // Who aborts must have seen one moment, too.
    refused(Class::ReadSkew, &with(aborted(&[r(X, 1), r(Y, 4)])));
    good(&with(transaction(100, 200, &[r(X, 1), r(Y, 2)])));
    good(&with(transaction(100, 200, &[r(X, 3), r(Y, 4)])));
    good(&with(aborted(&[r(X, 1), r(Y, 2)])));
}

#[test]
fn read_skew_over_a_detour_is_found() {
    // The reader misses 2 and sees 4, whose writer had seen 2.
    refused(
        Class::ReadSkew,
        &[
            ordered(1, &[w(X, 1)]),
            ordered(2, &[w(X, 2)]),
            ordered(3, &[r(X, 2), w(Y, 4)]),
            transaction(100, 200, &[r(Y, 4), r(X, 1)]),
        ],
    );
}

#[test]
fn cycles_that_snapshot_isolation_excludes_are_g_nonadjacent() {
    // Two readers that disagree about which of two independent writes came first ("long fork").
    refused(
        Class::NonAdjacent,
        &[
            ordered(1, &[w(X, 1)]),
            ordered(2, &[w(Y, 2)]),
            transaction(100, 200, &[r(X, 1), r(Y, ABSENT)]),
            transaction(100, 200, &[r(X, ABSENT), r(Y, 2)]),
        ],
    );
}

#[test]
fn write_skew_is_g2_item() {
    let seed = ordered(1, &[w(X, 1), w(Y, 2)]);
    let first = ordered(2, &[r(X, 1), r(Y, 2), w(X, 3)]);
    let second = ordered(3, &[r(X, 1), r(Y, 2), w(Y, 4)]);
    refused_by_serializability_only(Class::WriteSkew, &[seed.clone(), first.clone(), second]);
    // Of three.
    let third = Item::new(Kind::Size, 9, 0);
    refused_by_serializability_only(
        Class::WriteSkew,
        &[
            ordered(1, &[w(X, 1), w(Y, 2), w(third, 3)]),
            ordered(2, &[r(X, 1), w(Y, 4)]),
            ordered(3, &[r(Y, 2), w(third, 5)]),
            ordered(4, &[r(third, 3), w(X, 6)]),
        ],
    );
    // The read-only anomaly of Fekete, O'Neil and O'Neil: the two updates alone could be put in an order.
    let updates = [
        ordered(1, &[w(X, 1), w(Y, 2)]),
        ordered(2, &[r(Y, 2), w(Y, 3)]),
        ordered(3, &[r(X, 1), r(Y, 2), w(X, 4)]),
    ];
    good(&updates);
    let mut with_reader = updates.to_vec();
    with_reader.push(transaction(100, 200, &[r(X, 1), r(Y, 3)]));
    refused_by_serializability_only(Class::WriteSkew, &with_reader);
    good(&[seed, first, ordered(3, &[r(X, 3), r(Y, 2), w(Y, 4)])]);
}

#[test]
fn what_a_listing_misses_is_g2() {
    let name = |member: u64| Item::new(Kind::Name, 7, member);
    let listed = |found: &[(u64, u64)]| Action::List(Kind::Name, 7, found.into());
    // Each adds a name because the directory was empty.
    refused_by_serializability_only(
        Class::Phantom,
        &[ordered(1, &[listed(&[]), w(name(1), 11)]), ordered(2, &[listed(&[]), w(name(2), 12)])],
    );
    // Each removes the name that the other one has seen.
    let seed = ordered(1, &[w(name(1), 11), w(name(2), 12)]);
    let both = listed(&[(1, 11), (2, 12)]);
    refused_by_serializability_only(
        Class::Phantom,
        &[
            seed.clone(),
            ordered(2, &[both.clone(), w(name(1), ABSENT)]),
            ordered(3, &[both.clone(), w(name(2), ABSENT)]),
        ],
    );
    // Half of a commit in a listing.
    refused(Class::ReadSkew, &[seed.clone(), transaction(100, 200, &[listed(&[(1, 11)])])]);
    good(&[
        seed,
        ordered(2, &[both, w(name(1), ABSENT)]),
        ordered(3, &[listed(&[(2, 12)]), w(name(2), ABSENT)]),
        transaction(300, 400, &[listed(&[])]),
    ]);
}

#[test]
fn a_read_that_is_not_of_the_snapshot_is_found() {
    let writers = [numbered(0, 1, &[w(X, 1)]), numbered(1, 2, &[w(X, 2)]), numbered(2, 3, &[w(X, ABSENT)])];
    let with = |reader: Record| writers.iter().cloned().chain([reader]).collect::<Vec<_>>();
    for (snapshot, seen) in [(0, ABSENT), (1, 1), (2, 2), (3, ABSENT)] {
        let reader = Record { snapshot: Some(snapshot), ..transaction(100, 200, &[r(X, seen)]) };
        good(&with(reader.clone()));
        good(&with(Record { outcome: Outcome::Aborted, ..reader }));
        for wrong in [ABSENT, 1, 2].into_iter().filter(|wrong| *wrong != seen) {
            let reader = Record { snapshot: Some(snapshot), ..transaction(100, 200, &[r(X, wrong)]) };
            refused(Class::NotOfSnapshot, &with(reader));
        }
    }
}

#[test]
fn sequence_numbers_must_make_sense() {
    refused(Class::SequenceOrder, &[numbered(0, 1, &[w(X, 1)]), numbered(0, 1, &[w(Y, 2)])]);
    refused(Class::SequenceOrder, &[numbered(4, 4, &[w(X, 1)])]);
    // Began after that commit had returned, but its snapshot does not hold it.
    let later = |record: Record| Record { began: 300, seen: 300, committing: 390, ended: 400, ..record };
    refused(Class::SequenceOrder, &[numbered(0, 5, &[w(X, 1)]), later(numbered(4, 6, &[w(Y, 2)]))]);
    good(&[numbered(0, 5, &[w(X, 1)]), later(numbered(5, 6, &[w(Y, 2)]))]);
}

#[test]
fn what_had_ended_before_must_be_seen() {
    // Stale by the clock only: the same with overlapping times is good.
    let writer = transaction(1, 50, &[w(X, 1)]);
    let report = of(&[writer.clone(), transaction(100, 200, &[r(X, ABSENT)])], Level::Snapshot);
    assert!(report.anomalies.iter().all(|anomaly| anomaly.real_time) && !report.is_good());
    assert!(report.classes().contains_key(&Class::ReadSkew), "{:?}", report.anomalies);
    good(&[writer.clone(), transaction(40, 200, &[r(X, ABSENT)])]);
    // From the future.
    refused(
        Class::CircularInformation,
        &[writer, transaction(100, 200, &[w(Y, 2)]), { transaction(1, 50, &[r(Y, 2)]) }],
    );
    // A version that came back: which of the two absences was read does not matter, neither was there.
    refused(
        Class::StaleRead,
        &[
            transaction(1, 10, &[w(X, 1)]),
            transaction(20, 30, &[w(X, ABSENT)]),
            transaction(40, 50, &[w(X, 2)]),
            transaction(60, 70, &[r(X, ABSENT)]),
        ],
    );
}

#[test]
fn the_end_of_a_growing_file_merges() {
    let end = Item::new(Kind::End, 3, 0);
    let m = |value: u64| Action::Raise(end, value);
    let growing = [ordered(1, &[m(100)]), ordered(2, &[m(300)]), ordered(3, &[m(200)])];
    let with = |reader: Record| growing.iter().cloned().chain([reader]).collect::<Vec<_>>();
    good(&with(transaction(300, 400, &[r(end, 300)])));
    // The smaller one committed later: that was never the end.
    refused(Class::UnwrittenRead, &with(transaction(300, 400, &[r(end, 200)])));
    // Who knows where the file ends must be told that it moves; snapshot isolation does not promise that.
    let both = [
        ordered(1, &[m(100), w(X, 1)]),
        ordered(2, &[r(end, 100), r(X, 1), m(200)]),
        ordered(3, &[r(end, 100), r(X, 1), m(300)]),
    ];
    let report = of(&both, Level::Serializable);
    assert!(report.classes().contains_key(&Class::LostUpdate), "{:?}", report.anomalies);
    assert!(of(&both, Level::Snapshot).is_good());
    // Two appends at the same place.
    let append = |sequence| ordered(sequence, &[r(end, 100), w(end, 108)]);
    refused(Class::LostUpdate, &[ordered(1, &[m(100)]), append(2), append(3)]);
    // What came and went within one transaction, another one may add.
    good(&[ordered(1, &[r(Z, ABSENT), w(Z, 1), w(Z, ABSENT)]), ordered(2, &[r(Z, ABSENT), w(Z, 2)])]);
}

#[test]
fn an_unknown_order_is_no_anomaly() {
    // Calls outside of transactions, all at the same time: any order will do.
    good(&[
        transaction(1, 500, &[w(X, 1)]),
        transaction(1, 500, &[w(X, 2)]),
        transaction(1, 500, &[w(X, ABSENT)]),
        transaction(1, 500, &[r(X, 2)]),
        transaction(1, 500, &[r(X, 1)]),
        transaction(1, 500, &[r(X, ABSENT)]),
        ordered(3, &[w(X, 5)]),
        ordered(4, &[r(X, 2), w(Y, 7)]),
    ]);
}

#[test]
fn the_smallest_cycle_is_shown_with_what_its_transactions_did() {
    let records = [
        ordered(1, &[w(X, 1), w(Y, 2)]),
        ordered(2, &[r(X, 1), w(Y, 3)]),
        ordered(3, &[r(Y, 2), w(X, 4)]),
        ordered(4, &[r(X, 4), r(Y, 3)]),
    ];
    let history = History { records: records.to_vec() };
    let report = check(&history, Level::Serializable);
    let smallest = report.smallest().expect("an anomaly");
    assert_eq!(smallest.transactions.len(), 2, "{smallest}");
    let text = smallest.describe(&history);
    for part in [
        "G2-item: write skew",
        "T1 --rw (page 1/0)--> T2",
        "--rw (page 1/1)--> T1",
        "read page 1/0: 1",
        "committed as 3",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}
