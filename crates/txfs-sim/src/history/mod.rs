//! Recorded histories of transactions, and a checker that says whether they were isolated.
//!
//! A history is what clients saw: of each transaction when it began and ended, what it read (and so which write it
//! saw, since every written value is unique), what it wrote, and how it ended; from TxFS also the sequence numbers of
//! its snapshot and its commit. The checker knows nothing else of TxFS.
//!
//! The terms are those of Atul Adya (*Weak Consistency: A Generalized Theory and Optimistic Implementations for
//! Distributed Transactions*, 1999), the method that of Elle (Kingsbury and Alvaro, *Elle: Inferring Isolation
//! Anomalies from Experimental Observations*, VLDB 2020). [`versions`] finds the order in which the versions of each
//! item were installed, [`graph`] makes the direct serialization graph of it: an edge says that one transaction must
//! come before another.
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | `ww` | who installed a version | who installed the next one |
//! | `wr` | who installed a version | who read it |
//! | `rw` | who read a version | who installed the next one |
//! | `rw` by predicate | who listed a directory | who then changed what the listing shows |
//! | real time | whose commit had returned | who began after that |
//!
//! A cycle is an anomaly ([`cycles`]), named after the edges that it needs ([`anomaly::Class`]). Beside the cycles,
//! [`direct`] compares what can be compared without them: values of aborted transactions, values that nobody wrote, a
//! transaction that does not see its own writes, and, where sequence numbers are known, each read with the newest
//! version in the reader's snapshot.
//!
//! The work is linear in the history, but for sorting, unless there are anomalies to explain.

pub mod anomaly;
pub mod check;
pub mod cycles;
pub mod direct;
pub mod graph;
pub mod record;
pub mod text;
pub mod versions;

pub use anomaly::{Anomaly, Class};
pub use check::{Level, Report, check};
pub use record::{ABSENT, Action, History, Item, Kind, Outcome, Record, Recorder, UNKNOWN, Value};
