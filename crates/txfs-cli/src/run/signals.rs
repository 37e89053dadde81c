//! Signals that reach `txfs run` itself.
//!
//! While the command runs they are the command's business: those that a process sent are passed on, those from the
//! terminal have reached it already, as a member of the same process group. Either way `txfs run` lives on to see how
//! the command takes it. Afterwards, while there is something to decide or to wait for, a signal means abort.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, thread};

use parking_lot::{Condvar, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use super::control::{ToSupervisor, send};
/// Signals that are passed on to the command.
pub const FORWARDED: [i32; 6] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];

/// Those of them that are not ignored: who starts us under nohup(1) wants the command to ignore the hang-up too, and
/// a handler of ours would take that from it.
pub fn forwarded() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    FORWARDED.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect()
}

/// The mask of ignored signals in /proc/PID/status.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[derive(Debug, Default)]
struct State {
    /// To the supervisor, while a command runs.
    command: Option<UnixStream>,
    /// The last signal that came while no command was running.
    interrupted: Option<i32>,
}

/// Watches for signals until the process ends.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Signals {
    /// Starts watching, in a thread of its own.
    pub fn watch() -> io::Result<Signals> {
        let signals = Signals::default();
        let mut incoming = SignalsInfo::<WithRawSiginfo>::new(forwarded())?;
        let watcher = signals.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            for information in incoming.forever() {
                // A positive code is the kernel's: the terminal's Ctrl-C or hang-up.
                watcher.take(information.si_signo, information.si_code > 0);
            }
        })?;
        Ok(signals)
    }

    fn take(&self, number: i32, from_terminal: bool) {
        let (state, changed) = &*self.shared;
        let mut state = state.lock();
        match &mut state.command {
            Some(_) if from_terminal => {}
            Some(command) => {
                // A supervisor that is gone needs no signal any more.
                let _ = send(command, &ToSupervisor::Signal(number));
            }
            None => state.interrupted = Some(number),
        }
        changed.notify_all();
    }

    /// From now on, pass signals on over this socket; `None`: keep them for ourselves.
    pub fn pass_to(&self, command: Option<UnixStream>) {
        self.shared.0.lock().command = command;
    }

    /// The signal that asks us to stop, if one has come.
    pub fn interrupted(&self) -> Option<i32> {
        self.shared.0.lock().interrupted
    }

    /// Sleeps, unless a signal comes.
    pub fn sleep(&self, duration: Duration) {
        let (state, changed) = &*self.shared;
        let mut state = state.lock();
        if state.interrupted.is_none() {
            changed.wait_for(&mut state, duration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(ignored("Name:\ttxfs\nSigIgn:\t0000000000001001\nSigCgt:\t00\n"), 0x1001);
        assert_eq!(ignored(""), 0);
    }
}
