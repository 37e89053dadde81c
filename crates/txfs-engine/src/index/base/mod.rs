//! The base of the index: a copy-on-write B-tree in the volume's index file, and the checkpoints that write it.
//!
//! * `node.rs`: the bytes of a node, and searching them where they are; `pointer.rs`: a place and the checksum of what
//!   must be there; `header.rs`: which tree is in force.
//! * `regions.rs`: the space of the file, written region by region and cleaned; `output.rs`: placing and writing.
//! * `rebuild.rs`: what a checkpoint makes of the tree; `entries.rs`: entries on their way from old nodes into new ones.
//! * `file.rs`, `cache.rs`: pieces of the file, nodes in memory.
//! * `reader.rs`, `cursor.rs`: look-ups and scans of one version; `verify.rs`: all of it against its checksums.
//! * `store.rs`: the open file.
//!
//! Decision 14 says why this is not a library's B-tree.

mod cache;
mod cursor;
mod entries;
mod file;
mod header;
mod node;
mod output;
mod pointer;
mod reader;
mod rebuild;
mod regions;
mod store;
mod verify;

pub(super) use cursor::BaseRange;
pub use reader::BaseReader;
pub use store::IndexStore;

/// Bytes that a leaf is filled to at most, but for an entry that takes more. Small, since a change in a random place
/// writes a leaf: 4096 would write twice the bytes, and 1024 need twice the branches.
const LEAF_BYTES_MAX: usize = 2048;
/// The same for a branch; all of them together are one or two per cent of the leaves.
const BRANCH_BYTES_MAX: usize = 4096;
/// The same for a branch above leaves: a change in a random place writes one of them too.
const LOW_BRANCH_BYTES_MAX: usize = 2048;
/// Longest node: the longest entry and some.
const NODE_BYTES_MAX: usize = regions::REGION_BYTES as usize;

/// Bytes that a node of this level is filled to at most, but for an entry that takes more.
fn bytes_max(level: u8) -> usize {
    match level {
        0 => LEAF_BYTES_MAX,
        1 => LOW_BRANCH_BYTES_MAX,
        _ => BRANCH_BYTES_MAX,
    }
}

#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod space_tests;
