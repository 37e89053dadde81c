//! The direct serialization graph of a history.
//!
//! Nodes are the transactions, by their indices; aborted ones take part as readers, since what they read must have been
//! one moment, too. Real time needs a node of its own for each end of a transaction: these nodes form a line, each
//! transaction leads to its end, and the last end before a transaction's beginning leads to the transaction. So the
//! edges stay linear in number although their meaning is quadratic.

use super::record::History;
use super::versions::{ExternalRead, Place, Resolved, Versions, reads_of};

/// What an edge means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dependency {
    /// Installed the next version.
    Write,
    /// Read the version.
    Read,
    /// Overwrote what was read.
    Anti,
    /// Changed what was listed.
    AntiPredicate,
    /// Had ended before.
    RealTime,
}

impl Dependency {
    /// Short name.
    pub fn name(self) -> &'static str {
        match self {
            Dependency::Write => "ww",
            Dependency::Read => "wr",
            Dependency::Anti => "rw",
            Dependency::AntiPredicate => "rw by listing",
            Dependency::RealTime => "real time",
        }
    }

    /// An anti-dependency of either sort.
    pub fn is_anti(self) -> bool {
        matches!(self, Dependency::Anti | Dependency::AntiPredicate)
    }
}

/// An edge as seen from where it starts.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Node that comes later.
    pub to: u32,
    /// Why.
    pub dependency: Dependency,
    /// Index of the item concerned; `u32::MAX` for real time.
    pub item: u32,
}

/// The graph, edges grouped by where they start.
pub struct Graph {
    /// Transactions; nodes from here on are ends.
    pub transactions: usize,
    starts: Vec<u32>,
    edges: Vec<Edge>,
}

/// A read of which it is known what it saw.
#[derive(Clone, Copy, Debug)]
pub struct KnownRead {
    /// Who read.
    pub reader: usize,
    /// Index of the item.
    pub item: usize,
    /// What it saw.
    pub place: Place,
    /// By a listing.
    pub by_predicate: bool,
}

/// What became of the reads of a history.
#[derive(Default)]
pub struct Reads {
    /// What could be assigned to a version.
    pub known: Vec<KnownRead>,
    /// What may have been one of several versions.
    pub ambiguous: u64,
    /// What cannot be: the reader, the read, and why.
    pub impossible: Vec<(usize, ExternalRead, Resolved)>,
    /// Reads that contradict a transaction's own writes: who, and what.
    pub contradictions: Vec<(usize, String)>,
}

impl Reads {
    /// Assigns each read to a version.
    pub fn new(history: &History, versions: &mut Versions) -> Reads {
        let mut reads = Reads::default();
        for (reader, record) in history.records.iter().enumerate() {
            let Reads { known, ambiguous, impossible, contradictions } = &mut reads;
            reads_of(
                versions,
                record,
                |read| match versions.resolve(history, read.item, read.value, reader) {
                    Resolved::Version(place) => {
                        let ExternalRead { item, by_predicate, .. } = read;
                        known.push(KnownRead { reader, item, place, by_predicate });
                    }
                    Resolved::Ambiguous => *ambiguous += 1,
                    wrong => impossible.push((reader, read, wrong)),
                },
                |item, expected, value| {
                    contradictions.push((reader, format!("{item}: wrote {expected}, then read {value}")));
                },
            );
        }
        reads.note_overwriters(history, versions);
        reads
    }

    /// Who read a version and wrote the item: that is the next version, which helps where the order is partial.
    fn note_overwriters(&self, history: &History, versions: &mut Versions) {
        for read in &self.known {
            if versions.chain(read.item).exact || !history.records[read.reader].is_committed() {
                continue;
            }
            let own = versions.chain(read.item).versions.iter().position(|own| own.writer == read.reader);
            if let Some(own) = own {
                versions.note_overwriter(read.item, read.place, own);
            }
        }
    }
}

impl Graph {
    /// Makes the graph. `merge`: who only raised an item does not come after those who did so before; any order would have
    /// done.
    pub fn new(history: &History, versions: &Versions, reads: &Reads, merge: bool) -> Graph {
        let mut edges: Vec<(u32, Edge)> = Vec::new();
        let mut add = |from: usize, to: usize, dependency: Dependency, item: usize| {
            if from != to {
                edges.push((from as u32, Edge { to: to as u32, dependency, item: item as u32 }));
            }
        };
        for item in 0..versions.items.len() {
            let chain = versions.chain(item);
            for place in 0..chain.versions.len() {
                for next in chain.successors(history, Some(place)) {
                    let (from, to) = (chain.versions[place].writer, chain.versions[next].writer);
                    if !(merge && chain.versions[next].merges) {
                        add(from, to, Dependency::Write, item);
                    }
                }
            }
        }
        for read in &reads.known {
            let chain = versions.chain(read.item);
            if let Some(writer) = chain.writer(read.place) {
                add(writer, read.reader, Dependency::Read, read.item);
            }
            let anti = if read.by_predicate { Dependency::AntiPredicate } else { Dependency::Anti };
            for next in chain.successors(history, read.place) {
                add(read.reader, chain.versions[next].writer, anti, read.item);
            }
        }
        add_real_time(history, &mut edges);
        Graph::group(history.records.len(), edges)
    }

    fn group(transactions: usize, edges: Vec<(u32, Edge)>) -> Graph {
        let nodes = 2 * transactions;
        let mut starts = vec![0u32; nodes + 1];
        for (from, _) in &edges {
            starts[*from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let nothing = Edge { to: 0, dependency: Dependency::RealTime, item: 0 };
        let mut grouped = vec![nothing; edges.len()];
        for (from, edge) in edges {
            let at = &mut next[from as usize];
            grouped[*at as usize] = edge;
            *at += 1;
        }
        Graph { transactions, starts, edges: grouped }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Edges that start at a node.
    pub fn from(&self, node: usize) -> &[Edge] {
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}

fn add_real_time(history: &History, edges: &mut Vec<(u32, Edge)>) {
    let count = history.records.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&index| history.records[index].ended);
    let mut add = |from: usize, to: usize| {
        let edge = Edge { to: to as u32, dependency: Dependency::RealTime, item: u32::MAX };
        edges.push((from as u32, edge));
    };
    for (place, &index) in order.iter().enumerate() {
        add(index, count + place);
        if place + 1 < count {
            add(count + place, count + place + 1);
        }
    }
    for (index, record) in history.records.iter().enumerate() {
        let before = order.partition_point(|&other| history.records[other].ended < record.began);
        if let Some(last) = before.checked_sub(1) {
            add(count + last, index);
        }
    }
}
