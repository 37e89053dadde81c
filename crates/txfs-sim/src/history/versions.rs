//! The versions of each item, the order in which they were installed, and which one a read saw.
//!
//! Where every writer of an item has a sequence number, these give the order. Where some have none (calls outside of
//! transactions on a mount), the order is partial: sequence numbers where both have one, else that one had ended
//! before the other's commit was called, else that one was read by who wrote the other. Only what is certain becomes
//! an edge, so that a missing sequence number never makes an anomaly; it may hide one.

use std::collections::HashMap;

use super::record::{ABSENT, Action, History, Installed, Item, Kind, Record, UNKNOWN, Value};

/// One installed version.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// Its value.
    pub value: Value,
    /// Who wrote it: an index into the history.
    pub writer: usize,
    /// See [`super::record::Installed`].
    pub merges: bool,
}

/// Which version a read saw: an index into the item's versions, `None` for what was there before all of them.
pub type Place = Option<usize>;

/// What a read turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// This version.
    Version(Place),
    /// One of several with the same value; it cannot be known which.
    Ambiguous,
    /// None of those with this value can have been there at that time.
    OutOfTime,
    /// Written by this transaction, which aborted.
    Aborted(usize),
    /// Written by this transaction and overwritten by it.
    Intermediate(usize),
    /// The reader wrote it itself, later.
    Own,
    /// Nobody wrote it.
    Unwritten,
}

#[derive(Clone, Copy)]
enum Fate {
    Aborted(usize),
    Intermediate(usize),
}

/// The versions of one item.
#[derive(Default)]
pub struct Chain {
    /// In the order of installation where `exact`, else in the order in which their writers ended.
    pub versions: Vec<Version>,
    /// The order is total and known.
    pub exact: bool,
    partial: Partial,
}

/// What a partial order needs: all are indices into `versions`.
#[derive(Default)]
struct Partial {
    by_committing: Vec<usize>,
    by_sequence: Vec<usize>,
    /// Of `by_committing[i..]`: the one that ended first, and the one with the least sequence number.
    first_ended: Vec<usize>,
    first_sequence: Vec<Option<usize>>,
    /// Of `versions[..=i]`: the latest call of a commit, and the greatest sequence number.
    last_committing: Vec<u64>,
    last_sequence: Vec<u64>,
    /// Who read a version and wrote the item itself.
    overwriters: HashMap<Place, Vec<usize>>,
}

/// The versions of all items.
pub struct Versions {
    /// All items; everything else refers to them by index.
    pub items: Vec<Item>,
    ids: HashMap<Item, usize>,
    chains: Vec<Chain>,
    /// The first version with a value, and the others.
    by_value: HashMap<(usize, Value), usize>,
    more: HashMap<(usize, Value), Vec<usize>>,
    fates: HashMap<(usize, Value), Fate>,
    members: HashMap<(Kind, u64), Vec<usize>>,
}

impl Versions {
    /// Orders the versions of a history.
    pub fn new(history: &History) -> Versions {
        let mut all = Versions {
            items: Vec::new(),
            ids: HashMap::new(),
            chains: Vec::new(),
            by_value: HashMap::new(),
            more: HashMap::new(),
            fates: HashMap::new(),
            members: HashMap::new(),
        };
        for (index, record) in history.records.iter().enumerate() {
            all.add(index, record);
        }
        for id in 0..all.chains.len() {
            let chain = &mut all.chains[id];
            chain.order(history);
            for (place, version) in chain.versions.iter().enumerate() {
                match all.by_value.entry((id, version.value)) {
                    std::collections::hash_map::Entry::Vacant(vacant) => {
                        vacant.insert(place);
                    }
                    std::collections::hash_map::Entry::Occupied(_) => {
                        all.more.entry((id, version.value)).or_default().push(place);
                    }
                }
            }
        }
        all
    }

    fn intern(&mut self, item: Item) -> usize {
        let next = self.items.len();
        *self.ids.entry(item).or_insert_with(|| {
            self.items.push(item);
            self.chains.push(Chain::default());
            self.members.entry((item.kind, item.object)).or_default().push(next);
            next
        })
    }

    fn add(&mut self, index: usize, record: &Record) {
        let installed = record.installed();
        for action in &record.actions {
            match action {
                Action::Read(item, _) => {
                    self.intern(*item);
                }
                Action::Write(item, value) | Action::Raise(item, value) => {
                    let id = self.intern(*item);
                    if *value == ABSENT {
                        continue;
                    }
                    if !record.is_committed() {
                        self.fates.insert((id, *value), Fate::Aborted(index));
                    } else if installed.get(item).map(|left| left.value) != Some(*value) {
                        self.fates.insert((id, *value), Fate::Intermediate(index));
                    }
                }
                Action::List(kind, object, found) => {
                    for (member, _) in found {
                        self.intern(Item::new(*kind, *object, *member));
                    }
                }
            }
        }
        if record.is_committed() {
            for (item, Installed { value, merges }) in installed {
                let id = self.intern(item);
                self.chains[id].versions.push(Version { value, writer: index, merges });
            }
        }
    }

    /// The index of an item.
    pub fn id(&self, item: Item) -> Option<usize> {
        self.ids.get(&item).copied()
    }

    /// An item's versions.
    pub fn chain(&self, id: usize) -> &Chain {
        &self.chains[id]
    }

    /// All items that a listing of an object is about.
    pub fn members(&self, kind: Kind, object: u64) -> &[usize] {
        self.members.get(&(kind, object)).map_or(&[], Vec::as_slice)
    }

    /// What the transaction with the index `me` saw when it read `value` before it wrote the item itself.
    pub fn resolve(&self, history: &History, id: usize, value: Value, me: usize) -> Resolved {
        let chain = &self.chains[id];
        let reader = &history.records[me];
        let seen = reader.snapshot.filter(|_| chain.exact).map(|snapshot| chain.visible(history, snapshot));
        if let Some(place) = seen
            && chain.value(place) == value
        {
            return Resolved::Version(place);
        }
        let initial = (value == ABSENT).then_some(None);
        let first = self.by_value.get(&(id, value)).map(|&place| Some(place));
        let more = self.more.get(&(id, value)).map_or(&[][..], Vec::as_slice);
        let all = || initial.into_iter().chain(first).chain(more.iter().map(|&place| Some(place)));
        let candidates = || all().filter(|&place| chain.writer(place) != Some(me));
        let count = candidates().count();
        if count == 0 {
            if all().next().is_some() {
                return Resolved::Own;
            }
            return match self.fates.get(&(id, value)) {
                Some(Fate::Aborted(writer)) => Resolved::Aborted(*writer),
                Some(Fate::Intermediate(writer)) => Resolved::Intermediate(*writer),
                None => Resolved::Unwritten,
            };
        }
        if let (1, Some(only)) = (count, candidates().next()) {
            return Resolved::Version(only);
        }
        if let Some(seen) = seen {
            // None of them is what the snapshot holds: the newest before it, for the cycle that this makes.
            let before = candidates().filter(|place| *place <= seen).max();
            return Resolved::Version(before.or_else(|| candidates().min()).flatten());
        }
        let mut possible = candidates().filter(|&place| chain.is_possible(history, place, reader));
        match (possible.next(), possible.next()) {
            (None, _) => Resolved::OutOfTime,
            (Some(only), None) => Resolved::Version(only),
            _ => Resolved::Ambiguous,
        }
    }

    /// Notes that the writer of `place` had read the version `before` of the same item.
    pub fn note_overwriter(&mut self, id: usize, before: Place, place: usize) {
        let chain = &mut self.chains[id];
        if !chain.exact {
            chain.partial.overwriters.entry(before).or_default().push(place);
        }
    }
}

impl Chain {
    fn order(&mut self, history: &History) {
        let sequence = |version: &Version| history.records[version.writer].sequence();
        self.exact = self.versions.iter().all(|version| sequence(version).is_some());
        if !self.exact {
            self.order_partially(history);
            return;
        }
        self.versions.sort_by_key(sequence);
        let mut value = 0;
        self.versions.retain(|version| {
            let changes = !version.merges || version.value > value;
            value = if changes { version.value } else { value };
            changes
        });
    }

    fn order_partially(&mut self, history: &History) {
        let record = |version: &Version| &history.records[version.writer];
        self.versions.sort_by_key(|version| record(version).ended);
        let records: Vec<&Record> = self.versions.iter().map(record).collect();
        let mut partial = Partial::default();
        let (mut committing, mut sequence) = (0, 0);
        for record in &records {
            committing = record.committing.max(committing);
            sequence = record.sequence().unwrap_or(0).max(sequence);
            partial.last_committing.push(committing);
            partial.last_sequence.push(sequence);
        }
        partial.by_committing = (0..records.len()).collect();
        partial.by_committing.sort_by_key(|&place| records[place].committing);
        let (mut ended, mut least) = (None::<usize>, None::<usize>);
        for &place in partial.by_committing.iter().rev() {
            let earlier = ended.is_none_or(|best| records[place].ended < records[best].ended);
            ended = if earlier { Some(place) } else { ended };
            if let Some(mine) = records[place].sequence() {
                let smaller = least.is_none_or(|best| records[best].sequence() > Some(mine));
                least = if smaller { Some(place) } else { least };
            }
            partial.first_ended.extend(ended);
            partial.first_sequence.push(least);
        }
        partial.first_ended.reverse();
        partial.first_sequence.reverse();
        partial.by_sequence =
            (0..records.len()).filter(|&place| records[place].sequence().is_some()).collect();
        partial.by_sequence.sort_by_key(|&place| records[place].sequence());
        self.partial = partial;
    }

    /// The value at a place.
    pub fn value(&self, place: Place) -> Value {
        place.and_then(|place| self.versions.get(place)).map_or(ABSENT, |version| version.value)
    }

    /// Who wrote the version at a place.
    pub fn writer(&self, place: Place) -> Option<usize> {
        place.and_then(|place| self.versions.get(place)).map(|version| version.writer)
    }

    /// Of an exact order: the newest version in a snapshot.
    pub fn visible(&self, history: &History, snapshot: u64) -> Place {
        let sequence = |version: &Version| history.records[version.writer].sequence();
        self.versions.partition_point(|version| sequence(version) <= Some(snapshot)).checked_sub(1)
    }

    /// Versions that are certainly newer than the one at `place`; among them the next ones, as far as that is known.
    pub fn successors(&self, history: &History, place: Place) -> Vec<usize> {
        if self.exact {
            let next = place.map_or(0, |place| place + 1);
            return if next < self.versions.len() { vec![next] } else { Vec::new() };
        }
        let partial = &self.partial;
        let mine = place.map(|place| &history.records[self.versions[place].writer]);
        let record = |place: usize| &history.records[self.versions[place].writer];
        let mut found = partial.overwriters.get(&place).cloned().unwrap_or_default();
        let from = mine.map_or(0, |mine| {
            partial.by_committing.partition_point(|&other| record(other).committing <= mine.ended)
        });
        found.extend(partial.first_ended.get(from));
        found.extend(partial.first_sequence.get(from).copied().flatten());
        if let Some(sequence) = mine.map_or(Some(0), Record::sequence) {
            let next =
                partial.by_sequence.partition_point(|&other| record(other).sequence() <= Some(sequence));
            found.extend(partial.by_sequence.get(next));
        }
        found.sort_unstable();
        found.dedup();
        found.retain(|other| Some(*other) != place);
        found
    }

    /// False when the version cannot have been what `reader` saw: not yet there when its snapshot was taken, or
    /// certainly overwritten before it began.
    fn is_possible(&self, history: &History, place: Place, reader: &Record) -> bool {
        let record = |place: usize| &history.records[self.versions[place].writer];
        if self.exact {
            let begun = place.is_none_or(|place| record(place).committing <= reader.seen);
            let next = place.map_or(0, |place| place + 1);
            let gone = next < self.versions.len() && record(next).ended < reader.began;
            return begun && !gone;
        }
        let over =
            self.versions.partition_point(|version| history.records[version.writer].ended < reader.began);
        let Some(last) = over.checked_sub(1) else {
            return place.is_none_or(|place| record(place).committing <= reader.seen);
        };
        match place {
            None => false,
            Some(place) => {
                let mine = record(place);
                let overtaken = self.partial.last_committing[last] > mine.ended
                    || mine.sequence().is_some_and(|sequence| self.partial.last_sequence[last] > sequence);
                mine.committing <= reader.seen && !overtaken
            }
        }
    }
}

/// A read of something that the transaction had not written itself.
#[derive(Clone, Copy, Debug)]
pub struct ExternalRead {
    /// Index of the item.
    pub item: usize,
    /// What was seen.
    pub value: Value,
    /// By a listing.
    pub by_predicate: bool,
}

/// Goes through a transaction's reads: those of others' writes, and those that contradict its own, which are passed
/// with what should have been read.
pub fn reads_of(
    versions: &Versions,
    record: &Record,
    mut external: impl FnMut(ExternalRead),
    mut contradiction: impl FnMut(Item, Value, Value),
) {
    let mut own: Vec<(usize, Value)> = Vec::new();
    for action in &record.actions {
        let mut see = |item: usize, value: Value, by_predicate: bool| match own
            .iter()
            .find(|(written, _)| *written == item)
        {
            Some((_, expected)) => {
                let fits = *expected == value || (value == UNKNOWN && *expected != ABSENT);
                if !fits {
                    contradiction(versions.items[item], *expected, value);
                }
            }
            None if value == UNKNOWN => {}
            None => external(ExternalRead { item, value, by_predicate }),
        };
        match action {
            Action::Read(item, value) => {
                if let Some(id) = versions.id(*item) {
                    see(id, *value, false);
                }
            }
            Action::Write(item, value) | Action::Raise(item, value) => {
                let Some(id) = versions.id(*item) else { continue };
                match own.iter_mut().find(|(written, _)| *written == id) {
                    Some((_, last)) => *last = *value,
                    None => own.push((id, *value)),
                }
            }
            Action::List(kind, object, found) => {
                for &id in versions.members(*kind, *object) {
                    let member = versions.items[id].member;
                    let value = found
                        .binary_search_by_key(&member, |(member, _)| *member)
                        .map_or(ABSENT, |at| found[at].1);
                    see(id, value, true);
                }
            }
        }
    }
}
