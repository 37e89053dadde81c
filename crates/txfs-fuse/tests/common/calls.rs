//! System calls that the standard library does not have: our ioctls, and doing something as another user.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use txfs_protocol::ioctl::{GroupKey, NodePath, TXFS_IOC_GROUP_ADD, TXFS_IOC_GROUP_REMOVE, TXFS_IOC_NODE};

/// A user who is not root.
pub const NOBODY: u32 = 65534;

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const EACCES: i32 = 13;
pub const EBUSY: i32 = 16;
pub const EEXIST: i32 = 17;
pub const EISDIR: i32 = 21;
pub const EINVAL: i32 = 22;
pub const ENOTTY: i32 = 25;
pub const ESTALE: i32 = 116;
pub const ECANCELED: i32 = 125;

/// Calls `ioctl` with a structure of any size.
pub fn ioctl(file: RawFd, number: u32, structure: &mut [u8]) -> Result<(), i32> {
    // SAFETY: our numbers say how many bytes the kernel reads and writes, and the callers here pass as many.
    let result = unsafe { libc::ioctl(file, libc::Ioctl::from(number), structure.as_mut_ptr()) };
    match result {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or_default()),
        _ => Ok(()),
    }
}

/// The path, below the mount point, of an open file in the view of a transaction, or (0) in the base view.
pub fn node_path(file: &File, transaction: u64) -> Result<PathBuf, i32> {
    let mut bytes = NodePath::of(transaction).to_bytes();
    ioctl(file.as_raw_fd(), TXFS_IOC_NODE, &mut bytes)?;
    let answer = NodePath::from_bytes(&bytes).unwrap();
    assert_eq!(answer.transaction, transaction);
    Ok(PathBuf::from(String::from_utf8(answer.path().to_vec()).unwrap()))
}

/// Makes an open file or directory a member of a group.
pub fn add(key: u32, file: &File) -> Result<(), i32> {
    ioctl(file.as_raw_fd(), TXFS_IOC_GROUP_ADD, &mut GroupKey { key, reserved: 0 }.to_bytes())
}

/// Ends its membership.
pub fn remove(key: u32, file: &File) -> Result<(), i32> {
    ioctl(file.as_raw_fd(), TXFS_IOC_GROUP_REMOVE, &mut GroupKey { key, reserved: 0 }.to_bytes())
}

/// Opens a path and makes it a member.
pub fn add_path(key: u32, path: &Path) -> Result<(), i32> {
    add(key, &File::open(path).unwrap())
}

/// Does something on a thread that is another user, with no groups but these.
pub fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let body = || {
            // The system calls themselves: the C library's functions change the whole process.
            let become_user = |number, first: usize, second: usize, third: usize| {
                // SAFETY: these calls read `groups`, which lives long enough, and change this thread's credentials only.
                assert_eq!(unsafe { libc::syscall(number, first, second, third) }, 0);
            };
            become_user(libc::SYS_setgroups, groups.len(), groups.as_ptr() as usize, 0);
            become_user(libc::SYS_setresgid, gid as usize, gid as usize, gid as usize);
            become_user(libc::SYS_setresuid, uid as usize, uid as usize, uid as usize);
            work()
        };
        scope.spawn(body).join().unwrap()
    })
}
