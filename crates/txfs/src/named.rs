//! Named snapshots of the whole volume: making them, listing them, reading them, and removing them.
//!
//! What keeps their state is the engine's business. Here they have a name and a time, and it is known who reads one: a
//! snapshot that somebody has open is not removed. A removal goes on in several commits; one that was not finished is taken up
//! again when the volume is opened.
//!
//! Locking: [`OpenSnapshots`] has a leaf lock. Nothing is called while it is held: who removes a snapshot enters it as
//! *removing*, so that nobody begins to read it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use txfs_engine::{Durability, NamedSnapshot as Entry, Snapshot as EngineSnapshot};

use crate::error::{Error, Result};
use crate::records::SnapshotRecord;
use crate::shared::Shared;
use crate::snapshot::SnapshotView;
use crate::types::Timestamp;
use crate::volume::Volume;

/// The longest name of a snapshot, in bytes.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 200;
/// A volume has so many at most: reading the oldest may take a look at what was kept for each of the others.
pub const SNAPSHOTS_MAX: usize = 256;

/// A named snapshot, as [`Volume::snapshots`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub time: Timestamp,
    /// The commit that made it: the snapshot shows the state of that moment.
    pub sequence: u64,
    /// File data that was kept when it was overwritten or deleted while this was the newest snapshot, bytes: at most so much
    /// comes free when the snapshot is deleted, and less where an older one shows the same.
    pub data_bytes: u64,
    /// What is kept of names, attributes and places, bytes.
    pub metadata_bytes: u64,
    /// It has been deleted, and what was kept for it is about to go.
    pub going: bool,
}

/// Who reads which snapshots.
#[derive(Debug, Default)]
pub(crate) struct OpenSnapshots(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Readers by the snapshot's number.
    readers: BTreeMap<u64, usize>,
    removing: BTreeSet<u64>,
}

/// A snapshot that is being read: it is not removed meanwhile.
pub(crate) struct Reading {
    shared: Arc<Shared>,
    id: u64,
}

impl Reading {
    /// `None` when there is no such snapshot, or it is being removed.
    fn begin(shared: &Arc<Shared>, id: u64) -> Option<Reading> {
        let mut open = shared.open_snapshots.0.lock();
        if open.removing.contains(&id) {
            return None;
        }
        *open.readers.entry(id).or_insert(0) += 1;
        drop(open);
        let reading = Reading { shared: shared.clone(), id };
        // Looked at after it was counted: what was removed before that is gone by now.
        shared.engine.named_at(id).is_some().then_some(reading)
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.id
    }

    /// Its state, read through the present one. To be asked for anew for each operation: what only an older state refers to
    /// need not be kept for it.
    pub(crate) fn state(&self) -> Result<EngineSnapshot> {
        let missing = || Error::Corrupt { what: format!("the named snapshot of commit {} is gone", self.id) };
        self.shared.engine.named_at(self.id).ok_or_else(missing)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut open = self.shared.open_snapshots.0.lock();
        match open.readers.get_mut(&self.id) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.readers.remove(&self.id)),
        }
    }
}

/// What a removal enters, so that nobody begins to read.
struct Removing<'a>(&'a Shared, u64);

impl<'a> Removing<'a> {
    fn begin(shared: &'a Shared, id: u64) -> Option<Removing<'a>> {
        let mut open = shared.open_snapshots.0.lock();
        let free = !open.readers.contains_key(&id) && open.removing.insert(id);
        free.then(|| Removing(shared, id))
    }
}

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        self.0.open_snapshots.0.lock().removing.remove(&self.1);
    }
}

/// Decodes what the volume knows of a snapshot.
pub(crate) fn record_of(entry: &Entry) -> Result<SnapshotRecord> {
    SnapshotRecord::decode(&entry.description).map_err(|detail| Error::Corrupt { what: detail.into() })
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > SNAPSHOT_NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.starts_with('.') {
        return Err(Error::Invalid("a snapshot's name is not empty and does not begin with a dot"));
    }
    match name.chars().any(|letter| letter == '/' || letter.is_control()) {
        true => Err(Error::Invalid("a snapshot's name has no slashes and no control characters")),
        false => Ok(()),
    }
}

impl Volume {
    /// Keeps the state of the whole volume as of now under a name, until the snapshot is deleted. It takes one small commit,
    /// however large the volume is. From then on, each commit keeps what it overwrites for the first time.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("vol");
    /// # txfs::Volume::create(&path)?;
    /// # let volume = txfs::Volume::open(&path)?;
    /// use txfs::{Durability, Paths};
    ///
    /// volume.base().write_file("data", b"old")?;
    /// volume.create_snapshot("monday", Durability::Durable)?;
    /// volume.base().write_file("data", b"new")?;
    /// assert_eq!(volume.open_snapshot("monday")?.read_file("data")?, b"old");
    /// volume.restore("monday", "data", Durability::Durable)?;
    /// assert_eq!(volume.base().read_file("data")?, b"old");
    /// volume.delete_snapshot("monday")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_snapshot(&self, name: &str, durability: Durability) -> Result<SnapshotInfo> {
        check_name(name)?;
        let shared = self.shared();
        let time = shared.clock.now();
        let sequence = shared.engine.create_named(durability, &|entries| {
            if entries.iter().filter(|entry| !entry.going).count() >= SNAPSHOTS_MAX {
                return Err(Error::TooManySnapshots.into());
            }
            for entry in entries.iter().filter(|entry| !entry.going) {
                if record_of(entry)?.name == name {
                    return Err(Error::SnapshotExists { name: name.into() }.into());
                }
            }
            // Whatever is committed by now got its number before.
            let objects_from = shared.next_ino.load(std::sync::atomic::Ordering::Acquire);
            Ok((objects_from, SnapshotRecord { time, name: name.into() }.encode()))
        })?;
        Ok(SnapshotInfo { name: name.into(), time, sequence, data_bytes: 0, metadata_bytes: 0, going: false })
    }

    /// The named snapshots, oldest first. Looks through all that is kept for them.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        let engine = &self.shared().engine;
        let info = |entry: Entry| {
            let SnapshotRecord { time, name } = record_of(&entry)?;
            let saved = engine.saved_for(entry.id)?;
            let (data_bytes, metadata_bytes) = (saved.data_bytes, saved.metadata_bytes);
            Ok(SnapshotInfo {
                name,
                time,
                sequence: entry.id,
                data_bytes,
                metadata_bytes,
                going: entry.going,
            })
        };
        engine.named()?.into_iter().map(info).collect()
    }

    /// A read-only view of a named snapshot. While there is one, the snapshot cannot be deleted.
    pub fn open_snapshot(&self, name: &str) -> Result<SnapshotView> {
        let id = self.named(name)?;
        let reading = Reading::begin(self.shared(), id);
        let reading = reading.ok_or_else(|| Error::NoSuchSnapshot { name: name.into() })?;
        Ok(SnapshotView::of_named(self.shared(), reading))
    }

    /// Deletes a named snapshot; that is durable when this returns. Refused while somebody has it open. What only this
    /// snapshot kept is free afterwards; if that fails half-way, for instance for lack of space, the next opening of the volume
    /// goes on with it, or the next deletion.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        let id = self.named(name)?;
        let shared = self.shared();
        {
            let removing = Removing::begin(shared, id);
            let _removing = removing.ok_or_else(|| Error::SnapshotInUse { name: name.into() })?;
            if !shared.engine.begin_removal(id, Durability::Durable)? {
                return Err(Error::NoSuchSnapshot { name: name.into() });
            }
        }
        self.finish_removals();
        Ok(())
    }

    /// Frees what was kept for snapshots that have been deleted.
    pub(crate) fn finish_removals(&self) {
        if let Err(error) = self.shared().engine.finish_removals() {
            log::warn!("freeing what deleted snapshots kept: {error}; the next opening goes on with it");
        }
    }

    /// The number of a snapshot.
    fn named(&self, name: &str) -> Result<u64> {
        for entry in self.shared().engine.named()?.iter().filter(|entry| !entry.going) {
            if record_of(entry)?.name == name {
                return Ok(entry.id);
            }
        }
        Err(Error::NoSuchSnapshot { name: name.into() })
    }
}
