//! Reading the keys of a named snapshot: the deltas from it on, and then the present state.
//!
//! A scan takes some entries from each source, as far as all of them have been read, merges those, and goes on behind
//! them. The portions grow, so that a look at the first entry costs little and a long scan few starts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::{Mark, delta_range};
use crate::error::{EngineError, Result};
use crate::format::named::{DELTA_KEY_TAG, object_of};
use crate::format::saved::{read_saved_value, saved_key};
use crate::index::{IndexView, Read, Visit};

/// Entries that a scan takes from each source at first, and at most.
const PORTION_LEAST: usize = 4;
const PORTION_MOST: usize = 256;

/// Which deltas show a snapshot.
#[derive(Debug)]
pub(crate) struct Past {
    /// Under which their values stand.
    tag: u8,
    /// The snapshot itself, and those after it.
    deltas: Vec<u64>,
    objects_from: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

impl Past {
    /// Of the first of these, which are the snapshot and all after it.
    pub(super) fn new(marks: &[Mark]) -> Past {
        Past {
            tag: DELTA_KEY_TAG,
            deltas: marks.iter().map(|mark| mark.id).collect(),
            objects_from: marks.first().map_or(0, |mark| mark.objects_from),
        }
    }

    /// Of what was saved under another tag and a number, for all objects that there are.
    pub(crate) fn saved(tag: u8, number: u64) -> Past {
        Past { tag, deltas: vec![number], objects_from: u64::MAX }
    }

    pub(crate) fn id(&self) -> u64 {
        self.deltas.first().copied().unwrap_or(0)
    }

    /// The value of a key then. Keys that are not of the file system's state are as they are now.
    pub(crate) fn get(&self, view: &IndexView, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(object) = object_of(key) else { return view.get(key) };
        if object >= self.objects_from {
            return Ok(None);
        }
        for &delta in &self.deltas {
            if let Some(saved) = view.get(&saved_key(self.tag, delta, key))? {
                return Ok(read(key, &saved)?.map(<[u8]>::to_vec));
            }
        }
        view.get(key)
    }

    pub(crate) fn scan(&self, view: &IndexView, from: &[u8], to: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.merge(view, from.to_vec(), to.to_vec(), Direction::Up, visit)
    }

    pub(crate) fn scan_back(
        &self,
        view: &IndexView,
        from: &[u8],
        to: &[u8],
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.merge(view, from.to_vec(), to.to_vec(), Direction::Down, visit)
    }

    fn merge(
        &self,
        view: &IndexView,
        mut from: Vec<u8>,
        mut to: Vec<u8>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let mut portion = PORTION_LEAST;
        while from < to {
            // What each key was; the older delta's word counts.
            let mut merged: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
            // As far as all sources have been read.
            let mut limit: Option<Vec<u8>> = None;
            for delta in self.deltas.iter().map(Some).chain([None]) {
                let (low, high) = match delta {
                    Some(id) => self.delta_bounds(*id, &from, &to),
                    None => (from.clone(), to.clone()),
                };
                let skip = if delta.is_some() { low.len() - from.len() } else { 0 };
                let mut count = 0;
                let mut failed = None;
                let mut last = Vec::new();
                let mut take = |key: &[u8], value: &[u8]| {
                    let inner = key.get(skip..).unwrap_or_default();
                    let value = match delta {
                        Some(_) => read(inner, value).map(|value| value.map(<[u8]>::to_vec)),
                        None => Ok(Some(value.to_vec())),
                    };
                    match value {
                        Ok(value) => merged.entry(inner.to_vec()).or_insert(value),
                        Err(error) => {
                            failed = Some(error);
                            return ControlFlow::Break(());
                        }
                    };
                    count += 1;
                    if count < portion {
                        return ControlFlow::Continue(());
                    }
                    last = inner.to_vec();
                    ControlFlow::Break(())
                };
                match direction {
                    Direction::Up => view.scan(&low, &high, &mut take)?,
                    Direction::Down => view.scan_back(&low, &high, &mut take)?,
                }
                if let Some(error) = failed {
                    return Err(error);
                }
                if count == portion {
                    limit = Some(match (limit, direction) {
                        (None, _) => last,
                        (Some(limit), Direction::Up) => limit.min(last),
                        (Some(limit), Direction::Down) => limit.max(last),
                    });
                }
            }
            let within = |key: &[u8]| match (&limit, direction) {
                (None, _) => true,
                (Some(limit), Direction::Up) => key <= limit.as_slice(),
                (Some(limit), Direction::Down) => key >= limit.as_slice(),
            };
            let mut show = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| match value {
                Some(value) if within(key) && self.knows(key) => visit(key, value),
                _ => ControlFlow::Continue(()),
            };
            let stopped = match direction {
                Direction::Up => merged.iter().try_for_each(&mut show),
                Direction::Down => merged.iter().rev().try_for_each(&mut show),
            };
            let Some(limit) = limit.filter(|_| stopped.is_continue()) else { return Ok(()) };
            match direction {
                // The key that comes right behind it.
                Direction::Up => from = [&limit[..], &[0]].concat(),
                Direction::Down => to = limit,
            }
            portion = (portion * 2).min(PORTION_MOST);
        }
        Ok(())
    }

    /// The keys of a delta that save keys between `from` and `to`; the first is as much longer than `from` as all are.
    fn delta_bounds(&self, id: u64, from: &[u8], to: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let end = delta_range(self.tag, id).1;
        (saved_key(self.tag, id, from), saved_key(self.tag, id, to).min(end))
    }

    fn knows(&self, key: &[u8]) -> bool {
        object_of(key).is_none_or(|object| object < self.objects_from)
    }
}

/// A saved value.
fn read<'a>(key: &[u8], saved: &'a [u8]) -> Result<Option<&'a [u8]>> {
    read_saved_value(saved).map_err(|error| {
        EngineError::corrupt(format!("what is saved for a snapshot of key {key:02x?}"), &error)
    })
}
