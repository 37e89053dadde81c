//! Reading one version of the base from the file, all of it, and everything that must hold in it.

use super::pointer::{Pointer, SECTOR_BYTES};
use super::reader::BaseReader;
use super::rebuild::LEVELS_MAX;
use super::regions::REGION_BYTES;
use crate::index::IndexError;

/// What is known so far.
struct Walk<'a> {
    reader: &'a BaseReader,
    keys: u64,
    last: Option<Vec<u8>>,
    /// All pieces: first sector and the one behind the last.
    pieces: Vec<(u64, u64)>,
}

/// Verifies that all nodes are what was written, that keys ascend and lie where searches look for them, that no two
/// pieces overlap, and that the table of regions counts them all (`others` are the pieces that are not nodes). Returns
/// the number of keys.
pub(super) fn verify(reader: &BaseReader, table: &[u32], others: &[Pointer]) -> Result<u64, IndexError> {
    let version = &reader.version;
    let mut walk = Walk { reader, keys: 0, last: None, pieces: vec![(0, 1)] };
    walk.node(version.root_pointer, version.root.level(), &[], None)?;
    if walk.keys != version.keys {
        let what = format!("it has {} keys, and its header counts {}", walk.keys, version.keys);
        return Err(reader.file.corrupt(what));
    }
    others.iter().for_each(|pointer| walk.piece(pointer));
    walk.pieces.sort_unstable();
    let mut live = vec![0; table.len()];
    for (index, (from, to)) in walk.pieces.iter().enumerate() {
        if index > 0 && walk.pieces[index - 1].1 > *from {
            let at = from * SECTOR_BYTES as u64;
            return Err(reader.file.corrupt(format!("two pieces of it share what lies at byte {at}")));
        }
        for sector in *from..*to {
            let region = (sector * SECTOR_BYTES as u64 / REGION_BYTES) as usize;
            if let Some(live) = live.get_mut(region) {
                *live += SECTOR_BYTES as u32;
            }
        }
    }
    if live != table {
        return Err(reader.file.corrupt("its table of regions does not count what is in them"));
    }
    Ok(walk.keys)
}

impl Walk<'_> {
    fn piece(&mut self, pointer: &Pointer) {
        let sectors = pointer.space() / SECTOR_BYTES as u64;
        if sectors > 0 {
            self.pieces.push((u64::from(pointer.sector), u64::from(pointer.sector) + sectors));
        }
    }

    /// A node whose keys must be from `from` on and below `to`.
    fn node(
        &mut self,
        pointer: Pointer,
        level: u8,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<(), IndexError> {
        let file = &self.reader.file;
        if level > LEVELS_MAX {
            return Err(file.corrupt_at(&pointer, "is a node of a tree that is too high"));
        }
        let node = file.read_node(&pointer, level)?;
        self.piece(&pointer);
        for index in 0..node.len() {
            let key = node.key(index);
            let outside = to.is_some_and(|to| *key >= *to);
            if level > 0 {
                let first = if index == 0 { from.to_vec() } else { key };
                let next = (index + 1 < node.len()).then(|| node.key(index + 1));
                if outside || *first < *from || next.as_ref().is_some_and(|next| *next <= first) {
                    return Err(file.corrupt_at(&pointer, "is a branch whose children are out of order"));
                }
                let to = next.as_deref().or(to);
                self.node(node.child(index), level - 1, &first, to)?;
                continue;
            }
            if outside || *key < *from || self.last.as_ref().is_some_and(|last| *last >= key) {
                return Err(file.corrupt_at(&pointer, "is a leaf whose keys are out of order"));
            }
            self.last = Some(key);
            self.keys += 1;
        }
        Ok(())
    }
}
