//! Log writes that were issued and wait: the scenario decides in which order they complete.
//!
//! A held write's call does not return. Until it is let go, readers see what was there before, a flush of its file does
//! not cover it, and a power cut keeps any of its sectors or none: so a later write can be on stable storage while an
//! earlier one is not, and the log has a gap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Operation, SimulatedDisk};

/// How a held write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// It is carried out; a durable one is on stable storage when its call returns.
    Succeeds,
    /// Its call returns `EIO`; some of its first sectors may have been written.
    Fails,
}

/// A write that waits to be let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldWrite {
    /// Names it; later writes have higher numbers.
    pub number: u64,
    /// Name of its file; empty when it has none any more.
    pub file: String,
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: usize,
    /// As the caller asked.
    pub durable: bool,
}

/// Which log writes wait, and which may go on.
#[derive(Default)]
pub(super) struct Flight {
    holding: bool,
    /// Not only log writes.
    holding_all: bool,
    /// By the number of the write; with a verdict it may go on.
    waiting: BTreeMap<u64, Option<Completion>>,
}

impl Flight {
    pub(super) fn holds(&self, operation: Operation) -> bool {
        match operation {
            Operation::LogWrite { .. } => self.holding,
            Operation::Write => self.holding && self.holding_all,
            _ => false,
        }
    }

    pub(super) fn issue(&mut self, number: u64) {
        self.waiting.insert(number, None);
    }

    /// The verdict on a write, once there is one.
    pub(super) fn take_verdict(&mut self, number: u64) -> Option<Completion> {
        let verdict = self.waiting.get(&number).copied().flatten()?;
        self.waiting.remove(&number);
        Some(verdict)
    }
}

impl SimulatedDisk {
    /// From now on every [`crate::DiskFile::write_log`] waits in its thread until it is let go with
    /// [`SimulatedDisk::release`], power is lost (its call then fails, and a crash keeps any part of it), or holding
    /// ends, which lets all go in the order in which they were issued.
    ///
    /// ```
    /// # use txfs_disk::{AlignedBuffer, Disk, DiskFile, sim::{Completion, SimOptions, SimulatedDisk}};
    /// # use std::time::Duration;
    /// let disk = SimulatedDisk::new(SimOptions::default());
    /// let file = disk.create("log").unwrap();
    /// file.set_len(1024).unwrap();
    /// file.sync().unwrap();
    /// disk.sync_directory().unwrap();
    /// disk.hold_log_writes(true);
    /// std::thread::scope(|scope| {
    ///     for offset in [0, 512] {
    ///         let file = &file;
    ///         scope.spawn(move || {
    ///             let mut sector = AlignedBuffer::new();
    ///             sector.extend_from_slice(&[7; 512]);
    ///             file.write_log(offset, &sector, true)
    ///         });
    ///     }
    ///     assert!(disk.wait_for_held(2, Duration::from_secs(10)));
    ///     let second = disk.held().into_iter().find(|write| write.offset == 512).unwrap();
    ///     disk.release(second.number, Completion::Succeeds);
    ///     assert!(disk.wait_for_landed(second.number, Duration::from_secs(10)));
    ///     // Whatever a power cut leaves now, the second write is there; the first one perhaps.
    ///     for seed in 0..20 {
    ///         assert_eq!(disk.crash(seed).file_bytes("log").unwrap()[512..], [7; 512]);
    ///     }
    ///     let nothing_in_doubt_kept = disk.crash_where(|_| false).file_bytes("log").unwrap();
    ///     assert_eq!(nothing_in_doubt_kept[..512], [0; 512]);
    ///     disk.hold_log_writes(false);
    /// });
    /// ```
    pub fn hold_log_writes(&self, holding: bool) {
        let mut state = self.shared.state.lock();
        state.flight.holding = holding;
        if !holding {
            for verdict in state.flight.waiting.values_mut() {
                verdict.get_or_insert(Completion::Succeeds);
            }
            drop(state);
            self.shared.released.notify_all();
        }
    }

    /// As [`SimulatedDisk::hold_log_writes`], for writes of every kind: what is written to the index takes its time too.
    pub fn hold_writes(&self, holding: bool) {
        self.shared.state.lock().flight.holding_all = holding;
        self.hold_log_writes(holding);
    }

    /// The writes that wait, in the order in which they were issued.
    pub fn held(&self) -> Vec<HeldWrite> {
        let state = self.shared.state.lock();
        let mut held = Vec::new();
        for (id, file) in &state.files {
            let name = state.names.cached.iter().find(|(_, named)| *named == id);
            for write in &file.contents.lock().in_flight {
                if state.flight.waiting.get(&write.order).is_some_and(Option::is_none) {
                    held.push(HeldWrite {
                        number: write.order,
                        file: name.map_or_else(String::new, |(name, _)| name.to_string()),
                        offset: write.offset,
                        len: write.data.len(),
                        durable: write.durable,
                    });
                }
            }
        }
        held.sort_by_key(|write| write.number);
        held
    }

    /// Lets the write with this number go. False when no such write waits.
    pub fn release(&self, number: u64, completion: Completion) -> bool {
        let mut state = self.shared.state.lock();
        let found = match state.flight.waiting.get_mut(&number) {
            Some(verdict @ None) => {
                *verdict = Some(completion);
                true
            }
            _ => false,
        };
        drop(state);
        self.shared.released.notify_all();
        found
    }

    /// Waits until `count` writes are held at once; false when that takes longer than `timeout`.
    pub fn wait_for_held(&self, count: usize, timeout: Duration) -> bool {
        self.wait_until(timeout, || self.held().len() >= count)
    }

    /// Waits until a write that was let go has been carried out; false when that takes longer than `timeout`.
    pub fn wait_for_landed(&self, number: u64, timeout: Duration) -> bool {
        self.wait_until(timeout, || {
            let state = self.shared.state.lock();
            let in_flight = |file: &super::file::SimFile| {
                file.contents.lock().in_flight.iter().any(|write| write.order == number)
            };
            !state.flight.waiting.contains_key(&number) && !state.files.values().any(|file| in_flight(file))
        })
    }

    fn wait_until(&self, timeout: Duration, reached: impl Fn() -> bool) -> bool {
        let end = Instant::now() + timeout;
        while !reached() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }
}
