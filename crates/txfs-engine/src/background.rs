//! The engine's own threads: one writes ordered commits out and flushes now and then, one makes checkpoints and
//! keeps spare segments ready, one cleans. None exists in the simulator, where the caller does all of this.
//!
//! A committer pays for waking a thread only when that thread sleeps; the flags below say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::engine::Shared;
use crate::error::{EngineError, Result};

#[derive(Debug, Default)]
struct Signal {
    raised: AtomicBool,
    mutex: Mutex<()>,
    condition: Condvar,
}

impl Signal {
    fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            let _guard = self.mutex.lock();
            self.condition.notify_all();
        }
    }

    /// Waits until it is raised, or until `timeout` has passed; lowers it.
    fn wait(&self, timeout: std::time::Duration) -> bool {
        let mut guard = self.mutex.lock();
        if !self.raised.load(Ordering::Acquire) {
            self.condition.wait_for(&mut guard, timeout);
        }
        self.raised.swap(false, Ordering::AcqRel)
    }
}

/// How commits wake the threads.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    stop: AtomicBool,
    write: Signal,
    hurry: Signal,
    maintain: Signal,
    clean: Signal,
}

impl Wake {
    /// There is something to write out.
    pub(crate) fn notify(&self) {
        self.write.raise();
    }

    /// There is so much to write out that waiting for more gains nothing.
    pub(crate) fn hurry(&self) {
        self.hurry.raise();
        self.write.raise();
    }

    /// A checkpoint is due, a spare segment was taken, or one was left behind.
    pub(crate) fn maintenance(&self) {
        self.maintain.raise();
    }

    /// There may be something to clean.
    pub(crate) fn clean(&self) {
        self.clean.raise();
    }
}

/// The running threads.
#[derive(Debug)]
pub(crate) struct Background {
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<Background> {
        let spawn = |name: &str, body: fn(&Shared)| {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || body(&shared))
                .map_err(|error| EngineError::io("starting a background thread", error))
        };
        let threads = vec![
            spawn("txfs-writer", write_loop)?,
            spawn("txfs-checkpoint", maintenance_loop)?,
            spawn("txfs-cleaner", cleaning_loop)?,
        ];
        Ok(Background { threads })
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(self, shared: &Shared) {
        shared.wake.stop.store(true, Ordering::Release);
        shared.wake.hurry();
        shared.wake.maintain.raise();
        shared.wake.clean.raise();
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a background thread panicked");
            }
        }
    }
}

fn stopped(shared: &Shared) -> bool {
    shared.wake.stop.load(Ordering::Acquire) || shared.writer.check().is_err()
}

fn write_loop(shared: &Shared) {
    let mut last_flush = Instant::now();
    while !stopped(shared) {
        // Deferred commits raise nothing: they go with whatever is written next, and after a second at the latest.
        shared.wake.write.wait(std::time::Duration::from_secs(1));
        if stopped(shared) {
            return;
        }
        // Gathers what else is committed in the meantime, instead of one small write for each commit.
        let much = shared.wake.hurry.wait(shared.options.write_interval);
        if much && let Err(error) = shared.help_write() {
            log::error!("writing the log: {error}");
            return;
        }
        let due = last_flush.elapsed() >= shared.options.flush_interval;
        let outcome = if due { shared.sync() } else { shared.write_pending() };
        if due {
            last_flush = Instant::now();
        }
        if let Err(error) = outcome {
            log::error!("writing the log: {error}");
            return;
        }
    }
}

fn maintenance_loop(shared: &Shared) {
    let mut complained = false;
    while !stopped(shared) {
        shared.writer.flush_left_behind();
        let prepared = shared
            .reserve_bytes()
            .and_then(|reserve| shared.pool.prepare(shared.options.spare_segments, &shared.seen(), reserve));
        let mut space_is_short = false;
        if let Err(error) = prepared {
            space_is_short = matches!(error, EngineError::NoSpace { .. });
            if !complained {
                log::warn!("preparing log segments: {error}");
            }
            complained = true;
        } else {
            complained = false;
        }
        let due = shared.replay_distance() >= shared.options.checkpoint_distance_bytes;
        if (due || space_is_short && shared.dead_segments())
            && let Err(error) = shared.checkpoint()
        {
            log::warn!("checkpoint: {error}");
        }
        shared.wake.maintain.wait(std::time::Duration::from_secs(1));
    }
}

fn cleaning_loop(shared: &Shared) {
    let mut complained = false;
    while !stopped(shared) {
        match shared.clean_if_due() {
            Ok(true) => continue,
            Ok(false) => complained = false,
            Err(error) => {
                if !complained {
                    log::warn!("cleaning: {error}");
                }
                complained = true;
            }
        }
        shared.wake.clean.wait(std::time::Duration::from_secs(1));
    }
}
