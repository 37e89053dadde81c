//! Running a transaction again until it commits, such that the oldest wins in the end.
//!
//! After a conflict a transaction is run again. Two that run again at once would meet again, so there is a pause that
//! doubles, with some chance in it. A long transaction among many short ones would still lose every time: by the time it
//! commits, some short one has been faster. So from its third attempt on it is an *elder*: what it reads and writes it
//! claims, claims stay from one attempt to the next, and younger transactions that would commit a change of it are
//! refused. From the sixth attempt on it claims everything there is for a while, so that no younger transaction commits
//! before it; those that are not in its way otherwise wait. Calls outside of transactions are not held up by any of
//! that, and neither are older elders.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use txfs_engine::{ClaimHolder, ClaimKind};

use crate::options::TransactionOptions;
use crate::shared::Shared;
use crate::transaction::Transaction;
use crate::transaction::doom::Claims;

/// The attempt from which on a transaction claims what it touches.
const ELDER_FROM: u32 = 3;
/// The attempt from which on it claims everything.
const EVERYTHING_FROM: u32 = 6;
/// An elder's claims last for so long, and for some times as long as its longest attempt so far.
const CLAIMS_LAST: Duration = Duration::from_secs(10);
const CLAIMS_LAST_TIMES: u32 = 4;
/// It claims everything for so long and for twice its longest attempt, but not for more than the last one says.
const EVERYTHING_LASTS: Duration = Duration::from_millis(100);
const EVERYTHING_LASTS_MAX: Duration = Duration::from_secs(8);
/// An elder's pause is no longer than this: others wait for it.
const ELDER_PAUSE_MAX: Duration = Duration::from_millis(1);
/// The first pause and the longest one.
const PAUSE_FIRST: Duration = Duration::from_micros(100);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// The attempts to get one transaction committed, the oldest of which decides how old it is. Dropped when one of them has
/// committed, or when there are to be no more.
///
/// [`Volume::transact`](crate::Volume::transact) does all of this by itself.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("vol");
/// # txfs::Volume::create(&path)?;
/// # let volume = txfs::Volume::open(&path)?;
/// use txfs::{Durability, Paths, TransactionOptions};
///
/// let mut attempts = volume.attempts(TransactionOptions::default());
/// loop {
///     let tx = attempts.begin();
///     let done = tx.write_file("counter", b"1").and_then(|()| tx.commit(Durability::Durable));
///     match done {
///         Ok(_) => break,
///         Err(error) if error.is_conflict() && attempts.count() < 10 => std::thread::sleep(attempts.pause()),
///         Err(error) => return Err(error.into()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Attempts {
    shared: Arc<Shared>,
    options: TransactionOptions,
    count: u32,
    /// Number of the first attempt's transaction.
    age: Option<u64>,
    began: Instant,
    longest: Duration,
    holder: Option<Arc<ClaimHolder>>,
}

impl Attempts {
    pub(crate) fn new(shared: &Arc<Shared>, options: TransactionOptions) -> Attempts {
        let (began, longest) = (Instant::now(), Duration::ZERO);
        Attempts { shared: shared.clone(), options, count: 0, age: None, began, longest, holder: None }
    }

    /// Begins the next attempt. The one before must have ended.
    pub fn begin(&mut self) -> Transaction {
        if self.count > 0 {
            self.longest = self.longest.max(self.began.elapsed());
        }
        self.began = Instant::now();
        self.count += 1;
        let claims = self.age.filter(|_| self.count >= ELDER_FROM).map(|age| self.claims(age));
        let tx = Transaction::begin_as(&self.shared, self.options.clone(), self.age, claims);
        self.age.get_or_insert(tx.id());
        tx
    }

    /// What an elder claims is claimed before it takes its snapshot.
    fn claims(&mut self, age: u64) -> Claims {
        let holder = self.holder.get_or_insert_with(|| {
            let origin = self.options.origin(age, self.shared.clock.now());
            Arc::new(self.shared.engine.hold(ClaimKind::Elder, age, origin))
        });
        if self.count >= EVERYTHING_FROM {
            holder.claim_everything((EVERYTHING_LASTS + self.longest * 2).min(EVERYTHING_LASTS_MAX));
        }
        holder.expire_after(CLAIMS_LAST + self.longest * CLAIMS_LAST_TIMES);
        Claims { holder: holder.clone(), reads: true }
    }

    /// How many attempts have begun.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How long to wait before the next one: longer each time, and never quite the same for two; not long for an elder.
    pub fn pause(&self) -> Duration {
        let pause = back_off(self.count, PAUSE_FIRST, PAUSE_MAX);
        if self.count + 1 >= ELDER_FROM { pause.min(ELDER_PAUSE_MAX) } else { pause }
    }
}

/// How long to wait after so many attempts: `first` after one, twice as long each time, up to `longest`; each between half
/// and all of it, by chance, so that two that met part ways.
pub fn back_off(attempts: u32, first: Duration, longest: Duration) -> Duration {
    let doubled = 1u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = first.saturating_mul(doubled).min(longest);
    let chance = RandomState::new().hash_one(attempts) % 1000;
    whole / 2 + whole / 2 * chance as u32 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_bounded() {
        for attempts in 1..100 {
            let pause = back_off(attempts, PAUSE_FIRST, PAUSE_MAX);
            assert!(pause >= PAUSE_FIRST / 2 && pause <= PAUSE_MAX, "{attempts}: {pause:?}");
        }
        assert!(back_off(30, PAUSE_FIRST, PAUSE_MAX) >= PAUSE_MAX / 2);
    }
}
