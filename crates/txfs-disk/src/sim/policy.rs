//! What a crash keeps, drawn from a seed: the ways in which real disks and page caches lose data.

use std::ops::Range;

use super::crash::{FileVerdict, Judge};
use super::file::{Change, InDoubt, Part};
use super::names::NameInDoubt;
use super::state::State;

/// How data sectors are chosen.
#[derive(Clone, Copy, Debug)]
enum Sectors {
    /// Nothing that was not flushed survives.
    Nothing,
    /// Everything survives.
    Everything,
    /// Each sector by itself, with this chance of 256.
    Scattered(u8),
    /// Everything before this order, and from it on each sector by itself, with this chance of 256.
    ScatteredFrom(u64, u8),
    /// Each write as a whole, with this chance of 256.
    WholeWrites(u8),
    /// All changes up to this order, none after it.
    Before(u64),
    /// All changes before this order, and this one torn.
    Torn(u64, Tear),
    /// All changes from this order on, none before it: the drive wrote backwards.
    From(u64),
    /// Everything but the change of this order.
    AllBut(u64),
    /// Nothing but the change of this order.
    Only(u64),
    /// Nothing but the change of this order, itself torn.
    OnlyTorn(u64, Tear),
    /// Everything but one sector of the change of this order, chosen by its place in 0..=255 of the write's length.
    AllButSector(u64, u8),
    /// Each file as a whole, with this chance of 256.
    WholeFiles(u8),
}

/// Which sectors of a torn write survive.
#[derive(Clone, Copy, Debug)]
enum Tear {
    /// The first part, up to this many of 256.
    Head(u8),
    /// The last part, from this many of 256 on.
    Tail(u8),
    /// Each sector by itself.
    Scattered,
}

/// How names and lengths, the host file system's metadata, are chosen.
#[derive(Clone, Copy, Debug)]
enum Metadata {
    Nothing,
    Everything,
    /// One journal: everything up to this order.
    Before(u64),
    /// Names, and each file's lengths, up to orders of their own.
    Apart,
}

/// A crash drawn from a seed.
pub(super) struct SeededCrash {
    random: fastrand::Rng,
    sectors: Sectors,
    metadata: Metadata,
    sector_bytes: u64,
    /// The orders of all changes in doubt, ascending.
    orders: Vec<u64>,
    /// Up to which order names survive.
    names_before: u64,
    /// Up to which order the lengths of the file in hand survive.
    lengths_before: u64,
    /// Verdict of `WholeFiles` on the file in hand.
    file_kept: bool,
    /// Verdict of `WholeWrites`: the last order asked for, and the answer.
    last_write: (u64, bool),
}

impl SeededCrash {
    pub(super) fn new(state: &State, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut orders: Vec<u64> = state.names.in_doubt.iter().map(|entry| entry.order).collect();
        for file in state.files.values() {
            let contents = file.contents.lock();
            orders.extend(contents.in_doubt.iter().map(|entry| entry.order));
            orders.extend(contents.in_flight.iter().map(|write| write.order));
        }
        orders.sort_unstable();
        orders.dedup();
        let pick = |random: &mut fastrand::Rng| match orders.len() {
            0 => 0,
            count => orders[random.usize(0..count)],
        };
        let chance = |random: &mut fastrand::Rng| *random.choice(&[16, 64, 128, 192, 240]).unwrap_or(&128);
        let order = pick(&mut random);
        // the two ends have one outcome each (names apart), so they come up less often
        let sectors = match random.u8(0..32) {
            0 => Sectors::Nothing,
            1 => Sectors::Everything,
            2..=9 => Sectors::Scattered(chance(&mut random)),
            10..=14 => Sectors::ScatteredFrom(order, chance(&mut random)),
            15..=17 => Sectors::WholeWrites(chance(&mut random)),
            18..=19 => Sectors::Before(order),
            20..=23 => Sectors::Torn(order, Tear::draw(&mut random)),
            24 => Sectors::From(order),
            25 => Sectors::AllBut(order),
            26 => Sectors::Only(order),
            27 => Sectors::OnlyTorn(order, Tear::draw(&mut random)),
            28..=29 => Sectors::AllButSector(order, random.u8(..)),
            _ => Sectors::WholeFiles(chance(&mut random)),
        };
        let metadata = match sectors {
            Sectors::Nothing if random.u8(0..4) > 0 => Metadata::Nothing,
            Sectors::Before(order) | Sectors::Torn(order, _) if random.bool() => Metadata::Before(order),
            Sectors::AllBut(_) | Sectors::AllButSector(..) | Sectors::From(_) if random.u8(0..4) > 0 => {
                Metadata::Everything
            }
            _ => match random.u8(0..8) {
                0 => Metadata::Nothing,
                1..=3 => Metadata::Everything,
                4..=5 => Metadata::Before(pick(&mut random)),
                _ => Metadata::Apart,
            },
        };
        let names_before = match metadata {
            Metadata::Nothing => 0,
            Metadata::Everything => u64::MAX,
            Metadata::Before(order) => order,
            Metadata::Apart if random.u8(0..4) == 0 => 0,
            Metadata::Apart => pick(&mut random),
        };
        SeededCrash {
            random,
            sectors,
            metadata,
            sector_bytes: state.sector_bytes,
            orders,
            names_before,
            lengths_before: 0,
            file_kept: false,
            last_write: (0, false),
        }
    }

    fn keeps_sector(&mut self, change: &InDoubt, offset: u64) -> bool {
        let order = change.order;
        match self.sectors {
            Sectors::Nothing => false,
            Sectors::Everything => true,
            Sectors::Scattered(chance) => self.random.u8(..) < chance,
            Sectors::ScatteredFrom(first, chance) => order < first || self.random.u8(..) < chance,
            Sectors::WholeWrites(chance) => {
                if self.last_write.0 != order {
                    self.last_write = (order, self.random.u8(..) < chance);
                }
                self.last_write.1
            }
            Sectors::Before(last) => order <= last,
            Sectors::Torn(torn, tear) if order == torn => tear.keeps(change, offset, &mut self.random),
            Sectors::Torn(torn, _) => order < torn,
            Sectors::From(first) => order >= first,
            Sectors::AllBut(lost) => order != lost,
            Sectors::Only(kept) => order == kept,
            Sectors::OnlyTorn(torn, tear) => order == torn && tear.keeps(change, offset, &mut self.random),
            Sectors::AllButSector(torn, place) => {
                order != torn
                    || !change.write_range().is_some_and(|range| self.falls_on(&range, offset, place))
            }
            Sectors::WholeFiles(_) => self.file_kept,
        }
    }

    /// True for the one sector in which the given 256th of the write lies.
    fn falls_on(&self, range: &Range<u64>, offset: u64, place: u8) -> bool {
        let target = range.start + (range.end - range.start) * u64::from(place) / 256;
        offset <= target && target < offset + self.sector_bytes
    }
}

impl Judge for SeededCrash {
    fn keeps_name(&mut self, change: &NameInDoubt) -> bool {
        change.order <= self.names_before
    }

    fn judge_file(&mut self, _: u64, in_doubt: &[InDoubt]) -> FileVerdict {
        self.lengths_before = match self.metadata {
            Metadata::Nothing => 0,
            Metadata::Everything => u64::MAX,
            Metadata::Before(order) => order,
            Metadata::Apart => match self.random.u8(0..4) {
                0 => 0,
                1 => u64::MAX,
                _ => self.orders.get(self.random.usize(0..self.orders.len().max(1))).copied().unwrap_or(0),
            },
        };
        if let Sectors::WholeFiles(chance) = self.sectors {
            self.file_kept = self.random.u8(..) < chance;
        }
        let first = in_doubt.first().map_or(0, |entry| entry.order);
        let last = in_doubt.last().map_or(0, |entry| entry.order);
        let (data_kept, data_lost) = match self.sectors {
            Sectors::Nothing => (false, true),
            Sectors::Everything => (true, false),
            Sectors::Before(order) => (last <= order, first > order),
            Sectors::Torn(order, _) => (last < order, first > order),
            Sectors::From(order) => (first >= order, last < order),
            Sectors::AllBut(order) | Sectors::AllButSector(order, _) => {
                (order < first || order > last, false)
            }
            Sectors::Only(order) | Sectors::OnlyTorn(order, _) => (false, order < first || order > last),
            Sectors::WholeFiles(_) => (self.file_kept, !self.file_kept),
            Sectors::ScatteredFrom(order, _) => (last < order, false),
            Sectors::Scattered(_) | Sectors::WholeWrites(_) => (false, false),
        };
        if data_kept && last <= self.lengths_before {
            FileVerdict::AllKept
        } else if data_lost && first > self.lengths_before {
            FileVerdict::AllLost
        } else {
            FileVerdict::Each
        }
    }

    fn keeps_part(&mut self, _: u64, change: &InDoubt, part: Part) -> bool {
        match part {
            Part::Length => change.order <= self.lengths_before,
            Part::Sector(offset) => self.keeps_sector(change, offset),
        }
    }
}

impl Tear {
    fn draw(random: &mut fastrand::Rng) -> Tear {
        match random.u8(0..4) {
            0 | 1 => Tear::Head(random.u8(..)),
            2 => Tear::Tail(random.u8(..)),
            _ => Tear::Scattered,
        }
    }

    fn keeps(self, change: &InDoubt, offset: u64, random: &mut fastrand::Rng) -> bool {
        let place = change.write_range().map_or(0, |range| place_of(&range, offset));
        match self {
            Tear::Head(end) => place < u64::from(end),
            Tear::Tail(start) => place >= u64::from(start),
            Tear::Scattered => random.bool(),
        }
    }
}

impl InDoubt {
    fn write_range(&self) -> Option<Range<u64>> {
        match &self.change {
            Change::Write { range, .. } => Some(range.clone()),
            Change::Grow(_) | Change::Cut(_) => None,
        }
    }
}

/// Where in a write a sector starts, in 256ths of the write.
fn place_of(range: &Range<u64>, offset: u64) -> u64 {
    (offset - range.start) * 256 / (range.end - range.start).max(1)
}
