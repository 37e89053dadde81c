//! A thread's binding to a transaction, and the transaction, which several threads may share.
//!
//! A binding is only used by its thread: by the trap's handler, with all signals masked, or by a function of the API, with
//! all signals masked and dispatch at rest; so never twice at once.
//! Locks: those of `Shared` are leaves, taken for a moment; `STATE`, `NUMBERS` and `POOL` of other modules are never
//! taken under them.

use crate::bound::set_report;
use crate::calls::descriptors::{self, Descriptors};
use crate::calls::mounts::{self, Table};
use crate::calls::own::Own;
use crate::calls::scope::Scope;
use crate::calls::system::{self, Fd, Node, c_text, openat, openat2, status_of};
use crate::calls::{inherited, locked, maps};
use crate::connection::{Connection, thread};
use crate::kernel::Errno;
use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use txfs_protocol::{Begun, ConflictReport, Durability, Isolation, Policy, Request, Response};

/// What a transaction is begun with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub isolation: Isolation,
    pub policy: Option<Policy>,
    pub recorded: bool,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Commit(Durability),
    Abort,
}

/// A volume as the transaction sees it.
#[derive(Debug)]
pub struct View {
    root: Own,
    root_node: Node,
    /// The mount of the volume's whole tree.
    mount: usize,
    /// The transaction's number.
    transaction: u64,
    /// The view's path, as the kernel shows it.
    prefix: Vec<u8>,
    table: Arc<Table>,
}

impl View {
    pub fn root(&self) -> RawFd {
        self.root.number()
    }

    pub fn root_node(&self) -> Node {
        self.root_node
    }

    /// The mount of the volume's whole tree.
    pub fn mount(&self) -> usize {
        self.mount
    }

    /// The transaction's number.
    pub fn transaction(&self) -> u64 {
        self.transaction
    }

    /// What is left of a path in the view below its root; none for a path elsewhere.
    pub fn relative<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        mounts::below(path, &self.prefix)
    }

    /// Opens a file of the base view by its path below the volume's root, without symbolic links.
    pub fn open_base(&self, rest: &[u8], flags: i32) -> Result<Fd, Errno> {
        let point = self.table.entry(self.mount).point();
        let path = c_text([point, b"/", rest].concat());
        openat2(libc::AT_FDCWD, &path, flags, libc::RESOLVE_NO_SYMLINKS)
    }

    /// A path below the volume's root as the program knows it, through a mount that it has.
    pub fn shown(&self, rest: &[u8], mount: usize) -> Vec<u8> {
        let entry = self.table.entry(mount);
        let (point, rest) = match mounts::below(rest, entry.root()) {
            _ if entry.root().is_empty() => (entry.point(), rest),
            Some(rest) => (entry.point(), rest),
            // Moved to where that mount does not show it.
            None => (self.table.entry(self.mount).point(), rest),
        };
        match rest {
            [] if point.is_empty() => b"/".to_vec(),
            [] => point.to_vec(),
            rest => [point, b"/", rest].concat(),
        }
    }
}

/// The current directory, as the transaction has it.
#[derive(Debug, Default)]
pub struct CurrentDirectory {
    /// After a `chdir` into the volume: the directory in the view, and the mount that led there.
    moved: Option<(Own, usize)>,
    /// The process's directory in the view, as long as it is this one.
    known: Option<(Node, Own)>,
}

/// A transaction that has begun.
#[derive(Debug)]
pub struct Shared {
    pub view: Arc<View>,
    pub descriptors: Mutex<Descriptors>,
    pub directory: Mutex<CurrentDirectory>,
    /// Something of the view was mapped into memory.
    pub mapped: AtomicBool,
    /// What of the volume it is about; none: all of it.
    pub scope: Option<Scope>,
    /// None once it has ended.
    connection: Mutex<Option<Connection>>,
}

/// The transactions that threads of this process are in: whoever joins one of them shares it. A leaf.
static SHARED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// What a thread is in between begin and end.
#[derive(Debug)]
pub struct Binding {
    pub depth: u32,
    pub options: Options,
    /// An inner abort has ended it.
    doomed: bool,
    /// It could not be begun when it was to be.
    failed: Option<Errno>,
    /// It was begun by somebody else.
    joined: bool,
    shared: Option<Arc<Shared>>,
    table: Option<Arc<Table>>,
    /// Paths that calls were made with after the handler, and what they lead to.
    kept: Vec<(Own, CString)>,
    waiting: Option<usize>,
}

impl Binding {
    pub fn new(options: Options) -> Binding {
        Binding {
            depth: 1,
            options,
            doomed: false,
            failed: None,
            joined: false,
            shared: None,
            table: None,
            kept: Vec::new(),
            waiting: None,
        }
    }

    /// The mounts, as they were at the first call.
    pub fn table(&mut self) -> Result<Arc<Table>, Errno> {
        if let Some(table) = &self.table {
            return Ok(table.clone());
        }
        let table = mounts::current()?;
        self.table = Some(table.clone());
        Ok(table)
    }

    /// The transaction, if it has begun.
    pub fn known(&self) -> Option<Arc<Shared>> {
        self.shared.clone()
    }

    pub fn known_view(&self) -> Option<Arc<View>> {
        self.shared.as_ref().map(|shared| shared.view.clone())
    }

    /// Keeps a descriptor and a path to it until the end, for a call that is made after the handler. Answers its address.
    pub fn wait_for(&mut self, fd: Fd) -> Result<usize, Errno> {
        let own = Own::new(fd)?;
        let path = system::proc_path(own.number(), b"");
        let address = path.as_ptr() as usize;
        self.kept.push((own, path));
        self.waiting = Some(address);
        Ok(0)
    }

    /// The path that the call is to be made with, if it is.
    pub fn take_waiting(&mut self) -> Option<usize> {
        self.waiting.take()
    }

    /// ECANCELED after an inner abort.
    pub fn alive(&self) -> Result<(), Errno> {
        if self.doomed { Err(Errno(libc::ECANCELED)) } else { Ok(()) }
    }

    /// The view of a volume; the transaction begins here if it has not. It is of one volume: EXDEV for another one.
    pub fn view(&mut self, device: (u32, u32)) -> Result<Arc<View>, Errno> {
        self.alive()?;
        if let Some(shared) = &self.shared {
            if shared.view.root_node.device != device {
                return Err(Errno(libc::EXDEV));
            }
            return Ok(shared.view.clone());
        }
        let table = self.table()?;
        match begin(&self.options, table, device) {
            Ok(shared) => {
                let view = shared.view.clone();
                self.shared = Some(shared);
                Ok(view)
            }
            Err(error) => {
                self.failed = Some(error);
                Err(error)
            }
        }
    }

    /// The view, also where no call has touched a volume: that of `TXFS_MOUNT`, of the current directory, or the only one.
    pub fn forced_view(&mut self) -> Result<Arc<View>, Errno> {
        if let Some(view) = self.known_view() {
            return self.alive().map(|()| view);
        }
        let device = mounts::chosen(&*self.table()?)?;
        self.view(device)
    }

    /// Which files the transaction is about; none: all of the volume.
    pub fn scope(&self) -> Option<Arc<Shared>> {
        self.shared.clone().filter(|shared| shared.scope.is_some())
    }

    /// After a `chdir` into the volume: where the process is for the transaction.
    pub fn virtual_directory(&self) -> Option<(RawFd, usize)> {
        let shared = self.shared.as_ref()?;
        let directory = locked(&shared.directory);
        directory.moved.as_ref().map(|(own, mount)| (own.number(), *mount))
    }

    /// Sets it; none: the process's own is right again.
    pub fn set_virtual_directory(&self, to: Option<(Own, usize)>) {
        if let Some(shared) = &self.shared {
            let before = std::mem::replace(&mut locked(&shared.directory).moved, to);
            drop(before);
        }
    }

    /// The process's current directory in the view, if it is still this node.
    pub fn known_directory(&self, node: Node) -> Option<RawFd> {
        let shared = self.shared.as_ref()?;
        let directory = locked(&shared.directory);
        directory.known.as_ref().filter(|(known, _)| *known == node).map(|(_, own)| own.number())
    }

    pub fn remember_directory(&self, node: Node, fd: Fd) -> Result<RawFd, Errno> {
        let shared = self.shared.as_ref().ok_or(Errno(libc::ESTALE))?;
        let own = Own::new(fd)?;
        let number = own.number();
        let before = locked(&shared.directory).known.replace((node, own));
        drop(before);
        Ok(number)
    }

    /// Dooms it after an inner abort.
    pub fn doom(&mut self) {
        let _ = self.end(End::Abort);
        self.doomed = true;
    }

    /// Others may take part.
    pub fn is_shared(&self) -> bool {
        self.joined || self.shared.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1)
    }

    /// A binding to the transaction whose view's root a descriptor is.
    pub fn joined(root: RawFd) -> Result<Binding, Errno> {
        let table = mounts::current()?;
        Ok(Binding::to(join(table.clone(), root)?, table, true))
    }

    /// A binding to a transaction that has begun already; `joined`: by somebody else.
    pub fn to(shared: Arc<Shared>, table: Arc<Table>, joined: bool) -> Binding {
        let mut binding = Binding::new(Options::default());
        (binding.shared, binding.table, binding.joined) = (Some(shared), Some(table), joined);
        binding
    }

    /// Takes part no longer; the transaction goes on as long as somebody takes part.
    pub fn leave(&mut self) -> Result<(), Errno> {
        let Some(shared) = self.shared.take().and_then(Arc::into_inner) else { return Ok(()) };
        let Some(connection) = locked(&shared.connection).take() else { return Ok(()) };
        connection.call(&Request::Leave).map_err(|error| Errno::from(&error))?;
        connection.put_back();
        Ok(())
    }

    /// Ends the transaction, if it has begun.
    pub fn end(&mut self, how: End) -> Result<(), Errno> {
        let failed = self.failed.take();
        let doomed = std::mem::take(&mut self.doomed);
        let Some(shared) = self.shared.take() else {
            return match (how, failed) {
                (End::Commit(_), _) if doomed => Err(Errno(libc::ECANCELED)),
                (End::Commit(_), Some(error)) => Err(error),
                _ => Ok(()),
            };
        };
        self.table = None;
        self.kept.clear();
        let (result, report) = end(&shared, how);
        set_report(report);
        result
    }
}

/// Begins a transaction on the volume with this device number.
fn begin(options: &Options, table: Arc<Table>, device: (u32, u32)) -> Result<Arc<Shared>, Errno> {
    // Only a part of the volume is mounted here, so its views cannot be reached.
    let mount = table.whole(device).ok_or(Errno(libc::ENOTSUP))?;
    let entry = table.entry(mount);
    let volume = entry.mount.volume().ok_or(Errno(libc::ENOTSUP))?;
    let connection = Connection::take(volume).map_err(|error| Errno::from(&error))?;
    let request = Request::Begin {
        isolation: options.isolation,
        label: String::new(),
        command: String::new(),
        policy: options.policy,
        retry: connection.conflicted.is_some(),
        recorded: options.recorded,
        late_conflicts: false,
    };
    let begun = match connection.call(&request).map_err(|error| Errno::from(&error))? {
        Response::Begun(begun) => begun,
        _ => return Err(Errno(libc::EPROTO)),
    };
    shared(table.clone(), mount, connection, &begun, None)
}

/// The transaction of this process whose view has this name.
pub fn known(name: &[u8]) -> Option<Arc<Shared>> {
    let mut all = locked(&SHARED);
    all.retain(|shared| shared.strong_count() > 0);
    all.iter().filter_map(Weak::upgrade).find(|shared| shared.view.prefix.ends_with(name))
}

/// Takes part in the transaction whose view's root a descriptor is.
fn join(table: Arc<Table>, root: RawFd) -> Result<Arc<Shared>, Errno> {
    let found = status_of(root)?;
    let reached = table.reached(&found).ok_or(Errno(libc::EINVAL))?;
    let path = system::path_of(root)?;
    let rest = mounts::below(&path, table.entry(reached).point()).ok_or(Errno(libc::EINVAL))?;
    let name = mounts::below(rest, txfs_protocol::VIEWS_DIRECTORY.as_bytes()).ok_or(Errno(libc::EINVAL))?;
    if name.is_empty() || name.contains(&b'/') {
        return Err(Errno(libc::EINVAL));
    }
    if let Some(known) = known(name) {
        return Ok(known);
    }
    let mount = table.whole(found.node.device).ok_or(Errno(libc::ENOTSUP))?;
    let volume = table.entry(mount).mount.volume().ok_or(Errno(libc::ENOTSUP))?.to_path_buf();
    let connection = Connection::take(&volume).map_err(|error| Errno::from(&error))?;
    let begun = match connection.call(&Request::Join { view: rest.to_vec().into() }) {
        Ok(Response::Begun(begun)) => begun,
        Ok(_) => return Err(Errno(libc::EPROTO)),
        Err(error) => {
            connection.put_back();
            return Err(Errno::from(&error));
        }
    };
    shared(table, mount, connection, &begun, None)
}

/// Opens the view of a transaction that has begun on a connection.
pub fn shared(
    table: Arc<Table>,
    mount: usize,
    connection: Connection,
    begun: &Begun,
    scope: Option<Scope>,
) -> Result<Arc<Shared>, Errno> {
    let entry = table.entry(mount);
    let opened = || {
        let prefix = [entry.point(), b"/", &begun.view.0].concat();
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let root = Own::new(openat(libc::AT_FDCWD, &c_text(prefix.clone()), flags, 0)?)?;
        let root_node = status_of(root.number())?.node;
        if root_node.device != entry.mount.device {
            // Something else is mounted over it.
            return Err(Errno(libc::ENOTSUP));
        }
        let (transaction, table) = (begun.transaction, table.clone());
        Ok(View { root, root_node, mount, transaction, prefix, table })
    };
    match opened() {
        Ok(view) => {
            let shared = Arc::new(Shared {
                view: Arc::new(view),
                descriptors: Mutex::default(),
                directory: Mutex::default(),
                mapped: AtomicBool::new(false),
                scope,
                connection: Mutex::new(Some(connection)),
            });
            let mut all = locked(&SHARED);
            all.retain(|shared| shared.strong_count() > 0);
            all.push(Arc::downgrade(&shared));
            Ok(shared)
        }
        Err(error) => {
            if connection.call(&Request::Leave).is_ok() {
                connection.put_back();
            }
            Err(error)
        }
    }
}

/// Ends a transaction: what was opened and mapped in its view goes on in the base view.
fn end(shared: &Shared, how: End) -> (Result<(), Errno>, Option<ConflictReport>) {
    let Some(mut connection) = locked(&shared.connection).take() else {
        // Another participant was first.
        return (Err(Errno(libc::ECANCELED)), None);
    };
    let leaving = descriptors::leaving(shared);
    let mapped = if shared.mapped.load(Ordering::Relaxed) { maps::leaving(&shared.view) } else { Vec::new() };
    let moved = locked(&shared.directory).moved.take();
    let moved = moved.and_then(|(own, _)| {
        let path = system::path_of(own.number()).ok()?;
        Some((shared.view.relative(&path)?.to_vec(), own))
    });
    let (result, report) = match how {
        End::Commit(durability) => match connection.call(&Request::Commit { durability, or_keep: None }) {
            Ok(Response::Committed { .. }) => (Ok(()), None),
            Ok(Response::Conflicted(report)) => (Err(Errno(libc::ECANCELED)), Some(report)),
            Ok(_) => (Err(Errno(libc::EPROTO)), None),
            Err(error) => (Err(Errno::from(&error)), None),
        },
        End::Abort => {
            let report = match connection.call(&Request::Status) {
                Ok(Response::Status(status)) => status.conflict,
                _ => None,
            };
            let aborted = connection.call(&Request::Abort);
            (aborted.map(|_| ()).map_err(|error| Errno::from(&error)), report)
        }
    };
    if result.is_ok() && matches!(how, End::Commit(_)) {
        descriptors::settle_twins(shared);
    }
    descriptors::replace(&shared.view, leaving);
    maps::replace(&shared.view, mapped);
    if let Some((rest, own)) = moved {
        if let Ok(fd) = shared.view.open_base(&rest, libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) {
            let _ = system::numbers(libc::SYS_fchdir, [fd.number() as usize, 0, 0, 0, 0, 0]);
        }
        drop(own);
    }
    let gone = matches!(result, Err(error) if error.0 != libc::ECANCELED);
    if !gone {
        connection.conflicted = report.as_ref().map(|_| thread());
        connection.put_back();
    }
    (result, report)
}

/// In a child process: the threads that are in them are the parent's.
pub fn forget_all() {
    std::mem::forget(inherited(&SHARED));
}
