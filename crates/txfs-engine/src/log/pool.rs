//! The segment files of a volume: those in use, those that wait until nobody can see them any more, and spare ones.
//!
//! A segment's life: *spare* (zero-filled or recycled) → *in use* (taken by the appender) → *retired* (the index on
//! stable storage refers to nothing in it) → spare again, when the last snapshot that could see it is gone.
//!
//! Invariant: a segment stands in at most one of the three lists. One that is being made, handed over or removed stands
//! in none: it is nobody's to retire or to take. So "in use" is a list of its own, not what the others leave over.
//!
//! Segments are written with zeros before their first use, so that a commit never allocates space on the host.
//! Locking: one mutex of its own; file creation happens outside it except when the appender finds no spare segment.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use txfs_disk::{AlignedBuffer, Disk, DiskFile};

use crate::broken::{self, Fault};
use crate::error::{EngineError, Result};
use crate::format::SegmentHeader;
use crate::format::segment::SEGMENT_HEADER_BYTES;

const ZERO_FILL_BYTES: usize = 1 << 20;

/// One segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
    /// Transactions that placed data here and have not committed yet.
    pub(crate) pins: Arc<AtomicU64>,
    /// Found when the volume was opened: if the process before was killed while it made the file, its length and
    /// zeros may be in the host's cache only, and a durable write into it would not bring them to stable storage.
    unsynced: AtomicBool,
    /// Number of the first record of its present life; 0 while unknown.
    first_record: AtomicU64,
    /// The last commit when its present life began: snapshots before it see nothing here. 0 if that was before the volume
    /// was opened.
    born: AtomicU64,
}

/// Whether a snapshot is in use that sees what was committed after the first of two commits, or with it, and was gone
/// with the second.
pub(crate) type Seen<'a> = &'a dyn Fn(u64, u64) -> bool;

/// What a segment is wanted for: decides how many others must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// New file data, of users.
    Data,
    /// File data that a cleaner moves.
    Cleaning,
    /// Changes of names and attributes, and what makes a volume emptier.
    Metadata,
}

impl Purpose {
    /// Segments that must be there beside the one taken. So what users write leaves two for a cleaner, which needs
    /// space before it gains some, and the cleaner leaves one for deleting.
    pub(crate) fn kept(self) -> u64 {
        match self {
            Purpose::Data => RESERVED_SEGMENTS,
            Purpose::Cleaning => 1,
            Purpose::Metadata => 0,
        }
    }
}

/// Segments that file data of users never gets.
pub(crate) const RESERVED_SEGMENTS: u64 = 3;

impl Segment {
    /// The name of the file.
    pub(crate) fn file_name(id: u64) -> String {
        format!("segment-{id:010}")
    }

    /// The id in a file name.
    pub(crate) fn parse_name(name: &str) -> Option<u64> {
        name.strip_prefix("segment-")?.parse().ok()
    }

    pub(crate) fn name(&self) -> String {
        Segment::file_name(self.id)
    }
}

/// Where each segment is in its life.
#[derive(Debug, Default)]
struct Lists {
    in_use: BTreeMap<u64, Arc<Segment>>,
    spare: Vec<Arc<Segment>>,
    /// With the commit that took the last live data out of them: snapshots between their birth and that commit may
    /// still see them.
    retired: Vec<(Arc<Segment>, u64)>,
    /// How many are being made: they count against the size limit before they exist.
    making: u64,
    next_id: u64,
}

impl Lists {
    /// Makes those spare that nobody can see any more; returns how many.
    fn recycle(&mut self, seen: Seen<'_>) -> u64 {
        let before = self.spare.len();
        let mut index = 0;
        while index < self.retired.len() {
            let (segment, died) = &self.retired[index];
            if !seen(segment.born(), *died) || broken::has(Fault::RecycleInSight) {
                let (segment, _) = self.retired.swap_remove(index);
                segment.set_first_record(0);
                self.spare.push(segment);
            } else {
                index += 1;
            }
        }
        (self.spare.len() - before) as u64
    }
}

/// What somebody may wait for who finds no segment to take.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// As [`SegmentPool::freed`].
    pub(crate) freed: u64,
    /// A segment is being made.
    pub(crate) making: bool,
    /// The lives of retired segments: each comes free when the snapshots of the commits in its range are gone.
    pub(crate) lives: Vec<Range<u64>>,
}

/// All segments of a volume.
#[derive(Debug)]
pub(crate) struct SegmentPool {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    /// How many there may be.
    segments_max: u64,
    /// Every segment that has a file, for readers.
    all: RwLock<BTreeMap<u64, Arc<Segment>>>,
    /// Taken before `all` where both are.
    lists: Mutex<Lists>,
    /// One that was being made stands in a list now, or will not.
    made: Condvar,
    /// How many segments came to be spare. Changed with the lists' lock held, and looked at by every commit.
    freed: AtomicU64,
}

impl SegmentPool {
    /// An empty pool; recovery fills it.
    pub(crate) fn new(disk: Arc<dyn Disk>, segment_bytes: u64, segments_max: u64) -> SegmentPool {
        let lists = Lists { next_id: 1, ..Lists::default() };
        let (all, made) = (RwLock::default(), Condvar::new());
        let freed = AtomicU64::new(0);
        SegmentPool { disk, segment_bytes, segments_max, all, lists: Mutex::new(lists), made, freed }
    }

    /// Opens every segment file of the volume; all of them count as in use until [`SegmentPool::release`]. A file that a
    /// crash left shorter than a segment while it was being made is removed: nothing can refer to it, since segments are
    /// synced whole before their first use.
    pub(crate) fn open_all(&self, referred: &dyn Fn(u64) -> bool) -> Result<()> {
        let names = self.disk.list().map_err(|error| EngineError::io("listing the volume", error))?;
        for name in names {
            let Some(id) = Segment::parse_name(&name) else { continue };
            let file = self
                .disk
                .open_one_of_many(&name)
                .map_err(|error| EngineError::io(format!("opening {name}"), error))?;
            let len = file.len().map_err(|error| EngineError::io(format!("measuring {name}"), error))?;
            if len < self.segment_bytes {
                if referred(id) {
                    let detail = format!("it has {len} bytes and must have {}", self.segment_bytes);
                    return Err(EngineError::Corrupt { place: name, detail });
                }
                self.disk
                    .remove(&name)
                    .map_err(|error| EngineError::io(format!("removing {name}"), error))?;
            } else {
                let segment = Arc::new(Segment {
                    id,
                    file,
                    bytes: self.segment_bytes,
                    pins: Arc::default(),
                    unsynced: AtomicBool::new(true),
                    first_record: AtomicU64::new(0),
                    born: AtomicU64::new(0),
                });
                self.lists.lock().in_use.insert(id, segment.clone());
                self.all.write().insert(id, segment);
            }
            let mut lists = self.lists.lock();
            lists.next_id = lists.next_id.max(id + 1);
        }
        Ok(())
    }

    /// The segment with this id.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Segment>> {
        self.all.read().get(&id).cloned()
    }

    /// All segments, in order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.all.read().values().cloned().collect()
    }

    /// Puts a segment that was in use, and holds nothing that anybody could see, among the spare ones.
    pub(crate) fn release(&self, segment: &Segment) {
        let mut lists = self.lists.lock();
        if let Some(segment) = lists.in_use.remove(&segment.id) {
            lists.spare.push(segment);
        }
    }

    /// A segment to append to: a spare one, a retired one that is not seen any more, or a new one.
    ///
    /// `reserve_bytes` stay free on the host for the next checkpoint, and as many segments as the purpose says for
    /// others: without either, a full volume could not be made emptier.
    pub(crate) fn take(&self, seen: Seen<'_>, reserve_bytes: u64, purpose: Purpose) -> Result<Arc<Segment>> {
        let wanted = 1 + purpose.kept();
        let spare = self.spare(seen);
        if spare < wanted && spare + self.creatable(reserve_bytes)? < wanted {
            return Err(no_space());
        }
        if let Some(segment) = self.take_unused(seen) {
            if segment.unsynced.load(Ordering::Acquire) {
                let doing = || format!("flushing {}", segment.name());
                segment.file.sync().map_err(|error| EngineError::io(doing(), error))?;
                segment.unsynced.store(false, Ordering::Release);
            }
            return Ok(segment);
        }
        self.make(|lists, segment| drop(lists.in_use.insert(segment.id, segment)))?.ok_or_else(no_space)
    }

    /// Segments that can be taken: those that are spare, and those that can be made.
    pub(crate) fn available(&self, seen: Seen<'_>, reserve_bytes: u64) -> Result<u64> {
        Ok(self.spare(seen) + self.creatable(reserve_bytes)?)
    }

    /// How many segments came to be spare since the volume was opened. Who found none to take, and finds that this has
    /// changed since, has something to look at: others may have taken those again, and left room in them.
    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }

    fn recycle(&self, lists: &mut Lists, seen: Seen<'_>) {
        let freed = lists.recycle(seen);
        self.freed.fetch_add(freed, Ordering::AcqRel);
    }

    /// Segments that can be taken without making one.
    pub(crate) fn spare(&self, seen: Seen<'_>) -> u64 {
        let mut lists = self.lists.lock();
        self.recycle(&mut lists, seen);
        lists.spare.len() as u64
    }

    /// Segments that the host and the volume's size limit still have room for, with `reserve_bytes` left on the host.
    pub(crate) fn creatable(&self, reserve_bytes: u64) -> Result<u64> {
        Ok(self.host_has_room_for(reserve_bytes)?.min(self.allowed()))
    }

    /// Segments that there can be altogether: those that there are, and as many as the host and the volume's size limit
    /// have room for. One that is being made is among the latter still, so what is possible does not dip meanwhile.
    pub(crate) fn possible(&self, reserve_bytes: u64) -> Result<u64> {
        let all = self.all.read().len() as u64;
        let room = self.host_has_room_for(reserve_bytes)?;
        Ok(all + room.min(self.segments_max.saturating_sub(all)))
    }

    /// Segments that the host has room for, with `reserve_bytes` left.
    fn host_has_room_for(&self, reserve_bytes: u64) -> Result<u64> {
        let free = self.disk.free_bytes().map_err(|error| EngineError::io("asking for free space", error))?;
        Ok(free.saturating_sub(reserve_bytes) / self.segment_bytes)
    }

    /// Segments that the volume's size limit permits beside those that there are.
    fn allowed(&self) -> u64 {
        let lists = self.lists.lock();
        self.segments_max.saturating_sub(self.all.read().len() as u64 + lists.making)
    }

    fn take_unused(&self, seen: Seen<'_>) -> Option<Arc<Segment>> {
        let mut lists = self.lists.lock();
        self.recycle(&mut lists, seen);
        let segment = lists.spare.pop()?;
        lists.in_use.insert(segment.id, segment.clone());
        Some(segment)
    }

    /// What can come free, all of it at one moment: of retired segments those whose life ended with the commit `newest` or
    /// before.
    pub(crate) fn outlook(&self, newest: Option<u64>) -> Outlook {
        let lists = self.lists.lock();
        let lives = lists.retired.iter().map(|(segment, died)| segment.born()..*died);
        let lives = lives.filter(|life| newest.is_none_or(|newest| life.end <= newest)).collect();
        Outlook { freed: self.freed(), making: lists.making > 0, lives }
    }

    /// The lives of all retired segments.
    pub(crate) fn retired_lives(&self) -> Vec<Range<u64>> {
        self.lists.lock().retired.iter().map(|(segment, died)| segment.born()..*died).collect()
    }

    /// Waits for segments that are being made: until then they cannot be taken, though they count.
    pub(crate) fn wait_for_made(&self) {
        let mut lists = self.lists.lock();
        while lists.making > 0 {
            self.made.wait(&mut lists);
        }
    }

    /// Makes spare segments until there are `count`, as far as the size limit permits; for the background thread.
    pub(crate) fn prepare(&self, count: usize, seen: Seen<'_>, reserve_bytes: u64) -> Result<()> {
        while self.spare(seen) < count as u64 {
            // Two questions, each asked once: one that asks for both at a time, and then which of them it was, finds
            // neither when others remove a segment between.
            if self.allowed() == 0 {
                return Ok(());
            }
            if self.host_has_room_for(reserve_bytes)? == 0 {
                return Err(no_space());
            }
            let list = |lists: &mut Lists, segment| {
                lists.spare.push(segment);
                // It counted as one to be made; while it was being made it was nobody's.
                self.freed.fetch_add(1, Ordering::AcqRel);
            };
            if self.make(list)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes segments until there are `count` in all.
    pub(crate) fn preallocate(&self, count: u64) -> Result<()> {
        while (self.all.read().len() as u64) < count {
            if self.creatable(0)? == 0 {
                return Err(EngineError::NoSpace { doing: "the segments to preallocate".into() });
            }
            self.make(|lists, segment| lists.spare.push(segment))?.ok_or_else(no_space)?;
        }
        Ok(())
    }

    /// Removes the files of spare segments until `spare_kept` are left and there are not fewer than `all_kept` in all;
    /// returns how many it removed.
    pub(crate) fn give_back(&self, seen: Seen<'_>, spare_kept: u64, all_kept: u64) -> Result<u64> {
        let mut removed = 0;
        loop {
            let segment = {
                let mut lists = self.lists.lock();
                self.recycle(&mut lists, seen);
                let mut all = self.all.write();
                if lists.spare.len() as u64 <= spare_kept || all.len() as u64 <= all_kept {
                    break;
                }
                let newest = lists.spare.iter().enumerate().max_by_key(|(_, segment)| segment.id);
                let Some((index, _)) = newest else { break };
                let segment = lists.spare.swap_remove(index);
                all.remove(&segment.id);
                segment
            };
            self.disk
                .remove(&segment.name())
                .map_err(|error| EngineError::io(format!("removing {}", segment.name()), error))?;
            removed += 1;
        }
        if removed > 0 {
            let doing = "syncing the directory after removing segments";
            self.disk.sync_directory().map_err(|error| EngineError::io(doing, error))?;
        }
        Ok(removed)
    }

    /// Notes that the durable index refers to nothing in `segment`, and no snapshot from commit `sequence` on does.
    pub(crate) fn retire(&self, segment: &Segment, sequence: u64) {
        let mut lists = self.lists.lock();
        if let Some(segment) = lists.in_use.remove(&segment.id) {
            lists.retired.push((segment, sequence));
        }
    }

    /// Segments that the log has begun to fill and that were not retired since, in order of their ids.
    pub(crate) fn in_use(&self) -> Vec<Arc<Segment>> {
        self.lists.lock().in_use.values().cloned().collect()
    }

    /// Counts of (all, spare, retired) segments.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let lists = self.lists.lock();
        (self.all.read().len(), lists.spare.len(), lists.retired.len())
    }

    /// Creates a segment file: zeros written and synced, and its name made durable, before anybody may use it; `list` puts
    /// it where it belongs. `None` where the size limit permits no more.
    fn make(&self, list: impl FnOnce(&mut Lists, Arc<Segment>)) -> Result<Option<Arc<Segment>>> {
        let id = {
            let mut lists = self.lists.lock();
            if self.all.read().len() as u64 + lists.making >= self.segments_max {
                return Ok(None);
            }
            lists.making += 1;
            lists.next_id += 1;
            lists.next_id - 1
        };
        let name = Segment::file_name(id);
        let filled = self.fill(id, &name);
        let mut lists = self.lists.lock();
        lists.making -= 1;
        self.made.notify_all();
        let segment = match filled {
            Ok(segment) => segment,
            Err(error) => {
                drop(lists);
                // A half-made segment only takes space; that it may stay behind harms nobody.
                let _ = self.disk.remove(&name);
                return Err(EngineError::io(format!("making {name}"), error));
            }
        };
        self.all.write().insert(id, segment.clone());
        list(&mut lists, segment.clone());
        Ok(Some(segment))
    }

    fn fill(&self, id: u64, name: &str) -> std::io::Result<Arc<Segment>> {
        let file = self.disk.create_one_of_many(name)?;
        file.set_len(self.segment_bytes)?;
        let mut zeros = AlignedBuffer::new();
        let mut offset = 0;
        while offset < self.segment_bytes {
            zeros.clear();
            zeros.extend_zeros(ZERO_FILL_BYTES.min((self.segment_bytes - offset) as usize));
            // As log writes, so that the host's page cache holds no zeros that later writes have to push out.
            file.write_log(offset, &zeros, false)?;
            offset += zeros.len() as u64;
        }
        file.sync()?;
        self.disk.sync_directory()?;
        Ok(Arc::new(Segment {
            id,
            file,
            bytes: self.segment_bytes,
            pins: Arc::default(),
            unsynced: AtomicBool::new(false),
            first_record: AtomicU64::new(0),
            born: AtomicU64::new(0),
        }))
    }
}

/// Refuses another segment.
pub(crate) fn no_space() -> EngineError {
    EngineError::NoSpace { doing: "another log segment".into() }
}

impl Segment {
    /// Notes that its present life begins with record `number`.
    pub(crate) fn set_first_record(&self, number: u64) {
        self.first_record.store(number, Ordering::Relaxed);
    }

    /// Notes that its present life begins after commit `sequence`: what is committed in it comes later, or is a deferred
    /// commit that snapshots before `sequence` see in memory.
    pub(crate) fn set_born(&self, sequence: u64) {
        self.born.store(sequence, Ordering::Relaxed);
    }

    /// See [`Segment::set_born`].
    pub(crate) fn born(&self) -> u64 {
        self.born.load(Ordering::Relaxed)
    }

    /// Number of the first record of its present life, read from its header where nobody knows it yet.
    pub(crate) fn first_record(&self) -> u64 {
        let known = self.first_record.load(Ordering::Relaxed);
        if known > 0 {
            return known;
        }
        let first = self.header().map_or(0, |header| header.first_record);
        self.set_first_record(first);
        first
    }

    /// Its header as it stands in the file; none when it cannot be read.
    pub(crate) fn header(&self) -> Option<SegmentHeader> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        self.file.read_at(0, &mut bytes).ok()?;
        SegmentHeader::decode(&bytes).ok()
    }

    /// True while placed data here waits for its commit.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
