//! The owner's socket: `VOLUME/socket`, where transactions begin and end.
//!
//! One thread accepts, and each connection has a thread of its own. Only the owner's user and root are served, by the
//! peer credentials that the kernel vouches for; a mount that others may use (`allow_other`) serves its other users
//! too. The socket is made under another name and renamed, so that it has its mode from the start and replaces one
//! that a killed owner has left. (The volume's lock sees to it that there is only one owner.)
//! Locks: `Connections::open` is a leaf.

mod conflict;
mod connection;
mod credentials;
mod groups;
mod history;
mod join;
mod kept;
mod stat;
mod transaction;

pub use conflict::to_report as conflict_report;
pub use connection::to_change as change;
pub use history::{kept_part, kept_transaction, logged, named_snapshot, restored};
pub use stat::volume_stat;

use crate::error::MountError;
use crate::options::MountOptions;
use crate::session::MountHandle;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use txfs_protocol::{SOCKET_NAME, socket_directory};

/// How many clients may be connected; more are turned away.
const CONNECTIONS_MAX: usize = 4096;

/// The listening socket with its threads.
pub(crate) struct ControlServer {
    path: PathBuf,
    connections: Arc<Connections>,
    /// Written to, or closed, it wakes the accepting thread to end.
    stopper: Option<UnixStream>,
    acceptor: Option<JoinHandle<()>>,
}

/// The connections that are open.
#[derive(Default)]
struct Connections {
    open: Mutex<HashMap<u64, Client>>,
}

/// A stream to shut the connection down with, and its thread; none when the server has begun to stop.
struct Client {
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// The listening socket while nobody answers on it yet. Dropped like that, it is removed.
pub(crate) struct ControlSocket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl ControlSocket {
    /// Makes the socket in the volume's directory.
    pub(crate) fn bind(volume: &Path, options: &MountOptions) -> Result<ControlSocket, MountError> {
        let path = volume.join(SOCKET_NAME);
        let failed = |source| MountError::Socket { path: path.clone(), source };
        let mode = if options.allow_other { 0o666 } else { 0o600 };
        if options.allow_other {
            let_through(volume).map_err(failed)?;
        }
        let listener = listen(volume, mode).map_err(failed)?;
        Ok(ControlSocket { path, listener: Some(listener) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.listener.take().is_some() {
            // One that stays behind is refused like that of an owner that was killed, and replaced by the next one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ControlServer {
    /// Begins to answer.
    pub(crate) fn start(mut socket: ControlSocket, handle: MountHandle) -> Result<ControlServer, MountError> {
        let path = socket.path.clone();
        let failed = |source| MountError::Socket { path: path.clone(), source };
        let closed = || failed(io::ErrorKind::NotConnected.into());
        let listener = socket.listener.take().ok_or_else(closed)?;
        let (stopper, stopped) = UnixStream::pair().map_err(failed)?;
        let connections = Arc::new(Connections::default());
        let acceptor = thread::Builder::new()
            .name("txfs-control".into())
            .spawn({
                let connections = connections.clone();
                move || accept(&listener, &stopped, &connections, &handle)
            })
            .map_err(failed)?;
        Ok(ControlServer { path, connections, stopper: Some(stopper), acceptor: Some(acceptor) })
    }

    /// Takes no more clients and aborts all open transactions. The clients' connections stay open until this server
    /// is dropped, so that a client can wait for the volume's close.
    pub(crate) fn stop(&mut self) {
        drop(self.stopper.take());
        if let Some(acceptor) = self.acceptor.take() {
            // A panic there has been reported by the thread itself.
            let _ = acceptor.join();
        }
        let threads: Vec<_> = {
            let mut open = self.connections.open.lock();
            open.values_mut()
                .map(|client| {
                    // An error means that the client is gone already.
                    let _ = client.stream.shutdown(Shutdown::Read);
                    client.thread.take()
                })
                .collect()
        };
        let this = thread::current().id();
        for thread in threads.into_iter().flatten() {
            if thread.thread().id() != this {
                let _ = thread.join();
            }
        }
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            log::warn!("{}: {error}", self.path.display());
        }
    }
}

/// Lets others reach the socket in the volume's directory. They cannot list it, and its files are the owner's only.
fn let_through(volume: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(volume)?.permissions().mode();
    if mode & 0o011 == 0o011 {
        return Ok(());
    }
    std::fs::set_permissions(volume, PermissionsExt::from_mode(mode | 0o011))
}

fn listen(volume: &Path, mode: u32) -> io::Result<UnixListener> {
    let (directory, _guard) = socket_directory(volume)?;
    let (temporary, path) = (directory.join("socket.new"), directory.join(SOCKET_NAME));
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary)?;
    std::fs::set_permissions(&temporary, PermissionsExt::from_mode(mode))?;
    std::fs::rename(&temporary, &path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn accept(
    listener: &UnixListener,
    stopped: &UnixStream,
    connections: &Arc<Connections>,
    handle: &MountHandle,
) {
    let mut number = 0;
    loop {
        let mut events = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                log::error!("waiting for clients: {error}");
                return;
            }
        }
        if !events[1].revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                number += 1;
                if let Err(error) = connections.start(number, stream, handle) {
                    log::warn!("a client was turned away: {error}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                log::warn!("taking a client: {error}");
                // Out of descriptors, most likely: the condition may pass.
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

impl Connections {
    fn start(
        self: &Arc<Connections>,
        number: u64,
        stream: UnixStream,
        handle: &MountHandle,
    ) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        let mut open = self.open.lock();
        if open.len() >= CONNECTIONS_MAX {
            return Err(io::Error::other(format!("{CONNECTIONS_MAX} clients are connected already")));
        }
        let own = stream.try_clone()?;
        let connections = self.clone();
        let handle = handle.clone();
        let thread = thread::Builder::new().name(format!("txfs-client-{number}")).spawn(move || {
            connection::serve(own, handle);
            // While the server stops, it keeps the stream.
            let mut open = connections.open.lock();
            if open.get(&number).is_some_and(|client| client.thread.is_some()) {
                open.remove(&number);
            }
        })?;
        open.insert(number, Client { stream, thread: Some(thread) });
        Ok(())
    }
}
