//! `txfs __exec`: the process between `txfs run` and the command.
//!
//! It enters the view, starts the command there, passes signals on, ends what the command leaves behind, and says how
//! it went. It is a child subreaper, so the whole tree of processes hangs on it; and when `txfs run` dies (the
//! control socket ends), it kills the tree: a transaction that is gone must not go on running.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGCHLD;

use super::control::{FromSupervisor, Status, ToSupervisor, receive, send};
use super::signals::forwarded;
use super::{namespace, processes};
use crate::cli::Exec;
use crate::exit_code::ExitCode;

/// Entry point. Errors go to `txfs run` over the socket; the exit code matters to nobody.
pub fn main(arguments: Exec) -> ExitCode {
    match supervise(arguments) {
        Ok(()) => ExitCode::Success,
        Err(error) => {
            eprintln!("txfs: supervisor: {error}");
            ExitCode::RunFailed
        }
    }
}

fn supervise(arguments: Exec) -> io::Result<()> {
    let signals = SignalWatch::new()?;
    let mut control = adopt(arguments.control_descriptor)?;
    let mut from_run = BufReader::new(control.try_clone()?);
    let Some(ToSupervisor::Setup { binds, submounts, directory }) = receive(&mut from_run)? else {
        return Ok(());
    };
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let entered =
        namespace::enter_private_mount_namespace().and_then(|()| namespace::bind_views(&binds, &submounts));
    if let Err(error) = entered {
        let hint = error.hint().map(str::to_owned);
        return send(&mut control, &FromSupervisor::NamespaceFailed { message: error.to_string(), hint });
    }
    if let Some(directory) = directory {
        // By path and again: the same directory of the base view lies under the view now.
        if let Err(error) = std::env::set_current_dir(directory.as_path()) {
            let message =
                format!("cannot enter {} in the transaction: {error}", directory.as_path().display());
            return send(&mut control, &FromSupervisor::NamespaceFailed { message, hint: None });
        }
    }

    if let Some(signal) = signals.early() {
        // It came before there was a command to get it.
        let (status, nobody) = (Status::Signalled(signal), Vec::new());
        return send(
            &mut control,
            &FromSupervisor::Ended { status, leftovers: nobody.clone(), survivors: nobody },
        );
    }
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let errno = execute_errno(&arguments.command[0], &error);
            return send(&mut control, &FromSupervisor::ExecuteFailed { errno });
        }
    };
    let command_pid = child.id() as i32;

    let status = loop {
        let mut status = None;
        processes::reap(|pid, how| {
            if pid == command_pid {
                status = Some(how);
            }
        });
        if let Some(status) = status {
            break status;
        }
        if !wait_for_events(&from_run, &signals)? {
            signals.drain();
            continue;
        }
        match receive(&mut from_run)? {
            Some(ToSupervisor::Signal(number)) => pass_on(command_pid, number),
            Some(ToSupervisor::Setup { .. }) => {}
            None => {
                processes::end_descendants(Duration::ZERO);
                return Ok(());
            }
        }
    };
    let ended = processes::end_descendants(processes::GRACE);
    let message = FromSupervisor::Ended { status, leftovers: ended.ended, survivors: ended.survivors };
    send(&mut control, &message)
}

/// Why a command could not be executed. A directory of PATH that may not be entered makes execvp(3) say EACCES for a
/// command that is nowhere; shells say that it was not found, and so do we.
pub fn execute_errno(command: &OsStr, error: &io::Error) -> i32 {
    let errno = error.raw_os_error().unwrap_or(libc::ENOEXEC);
    let named = command.as_bytes().contains(&b'/');
    if errno != libc::EACCES || named {
        return errno;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let somewhere = std::env::split_paths(&path).any(|directory| directory.join(command).exists());
    if somewhere { errno } else { libc::ENOENT }
}

/// Takes over the socket that `txfs run` left open for us.
fn adopt(descriptor: RawFd) -> io::Result<UnixStream> {
    let kind = fs::metadata(format!("/proc/self/fd/{descriptor}"))?;
    if descriptor <= 2 || !std::os::unix::fs::FileTypeExt::is_socket(&kind.file_type()) {
        return Err(io::Error::other("this subcommand is internal to txfs run"));
    }
    // SAFETY: the descriptor is open (just looked at), and nothing else in this process, which has only begun, owns
    // it: the standard library owns 0, 1 and 2 at most.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // The command must not inherit it.
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
    Ok(descriptor.into())
}

/// True when `txfs run` has something to say (or is gone), false when a signal came in.
fn wait_for_events(from_run: &BufReader<UnixStream>, signals: &SignalWatch) -> io::Result<bool> {
    if !from_run.buffer().is_empty() {
        return Ok(true);
    }
    let mut watched =
        [PollFd::new(&signals.pipe, PollFlags::IN), PollFd::new(from_run.get_ref(), PollFlags::IN)];
    match poll(&mut watched, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // Signals first: a command that has ended is the more important news.
    Ok(watched[0].revents().is_empty() && !watched[1].revents().is_empty())
}

fn pass_on(pid: i32, number: i32) {
    // Not yet reaped, so the process id is still the command's.
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(number)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Wakes the loop up when a child ends, and keeps the other signals from killing the supervisor: those from the
/// terminal reach the command by themselves, all others come through `txfs run`.
struct SignalWatch {
    pipe: UnixStream,
    seen: Vec<(i32, Arc<AtomicBool>)>,
}

impl SignalWatch {
    fn new() -> io::Result<SignalWatch> {
        let (pipe, sender) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, sender)?;
        let mut seen = Vec::new();
        for signal in forwarded() {
            let flag = Arc::new(AtomicBool::new(false));
            // A handler rather than ignoring them: ignoring is inherited by the command, a handler is not.
            signal_hook::flag::register(signal, flag.clone())?;
            seen.push((signal, flag));
        }
        Ok(SignalWatch { pipe, seen })
    }

    /// A signal that has come already.
    fn early(&self) -> Option<i32> {
        self.seen.iter().find(|(_, flag)| flag.load(Ordering::SeqCst)).map(|(signal, _)| *signal)
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while rustix::io::read(self.pipe.as_fd(), &mut bytes).is_ok_and(|count| count > 0) {}
    }
}
