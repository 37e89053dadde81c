//! Keeps the kernel's caches true: tells it what a transaction's commit has changed in the base view.
//!
//! The kernel is told on the thread that commits, after the commit is visible and before its client hears of it, so
//! that who knows of a commit sees it. Never on a thread that serves requests: a notification may wait for the page
//! or directory lock of a request under way. No lock of ours is held meanwhile.
//!
//! Names are invalidated first, each under its directory's lock in the kernel: that waits for the lookups and listings
//! of the directory that were answered before the commit. Then the directories, whose cached listings go, then data
//! and attributes.
//!
//! The replies to SETATTR and LINK are applied by the kernel even when an invalidation came after they were sent: the
//! file could get its old size back. So for a file with such a reply under way the commit waits until the kernel must
//! have applied it, and invalidates the file again; and once more a second later, should the kernel's thread have been
//! held up even longer.
//!
//! A node can be in our table and not in the kernel's, while the reply that introduces it is on its way, perhaps with
//! attributes from before the commit, or while its FORGET is. So for such a node the kernel is told again until it
//! knows it or has forgotten it.

use crate::nodes::{NODES_DIRECTORY, NodeId, Unversioned};
use crate::tokens::Token;
use crate::views::{MountView, Views};
use crate::wire::device::Device;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use txfs::{CommitChanges, CommitObserver, Ino};

/// How long to wait for a node that the kernel should know.
const KNOWN_WAIT_MAX: Duration = Duration::from_millis(200);

/// How long the kernel's thread may take from getting a reply to having applied it.
const APPLY_WAIT_MAX: Duration = Duration::from_millis(50);

/// When such a file is invalidated once more.
const SECOND_TIME_AFTER: Duration = Duration::from_secs(1);

/// How long an ended view may be known to the kernel before somebody looks what it still knows, and the longest pause
/// between two looks.
const FORGET_PAUSE_MIN: Duration = Duration::from_millis(100);
const FORGET_PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long used names of nodes gather before the kernel drops them.
const NAMES_GATHER: Duration = Duration::from_millis(20);
/// Nodes in one notification.
const PRUNED_TOGETHER: usize = 1000;

/// All pages of a file.
const ALL: (i64, i64) = (0, 0);
/// Attributes only.
const NO_PAGES: (i64, i64) = (-1, 0);

/// Sends invalidations for one mount.
pub(crate) struct Invalidator {
    device: Arc<Device>,
    views: Arc<Views>,
    queue: Mutex<Option<Sender<Due>>>,
    used_names: Arc<Mutex<Vec<Token>>>,
}

/// What is to be done at a time.
struct Due {
    task: Task,
    at: Instant,
}

enum Task {
    /// Invalidate a node.
    Invalidate(NodeId),
    /// Make the kernel drop the names of nodes that have been used.
    DropNames,
    /// See to it that the kernel forgets a view that has ended; look again after so long.
    Forget(Weak<MountView>, Duration),
}

impl Invalidator {
    pub(crate) fn new(device: Arc<Device>, views: Arc<Views>) -> Arc<Invalidator> {
        Arc::new(Invalidator { device, views, queue: Mutex::new(None), used_names: Arc::default() })
    }

    /// Starts the thread for `later`.
    pub(crate) fn start(self: &Arc<Invalidator>) -> std::io::Result<()> {
        let (sender, receiver) = channel();
        let (device, used_names) = (self.device.clone(), self.used_names.clone());
        std::thread::Builder::new()
            .name("txfs-invalidate".into())
            .spawn(move || invalidate_all(&device, &receiver, &used_names))?;
        *self.queue.lock() = Some(sender);
        Ok(())
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        *self.queue.lock() = None;
    }

    /// What the volume calls at commits.
    pub(crate) fn observer(self: &Arc<Invalidator>) -> Arc<dyn CommitObserver> {
        Arc::new(Observer(Arc::downgrade(self)))
    }

    /// Drops all that the kernel knows of a node, soon, on another thread: for threads that serve requests.
    pub(crate) fn later(&self, node: NodeId) {
        self.enqueue(Due { task: Task::Invalidate(node), at: Instant::now() });
    }

    /// Makes the kernel drop a name in `.txfs/node`, soon: it would keep it, and with it the file, for as long as there is
    /// memory. The file that has been opened by it stays open. For threads that serve requests.
    pub(crate) fn drop_used_name(&self, name: Token) {
        let mut names = self.used_names.lock();
        names.push(name);
        if names.len() == 1 {
            drop(names);
            self.enqueue(Due { task: Task::DropNames, at: Instant::now() + NAMES_GATHER });
        }
    }

    fn enqueue(&self, due: Due) {
        if let Some(queue) = &*self.queue.lock() {
            // The receiver lives as long as the queue.
            let _ = queue.send(due);
        }
    }

    /// Makes the kernel write back what programs have changed in memory maps of a view's files.
    pub(crate) fn write_back(&self, view: &MountView) {
        for ino in view.nodes.with_pages() {
            if let Ok(node) = view.node(ino) {
                self.invalidate(node, ALL);
            }
        }
    }

    /// As `write_back`; and where a program outside has changed the same bytes in a memory map of the file in the base
    /// view, makes the kernel write that back too: then it was first, and the commit conflicts, where otherwise the map
    /// would overwrite the commit.
    pub(crate) fn write_back_before_commit(&self, view: &MountView) {
        self.write_back(view);
        let base = self.views.base();
        for (ino, ranges) in view.nodes.written() {
            if base.nodes.has_pages(ino) {
                for (from, to) in ranges {
                    self.invalidate(NodeId(ino), kernel_range(from, to - from));
                }
            }
        }
    }

    /// Makes the kernel drop an ended view's names. Must come after `Views::end`.
    ///
    /// A file that somebody still has open at that moment, if only a child of his between fork and exec, keeps its name when
    /// he closes it. So later the kernel is told again, by other means.
    pub(crate) fn drop_view(&self, view: &Arc<MountView>) {
        if let Some(transaction) = view.transaction()
            && let Err(error) =
                self.device.invalidate_entry(crate::nodes::VIEWS_DIRECTORY.0, &transaction.name)
        {
            log::debug!("invalidating a transaction's view: {error}");
        }
        let task = Task::Forget(Arc::downgrade(view), FORGET_PAUSE_MIN);
        self.enqueue(Due { task, at: Instant::now() + FORGET_PAUSE_MIN });
    }

    /// Makes the kernel forget a named snapshot, as far as nobody uses it; false when somebody does.
    pub(crate) fn drop_snapshot(&self, name: &[u8]) -> bool {
        const ALONE: Duration = Duration::from_millis(200);
        const PATIENCE: Duration = Duration::from_secs(2);
        let begun = Instant::now();
        while let Some(view) = self.views.known_snapshot(name) {
            // Where the kernel cannot be asked to forget nodes that nobody uses, or keeps them for names below that do not
            // exist, it forgets what is below a name; but if somebody uses some of it, the name is gone from the kernel.
            let directory = crate::nodes::SNAPSHOTS_DIRECTORY.0;
            let pruned = prune(&self.device, &view) && begun.elapsed() < ALONE;
            if !pruned && let Err(error) = self.device.invalidate_entry(directory, name) {
                log::debug!("invalidating a snapshot's view: {error}");
            }
            drop(view);
            if begun.elapsed() > PATIENCE {
                return false;
            }
            // What the kernel forgets arrives as messages of its own.
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn committed(&self, changes: &CommitChanges) {
        let visible = Instant::now();
        self.invalidate_changes(changes);
        for ino in &changes.inodes {
            if self.wait_until_applied(*ino, visible) {
                self.invalidate_known(*ino, ALL);
                let task = Task::Invalidate(NodeId(*ino));
                self.enqueue(Due { task, at: Instant::now() + SECOND_TIME_AFTER });
            }
        }
    }

    /// Waits until the kernel has applied a reply that may hold attributes from before `visible`; false when there is
    /// none.
    fn wait_until_applied(&self, ino: Ino, visible: Instant) -> bool {
        let nodes = &self.views.base().nodes;
        let Some(first) = nodes.unversioned(ino) else { return false };
        let applied = |request: Unversioned| {
            request.unique != first.unique || request.replied.is_some_and(|at| at.elapsed() > APPLY_WAIT_MAX)
        };
        if first.replied.is_some_and(|at| visible.saturating_duration_since(at) > APPLY_WAIT_MAX) {
            return false;
        }
        while nodes.unversioned(ino).is_some_and(|request| !applied(request)) {
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }

    fn invalidate_changes(&self, changes: &CommitChanges) {
        let base = self.views.base();
        let mut done = BTreeSet::new();
        for (directory, name) in &changes.names {
            // The root is known without a reference.
            if (*directory == txfs::ROOT_INO || base.nodes.contains(*directory))
                && let Err(error) = self.device.invalidate_entry(*directory, name)
            {
                log::debug!("invalidating a name in inode {directory}: {error}");
            }
        }
        let mut last = None;
        for (directory, _) in &changes.names {
            if last.replace(*directory) != Some(*directory) {
                self.invalidate_known(*directory, ALL);
                done.insert(*directory);
            }
        }
        for (ino, offset, len) in &changes.data {
            self.invalidate_known(*ino, kernel_range(*offset, *len));
            done.insert(*ino);
        }
        for ino in &changes.inodes {
            if !done.contains(ino) {
                self.invalidate_known(*ino, NO_PAGES);
            }
        }
    }

    /// Invalidates a node of the base view if the kernel has it, or is about to.
    fn invalidate_known(&self, ino: Ino, range: (i64, i64)) {
        let base = self.views.base();
        let mut pause = Duration::from_micros(20);
        let started = Instant::now();
        // The root is known without a reference.
        while ino == txfs::ROOT_INO || base.nodes.contains(ino) {
            if self.invalidate(NodeId(ino), range) {
                return;
            }
            if started.elapsed() > KNOWN_WAIT_MAX {
                log::debug!("inode {ino} is neither known to the kernel nor forgotten by it");
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    /// False when the kernel does not know the node.
    fn invalidate(&self, node: NodeId, (offset, len): (i64, i64)) -> bool {
        match self.device.invalidate_inode(node.0, offset, len) {
            Ok(known) => known,
            Err(error) => {
                log::debug!("invalidating node {:#x}: {error}", node.0);
                true
            }
        }
    }
}

/// A range as the kernel takes it. A length that does not fit means: to the end, which is 0 for the kernel.
fn kernel_range(offset: u64, len: u64) -> (i64, i64) {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let len = i64::try_from(len).ok().filter(|len| offset.checked_add(*len).is_some()).unwrap_or(0);
    (offset, len)
}

/// Weak, since the volume keeps its observers and the invalidator keeps the volume.
struct Observer(Weak<Invalidator>);

impl CommitObserver for Observer {
    fn committed(&self, changes: &CommitChanges) {
        if let Some(invalidator) = self.0.upgrade() {
            invalidator.committed(changes);
        }
    }
}

fn invalidate_all(device: &Device, queue: &Receiver<Due>, used_names: &Mutex<Vec<Token>>) {
    let mut waiting: Vec<Due> = Vec::new();
    loop {
        let next = waiting.iter().map(|due| due.at).min();
        let received = match next {
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => queue.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok(due) => waiting.push(due),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        for due in waiting.extract_if(.., |due| due.at <= now).collect::<Vec<_>>() {
            match due.task {
                Task::Invalidate(node) => {
                    if let Err(error) = device.invalidate_inode(node.0, 0, 0) {
                        log::debug!("invalidating node {:#x}: {error}", node.0);
                    }
                }
                Task::DropNames => {
                    for name in std::mem::take(&mut *used_names.lock()) {
                        if let Err(error) = device.invalidate_entry(NODES_DIRECTORY.0, &name) {
                            log::debug!("invalidating the name of a node: {error}");
                        }
                    }
                }
                Task::Forget(view, pause) => {
                    if let Some(view) = view.upgrade()
                        && prune(device, &view)
                    {
                        let pause = (pause * 2).min(FORGET_PAUSE_MAX);
                        let task = Task::Forget(Arc::downgrade(&view), pause);
                        waiting.push(Due { task, at: Instant::now() + pause });
                    }
                }
            }
        }
    }
}

/// Asks the kernel to forget what it still knows of an ended view; false when that is nothing, or it cannot be asked.
fn prune(device: &Device, view: &MountView) -> bool {
    let nodes: Vec<u64> =
        view.nodes.all().into_iter().filter_map(|ino| view.node(ino).ok()).map(|node| node.0).collect();
    let asked = nodes.chunks(PRUNED_TOGETHER).try_for_each(|some| device.prune(some));
    if let Err(error) = &asked {
        log::debug!("the kernel keeps {} nodes of an ended view until it needs memory: {error}", nodes.len());
    }
    !nodes.is_empty() && asked.is_ok()
}
