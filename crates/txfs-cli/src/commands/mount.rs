//! `txfs mount`: in the foreground, or as a daemon.
//!
//! A daemon is this program again, started by the one that the user called, which waits on a pipe: a byte means that
//! the mount can be used, the end of the pipe that it failed, and then the daemon has said why and its exit code is
//! handed on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use txfs_fuse::MountOptions;

use crate::cli::{Daemon, Mount, internal};
use crate::error::Error;
use crate::logging;
use crate::place;

/// More would only wait for each other.
const THREADS_MAX: usize = 256;

/// Mounts.
pub fn run(arguments: Mount) -> Result<(), Error> {
    if arguments.foreground { serve(arguments, None) } else { background(&arguments) }
}

/// The process that [`run`] starts to serve a mount in the background.
pub fn daemon(arguments: Daemon) -> Result<(), Error> {
    let ready = adopt(arguments.ready_descriptor)?;
    // No terminal can hang up on us.
    rustix::process::setsid().map_err(|error| Error::run("cannot start a session", error))?;
    serve(arguments.mount, Some(ready))
}

/// Options given with -o and as switches, taken apart.
fn mount_options(arguments: &Mount) -> Result<MountOptions, Error> {
    let mut options = MountOptions::default();
    options.allow_other |= arguments.allow_other;
    if let Some(threads) = arguments.threads {
        options.threads = threads.into();
    }
    for option in arguments.options.iter().map(|option| option.trim()).filter(|option| !option.is_empty()) {
        set_option(&mut options, option)?;
    }
    Ok(options)
}

fn set_option(options: &mut MountOptions, option: &str) -> Result<(), Error> {
    match option {
        "allow_other" => options.allow_other = true,
        "ro" => options.read_only = true,
        "rw" => options.read_only = false,
        "suid" => options.allow_suid = true,
        "nosuid" => options.allow_suid = false,
        "dev" => options.allow_devices = true,
        "nodev" => options.allow_devices = false,
        "exec" => options.allow_exec = true,
        "noexec" => options.allow_exec = false,
        // Reading never changes a time here.
        "noatime" | "nodiratime" | "relatime" | "norelatime" | "strictatime" | "nostrictatime" | "atime"
        | "diratime" => {}
        "policy=eager" => options.policy = txfs::Policy::Eager,
        "policy=first-committer" => options.policy = txfs::Policy::FirstCommitter,
        _ if option.starts_with("history=") => {
            let size = option.trim_start_matches("history=");
            let size = crate::cli::parse_size(size).map_err(Error::Usage)?;
            options.history_bytes_max = Some(size);
        }
        _ if option.starts_with("snapshot=") => {
            options.snapshot = option.strip_prefix("snapshot=").map(str::to_owned);
            options.read_only = true;
        }
        _ => match option.strip_prefix("threads=") {
            Some(number) => {
                options.threads =
                    number.parse().ok().filter(|number| (1..=THREADS_MAX).contains(number)).ok_or_else(
                        || Error::Usage(format!("threads={number}: give a number from 1 to {THREADS_MAX}")),
                    )?;
            }
            None => {
                return Err(Error::Usage(format!(
                    "mount option {option:?} is not known; there are allow_other, ro, rw, suid, nosuid, dev, nodev, \
                     exec, noexec, noatime, relatime, threads=N, history=SIZE, snapshot=NAME, policy=eager and policy=first-committer"
                )));
            }
        },
    }
    Ok(())
}

/// Whether `-o` takes it.
pub fn is_known(option: &str) -> bool {
    set_option(&mut MountOptions::default(), option).is_ok()
}

/// Mounts and serves; `ready` is told when the mount can be used, and then this process lets go of its caller.
fn serve(arguments: Mount, ready: Option<File>) -> Result<(), Error> {
    logging::start();
    let options = mount_options(&arguments)?;
    let volume = absolute(&arguments.volume)?;
    let opened = place::open_unmounted(&volume)?;
    if let Some(bytes) = options.history_bytes_max {
        opened.set_history_bytes_max(Some(bytes));
    }
    let mounted = txfs_fuse::mount(opened, &volume, &arguments.mountpoint, &options)?;
    mounted.terminate_on_signals()?;
    if let Some(mut ready) = ready {
        detach(&volume);
        // Whoever waited for it may be gone by now.
        let _ = ready.write_all(b"+");
    }
    mounted.wait()?;
    Ok(())
}

/// Lets go of the caller's directory and of its standard error; from now on errors go into the log of the volume.
fn detach(volume: &Path) {
    let _ = std::env::set_current_dir("/");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(volume.join("mount.log"));
    if let Ok(log) = log.or_else(|_| OpenOptions::new().write(true).open("/dev/null")) {
        let _ = rustix::stdio::dup2_stderr(&log);
    }
}

fn background(arguments: &Mount) -> Result<(), Error> {
    let failed = |error: io::Error| Error::run("cannot start the mount in the background", error);
    // Wrong options are told by the process that was called.
    mount_options(arguments)?;
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("txfs")
        .arg(internal::MOUNT)
        .arg(format!("--ready-descriptor={}", theirs.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if arguments.allow_other {
        command.arg("--allow-other");
    }
    if let Some(threads) = arguments.threads {
        command.arg(format!("--threads={threads}"));
    }
    if !arguments.options.is_empty() {
        command.arg("-o").arg(arguments.options.join(","));
    }
    let mut daemon =
        command.arg("--").arg(&arguments.volume).arg(&arguments.mountpoint).spawn().map_err(failed)?;
    drop(theirs);
    let mut byte = [0];
    if File::from(ours).read_exact(&mut byte).is_ok() {
        return Ok(());
    }
    let status = daemon.wait().map_err(failed)?;
    Err(Error::Daemon { code: status.code().and_then(|code| u8::try_from(code).ok()) })
}

/// Takes over the pipe that the calling process left open for us.
fn adopt(descriptor: i32) -> Result<File, Error> {
    let kind = fs::metadata(format!("/proc/self/fd/{descriptor}"));
    let is_pipe = kind.is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_fifo(&kind.file_type()));
    if descriptor <= 2 || !is_pipe {
        return Err(Error::Usage(format!("{} is internal to txfs mount", internal::MOUNT)));
    }
    // SAFETY: the descriptor is open (just looked at), and nothing else in this process, which has only begun, owns
    // it: the standard library owns 0, 1 and 2 at most.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC)
        .map_err(|error| Error::run("cannot keep the pipe to myself", error))?;
    Ok(File::from(descriptor))
}

/// The mount's source must be found again from any directory.
fn absolute(volume: &Path) -> Result<PathBuf, Error> {
    volume.canonicalize().map_err(|source| Error::io("open the volume", volume, source))
}
