//! What can be wrong with a history, and how it is told.

use std::fmt;

use super::record::{ABSENT, Action, History, Outcome};

/// Names of anomalies, mostly Adya's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Nobody ever wrote the value.
    UnwrittenRead,
    /// A transaction does not see its own last write.
    Internal,
    /// G1a: the value of an aborted transaction was read.
    AbortedRead,
    /// G1b: a value was read that its writer had overwritten before it committed.
    IntermediateRead,
    /// A read is not what the reader's snapshot holds.
    NotOfSnapshot,
    /// The sequence numbers contradict each other, or the order in which things were seen to happen.
    SequenceOrder,
    /// The version that was read was gone before the reader began, or not yet there.
    StaleRead,
    /// G0: writes in contradictory orders.
    DirtyWrite,
    /// G1c: information that flows in a circle.
    CircularInformation,
    /// G-single, of one item that both wrote: an update was made from a version that was no longer the newest.
    LostUpdate,
    /// G-single: one anti-dependency; two moments were read as one.
    ReadSkew,
    /// G-nonadjacent: several anti-dependencies, no two of them in sequence, which snapshot isolation excludes.
    NonAdjacent,
    /// G2-item: several anti-dependencies on items.
    WriteSkew,
    /// G2: an anti-dependency by predicate; something appeared that a listing should have shown.
    Phantom,
}

impl Class {
    /// Adya's or Elle's name where there is one, and a plain one.
    pub fn name(self) -> &'static str {
        match self {
            Class::UnwrittenRead => "read of a value that nobody wrote",
            Class::Internal => "internal: a transaction does not see its own write",
            Class::AbortedRead => "G1a: aborted read",
            Class::IntermediateRead => "G1b: intermediate read",
            Class::NotOfSnapshot => "a read that is not of the snapshot",
            Class::SequenceOrder => "sequence numbers out of order",
            Class::StaleRead => "a version read outside of its lifetime",
            Class::DirtyWrite => "G0: dirty write",
            Class::CircularInformation => "G1c: circular information flow",
            Class::LostUpdate => "G-single: lost update",
            Class::ReadSkew => "G-single: read skew",
            Class::NonAdjacent => "G-nonadjacent",
            Class::WriteSkew => "G2-item: write skew",
            Class::Phantom => "G2: phantom",
        }
    }

    /// True for what snapshot isolation permits.
    pub fn is_permitted_by_snapshot(self) -> bool {
        matches!(self, Class::WriteSkew | Class::Phantom)
    }
}

/// One anomaly, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its name.
    pub class: Class,
    /// It only is one because commits had returned before others began.
    pub real_time: bool,
    /// The transactions concerned, in the order of the cycle where it is one: indices into the history.
    pub transactions: Vec<usize>,
    /// What happened.
    pub detail: String,
}

impl Anomaly {
    /// The anomaly as text, with what the transactions concerned did.
    pub fn describe(&self, history: &History) -> String {
        let mut text = format!("{self}\n");
        let mut shown = Vec::new();
        for &index in &self.transactions {
            if !shown.contains(&index) {
                shown.push(index);
                text += &describe_transaction(history, index);
            }
        }
        text
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let real_time = if self.real_time { " (in real time)" } else { "" };
        write!(formatter, "{}{real_time}: {}", self.class.name(), self.detail)
    }
}

fn describe_transaction(history: &History, index: usize) -> String {
    let Some(record) = history.records.get(index) else { return String::new() };
    let end = match record.outcome {
        Outcome::Committed(Some(sequence)) => format!("committed as {sequence}"),
        Outcome::Committed(None) => "committed".to_owned(),
        Outcome::Aborted => "aborted".to_owned(),
    };
    let snapshot = record.snapshot.map_or_else(String::new, |snapshot| format!(", snapshot {snapshot}"));
    let mut text = format!(
        "  T{index} of process {}, from {} to {} ns{snapshot}, {end}\n",
        record.process, record.began, record.ended
    );
    let shown = |value: u64| if value == ABSENT { "nothing".to_owned() } else { value.to_string() };
    for action in &record.actions {
        text += &match action {
            Action::Read(item, value) => format!("    read {item}: {}\n", shown(*value)),
            Action::Write(item, value) => format!("    wrote {item}: {}\n", shown(*value)),
            Action::Raise(item, value) => format!("    raised {item} to {value}\n"),
            Action::List(kind, object, found) => {
                format!("    listed each {} of {object}: {found:?}\n", kind.name())
            }
        };
    }
    text
}
