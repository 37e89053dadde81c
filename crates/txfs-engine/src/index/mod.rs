//! The ordered map of all metadata.
//!
//! Three levels, newest first: an *active* [`Memtable`] that commits go into, a *frozen* one that a checkpoint is
//! writing out (absent between checkpoints), and the *base*, a copy-on-write B-tree in the volume's index file
//! ([`IndexStore`], `base/`). A deletion is an entry without a value (a tombstone) that hides the levels below it.
//! An [`IndexView`] holds one immutable version of each and is the unit of a snapshot: cloning it is three reference
//! counts, and nothing that happens later changes what it shows.
//!
//! Keys and values are plain bytes here; keys sort bytewise.

mod base;
mod error;
mod keys;
mod memtable;
mod view;

pub use base::{BaseReader, IndexStore};
pub use error::IndexError;
pub use memtable::Memtable;
pub use view::{IndexView, Read, Visit};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;
