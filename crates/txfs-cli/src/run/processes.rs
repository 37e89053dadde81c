//! Finds and ends the processes that a command leaves behind.
//!
//! The caller is a child subreaper, so whatever the command starts stays its descendant, daemons that fork twice and
//! call setsid included. Processes are signalled through a pidfd after a second look at /proc, so that a process id
//! that was given to somebody else in between is never hit.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{self, Pid, PidfdFlags, Signal, WaitOptions};

use super::control::Status;

/// How long a process may take after SIGTERM before it gets SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long a process may take to vanish after SIGKILL, before we give up on it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look while processes are ending.
const POLL: Duration = Duration::from_millis(5);

/// One line of /proc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub name: String,
    pub zombie: bool,
    /// Clock ticks after boot; tells a process from a later one with the same id.
    pub started: u64,
}

impl Process {
    /// For people: `sleep (pid 123)`.
    pub fn describe(&self) -> String {
        format!("{} (pid {})", self.name, self.pid)
    }
}

/// The line of /proc/PID/stat: `PID (NAME) STATE PARENT ...`, where NAME may hold anything, parentheses too.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim().parse().ok()?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let mut rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    // Start time is field 22 of the line, and field 5 comes next.
    let started = rest.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, name, zombie: matches!(state, "Z" | "X"), started })
}

fn read_process(pid: i32) -> Option<Process> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn all_processes() -> Vec<Process> {
    let Ok(directory) = fs::read_dir("/proc") else { return Vec::new() };
    directory
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(read_process)
        .collect()
}

/// All living descendants of a process, itself not included.
pub fn descendants(root: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in all_processes() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(parent) = queue.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            queue.push(process.pid);
            if !process.zombie {
                found.push(process);
            }
        }
    }
    found
}

/// What [`end_descendants`] did.
#[derive(Debug, Default)]
pub struct Ended {
    /// Processes that were there and had to be ended.
    pub ended: Vec<String>,
    /// Processes that withstood even SIGKILL.
    pub survivors: Vec<String>,
}

/// Ends all descendants of this process: SIGTERM, after `grace` SIGKILL; waits for all of them.
pub fn end_descendants(grace: Duration) -> Ended {
    let me = process::getpid().as_raw_nonzero().get();
    let started = Instant::now();
    let mut asked = BTreeSet::new();
    let mut names = Vec::new();
    loop {
        // Whoever has no children has no descendants either: the usual case, known without a walk through /proc.
        if !reap(|_, _| ()) {
            return Ended { ended: names, survivors: Vec::new() };
        }
        let left = descendants(me);
        let elapsed = started.elapsed();
        if elapsed > grace + PATIENCE {
            let mut survivors: Vec<_> = left.iter().map(Process::describe).collect();
            if survivors.is_empty() {
                survivors.push("processes that /proc does not show".into());
            }
            return Ended { ended: names, survivors };
        }
        for process in &left {
            if asked.insert(process.pid) {
                names.push(process.describe());
                if elapsed < grace {
                    signal(process, Signal::TERM);
                    // One that is stopped acts on SIGTERM only once it goes on.
                    signal(process, Signal::CONT);
                }
            }
            if elapsed >= grace {
                signal(process, Signal::KILL);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Sends a signal to that very process, if it is still the one that was seen.
fn signal(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(descriptor) = process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    if read_process(process.pid).is_some_and(|now| now.started == process.started) {
        // Failure means that it has just ended, or that it may not be signalled: the caller notices by its survival.
        let _ = process::pidfd_send_signal(&descriptor, signal);
    }
}

/// Collects all children that have ended, without waiting; tells of each. False when no children are left at all.
pub fn reap(mut ended: impl FnMut(i32, Status)) -> bool {
    loop {
        // Not `waitpid(None, ..)`, which means the children of our process group only.
        let (pid, status) = match process::wait(WaitOptions::NOHANG) {
            Ok(Some(found)) => found,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let status = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, Some(signal)) => Status::Signalled(signal),
            // Stopped or continued: neither was asked for.
            (None, None) => continue,
        };
        ended(pid.as_raw_nonzero().get(), status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_anything() {
        let process =
            parse_stat(b"12 (a) b (c) S 34 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23").unwrap();
        let expected = Process { pid: 12, parent: 34, name: "a) b (c".into(), zombie: false, started: 22 };
        assert_eq!(process, expected);
        assert!(parse_stat(b"12 (z) Z 1 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22").unwrap().zombie);
        for damaged in [&b""[..], b"12", b"12 (", b"12 )(", b"x (y) S 1", b"1 (y) S", b"1 (y) S x"] {
            assert_eq!(parse_stat(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn children_of_children_are_found() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let found = descendants(std::process::id() as i32);
        assert!(found.iter().any(|process| process.pid == child.id() as i32));
        let sleep = found.iter().find(|process| process.parent == child.id() as i32).unwrap();
        signal(sleep, Signal::KILL);
        child.wait().unwrap();
    }
}
