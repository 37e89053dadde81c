//! Transactions: begin, end, once more, and savepoints.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use volume::{Attempts, ConflictReport, Error, Savepoint, Transaction};

use super::arguments::{Handle, Options, Out};
use super::failure::{Failure, Result, done};
use super::options::{self, Begin};
use super::view::{Source, ViewHandle};
use super::volumes::VolumeHandle;

/// A transaction, one of perhaps several attempts at the same.
pub struct Attempt {
    pub transaction: Transaction,
    /// Shared with the attempts after it; gone when one has committed.
    attempts: Arc<Mutex<Option<Attempts>>>,
    /// What its commit failed over.
    report: Mutex<Option<ConflictReport>>,
    savepoints: Mutex<Savepoints>,
}

#[derive(Default)]
struct Savepoints {
    taken: u64,
    /// Those that there are, in the order of their numbers.
    open: Vec<(u64, Savepoint)>,
}

impl Savepoints {
    fn position(&self, number: u64) -> Result<usize> {
        let found = self.open.binary_search_by_key(&number, |(number, _)| *number);
        found.map_err(|_| {
            Failure::invalid("there is no such savepoint: it was released, or one before it was gone back to")
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attempt {
    fn next(attempts: Arc<Mutex<Option<Attempts>>>) -> Result<Attempt> {
        let begun = lock(&attempts).as_mut().map(Attempts::begin);
        let transaction = begun.ok_or_else(|| Failure::invalid("the transaction has committed"))?;
        Ok(Attempt { transaction, attempts, report: Mutex::default(), savepoints: Mutex::default() })
    }

    /// What it has met, if that is why it cannot commit.
    pub fn report(&self) -> Option<ConflictReport> {
        self.transaction.conflict().or_else(|| lock(&self.report).clone())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_begin(
    volume: Handle<VolumeHandle>,
    options: Options<Begin>,
    result: Out<*mut ViewHandle>,
) -> c_int {
    done(|| {
        result.check()?;
        let core = &volume.get()?.core;
        core.check_writable()?;
        let attempts = core.volume.attempts(options.get()?.decode()?);
        let attempt = Attempt::next(Arc::new(Mutex::new(Some(attempts))))?;
        result.give(ViewHandle::new(core, Source::Transaction(attempt)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_begin_again(view: Handle<ViewHandle>, result: Out<*mut ViewHandle>) -> c_int {
    done(|| {
        result.check()?;
        let view = view.get()?;
        let before = view.transaction()?;
        before.transaction.abort();
        let pause = lock(&before.attempts).as_ref().map(Attempts::pause).unwrap_or_default();
        std::thread::sleep(pause);
        let attempt = Attempt::next(before.attempts.clone())?;
        result.give(ViewHandle::new(&view.core, Source::Transaction(attempt)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_commit(view: Handle<ViewHandle>, durability: c_int, sequence: Out<u64>) -> c_int {
    done(|| {
        let attempt = view.get()?.transaction()?;
        let committed = attempt.transaction.commit(options::durability(durability)?);
        if let Some(report) = committed.as_ref().err().and_then(Error::conflicts) {
            *lock(&attempt.report) = Some(report.clone());
        }
        sequence.put(committed?.sequence);
        // What it claimed for its attempts is given up.
        drop(lock(&attempt.attempts).take());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_abort(view: Handle<ViewHandle>) -> c_int {
    done(|| {
        view.get()?.transaction()?.transaction.abort();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_savepoint(view: Handle<ViewHandle>, result: Out<u64>) -> c_int {
    done(|| {
        result.check()?;
        let attempt = view.get()?.transaction()?;
        let mut savepoints = lock(&attempt.savepoints);
        let savepoint = attempt.transaction.savepoint()?;
        savepoints.taken += 1;
        let number = savepoints.taken;
        savepoints.open.push((number, savepoint));
        result.put(number);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_rollback_to(view: Handle<ViewHandle>, savepoint: u64) -> c_int {
    done(|| {
        let attempt = view.get()?.transaction()?;
        let mut savepoints = lock(&attempt.savepoints);
        let at = savepoints.position(savepoint)?;
        attempt.transaction.rollback_to(savepoints.open[at].1)?;
        savepoints.open.truncate(at + 1);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn txfs_release_savepoint(view: Handle<ViewHandle>, savepoint: u64) -> c_int {
    done(|| {
        let attempt = view.get()?.transaction()?;
        let mut savepoints = lock(&attempt.savepoints);
        let at = savepoints.position(savepoint)?;
        attempt.transaction.release_savepoint(savepoints.open[at].1)?;
        savepoints.open.truncate(at);
        Ok(())
    })
}
