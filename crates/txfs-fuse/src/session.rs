//! A mount from beginning to end: threads that serve requests, and an orderly close of the volume.
//!
//! The session ends when the kernel has let go of the mount: by `unmount`, by `umount` from outside, or, after a lazy
//! unmount, when the last file is closed. `MountedVolume::wait` then aborts what is open, closes the volume cleanly
//! and returns. `terminate` (SIGTERM) does not wait for ever: files still in use after a grace period are cut off.
//! Locks: `Shared::state` is a leaf.

use crate::attach;
use crate::control::{ControlServer, ControlSocket};
use crate::errno::Errno;
use crate::error::MountError;
use crate::filesystem::{Answer, FileSystem};
use crate::invalidate::Invalidator;
use crate::options::MountOptions;
use crate::views::Views;
use crate::wire::device::Device;
use crate::wire::init;
use crate::wire::opcode::MessageCounts;
use crate::wire::reply::ReplyBuffer;
use crate::wire::request::Request;
use parking_lot::{Condvar, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use txfs::Volume;
use txfs_protocol::mounts;

/// How long `terminate` lets programs go on that still have files open.
const GRACE: Duration = Duration::from_secs(5);

/// After how many failures to read a request, one after the other, a thread gives up.
const READ_FAILURES_MAX: u32 = 1000;

/// Mounts an open volume and begins to serve it.
///
/// `volume_path` is the volume's directory (it becomes the mount's source, and its socket is made there).
pub fn mount(
    volume: Volume,
    volume_path: &Path,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<MountedVolume, MountError> {
    let volume_path = volume_path
        .canonicalize()
        .map_err(|error| MountError::io(format!("{}: volume", volume_path.display()), error))?;
    let mountpoint = attach::check_mountpoint(mountpoint, &volume_path)?;
    // Before the mount can be seen: whoever sees it may talk to its owner (and wait until that answers).
    let socket = ControlSocket::bind(&volume_path, options)?;
    let device = Arc::new(Device::new(attach::attach(&mountpoint, &volume_path, options)?));
    let mounted = start(volume, volume_path, mountpoint.clone(), device, socket, options);
    if mounted.is_err() {
        // Nobody serves it.
        let _ = attach::unmount(&mountpoint, true);
    }
    mounted
}

fn start(
    volume: Volume,
    volume_path: PathBuf,
    mountpoint: PathBuf,
    device: Arc<Device>,
    socket: ControlSocket,
    options: &MountOptions,
) -> Result<MountedVolume, MountError> {
    init::handshake(&device)
        .map_err(|error| MountError::io(format!("{}: starting to serve", mountpoint.display()), error))?;
    let shown = match &options.snapshot {
        Some(name) => Some(volume.open_snapshot(name).map_err(MountError::Volume)?),
        None => None,
    };
    let views = Arc::new(Views::new(volume.clone(), shown));
    let invalidator = Invalidator::new(device.clone(), views.clone());
    let spawning = |error| MountError::io("starting a thread", error);
    invalidator.start().map_err(spawning)?;
    views.gather_forgotten().map_err(spawning)?;
    volume.observe(invalidator.observer());
    let filesystem = Arc::new(FileSystem {
        views,
        counts: MessageCounts::new(),
        invalidator,
        tokens: Default::default(),
        groups: Default::default(),
        owner: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
    });
    let shared = Arc::new(Shared {
        filesystem,
        volume_path,
        mountpoint,
        options: options.clone(),
        state: Mutex::new(State { serving: 0, deadline: None }),
        changed: Condvar::new(),
    });
    for number in 0..options.threads.max(1) {
        shared.state.lock().serving += 1;
        let (server, device) = (Serving(shared.clone()), device.clone());
        thread::Builder::new()
            .name(format!("txfs-fuse-{number}"))
            .spawn(move || server.0.serve(&device))
            .map_err(spawning)?;
    }
    teach_the_kernel(&shared.mountpoint);
    widen_readahead(&shared.mountpoint);
    let control = ControlServer::start(socket, MountHandle(shared.clone()))?;
    Ok(MountedVolume { shared, control: Some(control) })
}

/// Opens and closes a file and a directory once: from the answers the kernel learns that opening and closing need no
/// messages. (Files that are created before it has learned that would each cost a RELEASE.)
///
/// Another process does it. One that is killed while it waits for an answer of its own, with the threads that would
/// give it dead already, could never end: it waits for an answer, and the kernel for the end of its last thread.
fn teach_the_kernel(mountpoint: &Path) {
    let control = mountpoint.join(".txfs");
    let mut command = Command::new("cat");
    command.arg("--").arg(control.join("probe")).arg(&control);
    // It fails: a directory can be opened, but not read like a file.
    let taught = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = taught {
        log::debug!("opening {}: {error}", control.display());
    }
}

/// Has another process look at a path of the mount, for what the kernel makes of it.
pub(crate) fn look_at(path: &Path) {
    let mut command = Command::new("cat");
    command.arg("--").arg(path);
    // It fails where the path is a directory: that is too late to matter.
    let looked = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = looked {
        log::debug!("looking at {}: {error}", path.display());
    }
}

/// Lets the kernel read ahead as far as one request goes: files are then read in order about three times as fast (in
/// the protocol itself a file system can only ask for less than the default of 128 KiB). Only root may do this.
fn widen_readahead(mountpoint: &Path) {
    // Not from a `stat`, which would be a request to ourselves.
    let mounted = mounts::txfs_mounts().unwrap_or_default();
    let Some(mount) = mounted.iter().rev().find(|mount| mount.mountpoint == mountpoint) else { return };
    let (major, minor) = mount.device;
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&setting, (init::TRANSFER_BYTES_MAX / 1024).to_string()) {
        log::debug!("{setting}: {error}");
    }
}

/// What threads and handles of a mount share.
pub(crate) struct Shared {
    pub filesystem: Arc<FileSystem>,
    pub volume_path: PathBuf,
    pub mountpoint: PathBuf,
    pub options: MountOptions,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Threads that still serve requests.
    serving: usize,
    /// When to stop even though programs still use the mount.
    deadline: Option<Instant>,
}

/// Counts a serving thread until it ends, however it ends.
struct Serving(Arc<Shared>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.state.lock().serving -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Serves requests until the file system is unmounted.
    fn serve(&self, device: &Device) {
        let mut buffer = vec![0; init::REQUEST_BYTES_MAX];
        let mut reply = ReplyBuffer::new();
        let mut failures = 0;
        loop {
            let message = match device.receive(&mut buffer) {
                Ok(Some(len)) => &buffer[..len],
                Ok(None) => return,
                Err(error) => {
                    log::error!("{}: reading requests failed: {error}", self.mountpoint.display());
                    failures += 1;
                    if failures > READ_FAILURES_MAX {
                        return;
                    }
                    // Out of memory, perhaps: a mount that nobody serves would hang its users.
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
            };
            failures = 0;
            let Some(request) = Request::parse(message) else {
                log::error!("{}: malformed request of {} bytes", self.mountpoint.display(), message.len());
                continue;
            };
            self.serve_one(device, &request, &mut reply);
        }
    }

    fn serve_one(&self, device: &Device, request: &Request<'_>, reply: &mut ReplyBuffer) {
        reply.clear();
        // For the conflict reports of those whom it dooms.
        txfs::set_caller(request.header.pid);
        let _unversioned = self.filesystem.unversioned(request);
        // A request without a reply would hang its caller for ever, so a panic must not swallow it.
        let served = catch_unwind(AssertUnwindSafe(|| self.filesystem.serve(request, reply)));
        let error = match served {
            Ok(Ok(Answer::Silence)) => return,
            Ok(Ok(Answer::Reply)) => 0,
            Ok(Err(Errno(number))) => number,
            Err(_) => {
                log::error!("request {:?} failed by a programming error", request.header);
                Errno::IO.0
            }
        };
        if let Err(error) = device.reply(reply.finish(request.header.unique, error)) {
            // The caller was killed meanwhile, or the mount is gone.
            log::debug!("reply to request {:?}: {error}", request.header);
        }
    }
}

/// A mounted volume. Dropped without `wait`, it unmounts lazily and closes the volume.
pub struct MountedVolume {
    shared: Arc<Shared>,
    control: Option<ControlServer>,
}

impl MountedVolume {
    /// Where it is mounted, without symbolic links.
    pub fn mountpoint(&self) -> &Path {
        &self.shared.mountpoint
    }

    /// A handle for other threads.
    pub fn handle(&self) -> MountHandle {
        MountHandle(self.shared.clone())
    }

    /// Unmounts; see [`MountHandle::unmount`].
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        self.handle().unmount(lazy)
    }

    /// From now on SIGTERM, SIGINT and SIGHUP end the mount in order ([`MountHandle::terminate`]); a second one does
    /// not wait for programs that still use it.
    pub fn terminate_on_signals(&self) -> Result<(), MountError> {
        let failed = |error| MountError::io("catching signals", error);
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
        let handle = self.handle();
        thread::Builder::new()
            .name("txfs-signals".into())
            .spawn(move || {
                let mut grace = GRACE;
                for signal in signals.forever() {
                    log::info!("signal {signal}: unmounting {}", handle.0.mountpoint.display());
                    handle.terminate(grace);
                    grace = Duration::ZERO;
                }
            })
            .map_err(failed)?;
        Ok(())
    }

    /// Serves until the volume is unmounted, by whomever, then closes it cleanly.
    pub fn wait(mut self) -> Result<(), MountError> {
        {
            let mut state = self.shared.state.lock();
            while state.serving > 0 {
                match state.deadline {
                    None => self.shared.changed.wait(&mut state),
                    Some(deadline) => {
                        if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                            log::warn!(
                                "{}: ending although programs still use it",
                                self.shared.mountpoint.display()
                            );
                            break;
                        }
                    }
                }
            }
        }
        self.finish()
    }

    /// Ends what depends on the mount, in order; clients whose connection closes know that the volume is closed.
    fn finish(&mut self) -> Result<(), MountError> {
        let Some(mut control) = self.control.take() else { return Ok(()) };
        let views = &self.shared.filesystem.views;
        control.stop();
        self.shared.filesystem.invalidator.stop();
        self.remove_dead_mount();
        views.forget_all();
        views.volume().close()?;
        Ok(())
    }
}

impl MountedVolume {
    /// A session that the kernel has ended (somebody aborted the connection) leaves a mount that nobody serves.
    fn remove_dead_mount(&self) {
        let Ok(left) = mounts::of_volume(&self.shared.volume_path) else { return };
        if left.iter().any(|mount| mount.mountpoint == self.shared.mountpoint)
            && let Err(error) = self.unmount(true)
        {
            log::warn!("{error}");
        }
    }
}

impl Drop for MountedVolume {
    fn drop(&mut self) {
        if self.control.is_some() {
            let _ = self.unmount(true);
            if let Err(error) = self.finish() {
                log::error!("{}: closing the volume: {error}", self.shared.volume_path.display());
            }
        }
    }
}

/// Ends a mount from any thread.
#[derive(Clone)]
pub struct MountHandle(pub(crate) Arc<Shared>);

impl MountHandle {
    /// Unmounts. Fails with [`MountError::InUse`] when files are open, unless lazy: then the mount goes at once, and
    /// the session ends when the last of them is closed.
    pub fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        attach::unmount(&self.0.mountpoint, lazy)
    }

    /// Makes everything durable and unmounts; programs that still have files open get `grace` before they are cut off.
    pub fn terminate(&self, grace: Duration) {
        if let Err(error) = self.0.filesystem.views.volume().sync() {
            log::error!("{}: making the volume durable: {error}", self.0.volume_path.display());
        }
        match self.unmount(false) {
            Ok(()) | Err(MountError::NotMounted { .. }) => {}
            Err(error) => {
                log::warn!("{error}; unmounting lazily");
                if let Err(error) = self.unmount(true) {
                    log::error!("{error}");
                }
            }
        }
        let deadline = Instant::now() + grace;
        let mut state = self.0.state.lock();
        state.deadline = Some(state.deadline.map_or(deadline, |already| already.min(deadline)));
        self.0.changed.notify_all();
    }
}
