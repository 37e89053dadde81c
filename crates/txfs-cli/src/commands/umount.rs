//! `txfs umount`.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use txfs_protocol::ProtocolError;
use txfs_protocol::mounts::{self, Mount};

use crate::cli::Umount;
use crate::error::Error;
use crate::output::format;
use crate::place;

/// How long somebody who only has a look may keep a mount point busy.
const GLANCE_MAX: Duration = Duration::from_secs(1);

/// Unmounts, and waits until the owner has closed the volume and ended.
pub fn run(arguments: Umount) -> Result<(), Error> {
    // First, because the socket of such an owner is still open, and never answers.
    if let Some(mount) = mount_of(&arguments.target)?
        && let Some(owner) = killed_owner(&mount.source)
    {
        return cut_loose(&mount, &owner);
    }
    let Some((mut client, mountpoint)) = place::connect(&arguments.target)? else {
        return remove_dead(&arguments.target);
    };
    if !arguments.lazy {
        let transactions = client.list()?;
        if !transactions.is_empty() {
            let transactions = transactions
                .iter()
                .map(|open| {
                    let age = format::duration(Duration::from_millis(open.age_ms));
                    format!("{} (pid {}, for {age})", format::name(open.command.as_bytes()), open.pid)
                })
                .collect();
            return Err(Error::TransactionsOpen { mountpoint, transactions });
        }
    }
    let owner = client
        .welcome()
        .and_then(|welcome| Pid::from_raw(welcome.owner_pid as i32))
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let begun = Instant::now();
    loop {
        match client.unmount(arguments.lazy) {
            Ok(()) => break,
            Err(ProtocolError::Remote { errno: libc::EBUSY, .. }) => {
                let users = users_of(&mountpoint);
                // Nobody stays there: somebody had a look in passing, as `df` has at every mount.
                if !users.is_empty() || begun.elapsed() > GLANCE_MAX {
                    return Err(Error::MountPointBusy { mountpoint, users });
                }
                std::thread::sleep(GLANCE_MAX / 20);
            }
            // Gone between question and answer: that is what was asked for.
            Err(ProtocolError::Closed) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if arguments.lazy {
        return Ok(());
    }
    // Until the volume is closed, and then until the process is gone, so that the next opener finds it free.
    client.wait_closed()?;
    if let Some(owner) = owner {
        let _ = poll(&mut [PollFd::new(&owner, PollFlags::IN)], None);
    }
    Ok(())
}

/// The mount that a mount point or a volume names, whether it answers or not: nothing here looks into it.
fn mount_of(target: &Path) -> Result<Option<Mount>, Error> {
    let path = std::path::absolute(target).map_err(|source| Error::io("find", target, source))?;
    let mounted = mounts::txfs_mounts()
        .map_err(|source| Error::io("read", Path::new("/proc/self/mountinfo"), source))?;
    Ok(mounted.into_iter().rev().find(|mount| {
        mounts::same_point(&mount.mountpoint, &path) || mounts::same_point(&mount.source, &path)
    }))
}

/// A mount whose owner was killed is still there, and answers nothing but errors.
fn remove_dead(target: &Path) -> Result<(), Error> {
    let Some(mount) = mount_of(target)? else {
        return Err(Error::NotMounted { target: target.to_path_buf() });
    };
    match fs::metadata(&mount.mountpoint) {
        // Whoever still has files open there only gets errors from them: nothing to wait for.
        Err(error) if [Some(libc::ENOTCONN), Some(libc::ECONNABORTED)].contains(&error.raw_os_error()) => {
            Ok(txfs_fuse::unmount(&mount.mountpoint, true)?)
        }
        _ => Err(Error::OwnerSilent { mountpoint: mount.mountpoint }),
    }
}

/// The owner of a volume when it was killed and has not ended, if that does not change within a moment: it waits for
/// the kernel, which waits for an answer that only the owner could have given.
fn killed_owner(volume: &Path) -> Option<OwnedFd> {
    let note = fs::read_to_string(volume.join("LOCK")).ok()?;
    let pid: i32 = note.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()?;
    let owner = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    if !is_killed(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?) {
        return None;
    }
    let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&owner, PollFlags::IN)], Some(&moment));
    (ended == Ok(0)).then_some(owner)
}

/// Whether SIGKILL is pending in /proc/PID/status.
fn is_killed(status: &str) -> bool {
    ["SigPnd:", "ShdPnd:"].iter().any(|name| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        mask & (1 << (libc::SIGKILL - 1)) != 0
    })
}

/// Takes the kernel's side of the connection away, so that all who wait for an answer get an error. Only root may.
fn cut_loose(mount: &Mount, owner: &OwnedFd) -> Result<(), Error> {
    match rustix::mount::unmount(&mount.mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        Ok(()) => {}
        Err(error) => return Err(Error::io("unmount by force", &mount.mountpoint, error.into())),
    }
    let _ = poll(&mut [PollFd::new(owner, PollFlags::IN)], None);
    Ok(())
}

/// Processes with their current directory, root, or an open file below a directory, as far as we may see them.
fn users_of(mountpoint: &Path) -> Vec<String> {
    let mut users = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path();
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut places =
            [process.join("cwd"), process.join("root"), process.join("exe")].into_iter().chain(open);
        if places
            .any(|place| fs::read_link(place).is_ok_and(|target: PathBuf| target.starts_with(mountpoint)))
        {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            users.push(format!("{} (pid {pid})", name.trim_end()));
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_or_not() {
        assert!(is_killed("SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n"));
        assert!(!is_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n"));
        assert!(!is_killed(""));
    }
}
