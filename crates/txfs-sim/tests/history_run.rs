//! Threads on one volume for a moment: what they saw of each other is checked.

use txfs::Isolation;
use txfs_sim::histories::run::{Options, run};

#[track_caller]
fn random(isolation: Isolation, seed: u64) {
    let options = Options { transactions: 4000, threads: 6, isolation, seed, directory: None };
    let summary = run(&options).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    assert!(summary.counts.aborted > 0 && summary.counts.calls > 0, "{:?}", summary.counts);
    if let Some(problem) = summary.problem(isolation) {
        panic!("seed {seed}: {problem}");
    }
}

#[test]
fn serializable_transactions_have_no_anomaly() {
    random(Isolation::Serializable, 11);
}

/// Which keeps the test above honest: the same work, and the checker finds what snapshot isolation permits.
#[test]
fn snapshot_isolation_has_write_skew_and_nothing_worse() {
    random(Isolation::Snapshot, 12);
}
