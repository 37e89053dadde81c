//! The oracle: recovers an image and compares it with the model.
//!
//! *The recovered volume equals the model after some prefix of the commit order that includes every acknowledged
//! durable commit*, and it passes its own examination.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use txfs::{Clock, OpenOptions, Timestamp, Volume};
use txfs_disk::sim::SimulatedDisk;
use txfs_engine::Engine;

use crate::generator::Profile;
use crate::hash::mix;
use crate::model::{History, kept, named};
use crate::volume;

/// A clock that moves on by itself, the same in every run.
pub fn clock() -> Clock {
    let now = AtomicU64::new(1_000_000_000);
    Clock::new(move || {
        let now = now.fetch_add(1_000_003, Ordering::Relaxed);
        Timestamp::new((now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32)
    })
}

/// How the simulator opens volumes: nothing happens behind its back.
pub fn open_options(profile: &Profile) -> OpenOptions {
    OpenOptions {
        reader_patience: std::time::Duration::ZERO,
        clock: clock(),
        background: false,
        checkpoint_distance_bytes: profile.checkpoint_distance_bytes,
        checkpoint_change_bytes: 0,
        transaction_memory_bytes: profile.transaction_memory_bytes,
        history_bytes_max: profile.history_bytes_max,
        ..OpenOptions::default()
    }
}

/// Opens the volume on a simulated disk.
pub fn open(disk: &SimulatedDisk, profile: &Profile) -> txfs::Result<Volume> {
    Volume::open_on(Arc::new(disk.clone()), &open_options(profile))
}

/// Drops a volume as a killed process would: nothing more is written.
pub fn kill(disk: &SimulatedDisk, volume: Volume) {
    disk.stop_observing();
    disk.power_off();
    drop(volume);
}

/// Compares a volume's present state with the commits from `oldest` to `newest`; gives the index of the one that it
/// equals.
pub fn compare(volume: &Volume, history: &History, oldest: usize, newest: usize) -> Result<usize, String> {
    let (found, unreadable) = volume::dump(&volume.base());
    if let Some(first) = unreadable.first() {
        return Err(format!(
            "cannot read {} ({} more): {}",
            first.path.escape_ascii(),
            unreadable.len() - 1,
            first.message
        ));
    }
    let seen = crate::session::keep::seen(volume)?;
    let snapshots = crate::session::named::seen(volume)?;
    let digest = named::state_digest(kept::state_digest(found.digest(), kept::digest(&seen)), &snapshots);
    if let Some(index) = history.find(digest, oldest, newest) {
        return Ok(index);
    }
    let newest = newest.min(history.newest());
    let mut text = match history.find(digest, 0, history.newest()) {
        Some(index) if index < oldest => format!(
            "lost: the volume holds the state after commit {index}, and commits up to {oldest} were acknowledged\n"
        ),
        Some(index) => format!("the volume holds the state after commit {index}, which was not made yet\n"),
        None => "the volume holds a state that never was\n".to_owned(),
    };
    for index in [oldest, newest] {
        let commit = &history.commits()[index];
        if let Some(difference) = found.first_difference(&commit.tree.dump()) {
            let step = commit.step;
            text.push_str(&format!("against commit {index} (made at action {step}):\n  {difference}\n"));
        }
        let names: Vec<_> = commit.kept.iter().map(|k| (&k.name, k.prepared, k.conflicted)).collect();
        text.push_str(&format!("kept transactions: {seen:?}, with commit {index} {names:?}\n"));
        text.push_str(&format!("snapshots: {snapshots:x?}, with commit {index} {:x?}\n", commit.named));
        if oldest == newest {
            break;
        }
    }
    Err(text)
}

/// Examines a volume.
pub fn check(disk: &SimulatedDisk, volume: &Volume) -> Result<(), String> {
    let checked = if_index_is_new(disk, volume.volume_id(), |is_new| {
        let report = if is_new { volume.check() } else { volume.check_but_index_file() };
        report.map(|report| (report.is_clean(), report))
    });
    match checked {
        Ok(found) if found.is_clean() => Ok(()),
        Ok(found) => Err(format!("the recovered volume does not pass its examination: {:?}", found.problems)),
        Err(error) => Err(format!("the recovered volume cannot be examined: {error}")),
    }
}

/// As [`check`], for the engine by itself.
pub fn check_engine(disk: &SimulatedDisk, engine: &Engine) -> Result<(), String> {
    let progress = &mut |_, _| {};
    let checked = if_index_is_new(disk, engine.volume_id(), |is_new| {
        let report = if is_new { engine.check(progress) } else { engine.check_but_index_file(progress) };
        report.map(|report| (report.problems.is_empty(), report))
    });
    match checked {
        Ok(found) if found.problems.is_empty() => Ok(()),
        Ok(found) => Err(format!("check finds {:?}", found.problems)),
        Err(error) => Err(format!("it cannot be checked: {error}")),
    }
}

/// How many index files are remembered as whole, by each thread.
const INDEXES_KNOWN_MAX: usize = 200_000;

thread_local! {
    /// Index files that passed, by volume and contents. Whether one passes depends on nothing else, and most images
    /// of a scenario share theirs; walking it took two fifths of all time.
    static SOUND_INDEXES: RefCell<HashSet<u64>> = RefCell::default();
}

/// Runs an examination, which is told whether the index file must be part of it and says whether all was well.
fn if_index_is_new<T, E>(
    disk: &SimulatedDisk,
    volume_id: [u8; 16],
    examine: impl FnOnce(bool) -> Result<(bool, T), E>,
) -> Result<T, E> {
    let id = volume_id.iter().fold(0, |state, byte| mix(state, u64::from(*byte)));
    let key = disk.file_fingerprint("index").map(|fingerprint| mix(id, fingerprint));
    let is_new = key.is_none_or(|key| SOUND_INDEXES.with_borrow(|known| !known.contains(&key)));
    let (sound, report) = examine(is_new)?;
    if let (true, true, Some(key)) = (sound, is_new, key) {
        SOUND_INDEXES.with_borrow_mut(|known| {
            if known.len() >= INDEXES_KNOWN_MAX {
                known.clear();
            }
            known.insert(key);
        });
    }
    Ok(report)
}
