//! Connections to the owners of volumes: one for each open transaction, and a pool of idle ones.
//!
//! A program may close descriptors that it does not know, so a connection's descriptor is compared before it is used.
//! Frames are written with calls of our own, so that an owner that is gone is an error and no SIGPIPE.
//! Locks: `POOL` is a leaf; it is only taken with signals masked.

use crate::calls::own::Own;
use crate::calls::system::{Fd, numbers, openat};
use crate::calls::{inherited, locked};
use crate::kernel::Errno;
use std::ffi::CString;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use txfs_protocol::{
    PROTOCOL_VERSION, ProtocolError, Request, Response, SOCKET_NAME, read_frame, write_frame,
};

static POOL: Mutex<Vec<Connection>> = Mutex::new(Vec::new());

/// As many idle connections are kept.
const IDLE_MAX: usize = 16;

/// Most responses are not longer, and come with one call.
const RESPONSE_BYTES: usize = 4096;

/// A connection that has been greeted on.
#[derive(Debug)]
pub struct Connection {
    own: Own,
    volume: PathBuf,
    /// The thread whose transaction on it has just conflicted: its next one is the same once more.
    pub conflicted: Option<usize>,
}

impl Connection {
    /// An idle one, or a new one.
    pub fn take(volume: &Path) -> Result<Connection, ProtocolError> {
        let thread = thread();
        let mut pool = locked(&POOL);
        let fits = |connection: &Connection| connection.volume == volume;
        let again = pool.iter().position(|idle| fits(idle) && idle.conflicted == Some(thread));
        let any = || pool.iter().rposition(|idle| fits(idle) && idle.conflicted.is_none());
        let any = again.or_else(any).or_else(|| pool.iter().position(fits));
        if let Some(index) = any {
            let mut idle = pool.remove(index);
            if idle.is_usable() {
                idle.conflicted = idle.conflicted.filter(|other| *other == thread);
                return Ok(idle);
            }
        }
        drop(pool);
        let own = connect(volume).map_err(|Errno(number)| match number {
            libc::EACCES | libc::EPERM => ProtocolError::NotAllowed { volume: volume.to_path_buf() },
            _ => ProtocolError::NotMounted {
                volume: volume.to_path_buf(),
                source: io::Error::from_raw_os_error(number),
            },
        })?;
        let connection = Connection { own, volume: volume.to_path_buf(), conflicted: None };
        let pid = numbers(libc::SYS_getpid, [0; 6]).unwrap_or(0) as u32;
        let hello = Request::Hello { protocol: PROTOCOL_VERSION, command: command(), pid };
        match connection.call(&hello)? {
            Response::Welcome(welcome) if welcome.protocol == PROTOCOL_VERSION => Ok(connection),
            Response::Welcome(welcome) => {
                Err(ProtocolError::Version { ours: PROTOCOL_VERSION, theirs: welcome.protocol })
            }
            _ => Err(ProtocolError::Unexpected { request: "hello" }),
        }
    }

    /// Keeps it for the next transaction.
    pub fn put_back(self) {
        let mut pool = locked(&POOL);
        if pool.len() < IDLE_MAX {
            pool.push(self);
        }
    }

    /// Sends one request and takes its response.
    pub fn call(&self, request: &Request) -> Result<Response, ProtocolError> {
        let mut stream = Stream(self.own.number() as usize);
        write_frame(&mut stream, request)?;
        // One request is in flight, so what arrives is its response and nothing else.
        match read_frame(&mut BufReader::with_capacity(RESPONSE_BYTES, stream))? {
            None => Err(ProtocolError::Closed),
            Some(Response::Error { errno, message }) => Err(ProtocolError::Remote { errno, message }),
            Some(response) => Ok(response),
        }
    }

    /// The program has not closed it, and the owner has neither.
    fn is_usable(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.own.number(), events: libc::POLLIN, revents: 0 };
        let at = &raw mut poll as usize;
        self.own.is_there() && numbers(libc::SYS_poll, [at, 1, 0, 0, 0, 0]) == Ok(0)
    }
}

/// Connects to the owner. The protocol's own client uses libc, where this is a point of cancellation: a thread that is
/// cancelled there would unwind out of the trap's handler.
fn connect(volume: &Path) -> Result<Own, Errno> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let volume = CString::new(volume.as_os_str().as_bytes()).map_err(|_| Errno(libc::EINVAL))?;
    let directory = openat(libc::AT_FDCWD, &volume, flags, 0)?;
    // Short enough for a socket's address, however long the volume's path is.
    let path = format!("/proc/self/fd/{}/{SOCKET_NAME}", directory.number());
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let socket = numbers(libc::SYS_socket, [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0])?;
    let socket = Fd::new(socket);
    let (at, len) = (&raw const address as usize, size_of_val(&address));
    numbers(libc::SYS_connect, [socket.number() as usize, at, len, 0, 0, 0])?;
    Own::new(socket)
}

/// In a child: the descriptors are closed already.
pub fn forget_all() {
    for connection in inherited(&POOL).unwrap_or_default() {
        std::mem::forget(connection);
    }
}

/// The calling thread.
pub fn thread() -> usize {
    numbers(libc::SYS_gettid, [0; 6]).unwrap_or(0)
}

fn command() -> String {
    let mut text = vec![0u8; 4096];
    let mut read = || -> Result<usize, Errno> {
        let file = openat(libc::AT_FDCWD, c"/proc/self/cmdline", libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
        let at = text.as_mut_ptr() as usize;
        numbers(libc::SYS_read, [file.number() as usize, at, text.len(), 0, 0, 0])
    };
    let len = read().unwrap_or(0);
    text.truncate(len);
    let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}

struct Stream(usize);

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at = into.as_mut_ptr() as usize;
        io_result(|| numbers(libc::SYS_recvfrom, [self.0, at, into.len(), 0, 0, 0]))
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let (at, flags) = (from.as_ptr() as usize, libc::MSG_NOSIGNAL as usize);
        io_result(|| numbers(libc::SYS_sendto, [self.0, at, from.len(), flags, 0, 0]))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn io_result(call: impl Fn() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            result => return result.map_err(|error| io::Error::from_raw_os_error(error.0)),
        }
    }
}
