//! Threads that work in the background for as long as the one in front does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::Result;

/// Runs `front`, and beside it so many threads of `behind`, each with its number, which go on until the flag is set; what
/// it found and what each of them found. All threads have ended when this returns, whoever failed.
pub fn beside<Front, Behind: Send>(
    threads: usize,
    behind: impl Fn(usize, &AtomicBool) -> Result<Behind> + Sync,
    front: impl FnOnce() -> Result<Front>,
) -> Result<(Front, Vec<Behind>)> {
    let (over, behind) = (&AtomicBool::new(false), &behind);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || behind(number, over))).collect();
        let front = front();
        over.store(true, Ordering::Relaxed);
        let joined = running.into_iter().map(|thread| thread.join());
        let joined =
            joined.map(|done| done.unwrap_or_else(|_| Err("a thread in the background panicked".into())));
        // collected twice: all are joined before the first error counts
        let ended: Vec<Result<Behind>> = joined.collect();
        Ok((front?, ended.into_iter().collect::<Result<_>>()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(number: usize, over: &AtomicBool) -> Result<usize> {
        while !over.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        Ok(number)
    }

    #[test]
    fn threads_end_with_the_one_in_front() {
        assert_eq!(beside(3, wait, || Ok("done")).unwrap(), ("done", vec![0, 1, 2]));
        assert!(beside(3, wait, || Result::<()>::Err("in front".into())).is_err());
        let failing =
            |number, over: &AtomicBool| if number == 1 { Err("behind".into()) } else { wait(number, over) };
        assert!(beside(3, failing, || Ok(())).is_err());
    }
}
