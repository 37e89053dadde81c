//! Looking at a simulated disk from outside: contents and fingerprints. Works without power, and is not a step.

use std::collections::BTreeMap;

use super::SimulatedDisk;
use super::image::{digest_bytes, fold};

impl SimulatedDisk {
    /// All files by name, as readers see them.
    pub fn snapshot_files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.shared.state.lock();
        let named = state.names.cached.iter().filter_map(|(name, id)| Some((name, state.files.get(id)?)));
        named
            .map(|(name, file)| {
                let contents = file.contents.lock();
                let mut bytes = vec![0; contents.cached.len() as usize];
                contents.cached.read(0, &mut bytes);
                (name.to_string(), bytes)
            })
            .collect()
    }

    /// One file as readers see it.
    pub fn file_bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let contents = state.file_named(name)?.contents.lock();
        let mut bytes = vec![0; contents.cached.len() as usize];
        contents.cached.read(0, &mut bytes);
        Some(bytes)
    }

    /// A 64-bit digest of one file's length and contents as readers see it, as [`SimulatedDisk::fingerprint`] is one
    /// of all.
    pub fn file_fingerprint(&self, name: &str) -> Option<u64> {
        let state = self.shared.state.lock();
        let image = &state.file_named(name)?.contents.lock().cached;
        Some(fold(image.len().wrapping_add(0x2d35_8dcc_aa6c_78a5), image.digest() ^ 0x8bb8_4b93_962e_acc9))
    }

    /// A 64-bit digest of all names, lengths and contents as readers see them: equal disks have equal fingerprints,
    /// different ones (with all likelihood) different ones. Costs what changed since a related disk was asked.
    pub fn fingerprint(&self) -> u64 {
        let state = self.shared.state.lock();
        state.names.cached.iter().fold(0, |sum, (name, id)| {
            let Some(file) = state.files.get(id) else {
                return sum;
            };
            let image = &file.contents.lock().cached;
            let place = fold(digest_bytes(name.as_bytes()), image.len().wrapping_add(0x2d35_8dcc_aa6c_78a5));
            sum.wrapping_add(fold(place, image.digest() ^ 0x8bb8_4b93_962e_acc9))
        })
    }
}
