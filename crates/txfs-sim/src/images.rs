//! Takes images of what a power cut or a killed process would leave, at every step of a simulated disk.

use std::sync::Arc;

use parking_lot::Mutex;
use txfs_disk::sim::{SimulatedDisk, Step};

use crate::hash::{derive_seed, hash_bytes};

/// How the running process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Power was cut: what was not flushed may be lost.
    PowerCut,
    /// The process was killed: what it had written stays.
    Killed,
}

/// A disk as the next process finds it.
#[derive(Debug)]
pub struct Image {
    /// The disk.
    pub disk: SimulatedDisk,
    /// How it came about.
    pub end: End,
    /// The step of input or output at which it was taken; 0 is before the first.
    pub step: u64,
    /// The seed of the crash; also decides what is done with the image.
    pub seed: u64,
    /// Digest of everything on it.
    pub fingerprint: u64,
    /// Index of the newest commit that it must hold.
    pub oldest: usize,
    /// Index of the newest commit that was acknowledged as durable when it was taken.
    pub durable: usize,
}

impl Image {
    /// In words.
    pub fn describe(&self) -> String {
        let end = match self.end {
            End::PowerCut => "power cut",
            End::Killed => "process killed",
        };
        format!("{end} at disk step {} (crash seed {:#018x})", self.step, self.seed)
    }
}

#[derive(Default)]
struct State {
    images: Vec<Image>,
    seed: u64,
    per_step: u32,
    counter: u64,
    /// What the images must at least hold.
    durable: usize,
    handed: usize,
    steps: u64,
    /// The last disk state of which images were taken, so that states without a change are not taken twice.
    trace_digest: u64,
}

/// Collects images. Clones share one collection.
#[derive(Clone, Default)]
pub struct ImageCollector {
    state: Arc<Mutex<State>>,
}

impl ImageCollector {
    /// Watches `disk`; `per_step` power cuts are tried at each of its steps, with seeds drawn from `seed`.
    pub fn watch(disk: &SimulatedDisk, seed: u64, per_step: u32) -> Self {
        let collector = ImageCollector::default();
        {
            let mut state = collector.state.lock();
            state.seed = seed;
            state.per_step = per_step;
        }
        let watcher = collector.clone();
        disk.observe(move |disk, step| watcher.take(disk, Some(step)));
        collector
    }

    /// From now on images must hold at least these commits.
    pub fn expect_at_least(&self, durable: usize, handed: usize) {
        let mut state = self.state.lock();
        state.durable = durable;
        state.handed = handed;
    }

    /// Changes how many power cuts are tried at each step.
    pub fn set_per_step(&self, per_step: u32) {
        self.state.lock().per_step = per_step;
    }

    /// Takes images of the disk as it is between two steps.
    pub fn take_now(&self, disk: &SimulatedDisk) {
        self.take(disk, None);
    }

    fn take(&self, disk: &SimulatedDisk, step: Option<&Step>) {
        let mut state = self.state.lock();
        let number = step.map_or(state.steps, |step| step.number);
        if step.is_some() {
            state.steps = number;
            state.trace_digest = derive_seed(state.trace_digest, hash_bytes(format!("{step:?}").as_bytes()));
        }
        for _ in 0..state.per_step {
            state.counter += 1;
            let seed = derive_seed(state.seed, state.counter);
            // A killed process leaves one state per step, so it need not be tried often.
            let end = if seed.is_multiple_of(8) { End::Killed } else { End::PowerCut };
            let (image, oldest) = match end {
                End::PowerCut => (disk.crash(seed), state.durable),
                End::Killed => (disk.fork(), state.handed),
            };
            let fingerprint = image.fingerprint();
            let durable = state.durable;
            state.images.push(Image { disk: image, end, step: number, seed, fingerprint, oldest, durable });
        }
    }

    /// Hands over the images so far.
    pub fn drain(&self) -> Vec<Image> {
        std::mem::take(&mut self.state.lock().images)
    }

    /// Steps seen so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Digest of all steps so far: two runs that did the same to the disk have the same.
    pub fn trace_digest(&self) -> u64 {
        self.state.lock().trace_digest
    }
}
