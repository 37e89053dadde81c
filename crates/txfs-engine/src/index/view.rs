//! One immutable version of the whole index: three levels, merged as they are read.
//!
//! A scan walks one cursor per level and always takes the smallest (descending: the greatest) key; where levels hold
//! the same key, the newest wins and the others step over it. Nothing is collected, so the cost of a short scan is that
//! of three seeks.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::base::BaseRange;
use super::{BaseReader, IndexError, Memtable};
use crate::EngineError;

/// What a scan calls for each entry; it can stop the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Read access to an immutable version of all keys.
// The visitor's type is spelled out: an alias would have to name a lifetime that callers never care about.
#[allow(clippy::type_complexity)]
pub trait Read {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;
    /// Visits the entries with `from <= key < to` in ascending order.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), EngineError>;
    /// Visits the entries with `from <= key < to` in descending order.
    fn scan_back(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), EngineError>;
}

/// A snapshot of the index; cloning it costs a few reference counts.
#[derive(Clone, Debug)]
pub struct IndexView {
    /// Takes the commits; the newest level.
    pub active: Memtable,
    /// What a running checkpoint is writing into the next base.
    pub frozen: Option<Memtable>,
    /// The last checkpoint.
    pub base: BaseReader,
}

impl Read for IndexView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(found) = self.active.get(key) {
            return Ok(found.map(<[u8]>::to_vec));
        }
        if let Some(found) = self.frozen.as_ref().and_then(|frozen| frozen.get(key)) {
            return Ok(found.map(<[u8]>::to_vec));
        }
        Ok(self.base.get(key)?)
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range(from, to));
        let base = self.base.range(from, to)?;
        Ok(merge(self.active.range(from, to), frozen, base, Ordering::Less, visit)?)
    }

    fn scan_back(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range_back(from, to));
        let base = self.base.range_back(from, to)?;
        let active = self.active.range_back(from, to);
        Ok(merge(active, frozen, base, Ordering::Greater, visit)?)
    }
}

/// Merges the levels; `before` says how a key compares with those that come after it.
fn merge<'a>(
    mut active: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    mut frozen: Option<impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>>,
    mut base: BaseRange<'_>,
    before: Ordering,
    visit: &mut Visit<'_>,
) -> Result<(), IndexError> {
    let mut from_active = active.next();
    let mut from_frozen = frozen.as_mut().and_then(Iterator::next);
    base.step()?;
    loop {
        let active_key = from_active.map(|(key, _)| key);
        let frozen_key = from_frozen.map(|(key, _)| key);
        let from_base = base.entry();
        let base_key = from_base.map(|(key, _)| key);
        let mut first = active_key;
        for key in [frozen_key, base_key] {
            first = match (first, key) {
                (Some(first), Some(key)) if key.cmp(first) != before => Some(first),
                (first, None) => first,
                (_, key) => key,
            };
        }
        let Some(first) = first else { return Ok(()) };
        let in_active = active_key == Some(first);
        let in_frozen = frozen_key == Some(first);
        let in_base = base_key == Some(first);
        let value = if in_active {
            from_active.and_then(|(_, value)| value)
        } else if in_frozen {
            from_frozen.and_then(|(_, value)| value)
        } else {
            from_base.map(|(_, value)| value)
        };
        if let Some(value) = value
            && visit(first, value).is_break()
        {
            return Ok(());
        }
        if in_active {
            from_active = active.next();
        }
        if in_frozen {
            from_frozen = frozen.as_mut().and_then(Iterator::next);
        }
        if in_base {
            base.step()?;
        }
    }
}
