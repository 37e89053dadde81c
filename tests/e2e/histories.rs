//! Processes on a mount, in transactions and outside, write down what they see of each other; the checker of histories
//! says whether they were isolated. What it is and how it is tested itself: docs/TESTING.md.

use std::collections::HashMap;
use std::process::Command;

use txfs_e2e::{Background, Fixture, Mounted, contents, monotonic};
use txfs_sim::histories::layout::{self, Counts};
use txfs_sim::history::{Action, Class, History, Item, Kind, Level, Record, Report, check, text};

/// Processes that run transactions, and those that do not.
const IN_TRANSACTIONS: u32 = 4;
const OUTSIDE: u32 = 2;

/// How much is done, `$TXFS_HISTORY_TRANSACTIONS` in all.
fn transactions() -> u64 {
    std::env::var("TXFS_HISTORY_TRANSACTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000)
}

fn start(fixture: &Fixture, kind: &str, number: u32, count: u64, isolation: &str) -> Background {
    let mut command = Command::new(env!("CARGO_BIN_EXE_txfs-e2e-histories"));
    command.arg(kind).arg(fixture.volume()).arg(fixture.point());
    command.args([number.to_string(), count.to_string(), isolation.to_owned()]);
    command.arg(fixture.outside(&number.to_string()));
    Background::start(&mut command)
}

/// Runs the processes and merges what they have written down.
fn history(isolation: &str) -> History {
    let mut fixture = Fixture::mounted("histories");
    let began = monotonic();
    let layout = Mounted::make(&fixture.point()).expect("the files");
    let filled =
        layout.fill(&Mounted::new(fixture.point(), &layout), began, monotonic).expect("their content");
    let mut records = vec![filled];
    let each = transactions() / u64::from(IN_TRANSACTIONS);
    let clients: Vec<Background> = (0..IN_TRANSACTIONS + OUTSIDE)
        .map(|number| match number < IN_TRANSACTIONS {
            true => start(&fixture, "transactions", number, each, isolation),
            false => start(&fixture, "calls", number, each * 4, isolation),
        })
        .collect();
    clients.into_iter().for_each(|client| drop(client.finish_soon().expect_code(0)));
    start(&fixture, "look", 100, 1, "serializable").finish_soon().expect_code(0);
    fixture.remount();
    start(&fixture, "look", 101, 1, "serializable").finish_soon().expect_code(0);
    for number in (0..IN_TRANSACTIONS + OUTSIDE).chain([100, 101]) {
        let lines = contents(fixture.outside(&number.to_string()));
        records.extend(text::decode_all(&lines).expect("lines of a history").records);
    }
    end_with_the_writes_that_they_see(&mut records);
    History { records }
}

/// The kernel puts what a call writes outside of transactions into its page cache before it sends it, so another such
/// call may read a page of a write that has not happened yet for anybody else. What such a reader has seen is only true for all
/// when that write has returned; so only then it counts as over (docs/SEMANTICS.md, "Not supported").
fn end_with_the_writes_that_they_see(records: &mut [Record]) {
    let is_page = |item: &Item| item.kind == Kind::Page;
    let mut returned = HashMap::new();
    for record in records.iter().filter(|record| record.process >= layout::OUTSIDE) {
        for action in &record.actions {
            if let Action::Write(item, value) = action
                && is_page(item)
            {
                returned.insert((*item, *value), record.ended);
            }
        }
    }
    for record in records.iter_mut().filter(|record| record.process >= layout::OUTSIDE) {
        for action in &record.actions {
            if let Action::Read(item, value) = action
                && let Some(&at) = returned.get(&(*item, *value))
            {
                record.ended = record.ended.max(at);
            }
        }
    }
}

#[track_caller]
fn must_be_good(history: &History, report: &Report) {
    let counts = Counts::of(history);
    println!(
        "{counts:?}; {} reads, {} of unknown version, {} edges",
        report.reads, report.ambiguous, report.edges
    );
    if !report.is_good() {
        let examples: Vec<String> = report.examples().map(|example| example.describe(history)).collect();
        panic!("{:?}\n{}", report.classes(), examples.join("\n"));
    }
    assert!(counts.committed > transactions() / 4 && counts.aborted > 0, "{counts:?}");
}

#[test]
fn serializable_transactions_of_processes_have_no_anomaly() {
    let history = history("serializable");
    must_be_good(&history, &check(&history, Level::Serializable));
}

#[test]
fn snapshot_isolation_of_processes_has_write_skew_and_nothing_worse() {
    let history = history("snapshot");
    let report = check(&history, Level::Snapshot);
    must_be_good(&history, &report);
    assert!(report.permitted.iter().any(|anomaly| anomaly.class == Class::WriteSkew));
}
