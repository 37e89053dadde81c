//! Who commits, and the words in which conflict reports say it.
//!
//! What a commit carries must cost next to nothing: a call outside of transactions carries the number of the process
//! that made it, and what command that is is looked up when somebody asks.

use std::cell::Cell;
use std::fs;

use txfs_engine::{ClaimKind, Opponent};

use crate::conflict::{Other, OtherState};
use crate::types::Timestamp;

/// Stands for this process, as long as nobody has asked for its number.
const OWN: u32 = u32::MAX;

thread_local! {
    static CALLER: Cell<u32> = const { Cell::new(OWN) };
}

/// The calls that this thread makes outside of transactions from now on are made for that process; 0 when nobody knows.
/// A mount says so before each request that it serves. Otherwise they are this process's own.
pub fn set_caller(process: u32) {
    CALLER.set(process);
}

/// The process that this thread works for; 0 when nobody knows.
pub(crate) fn caller() -> u32 {
    match CALLER.get() {
        OWN => {
            let process = std::process::id();
            CALLER.set(process);
            process
        }
        process => process,
    }
}

/// How many bytes of a command line a report keeps.
const COMMAND_BYTES_MAX: usize = 1000;

/// The words for an opponent. `now` tells how long ago the commit was.
pub(crate) fn describe(opponent: &Opponent, now: Timestamp) -> Other {
    let (state, sequence, origin) = match opponent {
        Opponent::Commit { sequence, origin } => (OtherState::Committed, Some(*sequence), origin),
        Opponent::Claim { kind: ClaimKind::Eager, origin } => (OtherState::Writing, None, origin),
        Opponent::Claim { kind: ClaimKind::Elder | ClaimKind::Everything, origin } => {
            (OtherState::Elder, None, origin)
        }
    };
    let time = (origin.time != (0, 0)).then(|| Timestamp::new(origin.time.0, origin.time.1));
    let transaction = origin.transaction.as_deref();
    let process = (origin.process != 0).then_some(origin.process);
    let known = transaction.map(|transaction| transaction.command.clone()).filter(|known| !known.is_empty());
    let age = time.map_or(0, |time| now.seconds.saturating_sub(time.seconds));
    Other {
        state,
        sequence,
        time,
        transaction: transaction.map(|transaction| transaction.number),
        process,
        command: known.or_else(|| command_of(process?, age)),
        message: transaction.map(|transaction| transaction.label.clone()).filter(|label| !label.is_empty()),
    }
}

/// The command line of a process that has been running for at least so many seconds: a younger one only has the number.
fn command_of(process: u32, seconds: i64) -> Option<String> {
    let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let mut line = words.join(" ").trim_end().to_owned();
    if line.is_empty() || running_for(process)? + 2 < seconds {
        return None;
    }
    if line.len() > COMMAND_BYTES_MAX {
        let end = (0..=COMMAND_BYTES_MAX).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    Some(line)
}

/// For how many seconds a process has been running.
fn running_for(process: u32) -> Option<i64> {
    /// The kernel's unit in this file, on all machines that Linux runs on today.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses, which may contain anything.
    let started: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    Some(uptime as i64 - (started / TICKS_PER_SECOND) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_commands_while_they_run() {
        let own = command_of(std::process::id(), 0).expect("this process runs");
        assert!(own.contains("txfs"), "{own}");
        // Whoever has that number now is not who had it a million years ago.
        assert_eq!(command_of(std::process::id(), 1 << 45), None);
        assert_eq!(command_of(u32::MAX, 0), None);
    }

    #[test]
    fn calls_are_this_process_s_unless_said_otherwise() {
        assert_eq!((caller(), caller()), (std::process::id(), std::process::id()));
        set_caller(7);
        assert_eq!(caller(), 7);
        std::thread::spawn(|| assert_eq!(caller(), std::process::id())).join().expect("no panic");
    }
}
