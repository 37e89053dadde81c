//! Who is at the other end of a socket, as the kernel vouches for it.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// A peer's credentials at the time when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    /// 0 for a process that this one can't see, from outside of a container.
    pub pid: u32,
    pub uid: u32,
}

/// The credentials of a stream's peer. (rustix has this call too, but takes the pid to be non-zero.)
pub(super) fn peer(stream: &UnixStream) -> io::Result<Credentials> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the call, and the kernel writes at most `len` bytes to `found`,
    // which has that size and for which all bytes are valid.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let (one, _other) = UnixStream::pair().unwrap();
        let itself = Credentials { pid: std::process::id(), uid: rustix::process::geteuid().as_raw() };
        assert_eq!(peer(&one).unwrap(), itself);
    }
}
