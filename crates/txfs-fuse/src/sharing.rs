//! Who takes part in a transaction, and how it ended.
//!
//! A transaction lives while one participant's connection does. Whoever commits or aborts it ends it for all; the
//! others hear how.
//! Locks: `Sharing::state` is taken by the threads of connections only, never by one that serves requests, and it is held
//! while the transaction is committed, so that who comes in between waits for the outcome. The leaves may be taken under it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is committed, as this one in the volume's order.
    Committed(u64),
    /// Nothing is left of it: why, after "the transaction ".
    Gone(&'static str),
}

impl Ending {
    pub(crate) const ABORTED: Ending = Ending::Gone("was aborted by another participant");
    pub(crate) const CONFLICTED: Ending =
        Ending::Gone("was ended by another participant, whose commit of it failed");
    pub(crate) const KEPT: Ending = Ending::Gone("was ended by another participant, who has kept it");
    pub(crate) const DELETED: Ending = Ending::Gone("was aborted, since its file group was deleted");
    pub(crate) const LEFT: Ending = Ending::Gone("was aborted when its last participant left");

    pub(crate) fn sequence(&self) -> Option<u64> {
        match self {
            Ending::Committed(sequence) => Some(*sequence),
            Ending::Gone(_) => None,
        }
    }

    /// One sentence for those who did not do it.
    pub(crate) fn message(&self) -> String {
        match self {
            Ending::Committed(_) => "the transaction was committed by another participant".into(),
            Ending::Gone(how) => format!("the transaction {how}"),
        }
    }
}

/// The participants of one transaction; at first the one who began it.
#[derive(Debug)]
pub(crate) struct Sharing {
    state: Mutex<Option<Ending>>,
    participants: AtomicU64,
}

impl Sharing {
    pub(crate) fn new() -> Sharing {
        Sharing { state: Mutex::new(None), participants: AtomicU64::new(1) }
    }

    /// How many there are.
    pub(crate) fn participants(&self) -> u64 {
        self.participants.load(Ordering::Relaxed)
    }

    /// One more takes part, unless it is over.
    pub(crate) fn join(&self) -> Result<(), Ending> {
        match &*self.state.lock() {
            Some(ending) => Err(ending.clone()),
            None => {
                self.participants.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// How it ended, if it did.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.state.lock().clone()
    }

    /// Lets one participant do what may end the transaction, unless it is over; `work` says how it ended, if it did.
    pub(crate) fn end<T>(&self, work: impl FnOnce() -> (T, Option<Ending>)) -> Result<T, Ending> {
        let mut state = self.state.lock();
        if let Some(ending) = &*state {
            return Err(ending.clone());
        }
        let (done, ending) = work();
        *state = ending;
        Ok(done)
    }

    /// One takes part no longer; if it was the last one, `abort` aborts. Returns how the transaction ended before.
    pub(crate) fn leave(&self, abort: impl FnOnce()) -> Option<Ending> {
        let mut state = self.state.lock();
        let last = self.participants.fetch_sub(1, Ordering::Relaxed) == 1;
        let before = state.clone();
        if last && before.is_none() {
            abort();
            *state = Some(Ending::LEFT);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_to_leave_aborts() {
        let sharing = Sharing::new();
        sharing.join().unwrap();
        assert_eq!(sharing.participants(), 2);
        assert_eq!(sharing.leave(|| panic!("one is left")), None);
        let mut aborted = false;
        assert_eq!(sharing.leave(|| aborted = true), None);
        assert!(aborted);
        assert_eq!(sharing.join(), Err(Ending::LEFT));
    }

    #[test]
    fn who_comes_second_hears_how_it_ended() {
        let sharing = Sharing::new();
        sharing.join().unwrap();
        assert_eq!(sharing.end(|| ("a name that is taken", None)), Ok("a name that is taken"));
        assert_eq!(sharing.ending(), None);
        assert_eq!(sharing.end(|| (1, Some(Ending::Committed(7)))), Ok(1));
        assert_eq!(sharing.end(|| (2, Some(Ending::ABORTED))), Err(Ending::Committed(7)));
        assert_eq!(sharing.leave(|| panic!("it is over")), Some(Ending::Committed(7)));
        assert_eq!(sharing.leave(|| panic!("it is over")), Some(Ending::Committed(7)));
    }
}
