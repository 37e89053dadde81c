//! Kept and prepared transactions of a volume: listing them, and what they need while the volume is open.
//!
//! [`crate::Transaction::keep`] makes them, [`end`] commits and aborts them, [`part`] commits parts of them, [`load`]
//! reads what is stored of them, [`sweep`] removes what is left of those that have ended.
//!
//! What is stored is described in [`crate::records::kept`]. While the volume is open the engine has the ranges that
//! each of them has read and written, and asks its [`Witness`] for the entries that note a conflict and save what
//! others change.
//!
//! # Locking
//! `names` is a leaf. It is not held while a transaction is being made or ended: its name is marked instead.

pub(crate) mod end;
pub(crate) mod load;
pub(crate) mod part;
pub(crate) mod sweep;
pub(crate) mod witness;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use txfs_engine::{Clash, ConflictSet, Extent, KeptClaim, Read};

use crate::error::{Error, Result};
use crate::records::kept::{self, Header, Stage};
use crate::records::{Malformed, key, small};
use crate::shared::Shared;
use crate::transaction::overlay::{InodeState, PageRanges};
use crate::types::{Ino, Timestamp};
pub use part::KeptPart;
pub(crate) use witness::{BASE_TAG, Witness};

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// What a kept transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptState {
    /// Its commit fails if others have changed what it has read or written.
    Kept,
    /// Its commit is certain to succeed: nobody else can change what it has read or written.
    Prepared,
}

/// The three states that matter when a kept transaction conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptSide {
    /// What it began with, in all that it has read or written; what others have changed apart from that is as it is now.
    Base,
    /// The same with its changes.
    Ours,
    /// The volume as it is now.
    Theirs,
}

/// A kept or prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTransaction {
    /// Its name.
    pub name: String,
    /// What it is.
    pub state: KeptState,
    /// When it was kept.
    pub time: Timestamp,
    /// The process that it was made for; 0 when nobody knew.
    pub process: u32,
    /// The command that it was made for; may be empty.
    pub command: String,
    /// What it is for, in the words of whoever began it; may be empty.
    pub message: String,
    /// The last commit that it has seen.
    pub snapshot_sequence: u64,
    /// Files, directories and other nodes that it makes, changes or removes.
    pub nodes: u64,
    /// Names that it adds, changes or removes.
    pub names: u64,
    /// Bytes of new file data, whole pages.
    pub data_bytes: u64,
    /// Bytes that it keeps in the volume: its data, and what is written down of it.
    pub pinned_bytes: u64,
    /// Conflicts that are noted: with any, it cannot be committed.
    pub conflicts: u64,
}

/// The names in use.
#[derive(Default)]
pub(crate) struct KeptNames {
    names: Mutex<BTreeMap<String, Entry>>,
}

struct Entry {
    id: u64,
    /// Somebody is making or ending it.
    busy: bool,
}

/// A name that is taken while a transaction is being made or ended under it. Dropped, everything is as before.
pub(crate) struct Reserved {
    shared: Arc<Shared>,
    name: String,
    id: u64,
    /// The name is free again when this is dropped.
    frees: bool,
}

impl KeptNames {
    /// Takes a name for a new one.
    pub(crate) fn reserve(&self, shared: &Arc<Shared>, name: &str) -> Result<Reserved> {
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(Error::KeptExists { name: name.to_owned() });
        }
        let id = shared.next_ino.fetch_add(1, Ordering::Relaxed);
        names.insert(name.to_owned(), Entry { id, busy: true });
        Ok(Reserved { shared: shared.clone(), name: name.to_owned(), id, frees: true })
    }

    /// Takes one that exists, to end it.
    pub(crate) fn take(&self, shared: &Arc<Shared>, name: &str) -> Result<Reserved> {
        let mut names = self.names.lock();
        let entry = names.get_mut(name).ok_or_else(|| Error::NoSuchKept { name: name.to_owned() })?;
        if std::mem::replace(&mut entry.busy, true) {
            return Err(Error::KeptInUse { name: name.to_owned() });
        }
        Ok(Reserved { shared: shared.clone(), name: name.to_owned(), id: entry.id, frees: false })
    }

    pub(crate) fn id(&self, name: &str) -> Result<u64> {
        let names = self.names.lock();
        let entry = names.get(name).ok_or_else(|| Error::NoSuchKept { name: name.to_owned() })?;
        Ok(entry.id)
    }
}

impl Reserved {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// It exists now.
    pub(crate) fn settle(mut self) {
        self.frees = false;
    }

    /// It has ended.
    pub(crate) fn free(mut self) {
        self.frees = true;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut names = self.shared.kept.names.lock();
        match names.get_mut(&self.name) {
            Some(_) if self.frees => drop(names.remove(&self.name)),
            Some(entry) => entry.busy = false,
            None => {}
        }
    }
}

/// Fails for what cannot be the name of a kept transaction.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let odd = |c: char| c.is_control() || c == '/';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('-') || name.contains(odd) {
        return Err(Error::Invalid(
            "the name of a kept transaction has 1 to 100 bytes, does not begin with -, and has no / and no control \
             characters",
        ));
    }
    Ok(())
}

pub(crate) fn corrupt(id: u64, detail: Malformed) -> Error {
    Error::Corrupt { what: format!("kept transaction {id}: {detail}") }
}

/// Fails when what one began with is not known any more.
pub(crate) fn check_base(read: &dyn Read, id: u64) -> Result<()> {
    match read.get(&key::kept(id, key::kept::LOST, &[]))? {
        None => Ok(()),
        Some(_) => Err(Error::NotSupported(
            "showing what a kept transaction began with, or committing a part: others have changed too much since",
        )),
    }
}

/// Is given what follows an entry's kind in its key, and its value.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), Malformed>;

/// Calls `visit` for every entry of one kind of a kept transaction.
pub(crate) fn each(read: &dyn Read, id: u64, what: u8, visit: Visit<'_>) -> Result<()> {
    let (from, to) = key::kept_range(id, what);
    let mut problem = None;
    read.scan(&from, &to, &mut |key, value| {
        let rest = key::kept_entry(key).map(|(_, rest)| rest).unwrap_or_default();
        match visit(rest, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(detail) => {
                problem = Some(corrupt(id, detail));
                ControlFlow::Break(())
            }
        }
    })?;
    problem.map_or(Ok(()), Err)
}

/// The headers of all of them, by number; what is wrong with one is said there.
pub(crate) fn headers(read: &dyn Read) -> Result<Vec<(u64, Result<Header>)>> {
    let mut found = Vec::new();
    let mut from = key::all(key::KEPT_TAG).0.to_vec();
    let to = key::all(key::KEPT_TAG).1;
    // From one to the next: what lies between the headers may be a lot.
    loop {
        let mut next = None;
        read.scan(&from, &to, &mut |key, _| {
            next = Some(key::ino_of(key).unwrap_or(0));
            ControlFlow::Break(())
        })?;
        let Some(id) = next else { return Ok(found) };
        let header = match read.get(&key::kept(id, key::kept::HEADER, &[]))? {
            Some(value) => Header::decode(&value).map_err(|detail| corrupt(id, detail)),
            None => Err(corrupt(id, "it has no header")),
        };
        found.push((id, header));
        from = key::kept_all(id).1;
    }
}

/// Looks whether an entry decodes; of a node, it says which and what.
pub(crate) fn examine(key: &[u8], value: &[u8]) -> Result<Option<(Ino, InodeState)>, Malformed> {
    let (what, rest) = key::kept_entry(key).ok_or("an entry's key is too short")?;
    let number = || key::long_at(rest, 0).ok_or("an entry's key has the wrong length");
    match what {
        key::kept::HEADER => Header::decode(value).map(drop)?,
        key::kept::NAME => number().and_then(|_| kept::decode_name(value)).map(drop)?,
        key::kept::INODE => return Ok(Some((number()?, kept::decode_inode(value)?))),
        key::kept::MASK => kept::decode_pages(value, &mut PageRanges::default())?,
        key::kept::XATTR => number().and_then(|_| small::decode_bytes(value)).map(drop)?,
        key::kept::READS | key::kept::WRITES => kept::decode_ranges(value, &mut ConflictSet::new())?,
        key::kept::CONFLICT => kept::decode_conflict(number()?, value).map(drop)?,
        key::kept::MORE | key::kept::LOST => {}
        _ => return Err("an entry of an unknown kind"),
    }
    Ok(None)
}

/// The conflicts that are noted of one, oldest first.
pub(crate) fn conflicts(read: &dyn Read, id: u64) -> Result<Vec<Clash>> {
    let mut found = Vec::new();
    each(read, id, key::kept::CONFLICT, &mut |rest, value| {
        let sequence = key::long_at(rest, 0).ok_or("a conflict's key has the wrong length")?;
        found.push(kept::decode_conflict(sequence, value)?);
        Ok(())
    })?;
    Ok(found)
}

/// What one has read or written.
pub(crate) fn ranges(read: &dyn Read, id: u64, what: u8) -> Result<ConflictSet> {
    let mut set = ConflictSet::new();
    each(read, id, what, &mut |_, value| kept::decode_ranges(value, &mut set))?;
    Ok(set)
}

/// Claims again what all of them have read and written, and learns their names; returns those that have ended already.
pub(crate) fn restore(shared: &Arc<Shared>, read: &dyn Read) -> Result<Vec<u64>> {
    let mut going = Vec::new();
    for (id, header) in headers(read)? {
        let header = match header {
            Ok(header) => header,
            Err(error) => {
                // Everything else can be used; `txfs check` says what is wrong.
                log::error!("{error}; it is left alone");
                continue;
            }
        };
        if header.stage == Stage::Going {
            going.push(id);
            continue;
        }
        let mut noted = ConflictSet::new();
        let clashes = conflicts(read, id)?;
        for Clash { range, .. } in &clashes {
            noted.insert(range.space, range.object, range.first, range.last);
        }
        shared.engine.restore_kept(KeptClaim {
            id,
            name: Arc::from(header.name.as_str()),
            prepared: header.stage == Stage::Prepared,
            reads: ranges(read, id, key::kept::READS)?,
            writes: ranges(read, id, key::kept::WRITES)?,
            noted,
            notes: clashes.len() as u64,
            witness: Arc::new(Witness::new(id, base_size(read, id)?.0)),
        });
        shared.kept.names.lock().insert(header.name, Entry { id, busy: false });
    }
    Ok(going)
}

/// How many old values are saved of what others have changed, and how many bytes they keep.
fn base_size(read: &dyn Read, id: u64) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    let (from, to) = base_range(id);
    read.scan(&from, &to, &mut |key, value| {
        count += 1;
        bytes += (key.len() + value.len()) as u64;
        if key.get(9) == Some(&key::EXTENT_TAG)
            && let Some(Ok(extent)) = value.get(1..).map(Extent::decode)
        {
            bytes += u64::from(extent.len);
        }
        ControlFlow::Continue(())
    })?;
    Ok((count, bytes))
}

/// The range of the keys of its base.
pub(crate) fn base_range(id: u64) -> (Vec<u8>, Vec<u8>) {
    let (from, to) = key::kept_all(id);
    let retag = |key: Vec<u8>, end: bool| {
        // The end of all numbers is the next tag by itself.
        let tag = BASE_TAG + u8::from(end && key.len() == 1);
        [&[tag], &key[1..]].concat()
    };
    (retag(from, false), retag(to, true))
}

/// All kept and prepared transactions, oldest first.
pub(crate) fn list(read: &dyn Read) -> Result<Vec<KeptTransaction>> {
    let mut found = Vec::new();
    for (id, header) in headers(read)? {
        let Header {
            stage,
            time,
            process,
            snapshot,
            nodes,
            names,
            data_bytes,
            meta_bytes,
            name,
            command,
            message,
            ..
        } = header?;
        let state = match stage {
            Stage::Kept => KeptState::Kept,
            Stage::Prepared => KeptState::Prepared,
            Stage::Going => continue,
        };
        found.push(KeptTransaction {
            name,
            state,
            time,
            process,
            command,
            message,
            snapshot_sequence: snapshot,
            nodes,
            names,
            data_bytes,
            pinned_bytes: data_bytes.saturating_add(meta_bytes).saturating_add(base_size(read, id)?.1),
            conflicts: conflicts(read, id)?.len() as u64,
        });
    }
    Ok(found)
}
