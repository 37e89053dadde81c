//! A volume: creating and opening it, beginning transactions, and what concerns it as a whole.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use txfs_disk::Disk;
use txfs_disk::host::HostDisk;
use txfs_engine::{
    CleanOptions, CleanReport, Durability, Engine, EngineError, EngineOptions, EngineStat, FormatOptions,
    Read,
};

use crate::attempts::Attempts;
use crate::base::BaseView;
use crate::check::VolumeCheck;
use crate::conflict::ConflictReport;
use crate::error::Result;
use crate::history::RecordedCommit;
use crate::kept::{KeptPart, KeptSide, KeptTransaction};
use crate::observe::CommitObserver;
use crate::options::{CreateOptions, OpenOptions, TransactionOptions};
use crate::records::{InodeRecord, NameHasher, key, small};
use crate::shared::Shared;
use crate::snapshot::SnapshotView;
use crate::transaction::apply::{load_next_ino, put};
use crate::transaction::{CommitReceipt, Transaction};
use crate::types::{Ino, NodeKind, ROOT_INO, Statistics};
use crate::undo::retention::HistoryState;

/// An open volume. Clones are handles of the same volume; it is closed when the last one goes, with all transactions
/// and views of it.
#[derive(Clone)]
pub struct Volume {
    pub(crate) shared: Arc<Shared>,
}

/// State of a volume, for `txfs stat`.
#[derive(Clone, Debug)]
pub struct VolumeStat {
    /// Identity of the volume.
    pub volume_id: [u8; 16],
    /// Sequence number of the last commit.
    pub sequence: u64,
    /// Open transactions.
    pub transactions_open: usize,
    /// Recorded commits in the history.
    pub history_commits: u64,
    /// How many of them can be undone.
    pub history_undoable: u64,
    /// What is kept for that, in bytes: old content of files, removed files, and what says what was where.
    pub history_bytes: u64,
    /// How much may be.
    pub history_bytes_max: u64,
    /// Named snapshots.
    pub snapshots: u64,
    /// File data that is kept for them, bytes; an upper bound of what comes free when all of them are deleted.
    pub snapshot_data_bytes: u64,
    /// What is kept for them of names, attributes and places, bytes.
    pub snapshot_metadata_bytes: u64,
    /// Unwritten data that open transactions hold in memory, in bytes.
    pub buffered_bytes: usize,
    /// Nodes that something refers to: open files, and what a mount's kernel remembers.
    pub nodes_in_use: usize,
    /// What `statfs` tells.
    pub statistics: Statistics,
    /// The engine's own figures.
    pub engine: EngineStat,
}

impl Volume {
    /// Makes a new, empty volume in the directory `path`, which is created where missing.
    pub fn create(path: impl AsRef<Path>) -> Result<()> {
        Volume::create_with(path, &CreateOptions::default())
    }

    /// As [`Volume::create`], with options.
    pub fn create_with(path: impl AsRef<Path>, options: &CreateOptions) -> Result<()> {
        let doing = || "creating the volume".to_owned();
        let disk = HostDisk::create(path).map_err(|source| EngineError::Io { doing: doing(), source })?;
        Volume::create_on(Arc::new(disk), options)
    }

    /// Makes a new, empty volume on a disk of one's own.
    pub fn create_on(disk: Arc<dyn Disk>, options: &CreateOptions) -> Result<()> {
        let format = FormatOptions {
            segment_bytes: options.segment_bytes,
            identity: options.identity,
            size_bytes_max: options.size_bytes_max,
            preallocate_bytes: options.preallocate_bytes,
        };
        let now = options.clock.now();
        let root = InodeRecord {
            kind: NodeKind::Directory,
            mode: options.root_mode & 0o7777,
            uid: options.root_uid,
            gid: options.root_gid,
            nlink: 2,
            size: 0,
            pages: 0,
            parent: ROOT_INO,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let initial = [
            put(key::inode(ROOT_INO), root.encode()),
            put(key::NEXT_INO, small::encode_number(ROOT_INO + 1)),
        ];
        Ok(Engine::create(&disk, &format, &initial)?)
    }

    /// Opens the volume in the directory `path`, and recovers it where needed.
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::open_with(path, &OpenOptions::default())
    }

    /// As [`Volume::open`], with options.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Volume> {
        let doing = || "opening the volume".to_owned();
        let disk = HostDisk::open(path).map_err(|source| EngineError::Io { doing: doing(), source })?;
        Volume::open_on(Arc::new(disk), options)
    }

    /// Opens the volume on a disk of one's own.
    pub fn open_on(disk: Arc<dyn Disk>, options: &OpenOptions) -> Result<Volume> {
        let engine = Engine::open(
            disk,
            EngineOptions {
                background: options.background,
                checkpoint_distance_bytes: options.checkpoint_distance_bytes,
                checkpoint_change_bytes: options.checkpoint_change_bytes,
                reader_patience: options.reader_patience,
                ..EngineOptions::default()
            },
        )?;
        let snapshot = engine.snapshot();
        let shared = Shared {
            hasher: NameHasher::new(engine.name_key()),
            clock: options.clock.clone(),
            options: options.clone(),
            next_ino: AtomicU64::new(load_next_ino(&snapshot)?),
            next_transaction: AtomicU64::new(1),
            transactions_open: AtomicUsize::new(0),
            buffered_bytes: AtomicUsize::new(0),
            uses: Default::default(),
            history: HistoryState::load(&snapshot, options.history_bytes_max)?,
            kept: Default::default(),
            observers: Default::default(),
            open_snapshots: Default::default(),
            engine,
        };
        let volume = Volume { shared: Arc::new(shared) };
        // Before anybody commits: from here on others meet what kept transactions have read and written.
        let going = crate::kept::restore(&volume.shared, &snapshot)?;
        volume.reclaim_orphans(&snapshot)?;
        crate::kept::sweep::finish_all(&volume.shared, &going);
        drop(snapshot);
        if let Err(error) = volume.shared.purge_unused() {
            log::warn!(
                "removing what was kept for undoing old commits: {error}; the next opening tries again"
            );
        }
        volume.finish_removals();
        Ok(volume)
    }

    pub(crate) fn shared_state(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn engine_snapshot(&self) -> txfs_engine::Snapshot {
        self.shared.engine.snapshot()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// For tests: makes nearly all names collide. Only while there is no other handle.
    #[cfg(test)]
    pub(crate) fn make_names_collide(&mut self, mask: u64) {
        let key = self.shared.engine.name_key();
        Arc::get_mut(&mut self.shared).expect("another handle").hasher = NameHasher::colliding(key, mask);
    }

    /// Nobody can be using a node without a name when a volume is opened. One that cannot be removed, on a full disk for
    /// instance, waits for the next opening.
    fn reclaim_orphans(&self, snapshot: &dyn Read) -> Result<()> {
        let (from, to) = key::all(key::ORPHAN_TAG);
        let mut orphans = Vec::new();
        snapshot.scan(&from, &to, &mut |key, _| {
            orphans.extend(key::ino_of(key));
            ControlFlow::Continue(())
        })?;
        self.shared.reclaim_or_warn(&orphans);
        Ok(())
    }

    /// Begins a serializable transaction. Dropped without a commit, it leaves no trace.
    pub fn begin(&self) -> Transaction {
        self.begin_with(TransactionOptions::default())
    }

    /// Begins a transaction with options.
    pub fn begin_with(&self, options: TransactionOptions) -> Transaction {
        Transaction::begin(&self.shared, options)
    }

    /// Runs `work` in a serializable transaction and commits it; on a conflict runs it again, up to `attempts` times in
    /// all, with pauses that grow, and with ever stronger claims: see [`Attempts`]. Any other error aborts the
    /// transaction and is returned.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// use txfs::{Durability, Paths, Volume};
    ///
    /// let volume = Volume::open(&path)?;
    /// volume.base().write_file("counter", b"41")?;
    /// let value = volume.transact(10, Durability::Durable, |tx| {
    ///     let text = String::from_utf8_lossy(&tx.read_file("counter")?).into_owned();
    ///     let value = text.parse::<u64>().unwrap_or(0) + 1;
    ///     tx.write_file("counter", value.to_string().as_bytes())?;
    ///     Ok(value)
    /// })?;
    /// assert_eq!(value, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn transact<T>(
        &self,
        attempts: u32,
        durability: Durability,
        mut work: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = self.attempts(TransactionOptions::default());
        loop {
            let tx = attempt.begin();
            let error = match work(&tx).and_then(|value| tx.commit(durability).map(|_| value)) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !error.is_conflict() || attempt.count() >= attempts {
                return Err(error);
            }
            drop(tx);
            std::thread::sleep(attempt.pause());
        }
    }

    /// For transactions that are run again until one of them commits, as [`Volume::transact`] does: the oldest wins in the
    /// end.
    pub fn attempts(&self, options: TransactionOptions) -> Attempts {
        Attempts::new(&self.shared, options)
    }

    /// The current state; each operation is a small ordered transaction of its own, repeated on conflict.
    pub fn base(&self) -> BaseView {
        BaseView::new(&self.shared)
    }

    /// A read-only view of the volume as it is now, whatever is committed later.
    pub fn snapshot(&self) -> SnapshotView {
        SnapshotView::new(&self.shared, self.shared.engine.snapshot())
    }

    /// The commits that were recorded ([`TransactionOptions::recorded`]) before the one with the number `before`, or all,
    /// newest first, `limit` at most. The volume keeps the last [`OpenOptions::history_commits_max`] of them.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// # let volume = txfs::Volume::open(&path)?;
    /// use txfs::{Durability, Paths, TransactionOptions};
    ///
    /// let options = TransactionOptions { recorded: true, label: "first import".into(), ..Default::default() };
    /// let tx = volume.begin_with(options);
    /// tx.write_file("data", b"1")?;
    /// let receipt = tx.commit(Durability::Durable)?;
    /// let last = &volume.history(None, 1)?[0];
    /// assert_eq!((last.sequence, last.message.as_str()), (receipt.sequence, "first import"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn history(&self, before: Option<u64>, limit: usize) -> Result<Vec<RecordedCommit>> {
        crate::history::list(&self.shared.engine.snapshot(), before, limit)
    }

    /// The kept and prepared transactions, oldest first ([`Transaction::keep`], [`Transaction::prepare`]).
    pub fn kept(&self) -> Result<Vec<KeptTransaction>> {
        crate::kept::list(&self.shared.engine.snapshot())
    }

    /// Commits a kept or prepared transaction, durably. Its changes are applied to the volume as it is now; it fails with all
    /// conflicts if others have changed what it has read or written since it began, and stays as it is then. One that
    /// is prepared does not fail for that.
    pub fn commit_kept(&self, name: &str) -> Result<CommitReceipt> {
        crate::kept::end::commit(&self.shared, name)
    }

    /// Commits of a kept transaction what it changes at or below some paths, durably and in one commit, and leaves
    /// the rest under the same name. Paths are those that [`Transaction::changes`] of [`Volume::kept_view`] lists, of
    /// renamed things both.
    ///
    /// New directories on the way come along. Where the part makes no sense without the rest it is refused with
    /// [`crate::Error::NotSeparable`], which names the path that is missing. Conflicts count, but for those over what
    /// only the rest changes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// # let volume = txfs::Volume::open(&path)?;
    /// use txfs::Paths;
    ///
    /// let tx = volume.begin();
    /// tx.create_dir("reports")?;
    /// tx.write_file("reports/a", b"1")?;
    /// tx.write_file("reports/b", b"2")?;
    /// tx.keep("monday")?;
    /// let part = volume.commit_kept_only("monday", &["reports/a"])?;
    /// assert!(part.remains && part.along == [std::path::Path::new("reports")]);
    /// assert!(volume.base().exists("reports/a")? && !volume.base().exists("reports/b")?);
    /// volume.commit_kept("monday")?;
    /// assert!(volume.base().exists("reports/b")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_kept_only(&self, name: &str, paths: &[impl AsRef<Path>]) -> Result<KeptPart> {
        let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_path_buf()).collect();
        crate::kept::part::commit(&self.shared, name, &paths)
    }

    /// Aborts a kept or prepared transaction, durably, and gives free what it takes.
    pub fn abort_kept(&self, name: &str) -> Result<()> {
        crate::kept::end::abort(&self.shared, name)
    }

    /// The conflicts that keep a kept transaction from being committed, if there are any.
    pub fn kept_conflicts(&self, name: &str) -> Result<Option<ConflictReport>> {
        crate::kept::end::noted(&self.shared, name)
    }

    /// One of the states that matter to a kept transaction, as a transaction that changes nothing: to be looked at, and then
    /// dropped. With [`KeptSide::Ours`], [`Transaction::changes`] lists what it changes.
    pub fn kept_view(&self, name: &str, side: KeptSide) -> Result<Transaction> {
        Transaction::view_kept(&self.shared, name, side)
    }

    /// From now on the history keeps at most so many bytes for undoing commits; as [`OpenOptions::history_bytes_max`].
    pub fn set_history_bytes_max(&self, bytes: Option<u64>) {
        self.shared.history.set_bytes_max(bytes);
        self.shared.expire_history();
    }

    /// Makes everything committed so far durable.
    pub fn sync(&self) -> Result<()> {
        Ok(self.shared.engine.sync()?)
    }

    /// Hands ordered commits to the host's file system, without waiting for the device.
    pub fn write_pending(&self) -> Result<()> {
        Ok(self.shared.engine.write_pending()?)
    }

    /// Writes the metadata's current state into the index, so that recovery has less to replay.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.shared.engine.checkpoint()?)
    }

    /// Moves live data together and frees the space between, for others to use or for the host; `progress` is told how
    /// many bytes are through, and of how many. Transactions go on meanwhile, none is aborted.
    pub fn clean(&self, options: &CleanOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<CleanReport> {
        Ok(self.shared.engine.clean(options, progress)?)
    }

    /// Examines the whole volume: log, checksums, and the consistency of the tree.
    pub fn check(&self) -> Result<VolumeCheck> {
        self.check_with(&mut |_, _| {})
    }

    /// As [`Volume::check`]; `progress` is told how many bytes of file data have been read, of how many.
    pub fn check_with(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VolumeCheck> {
        crate::check::check(&self.shared, progress)
    }

    /// As [`Volume::check`], but takes the pages of the index file as whole: for a caller who knows that a file of
    /// exactly these bytes has passed before.
    pub fn check_but_index_file(&self) -> Result<VolumeCheck> {
        crate::check::check_but_index_file(&self.shared)
    }

    /// State of the volume.
    pub fn stat(&self) -> Result<VolumeStat> {
        let engine = self.shared.engine.stat()?;
        let snapshots = self.snapshots()?;
        Ok(VolumeStat {
            volume_id: self.volume_id(),
            sequence: engine.sequence,
            transactions_open: self.shared.transactions_open.load(Ordering::Relaxed),
            history_commits: self.shared.history.count(),
            history_undoable: self.shared.history.undoable(),
            history_bytes: self.shared.history.bytes(),
            history_bytes_max: self.shared.history_bytes_max()?,
            snapshots: snapshots.iter().filter(|snapshot| !snapshot.going).count() as u64,
            snapshot_data_bytes: snapshots.iter().map(|snapshot| snapshot.data_bytes).sum(),
            snapshot_metadata_bytes: snapshots.iter().map(|snapshot| snapshot.metadata_bytes).sum(),
            buffered_bytes: self.shared.buffered_bytes.load(Ordering::Relaxed),
            nodes_in_use: self.shared.nodes_in_use(),
            statistics: self.shared.statistics()?,
            engine,
        })
    }

    /// Makes everything durable and marks the volume as cleanly closed. Idempotent; later changes fail.
    pub fn close(&self) -> Result<()> {
        Ok(self.shared.engine.close()?)
    }

    /// Counts a reference to a node: while there is one, the node outlives its last name. `ESTALE` when it is gone.
    pub fn retain(&self, ino: Ino) -> Result<()> {
        self.shared.retain(ino).map(drop)
    }

    /// Gives up `count` references; a node without a name goes with the last one.
    pub fn release(&self, ino: Ino, count: u64) {
        self.shared.release(ino, count);
    }

    /// Gives up one reference to each of the nodes; those without a name go together, which is much cheaper.
    pub fn release_all(&self, inos: &[Ino]) {
        self.shared.release_all(inos);
    }

    /// From now on `observer` is told of every transaction's commit.
    pub fn observe(&self, observer: Arc<dyn CommitObserver>) {
        self.shared.observers.write().push(observer);
    }

    /// Identity of the volume.
    pub fn volume_id(&self) -> [u8; 16] {
        self.shared.engine.volume_id()
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Volume").field("volume_id", &self.volume_id()).finish_non_exhaustive()
    }
}
