//! Named snapshots: a snapshot is the tree at its moment, of which the digest is enough.

use std::collections::BTreeMap;

use super::History;
use crate::hash::mix;

/// One number for a state with its named snapshots.
pub fn state_digest(state: u64, named: &BTreeMap<String, u64>) -> u64 {
    named.iter().fold(state, |state, (name, tree)| {
        mix(name.bytes().fold(state, |state, byte| mix(state, byte.into())), *tree)
    })
}

impl History {
    /// The volume has made a named snapshot of the present state.
    pub fn create_snapshot(&mut self, name: &str, step: usize) {
        let mut named = self.named().clone();
        named.insert(name.to_owned(), self.commits()[self.newest()].digest);
        self.push_named(named, step);
    }

    /// The volume has deleted one.
    pub fn delete_snapshot(&mut self, name: &str, step: usize) {
        let mut named = self.named().clone();
        named.remove(name);
        self.push_named(named, step);
    }
}
