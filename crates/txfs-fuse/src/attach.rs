//! Mounting and unmounting, as such: how a descriptor of /dev/fuse gets tied to a directory.
//!
//! Where this process may call mount(2) (root, or the owner of a user namespace) it does; otherwise the setuid helper
//! fusermount3 mounts and passes the descriptor over a socket, which it gets as its standard input, so that no
//! descriptor has to be made inheritable in a process with threads.

use crate::error::MountError;
use crate::options::MountOptions;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as SystemErrno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::{CString, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use txfs_protocol::{MOUNT_SUBTYPE, mounts};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// Checks a mount point and returns it without symbolic links.
pub(crate) fn check_mountpoint(mountpoint: &Path, volume: &Path) -> Result<PathBuf, MountError> {
    let path = mountpoint.to_path_buf();
    let resolved = mountpoint.canonicalize().map_err(|error| {
        match error.raw_os_error().map(SystemErrno::from_raw_os_error) {
            Some(SystemErrno::NOENT) => MountError::MountPointMissing { path: path.clone() },
            Some(SystemErrno::NOTDIR) => MountError::MountPointNotDirectory { path: path.clone() },
            Some(SystemErrno::NOTCONN) => MountError::MountPointDead { path: path.clone() },
            _ => MountError::io(format!("{}: mount point", path.display()), error),
        }
    })?;
    let metadata = std::fs::metadata(&resolved).map_err(|error| {
        if error.raw_os_error() == Some(SystemErrno::NOTCONN.raw_os_error()) {
            MountError::MountPointDead { path: resolved.clone() }
        } else {
            MountError::io(format!("{}: mount point", resolved.display()), error)
        }
    })?;
    if !metadata.is_dir() {
        return Err(MountError::MountPointNotDirectory { path });
    }
    let there = mounts::txfs_mounts().map_err(|error| MountError::io("/proc/self/mountinfo", error))?;
    if let Some(mount) = there.into_iter().rev().find(|mount| mount.mountpoint == resolved) {
        return Err(MountError::MountPointBusy { path: resolved, volume: mount.source });
    }
    if volume.starts_with(&resolved) {
        return Err(MountError::VolumeUnderMountPoint { mountpoint: resolved, volume: volume.to_path_buf() });
    }
    Ok(resolved)
}

/// Mounts; returns the kernel's end.
pub(crate) fn attach(
    mountpoint: &Path,
    volume: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    match rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(device) => match attach_directly(&device, mountpoint, volume, options) {
            Ok(()) => return Ok(device),
            Err(SystemErrno::PERM) => {}
            Err(error) => return Err(refused(mountpoint, io::Error::from(error).to_string())),
        },
        Err(SystemErrno::NOENT | SystemErrno::NODEV | SystemErrno::NXIO) => {
            return Err(MountError::NoFuseDevice);
        }
        // The helper may be allowed to open it.
        Err(SystemErrno::ACCESS | SystemErrno::PERM) => {}
        Err(error) => return Err(MountError::io(DEVICE, error)),
    }
    attach_with_helper(mountpoint, volume, options)
}

fn attach_directly(
    device: &OwnedFd,
    mountpoint: &Path,
    volume: &Path,
    options: &MountOptions,
) -> Result<(), SystemErrno> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.allow_suid);
    flags.set(MountFlags::NODEV, !options.allow_devices);
    flags.set(MountFlags::NOEXEC, !options.allow_exec);
    let data = CString::new(data).map_err(|_| SystemErrno::INVAL)?;
    rustix::mount::mount(volume, mountpoint, format!("fuse.{MOUNT_SUBTYPE}"), flags, data.as_c_str())
}

fn attach_with_helper(
    mountpoint: &Path,
    volume: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let failed = |error: io::Error| MountError::io(HELPER, error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(helper().ok_or(MountError::NoFusermount)?);
    command
        .arg("-o")
        .arg(helper_options(volume, options))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    // The command holds our copy of the helper's end; without this its death would go unnoticed.
    drop(command);
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(failed)?;
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().trim_start_matches("fusermount3: ");
            if said.contains("device not found") || said.contains("fuse device") {
                return Err(MountError::NoFuseDevice);
            }
            Err(refused(mountpoint, format!("fusermount3 said: {said}")))
        }
        Err(error) => Err(failed(error.into())),
    }
}

fn refused(mountpoint: &Path, reason: String) -> MountError {
    MountError::Refused { path: mountpoint.to_path_buf(), reason }
}

fn helper_options(volume: &Path, options: &MountOptions) -> OsString {
    let mut text = format!("subtype={MOUNT_SUBTYPE},default_permissions").into_bytes();
    for (wanted, option) in [
        (options.allow_other, ",allow_other"),
        (options.read_only, ",ro"),
        (options.allow_suid, ",suid"),
        (options.allow_devices, ",dev"),
        (!options.allow_exec, ",noexec"),
    ] {
        if wanted {
            text.extend(option.bytes());
        }
    }
    text.extend(b",fsname=");
    for byte in volume.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    OsString::from_vec(text)
}

fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(HELPER))
        .find(|candidate| candidate.is_file())
}

/// Takes the descriptor that the helper sends; `None` when it ends without sending one.
fn receive_descriptor(from: &UnixStream) -> rustix::io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

/// Mounts a directory of a mount at another place, read-only.
pub fn bind_read_only(source: &Path, directory: &Path) -> Result<(), MountError> {
    let failed = |error: SystemErrno| match error {
        SystemErrno::PERM => MountError::NotPermittedToBind { path: source.to_path_buf() },
        SystemErrno::NOENT if directory.exists() => {
            let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            MountError::Volume(txfs::Error::NoSuchSnapshot { name })
        }
        SystemErrno::NOENT => MountError::MountPointMissing { path: directory.to_path_buf() },
        SystemErrno::NOTDIR => MountError::MountPointNotDirectory { path: directory.to_path_buf() },
        error => MountError::io(format!("{}: mounting", directory.display()), io::Error::from(error)),
    };
    rustix::mount::mount_bind(source, directory).map_err(failed)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount_remount(directory, flags, c"").map_err(|error| {
        // Changes are refused in any case; but the mount would not say so.
        let _ = unmount(directory, true);
        failed(error)
    })
}

/// Unmounts what is mounted at a directory. Lazily: at once, even when files are in use; its server ends when the last
/// of them is closed.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(SystemErrno::BUSY) => Err(MountError::InUse { path: mountpoint.to_path_buf() }),
        Err(SystemErrno::INVAL | SystemErrno::NOENT) => {
            Err(MountError::NotMounted { path: mountpoint.to_path_buf() })
        }
        Err(SystemErrno::PERM) => unmount_with_helper(mountpoint, lazy),
        Err(error) => Err(MountError::io(format!("{}: unmounting", mountpoint.display()), error)),
    }
}

fn unmount_with_helper(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(helper().ok_or(MountError::NoFusermount)?);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| MountError::io(HELPER, error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let path = mountpoint.to_path_buf();
    if said.contains("busy") {
        Err(MountError::InUse { path })
    } else if said.contains("not found in") || said.contains("not mounted") {
        Err(MountError::NotMounted { path })
    } else {
        Err(MountError::io(
            format!("{}: unmounting", mountpoint.display()),
            io::Error::other(said.trim().to_string()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn helper_options_are_escaped() {
        let options = MountOptions { allow_other: true, allow_exec: true, ..MountOptions::default() };
        let text = helper_options(Path::new("/a,b\\c"), &options);
        assert_eq!(text, OsStr::new("subtype=txfs,default_permissions,allow_other,fsname=/a\\,b\\\\c"));
    }

    #[test]
    fn mount_points_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let check = |path: &Path| check_mountpoint(path, &directory.path().join("volume"));
        assert!(matches!(check(&directory.path().join("none")), Err(MountError::MountPointMissing { .. })));
        assert!(matches!(check(&file), Err(MountError::MountPointNotDirectory { .. })));
        assert!(matches!(check(&file.join("x")), Err(MountError::MountPointNotDirectory { .. })));
        assert!(matches!(check(directory.path()), Err(MountError::VolumeUnderMountPoint { .. })));
        assert!(matches!(
            unmount(&directory.path().join("none"), false),
            Err(MountError::NotMounted { .. } | MountError::NoFusermount | MountError::Io { .. })
        ));
    }
}
