//! Threads that wait for the log writer: each sleeps by itself and is woken once, when there is something for it to do.
//! Some only watch: they are woken when what they want has happened, and leave the work to others.
//!
//! A condition variable would wake all of them whenever any write ends, and with many committers most of these
//! wake-ups would be for nothing. Here whoever changes the writer's progress says which threads it concerns.
//!
//! Locking: the list is part of the writer's progress and guarded by its lock. Waking happens after that lock was given
//! up, so that nobody wakes up only to wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// This record must be in the host file,
    pub(super) record: u64,
    /// and on stable storage.
    pub(super) durable: bool,
}

/// Why a thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cause {
    /// What it wanted has happened.
    Done = 1,
    /// It should look at the writer's progress again: there is work that it can do, or the writer has failed.
    Look = 2,
}

/// A thread that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) wanted: Wanted,
    watches: bool,
    thread: Thread,
    cause: AtomicU8,
    woken: AtomicBool,
}

impl Waiter {
    /// Sleeps until somebody calls [`wake`]; not to be called with a lock held.
    pub(super) fn wait(&self) -> Cause {
        while !self.woken.load(Ordering::Acquire) {
            std::thread::park();
        }
        match self.cause.load(Ordering::Relaxed) {
            1 => Cause::Done,
            _ => Cause::Look,
        }
    }

    /// As [`Waiter::wait`], but not for much longer than `patience`.
    pub(super) fn wait_for(&self, patience: Duration) -> Option<Cause> {
        let end = Instant::now() + patience;
        while !self.woken.load(Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left);
        }
        Some(self.wait())
    }

    fn wake(&self, cause: Cause) {
        self.cause.store(cause as u8, Ordering::Relaxed);
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The threads that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    list: Vec<Arc<Waiter>>,
}

/// Threads to be woken once the lock is given up.
#[derive(Debug, Default)]
#[must_use]
pub(super) struct Wakeups(Vec<(Arc<Waiter>, Cause)>);

impl Waiters {
    /// Puts the calling thread on the list.
    pub(super) fn add(&mut self, wanted: Wanted) -> Arc<Waiter> {
        self.put(wanted, false)
    }

    /// The same, for one who only watches.
    pub(super) fn add_watching(&mut self, wanted: Wanted) -> Arc<Waiter> {
        self.put(wanted, true)
    }

    /// Takes one off the list who does not want to wait any longer.
    pub(super) fn remove(&mut self, waiter: &Arc<Waiter>) {
        self.list.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    fn put(&mut self, wanted: Wanted, watches: bool) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter {
            wanted,
            watches,
            thread: std::thread::current(),
            cause: AtomicU8::new(0),
            woken: AtomicBool::new(false),
        });
        self.list.push(waiter.clone());
        waiter
    }

    /// True when somebody waits for a record up to `record` to be on stable storage.
    pub(super) fn any_durable(&self, record: u64) -> bool {
        self.list.iter().any(|waiter| waiter.wanted.durable && waiter.wanted.record <= record)
    }

    /// Takes everybody off the list for whom `done` holds.
    pub(super) fn take_done(&mut self, done: impl Fn(Wanted) -> bool, wakeups: &mut Wakeups) {
        self.list.retain(|waiter| {
            let stays = !done(waiter.wanted);
            if !stays {
                wakeups.0.push((waiter.clone(), Cause::Done));
            }
            stays
        });
    }

    /// Takes the first one off the list for whom `able` holds: it can go on with work that waits.
    pub(super) fn take_one(&mut self, able: impl Fn(Wanted) -> bool, wakeups: &mut Wakeups) {
        if let Some(at) = self.list.iter().position(|waiter| !waiter.watches && able(waiter.wanted)) {
            wakeups.0.push((self.list.remove(at), Cause::Look));
        }
    }

    /// Takes everybody off the list.
    pub(super) fn take_all(&mut self, wakeups: &mut Wakeups) {
        wakeups.0.extend(self.list.drain(..).map(|waiter| (waiter, Cause::Look)));
    }
}

impl Wakeups {
    /// Wakes them; those that have work to do come first.
    pub(super) fn wake(self) {
        for (waiter, cause) in self.0.iter().filter(|(_, cause)| *cause == Cause::Look) {
            waiter.wake(*cause);
        }
        for (waiter, cause) in self.0.iter().filter(|(_, cause)| *cause == Cause::Done) {
            waiter.wake(*cause);
        }
    }
}
