//! One attempt: the command runs in the view of one transaction, from the start of its supervisor to the end of its
//! last process.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::FdFlags;
use txfs_protocol::Begun;

use super::control::{FromSupervisor, Status, ToSupervisor, receive, send};
use super::processes;
use super::signals::{FORWARDED, Signals};
use super::target::{MOUNT_VARIABLE, TRANSACTION_VARIABLE, Target};
use crate::cli::internal;
use crate::error::Error;

/// How the command ended, and what it had left running.
#[derive(Debug)]
pub struct Ended {
    pub status: Status,
    pub leftovers: Vec<String>,
}

/// Runs the command in the view of a transaction that has begun.
pub fn run(target: &Target, begun: &Begun, command: &[OsString], signals: &Signals) -> Result<Ended, Error> {
    // Should the supervisor itself be killed, the command's processes become our children, and we end them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| Error::run("cannot become the keeper of the command's processes", error))?;
    let (mut ours, theirs) =
        UnixStream::pair().map_err(|error| Error::run("cannot make a socket pair", error))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())
        .map_err(|error| Error::run("cannot pass a socket on", error))?;
    let mut child = Command::new("/proc/self/exe")
        .arg0("txfs")
        .arg(internal::EXEC)
        .arg(format!("--control-descriptor={}", theirs.as_raw_fd()))
        .arg("--")
        .args(command)
        .env(TRANSACTION_VARIABLE, begun.transaction.to_string())
        .env(MOUNT_VARIABLE, &target.mountpoint)
        .spawn()
        .map_err(|error| Error::run("cannot start the command's supervisor", error))?;
    drop(theirs);

    signals.pass_to(ours.try_clone().ok());
    let directory = std::env::current_dir().ok().map(|directory| directory.as_path().into());
    let setup =
        ToSupervisor::Setup { binds: target.binds(&begun.view), submounts: target.submounts(), directory };
    // If the supervisor is dead, the receive says so.
    let _ = send(&mut ours, &setup);
    let message = receive(&mut BufReader::new(&ours));
    signals.pass_to(None);
    drop(ours);
    let supervisor = child.wait();
    // After a proper end nothing is left and this costs one system call.
    let strays = processes::end_descendants(Duration::ZERO);

    match message {
        Ok(Some(FromSupervisor::Ended { status, leftovers, mut survivors })) => {
            survivors.extend(strays.survivors);
            if survivors.is_empty() {
                Ok(Ended { status, leftovers })
            } else {
                Err(Error::ProcessesSurvive { processes: survivors })
            }
        }
        Ok(Some(FromSupervisor::NamespaceFailed { message, hint })) => {
            Err(Error::Namespace { message, hint })
        }
        Ok(Some(FromSupervisor::ExecuteFailed { errno })) => Err(execute_failed(&command[0], errno)),
        Ok(None) => match supervisor.ok().and_then(|supervisor| supervisor.signal()) {
            // A Ctrl-C before it was ready for one: as if it had hit the command.
            Some(signal) if FORWARDED.contains(&signal) => {
                Ok(Ended { status: Status::Signalled(signal), leftovers: Vec::new() })
            }
            _ => Err(Error::SupervisorDied),
        },
        Err(error) => Err(Error::run("cannot talk to the command's supervisor", error)),
    }
}

/// The error for a command that could not be executed: 127 when it is not there, 126 otherwise.
pub fn execute_failed(command: &OsString, errno: i32) -> Error {
    let command = Path::new(command).to_path_buf();
    let source = io::Error::from_raw_os_error(errno);
    if errno == libc::ENOENT {
        Error::CommandNotFound { command }
    } else {
        Error::CannotExecute { command, source }
    }
}
