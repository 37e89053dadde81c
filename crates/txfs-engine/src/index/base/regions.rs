//! The space of the index file: regions that checkpoints fill one after another.
//!
//! # Why
//! A checkpoint of changes in random places writes thousands of nodes. Written where there happens to be room they cost
//! the disk ten times as much as one after another. So a checkpoint goes on writing where the last one ended, region by
//! region, and a region is written again only when all of it is dead. What is live in sparse regions is moved by
//! checkpoints (cleaning as in the log, decision 10), so the file stays below about twice what is live.
//!
//! # Invariants
//! * A region becomes *retiring* with the checkpoint that took its last live byte, and *free* when that checkpoint is
//!   durable and no reader is left of a generation between the one that first wrote to it and the one that left it. Only
//!   free regions, and the rest of the current one, are written.
//! * Region 0 is never free: the header is its first sector.
//! * After a crash the table in force says what is live; whatever else lies in the file is garbage.
//!
//! # Format
//! The table is stored with each checkpoint: the live bytes of each region, 4 bytes each, little-endian. Its own bytes and
//! those of the checkpoint record are live as well.
//!
//! # Locking
//! Belongs to the checkpoint in progress; the store's mutex holds it in between.

use std::collections::BTreeSet;

use super::pointer::{Pointer, SECTOR_BYTES};

/// Bytes of a region: many nodes, and more than the longest node.
pub(super) const REGION_BYTES: u64 = 256 << 10;
/// What the file may have beyond twice its live bytes before anything is moved.
const SLACK_BYTES: u64 = 4 * REGION_BYTES;
/// A region with more live bytes is not worth cleaning.
const VICTIM_LIVE_BYTES_MAX: u32 = (REGION_BYTES / 4 * 3) as u32;
/// The file is cut only when so many regions at its end are free.
const CUT_REGIONS_MIN: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    InUse,
    Retiring,
    Free,
}

/// See the module's documentation.
#[derive(Clone)]
pub(super) struct Regions {
    live_bytes: Vec<u32>,
    states: Vec<State>,
    free: BTreeSet<u32>,
    /// The generation that first wrote to each region in its present life; 0 if that was before the file was opened.
    born: Vec<u64>,
    /// Regions with the generation that they died in.
    retiring: Vec<(u64, u32)>,
    /// The generation that is being written.
    writing: u64,
    /// Where the next piece goes, if there is room in the current region.
    position: u64,
    /// The region that is being filled, perhaps full: then the position is its end.
    current: usize,
}

impl Regions {
    /// Of a new file: only the header's sector is taken.
    pub(super) fn new() -> Regions {
        Regions {
            live_bytes: vec![SECTOR_BYTES as u32],
            states: vec![State::InUse],
            free: BTreeSet::new(),
            born: vec![0],
            retiring: Vec::new(),
            writing: 0,
            position: SECTOR_BYTES as u64,
            current: 0,
        }
    }

    /// From a stored table and the header's position.
    pub(super) fn decode(table: &[u8], position: u64) -> Result<Regions, &'static str> {
        let (numbers, rest) = table.as_chunks::<4>();
        let live_bytes: Vec<u32> = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        let end = live_bytes.len() as u64 * REGION_BYTES;
        if !rest.is_empty()
            || live_bytes.is_empty()
            || position == 0
            || position > end
            || !position.is_multiple_of(SECTOR_BYTES as u64)
            || live_bytes.iter().any(|live| u64::from(*live) > REGION_BYTES)
        {
            return Err("its table of regions contradicts itself");
        }
        let mut regions = Regions {
            states: vec![State::InUse; live_bytes.len()],
            born: vec![0; live_bytes.len()],
            live_bytes,
            free: BTreeSet::new(),
            retiring: Vec::new(),
            writing: 0,
            position,
            current: ((position - 1) / REGION_BYTES) as usize,
        };
        for region in 1..regions.live_bytes.len() {
            if regions.live_bytes[region] == 0 && region != regions.current {
                regions.states[region] = State::Free;
                regions.free.insert(region as u32);
            }
        }
        Ok(regions)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        self.live_bytes.iter().flat_map(|live| live.to_le_bytes()).collect()
    }

    /// Bytes of the stored table.
    pub(super) fn table_bytes(&self) -> u64 {
        self.live_bytes.len() as u64 * 4
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn count(&self) -> usize {
        self.live_bytes.len()
    }

    /// Bytes of all live pieces.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes.iter().map(|live| u64::from(*live)).sum()
    }

    /// Live bytes of each region.
    pub(super) fn table(&self) -> &[u32] {
        &self.live_bytes
    }

    fn left_in_current(&self) -> u64 {
        (self.current as u64 + 1) * REGION_BYTES - self.position
    }

    /// Goes on writing at the start of a free region.
    fn go_to(&mut self, region: usize) {
        self.states[region] = State::InUse;
        self.born[region] = self.writing;
        self.current = region;
        self.position = region as u64 * REGION_BYTES;
    }

    /// Finds room for a piece; `None` when the file would be larger than pointers can say. One that is longer than a
    /// region (a table or a record of an enormous volume) goes to new regions at the end.
    pub(super) fn take(&mut self, len: u32) -> Option<u32> {
        let space = u64::from(len).next_multiple_of(SECTOR_BYTES as u64);
        if space > REGION_BYTES {
            self.position = self.states.len() as u64 * REGION_BYTES;
            let count = self.states.len() + space.div_ceil(REGION_BYTES) as usize;
            self.live_bytes.resize(count, 0);
            self.states.resize(count, State::InUse);
            self.born.resize(count, self.writing);
            self.current = count - 1;
        } else if self.left_in_current() < space {
            if self.free.is_empty() {
                self.grow();
            }
            let region = self.free.pop_first()?;
            self.go_to(region as usize);
        }
        let offset = self.position;
        self.position += space;
        self.each_part(offset, space, |live, part| *live = live.saturating_add(part));
        u32::try_from(offset / SECTOR_BYTES as u64).ok()
    }

    /// Adds a free region at the end of the file.
    pub(super) fn grow(&mut self) {
        self.free.insert(self.states.len() as u32);
        self.live_bytes.push(0);
        self.states.push(State::Free);
        self.born.push(0);
    }

    /// A piece is not part of the next generation any more.
    pub(super) fn release(&mut self, pointer: &Pointer) {
        self.each_part(pointer.offset(), pointer.space(), |live, part| *live = live.saturating_sub(part));
    }

    /// Calls with the live bytes of each region that a piece lies in, and how many bytes of it do.
    fn each_part(&mut self, mut offset: u64, mut space: u64, change: impl Fn(&mut u32, u32)) {
        while space > 0
            && let Some(live) = self.live_bytes.get_mut((offset / REGION_BYTES) as usize)
        {
            let part = space.min(REGION_BYTES - offset % REGION_BYTES);
            change(live, part as u32);
            offset += part;
            space -= part;
        }
    }

    /// Retires what is dead with this generation.
    pub(super) fn retire(&mut self, generation: u64) {
        for region in 1..self.live_bytes.len() {
            if self.live_bytes[region] == 0 && region != self.current && self.states[region] == State::InUse {
                self.states[region] = State::Retiring;
                self.retiring.push((generation, region as u32));
            }
        }
    }

    /// Begins to write a generation: frees what no reader of one of these older generations can see.
    pub(super) fn begin(&mut self, generation: u64, read: &[u64]) {
        self.writing = generation;
        let (born, states, free) = (&self.born, &mut self.states, &mut self.free);
        self.retiring.retain(|&(died, region)| {
            let lived = born[region as usize]..died;
            let seen = read.iter().any(|generation| lived.contains(generation));
            if !seen {
                states[region as usize] = State::Free;
                free.insert(region);
            }
            seen
        });
    }

    /// More than half of a large file is free.
    fn mostly_free(&self) -> bool {
        self.states.len() >= CUT_REGIONS_MIN && self.free.len() > self.states.len() / 2
    }

    /// Before a checkpoint: where most of the file is free, it goes on at the start, so that the end can be cut.
    pub(super) fn turn_back(&mut self) {
        if self.mostly_free()
            && self.current > self.states.len() / 2
            && let Some(region) = self.free.pop_first()
        {
            self.go_to(region as usize);
        }
    }

    /// Regions whose live pieces should move now: the emptiest, when the file is too large for what is live, or the last
    /// ones, when most of it is free.
    pub(super) fn victims(&self) -> Victims {
        let live = self.live_bytes();
        let in_use = self.states.iter().filter(|state| **state == State::InUse).count() as u64;
        let mut used = in_use * REGION_BYTES;
        let mut victims = Victims::default();
        if self.mostly_free() {
            let mut moved = 0;
            for region in
                (self.states.len() / 2..self.states.len()).rev().filter(|region| *region != self.current)
            {
                moved += u64::from(self.live_bytes[region]);
                if moved > moved_bytes_max(live) {
                    break;
                }
                victims.add(region, self.live_bytes[region]);
            }
            return victims;
        }
        if used <= 2 * live + SLACK_BYTES {
            return victims;
        }
        let mut candidates: Vec<usize> = (1..self.live_bytes.len())
            .filter(|region| self.states[*region] == State::InUse && *region != self.current)
            .filter(|region| self.live_bytes[*region] <= VICTIM_LIVE_BYTES_MAX)
            .collect();
        candidates.sort_by_key(|region| self.live_bytes[*region]);
        let mut moved = 0;
        for region in candidates {
            let moves = u64::from(self.live_bytes[region]);
            if moved + moves > moved_bytes_max(live) || used <= live + live / 4 * 3 {
                break;
            }
            moved += moves;
            used -= REGION_BYTES - moves;
            victims.add(region, self.live_bytes[region]);
        }
        victims
    }

    /// Forgets free regions at the end of the file, when they are many; returns the length that is left.
    pub(super) fn cut(&mut self) -> Option<u64> {
        let free = self.states.iter().rev().take_while(|state| **state == State::Free).count();
        if free < CUT_REGIONS_MIN || free < self.states.len() / 2 {
            return None;
        }
        let left = self.states.len() - free;
        self.states.truncate(left);
        self.live_bytes.truncate(left);
        self.born.truncate(left);
        self.free.retain(|region| (*region as usize) < left);
        Some(left as u64 * REGION_BYTES)
    }
}

/// What a checkpoint moves at most, of so many live bytes.
fn moved_bytes_max(live_bytes: u64) -> u64 {
    live_bytes / 8 + REGION_BYTES
}

/// Regions whose live pieces are to move.
#[derive(Clone, Default)]
pub(super) struct Victims {
    regions: Vec<bool>,
    live_bytes: u64,
}

impl Victims {
    fn add(&mut self, region: usize, live_bytes: u32) {
        if self.regions.len() <= region {
            self.regions.resize(region + 1, false);
        }
        self.regions[region] = true;
        self.live_bytes += u64::from(live_bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(super) fn contains(&self, pointer: &Pointer) -> bool {
        let region = (pointer.offset() / REGION_BYTES) as usize;
        self.regions.get(region).copied().unwrap_or(false)
    }
}
