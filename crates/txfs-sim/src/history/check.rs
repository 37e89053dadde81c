//! The checker: everything together.

use std::collections::BTreeMap;

use super::anomaly::{Anomaly, Class};
use super::cycles::{Search, Step, cycles, is_cyclic};
use super::direct;
use super::graph::{Dependency, Graph, Reads};
use super::record::History;
use super::versions::Versions;

/// What was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Strict serializability: as if one after the other, in an order that real time allows.
    Serializable,
    /// Strict snapshot isolation: write skew and phantoms are permitted, everything else is not. Two transactions at the
    /// same time may both make a file longer (such writes merge, they do not exclude each other).
    Snapshot,
}

/// What a history turned out to be.
#[derive(Debug)]
pub struct Report {
    /// Transactions looked at, aborted ones included.
    pub transactions: usize,
    /// Reads that were assigned to a version.
    pub reads: usize,
    /// Reads that could have been of several versions, and say nothing.
    pub ambiguous: u64,
    /// Edges of the graph.
    pub edges: usize,
    /// What must not be.
    pub anomalies: Vec<Anomaly>,
    /// What the level permits, but serializability does not.
    pub permitted: Vec<Anomaly>,
}

impl Report {
    /// True when the promise was kept.
    pub fn is_good(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// Names of what must not be, with the number of examples found.
    pub fn classes(&self) -> BTreeMap<Class, usize> {
        let mut classes = BTreeMap::new();
        for anomaly in &self.anomalies {
            *classes.entry(anomaly.class).or_insert(0) += 1;
        }
        classes
    }

    /// The anomaly with the fewest transactions, cycles that need no clock first.
    pub fn smallest(&self) -> Option<&Anomaly> {
        self.anomalies.iter().min_by_key(|anomaly| (anomaly.real_time, anomaly.transactions.len()))
    }

    /// The smallest of each class.
    pub fn examples(&self) -> impl Iterator<Item = &Anomaly> {
        self.classes().into_keys().filter_map(|class| {
            let of_class = self.anomalies.iter().filter(move |anomaly| anomaly.class == class);
            of_class.min_by_key(|anomaly| (anomaly.real_time, anomaly.transactions.len()))
        })
    }
}

const EVERYTHING: Search =
    Search { reads: true, anti: true, predicate: true, real_time: true, adjacent: true };

/// Checks a history.
pub fn check(history: &History, level: Level) -> Report {
    let mut versions = Versions::new(history);
    let reads = Reads::new(history, &mut versions);
    let graph = Graph::new(history, &versions, &reads, level == Level::Snapshot);
    let mut anomalies = direct::impossible_reads(&versions, &reads);
    anomalies.extend(direct::snapshot_reads(history, &versions, &reads));
    anomalies.extend(direct::sequences(history));
    let mut permitted = Vec::new();
    if is_cyclic(&graph, EVERYTHING) {
        for found in cyclic_anomalies(&graph, &versions) {
            match level == Level::Snapshot && found.class.is_permitted_by_snapshot() {
                true => permitted.push(found),
                false => anomalies.push(found),
            }
        }
    }
    Report {
        transactions: history.records.len(),
        reads: reads.known.len(),
        ambiguous: reads.ambiguous,
        edges: graph.edges(),
        anomalies,
        permitted,
    }
}

/// From the narrowest searches to the widest, first without the clock: so a cycle gets the name of what it needs, and
/// each transaction is part of one example only.
fn cyclic_anomalies(graph: &Graph, versions: &Versions) -> Vec<Anomaly> {
    let nothing = Search { reads: false, anti: false, predicate: false, real_time: false, adjacent: false };
    let reads = Search { reads: true, ..nothing };
    let single = Search { anti: true, ..reads };
    let single_listed = Search { predicate: true, ..single };
    let items = Search { adjacent: true, ..single };
    let all = Search { adjacent: true, ..single_listed };
    let mut found: Vec<Anomaly> = Vec::new();
    let mut explained = vec![false; graph.transactions];
    for real_time in [false, true] {
        for search in [nothing, reads, single, single_listed, items, all] {
            for cycle in cycles(graph, Search { real_time, ..search }) {
                let anomaly = classify(&cycle, graph, versions);
                if anomaly.transactions.iter().all(|&index| explained[index]) {
                    continue;
                }
                anomaly.transactions.iter().for_each(|&index| explained[index] = true);
                found.push(anomaly);
            }
        }
    }
    found
}

/// Names a cycle.
fn classify(cycle: &[Step], graph: &Graph, versions: &Versions) -> Anomaly {
    let is = |wanted: Dependency| move |step: &&Step| step.edge.dependency == wanted;
    let anti: Vec<&Step> = cycle.iter().filter(|step| step.edge.dependency.is_anti()).collect();
    let real_time = cycle.iter().any(|step| step.edge.dependency == Dependency::RealTime);
    let adjacent = (0..cycle.len()).any(|at| {
        let next = &cycle[(at + 1) % cycle.len()];
        cycle[at].edge.dependency.is_anti() && next.edge.dependency.is_anti()
    });
    let same_item = |dependency: Dependency| {
        cycle.iter().filter(is(dependency)).any(|step| step.edge.item == anti[0].edge.item)
    };
    let class = match anti.len() {
        0 if cycle.iter().any(|step| step.edge.dependency == Dependency::Read) => Class::CircularInformation,
        0 => Class::DirtyWrite,
        1 if cycle.len() == 2 && same_item(Dependency::Write) => Class::LostUpdate,
        1 => Class::ReadSkew,
        // Both read the same version and wrote the item, and it is not known who was first.
        2 if cycle.len() == 2 && cycle[0].edge.item == cycle[1].edge.item => Class::LostUpdate,
        _ if !adjacent => Class::NonAdjacent,
        _ if anti.iter().any(|step| step.edge.dependency == Dependency::AntiPredicate) => Class::Phantom,
        _ => Class::WriteSkew,
    };
    let mut detail = String::new();
    let mut transactions = Vec::new();
    for step in cycle {
        if step.from < graph.transactions {
            transactions.push(step.from);
            detail += &format!("T{} ", step.from);
            detail += &match versions.items.get(step.edge.item as usize) {
                Some(item) => format!("--{} ({item})--> ", step.edge.dependency.name()),
                None => format!("--{}--> ", step.edge.dependency.name()),
            };
        }
    }
    if let Some(first) = transactions.first() {
        detail += &format!("T{first}");
    }
    Anomaly { class, real_time, transactions, detail }
}
