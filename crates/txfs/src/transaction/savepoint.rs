//! Savepoints: a transaction goes back to what it had changed at some moment, and goes on from there.
//!
//! A savepoint is a copy of the overlay. It shares the pages with it, and before it is taken most of the data in memory goes to the
//! log, so it costs a few hundred bytes for each node and name that the transaction has changed. What the transaction
//! has *read* in the meantime is not undone: the program knows it, so it is validated at the commit as before.
//!
//! Invariants
//! * Numbers of savepoints ascend, in the list and for the life of a transaction: one that was given up never comes back.
//! * `shared.buffered_bytes` counts the pages of the overlay and of each savepoint. Those that they share count more than
//!   once, so the budget is kept from above.

use std::sync::atomic::Ordering;

use super::Transaction;
use super::overlay::Overlay;
use super::session::Session;
use crate::error::{Error, Result};

/// With more data than this in memory, it goes to the log before a savepoint is taken.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A moment of a transaction, from [`Transaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    transaction: u64,
    number: u64,
}

/// What had been changed at a savepoint.
pub(crate) struct Saved {
    number: u64,
    overlay: Overlay,
}

impl Transaction {
    /// Marks the present moment, for [`Transaction::rollback_to`].
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// # let volume = txfs::Volume::open(&path)?;
    /// use txfs::{Durability, Paths};
    ///
    /// let tx = volume.begin();
    /// tx.write_file("kept", b"1")?;
    /// let savepoint = tx.savepoint()?;
    /// tx.write_file("tried", b"2")?;
    /// tx.rollback_to(savepoint)?;
    /// tx.commit(Durability::Durable)?;
    /// assert!(volume.base().exists("kept")? && !volume.base().exists("tried")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&self) -> Result<Savepoint> {
        let number = self.writing(Session::save)?;
        Ok(Savepoint { transaction: self.id, number })
    }

    /// Undoes everything that the transaction has changed since. Later savepoints are gone then; this one stays, and can be
    /// gone back to again.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        self.check_own(savepoint)?;
        self.writing(|session| session.roll_back(savepoint.number))
    }

    /// Gives up a savepoint and all later ones; the changes stay. They are given up by themselves when the transaction ends.
    pub fn release_savepoint(&self, savepoint: Savepoint) -> Result<()> {
        self.check_own(savepoint)?;
        self.writing(|session| {
            let at = session.savepoint_at(savepoint.number)?;
            session.drop_savepoints(at);
            Ok(())
        })
    }

    fn check_own(&self, savepoint: Savepoint) -> Result<()> {
        match savepoint.transaction == self.id {
            true => Ok(()),
            false => Err(Error::Invalid("the savepoint belongs to another transaction")),
        }
    }
}

impl Session {
    fn save(&mut self) -> Result<u64> {
        if self.overlay.buffered_bytes > KEPT_BYTES_MAX {
            self.spill_files(|_| true)?;
        }
        self.savepoints_taken += 1;
        let saved = Saved { number: self.savepoints_taken, overlay: self.overlay.clone() };
        self.shared.buffered_bytes.fetch_add(saved.overlay.buffered_bytes, Ordering::Relaxed);
        self.savepoints.push(saved);
        Ok(self.savepoints_taken)
    }

    fn savepoint_at(&self, number: u64) -> Result<usize> {
        self.savepoints.binary_search_by_key(&number, |saved| saved.number).map_err(|_| {
            Error::Invalid("the savepoint is gone: it was released, or one before it was gone back to")
        })
    }

    fn roll_back(&mut self, number: u64) -> Result<()> {
        let at = self.savepoint_at(number)?;
        self.drop_savepoints(at + 1);
        let before = self.savepoints[at].overlay.clone();
        self.shared.buffered_bytes.fetch_add(before.buffered_bytes, Ordering::Relaxed);
        let after = std::mem::replace(&mut self.overlay, before);
        self.look_again();
        self.shared.buffered_bytes.fetch_sub(after.buffered_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives up the savepoints from position `from` on.
    pub(super) fn drop_savepoints(&mut self, from: usize) {
        for saved in self.savepoints.drain(from..) {
            self.shared.buffered_bytes.fetch_sub(saved.overlay.buffered_bytes, Ordering::Relaxed);
        }
    }
}
