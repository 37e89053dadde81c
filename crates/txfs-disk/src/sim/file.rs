//! One simulated file: what readers see, what is on stable storage, and the changes in between.
//!
//! A change in doubt is a length, or a write as a range of whole sectors together with the contents right after it.
//! Writes smaller than a sector become the whole sector as it then stood, as a page cache writes it; so a crash that
//! keeps the last of several writes to a sector keeps what the earlier ones put there.
//!
//! Invariant, unless a flush failed (`diverged`): `stable` with all changes in doubt applied in order is `cached`.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;

use super::allocation::Allocation;
use super::image::Image;

/// A file, shared by its names and its open handles. The disk's state lock is taken before this one.
pub(super) struct SimFile {
    /// Stays the same across renames, crashes and forks.
    pub(super) id: u64,
    /// Open handles: a file without a name takes space until the last one is dropped.
    pub(super) handles: AtomicUsize,
    pub(super) contents: Mutex<Contents>,
}

/// A log write that was issued and has not returned: readers do not see it yet, a power cut may keep any of it.
#[derive(Clone)]
pub(super) struct InFlight {
    /// When it was issued, in the order of all changes on this disk.
    pub(super) order: u64,
    pub(super) offset: u64,
    pub(super) data: Arc<[u8]>,
    pub(super) durable: bool,
}

/// A change that a power cut may lose.
#[derive(Clone)]
pub(super) struct InDoubt {
    /// Position in the order of all changes on this disk.
    pub(super) order: u64,
    pub(super) change: Change,
}

#[derive(Clone)]
pub(super) enum Change {
    /// The file grew, by being extended or by a write past its end.
    Grow(u64),
    /// The file was cut.
    Cut(u64),
    /// Whole sectors were written.
    Write {
        /// In bytes, at sector boundaries; may reach past the end of the file by less than a sector.
        range: Range<u64>,
        /// The contents right after the write.
        after: Image,
    },
}

/// A part of a change in doubt: the unit of a crash's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Length,
    /// The sector that starts at this offset.
    Sector(u64),
}

#[derive(Clone)]
pub(super) struct Contents {
    /// What readers see.
    pub(super) cached: Image,
    /// What a power cut leaves when it loses everything in doubt.
    pub(super) stable: Image,
    pub(super) in_doubt: Vec<InDoubt>,
    /// In the order in which they were issued.
    pub(super) in_flight: Vec<InFlight>,
    /// The blocks that the file takes on the host.
    pub(super) allocation: Allocation,
    /// A flush failed: `cached` holds data that will never reach stable storage.
    diverged: bool,
    sector_bytes: u64,
}

impl SimFile {
    pub(super) fn new(id: u64, contents: Contents) -> Arc<SimFile> {
        Arc::new(SimFile { id, handles: AtomicUsize::new(0), contents: Mutex::new(contents) })
    }
}

impl Contents {
    /// A file whose contents are entirely on stable storage.
    pub(super) fn settled(image: Image, mut allocation: Allocation, sector_bytes: u64) -> Self {
        allocation.cut_to(image.len());
        Contents {
            cached: image.clone(),
            stable: image,
            in_doubt: Vec::new(),
            in_flight: Vec::new(),
            allocation,
            diverged: false,
            sector_bytes,
        }
    }

    /// The contents as they are when what is in flight has arrived, though not on stable storage.
    pub(super) fn arrived(&self) -> Cow<'_, Contents> {
        if self.in_flight.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut arrived = self.clone();
        for write in std::mem::take(&mut arrived.in_flight) {
            arrived.write(write.order, write.offset, &write.data);
        }
        arrived.in_doubt.sort_by_key(|entry| entry.order);
        Cow::Owned(arrived)
    }

    /// Writes into the cache; the file grows where needed.
    pub(super) fn write(&mut self, order: u64, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        if end > self.cached.len() {
            self.in_doubt.push(InDoubt { order, change: Change::Grow(end) });
            self.cached.grow_to(end);
        }
        self.cached.write(offset, data);
        self.allocation.add(offset, end);
        let range = offset - offset % self.sector_bytes..end.next_multiple_of(self.sector_bytes);
        self.in_doubt.push(InDoubt { order, change: Change::Write { range, after: self.cached.clone() } });
    }

    pub(super) fn set_len(&mut self, order: u64, len: u64) {
        if len > self.cached.len() {
            self.cached.grow_to(len);
            self.in_doubt.push(InDoubt { order, change: Change::Grow(len) });
        } else if len < self.cached.len() {
            self.cached.cut_to(len);
            self.allocation.cut_to(len);
            self.in_doubt.push(InDoubt { order, change: Change::Cut(len) });
        }
    }

    /// Everything so far reaches stable storage.
    pub(super) fn flush(&mut self) {
        self.stable = self.all_kept();
        self.in_doubt.clear();
    }

    /// The write with this `order` reaches stable storage, other changes stay in doubt, but earlier ones can no
    /// longer overwrite it. Where a cut is in doubt the whole file is flushed: the journal commit that such a write
    /// needs carries the cut with it.
    pub(super) fn flush_write(&mut self, order: u64) {
        let written = self.in_doubt.iter().rev().find_map(|entry| match &entry.change {
            Change::Write { range, after } if entry.order == order => Some((range.clone(), after.clone())),
            _ => None,
        });
        let Some((written, after)) = written else {
            return; // a flush of the whole file came in between
        };
        if self.in_doubt.iter().any(|entry| matches!(entry.change, Change::Cut(_))) {
            return self.flush();
        }
        self.stable.grow_to(written.end.min(after.len()));
        self.stable.copy_from(&after, written.start, written.end);
        let entries = std::mem::take(&mut self.in_doubt);
        for entry in entries {
            match entry.change {
                Change::Write { range, after } if entry.order <= order && overlap(&range, &written) => {
                    for rest in [range.start..written.start, written.end..range.end] {
                        if rest.start < rest.end {
                            let change = Change::Write { range: rest, after: after.clone() };
                            self.in_doubt.push(InDoubt { order: entry.order, change });
                        }
                    }
                }
                _ => self.in_doubt.push(entry),
            }
        }
        if self.in_doubt.is_empty() && !self.diverged {
            self.stable = self.cached.clone(); // equal anyway; this shares the memory again
        }
    }

    /// A flush that failed, as Linux has it: some of what was in doubt reached stable storage, the rest is forgotten
    /// and no later flush will write it, although readers may go on to see it until the cache is `evicted`.
    pub(super) fn fail_flush(&mut self, random: &mut fastrand::Rng, evicted: bool) {
        let lengths = random.bool();
        self.stable = self.survivors(&mut |_, part| match part {
            Part::Length => lengths,
            Part::Sector(_) => random.bool(),
        });
        self.in_doubt.clear();
        self.diverged = true;
        if evicted {
            // lengths live in the inode, which stays; only pages go
            let len = self.cached.len();
            let mut cached = self.stable.clone();
            cached.grow_to(len);
            cached.cut_to(len);
            self.cached = cached;
        }
    }

    /// Damages both what readers see and what is on stable storage; the caller stays within the length.
    pub(super) fn damage(&mut self, offset: u64, bytes: &[u8]) {
        let shared = self.in_doubt.is_empty() && !self.diverged;
        self.cached.write(offset, bytes);
        if shared {
            self.stable = self.cached.clone();
        } else {
            self.stable.write(offset, bytes);
        }
    }

    /// What stable storage holds when everything in doubt gets there.
    pub(super) fn all_kept(&self) -> Image {
        if self.diverged { self.survivors(&mut |_, _| true) } else { self.cached.clone() }
    }

    /// What stable storage holds after a crash that keeps the parts for which `keep` says so. Once a length is lost,
    /// so are the later ones, whatever `keep` says: lengths are metadata, which host file systems commit in order.
    pub(super) fn survivors(&self, keep: &mut dyn FnMut(&InDoubt, Part) -> bool) -> Image {
        let mut image = self.stable.clone();
        let mut lengths_kept = true;
        for entry in &self.in_doubt {
            match &entry.change {
                Change::Grow(len) => {
                    lengths_kept &= keep(entry, Part::Length);
                    if lengths_kept {
                        image.grow_to(*len);
                    }
                }
                Change::Cut(len) => {
                    lengths_kept &= keep(entry, Part::Length);
                    if lengths_kept {
                        image.cut_to(*len);
                    }
                }
                Change::Write { range, after } => {
                    let mut run_start = range.start;
                    let mut sector = range.start;
                    while sector < range.end {
                        let next = (sector + self.sector_bytes).min(range.end);
                        if !keep(entry, Part::Sector(sector)) {
                            image.copy_from(after, run_start, sector);
                            run_start = next;
                        }
                        sector = next;
                    }
                    image.copy_from(after, run_start, range.end);
                }
            }
        }
        image
    }
}

fn overlap(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}
