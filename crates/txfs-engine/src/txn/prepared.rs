//! What a commit can do with its prepared mutations before it enters the critical section.
//!
//! A few go along with what the apply function makes. Many are logged by themselves, as parts ahead of the commit's
//! record, and are sorted into a map of their own, which the memtable then takes over at the cost of the smaller of the
//! two. Live bytes are counted here as well, which is possible as long as extents are new: what a mutation replaces
//! depends on the state.

use std::sync::Arc;

use crate::error::{EngineError, Result};
use crate::format::MutationList;
use crate::format::mutation::Changes;
use crate::format::saved::may_hold_extent;
use crate::index::{IndexView, Memtable};
use crate::named::Marks;
use crate::named::saving::Candidates;
use crate::sequencer::{LiveChange, apply_encoded, locate};

/// A commit's prepared mutations, as far as they can be worked on outside of the critical section.
pub(crate) struct Prepared<'a> {
    pub(crate) encoded: &'a [u8],
    /// Of many: the entries in order, and how live bytes change.
    sorted: Option<(Memtable, LiveChange)>,
    /// Of many: what a named snapshot might have to save.
    pub(crate) candidates: Option<Candidates>,
}

/// From here on it pays to sort mutations before they go into the memtable, and to log them by themselves.
const SORTED_FROM_BYTES: usize = 64 * 1024;

impl<'a> Prepared<'a> {
    pub(crate) fn none() -> Prepared<'static> {
        Prepared { encoded: &[], sorted: None, candidates: None }
    }

    /// `marks` are those of the present state.
    pub(crate) fn new(
        list: &'a MutationList,
        marks: impl FnOnce() -> Option<Arc<Marks>>,
    ) -> Result<Prepared<'a>> {
        let encoded = list.as_bytes();
        if encoded.len() < SORTED_FROM_BYTES {
            return Ok(Prepared { encoded, sorted: None, candidates: None });
        }
        let candidates = marks().and_then(|marks| Candidates::of(encoded, &marks));
        let (mut entries, mut live) = (Memtable::new(), LiveChange::default());
        for change in Changes::of(encoded) {
            let change = change.map_err(|error| EngineError::TooLarge(error.to_string()))?;
            if may_hold_extent(change.key) {
                let Some(value) = change.value.filter(|_| change.is_new) else {
                    // What it replaces depends on the state.
                    return Ok(Prepared { encoded, sorted: None, candidates });
                };
                if let Some((segment, offset, len)) = locate(change.key, value)? {
                    live.add(segment, offset, i64::from(len));
                }
            }
            entries.put(change.key, change.value);
        }
        live.count_changes(entries.len() as u64);
        Ok(Prepared { encoded, sorted: Some((entries, live)), candidates })
    }

    /// True when the mutations are to be logged by themselves, ahead of the commit's record.
    pub(crate) fn is_large(&self) -> bool {
        self.encoded.len() >= SORTED_FROM_BYTES
    }

    pub(crate) fn apply(&self, view: &mut IndexView, live: &mut LiveChange) -> Result<()> {
        match &self.sorted {
            Some((entries, change)) => {
                view.active.merge(entries.clone());
                live.join(change);
                Ok(())
            }
            None => apply_encoded(view, live, self.encoded, &|| "a prepared mutation".into()),
        }
    }
}
