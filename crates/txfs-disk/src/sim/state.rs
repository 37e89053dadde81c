//! The state of a simulated disk, and the gate that every operation passes: power, step count, armed faults, space.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::allocation::Allocation;
use super::crash::FileMap;
use super::fault::{Fault, Faults};
use super::file::{Contents, SimFile};
use super::flight::Flight;
use super::image::{Image, fold};
use super::names::Names;
use super::{Operation, PowerLost, SimOptions};

/// Everything that changes on one disk; one lock guards it, and is taken before any file's.
pub(super) struct State {
    pub(super) files: FileMap,
    pub(super) names: Names,
    pub(super) sector_bytes: u64,
    pub(super) lying_flush: bool,
    pub(super) power_off_after: Option<u64>,
    pub(super) power_lost: bool,
    pub(super) steps: u64,
    pub(super) faults: Faults,
    pub(super) flight: Flight,
    /// Files that lost their last name for good; handles may still be open.
    nameless: Vec<Weak<SimFile>>,
    pub(super) random: fastrand::Rng,
    /// Notes of the locks that are held, by name.
    pub(super) locks: BTreeMap<String, String>,
    capacity_bytes: Option<u64>,
    next_file: u64,
    next_order: u64,
}

/// How an operation fares. Whatever is not `Pass` ends in an error.
pub(super) enum Gate {
    Pass,
    /// Power fails during it: what it would have changed is in doubt.
    PowerFails,
    Fails(Fault),
}

impl State {
    pub(super) fn new(options: &SimOptions) -> Self {
        State {
            files: FileMap::new(),
            names: Names::default(),
            sector_bytes: options.sector_bytes as u64,
            lying_flush: options.lying_flush,
            power_off_after: None,
            power_lost: false,
            steps: 0,
            faults: Faults::default(),
            flight: Flight::default(),
            nameless: Vec::new(),
            random: fastrand::Rng::with_seed(options.seed),
            locks: BTreeMap::new(),
            capacity_bytes: options.capacity_bytes,
            next_file: 0,
            next_order: 1,
        }
    }

    /// The state of a disk that goes on from this one: powered, without faults, locks or counted steps.
    pub(super) fn successor(&self, names: Names, files: FileMap) -> State {
        State {
            files,
            names,
            sector_bytes: self.sector_bytes,
            lying_flush: self.lying_flush,
            power_off_after: None,
            power_lost: false,
            steps: 0,
            faults: Faults::default(),
            flight: Flight::default(),
            nameless: Vec::new(),
            random: fastrand::Rng::with_seed(fold(self.next_order, 0x5851_f42d_4c95_7f2d)),
            locks: BTreeMap::new(),
            capacity_bytes: self.capacity_bytes,
            next_file: self.next_file,
            next_order: self.next_order,
        }
    }

    /// Lets an operation pass or fail. Reading is not a step.
    pub(super) fn enter(&mut self, operation: Operation) -> io::Result<Gate> {
        self.require_power()?;
        if operation != Operation::Read {
            if self.power_off_after.is_some_and(|last| self.steps >= last) {
                self.power_lost = true;
                return Ok(Gate::PowerFails);
            }
            self.steps += 1;
        }
        Ok(self.faults.strike(operation).map_or(Gate::Pass, Gate::Fails))
    }

    pub(super) fn require_power(&self) -> io::Result<()> {
        if self.power_lost { Err(PowerLost.into()) } else { Ok(()) }
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order - 1
    }

    pub(super) fn add_file(&mut self) -> Arc<SimFile> {
        let id = self.next_file;
        self.next_file += 1;
        let file =
            SimFile::new(id, Contents::settled(Image::default(), Allocation::default(), self.sector_bytes));
        self.files.insert(id, file.clone());
        file
    }

    /// Drops the files that no name, on stable storage or not, leads to; open handles keep theirs.
    pub(super) fn drop_nameless_files(&mut self) {
        if self.names.in_doubt.is_empty() {
            let names = &self.names;
            let nameless = &mut self.nameless;
            nameless.retain(|file| file.strong_count() > 0);
            self.files.retain(|id, file| {
                let named = names.cached.values().any(|named| named == id)
                    || names.stable.values().any(|named| named == id);
                if !named {
                    nameless.push(Arc::downgrade(file));
                }
                named
            });
        }
    }

    pub(super) fn file_named(&self, name: &str) -> Option<&Arc<SimFile>> {
        self.files.get(self.names.cached.get(name)?)
    }

    /// What all files take that have a name or an open handle: blocks that were ever written, zeros included. Holes
    /// take nothing.
    pub(super) fn used_bytes(&self) -> u64 {
        let bytes = |file: &SimFile| file.contents.lock().allocation.bytes();
        let named = self.names.cached.values().filter_map(|id| self.files.get(id)).map(|file| bytes(file));
        let used: u64 = named.sum();
        let open = |file: &&Arc<SimFile>| file.handles.load(Ordering::Relaxed) > 0;
        let unnamed =
            self.files.iter().filter(|(id, _)| !self.names.cached.values().any(|named| named == *id));
        let unlinked: u64 = unnamed.map(|(_, file)| file).filter(open).map(|file| bytes(file)).sum();
        let gone = self.nameless.iter().filter_map(Weak::upgrade);
        let deleted: u64 = gone.filter(|file| open(&file)).map(|file| bytes(&file)).sum();
        used + unlinked + deleted
    }

    pub(super) fn free_bytes(&self) -> u64 {
        /// What a disk without a limit claims to hold.
        const ENDLESS_BYTES: u64 = 1 << 44;
        match self.capacity_bytes {
            Some(capacity_bytes) => capacity_bytes.saturating_sub(self.used_bytes()),
            None => ENDLESS_BYTES,
        }
    }

    /// `ENOSPC` where a write of `[offset, end)` needs more blocks than there are. No file may be locked.
    pub(super) fn require_space(&self, file: &SimFile, offset: u64, end: u64) -> io::Result<()> {
        if self.capacity_bytes.is_none() {
            return Ok(());
        }
        let wanted = file.contents.lock().allocation.missing_bytes(offset, end);
        if wanted > 0 && wanted > self.free_bytes() {
            return Err(no_space());
        }
        Ok(())
    }

    pub(super) fn set_capacity(&mut self, capacity_bytes: Option<u64>) {
        self.capacity_bytes = capacity_bytes;
    }
}

pub(super) fn no_space() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

pub(super) fn input_output_error() -> io::Error {
    rustix::io::Errno::IO.into()
}
