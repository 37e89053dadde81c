//! A disk in memory that loses power, tears writes, fails and flips bits, all from a seed.
//!
//! # What it simulates
//! * Every change (a write's sectors, a file's length, a name) is **in doubt** until a sync of the file or the
//!   directory, or for one write `durable`, puts it on stable storage. Readers see changes at once.
//! * [`SimulatedDisk::crash`] gives the disk after a power cut: a *new* disk with what was on stable storage and some
//!   of what was in doubt. The seed draws which: none, all, any subset of sectors, a prefix or suffix of the writes,
//!   a torn last write, all but one ... Lengths and names are metadata, kept in order as journals do.
//! * [`SimulatedDisk::power_off_after`] cuts power at a step, so a scenario can be run once for every step;
//!   [`SimulatedDisk::observe`] calls back at every step instead, so that one run yields the crashes of all steps.
//! * [`SimulatedDisk::hold_log_writes`] keeps log writes in flight until the scenario lets each of them go, in any
//!   order, so that a later one is durable while an earlier one is not.
//! * [`SimulatedDisk::fail_next`] makes operations fail, [`SimulatedDisk::corrupt`] damages what is stored, and
//!   [`SimOptions::lying_flush`] is a drive that only says that it flushed, to see that tests notice.
//!
//! A [`SimulatedDisk`] is a handle: clones are the same disk. Copies made by crashing or forking are disks of their
//! own that share unchanged blocks, so a copy costs a few microseconds whatever the files hold.
//!
//! Locking: the state's lock, then a file's. Observers are called with no lock held.

mod allocation;
mod corrupt;
mod crash;
mod disk;
mod fault;
mod file;
mod flight;
mod handle;
mod image;
mod inspect;
mod names;
mod policy;
mod state;

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::Disk;
#[cfg(doc)]
use crate::DiskFile;

pub use corrupt::{Corruption, Damage};
pub use crash::{Fragment, FragmentKind, Unflushed};
pub use fault::Fault;
pub use flight::{Completion, HeldWrite};

use state::State;

/// How a simulated disk is made.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Seed of what the disk itself decides (how a failing write or flush fails). Crashes have seeds of their own.
    pub seed: u64,
    /// The atomic unit of writes: a power of two from 512 to 4096.
    pub sector_bytes: usize,
    /// Bytes that all files may take together, in whole blocks of 4 KiB that were ever written; without it there is
    /// no limit. Holes take nothing, zeros that were written do, and an overwritten block takes nothing more.
    pub capacity_bytes: Option<u64>,
    /// A misbehaving drive: syncs and durable writes report success, and nothing ever leaves doubt.
    pub lying_flush: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            seed: 0,
            sector_bytes: crate::SECTOR_BYTES_MIN,
            capacity_bytes: None,
            lying_flush: false,
        }
    }
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`DiskFile::read_at`]; not a step.
    Read,
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::write_log`].
    LogWrite {
        /// As the caller asked.
        durable: bool,
    },
    /// [`DiskFile::set_len`].
    SetLen,
    /// [`DiskFile::sync`].
    Sync,
    /// [`Disk::create`].
    Create,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::sync_directory`].
    SyncDirectory,
    /// [`Disk::try_lock`], when it creates the lock's file.
    Lock,
}

/// A moment at which an observer is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the step, from 1.
    pub number: u64,
    /// What it is.
    pub operation: Operation,
    /// False in the midst of a durable or held log write: issued, in doubt, not acknowledged.
    pub complete: bool,
}

type Observer = Arc<dyn Fn(&SimulatedDisk, &Step) + Send + Sync>;

/// Power was cut; every operation fails until the disk is replaced by what [`SimulatedDisk::crash`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerLost;

impl fmt::Display for PowerLost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("power lost (simulated)")
    }
}

impl std::error::Error for PowerLost {}

impl From<PowerLost> for io::Error {
    fn from(lost: PowerLost) -> Self {
        io::Error::other(lost)
    }
}

impl PowerLost {
    /// True when `error` says that power was lost.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<PowerLost>())
    }
}

/// A simulated disk; clones are handles on the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

struct Shared {
    sector_bytes: usize,
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
    /// Woken when a held write may go on, and when power is lost.
    released: Condvar,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedDisk(step {})", self.steps())
    }
}

impl SimulatedDisk {
    /// An empty disk. A sector size that no drive has is taken as the nearest that exists.
    pub fn new(options: SimOptions) -> Self {
        let sector_bytes =
            options.sector_bytes.clamp(crate::SECTOR_BYTES_MIN, image::BLOCK_BYTES).next_power_of_two();
        Self::from_state(State::new(&SimOptions { sector_bytes, ..options }))
    }

    fn from_state(state: State) -> Self {
        let sector_bytes = state.sector_bytes as usize;
        SimulatedDisk {
            shared: Arc::new(Shared {
                sector_bytes,
                state: Mutex::new(state),
                observer: Mutex::new(None),
                released: Condvar::new(),
            }),
        }
    }

    /// This disk as the engine takes it.
    pub fn as_disk(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// The disk after a power cut now: what was on stable storage, and what the seed keeps of the rest. It is
    /// powered, nothing on it is in doubt, and it has no locks, faults or observers. This disk is not changed.
    pub fn crash(&self, seed: u64) -> SimulatedDisk {
        let state = self.shared.state.lock();
        let mut judge = policy::SeededCrash::new(&state, seed);
        Self::from_state(crash::crashed(&state, &mut judge))
    }

    /// As [`SimulatedDisk::crash`], keeping the fragments for which `keep` says so.
    pub fn crash_where(&self, mut keep: impl FnMut(&Fragment) -> bool) -> SimulatedDisk {
        let state = self.shared.state.lock();
        let mut judge = crash::ByFragment::new(&state, &mut keep);
        Self::from_state(crash::crashed(&state, &mut judge))
    }

    /// A copy of the disk as it is, with the same things in doubt: what a new process finds after `kill -9`.
    pub fn fork(&self) -> SimulatedDisk {
        Self::from_state(crash::forked(&self.shared.state.lock()))
    }

    /// How much is in doubt.
    pub fn unflushed(&self) -> Unflushed {
        crash::count(&self.shared.state.lock())
    }

    /// Number of steps so far: writes, length changes, syncs, creates, renames, removes, directory syncs.
    pub fn steps(&self) -> u64 {
        self.shared.state.lock().steps
    }

    /// Lets the step after step number `steps` fail for lack of power, and everything after it; what that step
    /// would have changed is in doubt.
    pub fn power_off_after(&self, steps: u64) {
        self.shared.state.lock().power_off_after = Some(steps);
    }

    /// Cuts power now: every later operation fails.
    pub fn power_off(&self) {
        self.shared.state.lock().power_lost = true;
        self.shared.released.notify_all();
    }

    /// True when power was cut.
    pub fn power_lost(&self) -> bool {
        self.shared.state.lock().power_lost
    }

    /// Makes the `nth` fitting operation from now on fail (1 is the next one).
    pub fn fail_next(&self, fault: Fault, nth: u64) {
        self.shared.state.lock().faults.arm(fault, nth, false);
    }

    /// Makes the `nth` fitting operation from now on, and every one after it, fail.
    pub fn fail_from(&self, fault: Fault, nth: u64) {
        self.shared.state.lock().faults.arm(fault, nth, true);
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.shared.state.lock().faults.clear();
    }

    /// Changes how much the disk holds; `None` is no limit. Files stay, also where they exceed it.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.shared.state.lock().set_capacity(capacity_bytes);
    }

    /// What all files take, as [`SimOptions::capacity_bytes`] counts it.
    pub fn used_bytes(&self) -> u64 {
        self.shared.state.lock().used_bytes()
    }

    /// Switches between an honest drive and one as [`SimOptions::lying_flush`] describes.
    pub fn set_lying_flush(&self, lying: bool) {
        self.shared.state.lock().lying_flush = lying;
    }

    /// Has `observer` called after every step, and in the midst of a durable log write, in the thread that made the
    /// step and with no lock held: there it may crash or fork the disk. Replaces an earlier observer.
    pub fn observe(&self, observer: impl Fn(&SimulatedDisk, &Step) + Send + Sync + 'static) {
        *self.shared.observer.lock() = Some(Arc::new(observer));
    }

    /// Ends the calls to the observer.
    pub fn stop_observing(&self) {
        *self.shared.observer.lock() = None;
    }

    fn tell_observer(&self, number: u64, operation: Operation, complete: bool) {
        self.shared.released.notify_all(); // the step may have been the one in which power was lost
        let observer = self.shared.observer.lock().clone();
        if let Some(observer) = observer {
            observer(self, &Step { number, operation, complete });
        }
    }
}
