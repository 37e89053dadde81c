//! Contents of one simulated file: sparse, and shared between copies until one of them writes.
//!
//! A copy costs one reference count, and a write copies the block it changes and the two small tables above it, so a
//! crash state costs what changed, not what the files hold. A 64-bit digest is kept per block and per region, so the
//! fingerprint of a state costs what changed too.
//!
//! Invariants: bytes at and after `len` are zero (so growing a file shows zeros); a missing block or region is zeros.
//! An all-zero block has digest 0, the same as a missing one: equal contents have equal digests however they arose.

use std::sync::{Arc, OnceLock};

/// Unit of sharing, in bytes.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Blocks in one region: with 128 KiB regions both tables of an 8 MiB file stay under a hundred pointers.
const REGION_BLOCKS: usize = 32;

struct Block {
    bytes: [u8; BLOCK_BYTES],
    digest: OnceLock<u64>,
}

#[derive(Default)]
struct Region {
    blocks: [Option<Arc<Block>>; REGION_BLOCKS],
    digest: OnceLock<u64>,
}

/// One version of a file's contents.
#[derive(Clone, Default)]
pub(super) struct Image {
    len: u64,
    regions: Arc<Vec<Option<Arc<Region>>>>,
}

impl Clone for Block {
    /// A clone is made in order to be changed: it starts without a digest.
    fn clone(&self) -> Self {
        Block { bytes: self.bytes, digest: OnceLock::new() }
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        Region { blocks: self.blocks.clone(), digest: OnceLock::new() }
    }
}

/// A piece of a byte range that lies within one block.
struct Piece {
    block: usize,
    /// First byte within the block.
    from: usize,
    len: usize,
    /// First byte within the range.
    at: usize,
}

/// Cuts `[offset, offset + len)` at block boundaries.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < len).then(|| {
            let position = offset + at as u64;
            let from = (position % BLOCK_BYTES as u64) as usize;
            let piece = Piece {
                block: (position / BLOCK_BYTES as u64) as usize,
                from,
                len: (BLOCK_BYTES - from).min(len - at),
                at,
            };
            at += piece.len;
            piece
        })
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Grows with zeros; never cuts.
    pub(super) fn grow_to(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Cuts; never grows.
    pub(super) fn cut_to(&mut self, len: u64) {
        if len >= self.len {
            return;
        }
        let region_bytes = (BLOCK_BYTES * REGION_BLOCKS) as u64;
        let regions_kept = len.div_ceil(region_bytes) as usize;
        if self.regions.len() > regions_kept {
            Arc::make_mut(&mut self.regions).truncate(regions_kept);
        }
        // what is left of the last region is overwritten with zeros, whole blocks of which become missing blocks
        let end = self.len.min(regions_kept as u64 * region_bytes);
        self.zero(len, end);
        self.len = len;
    }

    /// Copies out `[offset, offset + buffer.len())`; what lies past the end reads as zeros.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.at..piece.at + piece.len];
            match self.block(piece.block) {
                Some(block) => target.copy_from_slice(&block.bytes[piece.from..piece.from + piece.len]),
                None => target.fill(0),
            }
        }
    }

    /// Puts `data` at `offset`. The caller has grown the image: what lies past the end is dropped.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let room = self.len.saturating_sub(offset).min(data.len() as u64) as usize;
        for piece in pieces(offset, room) {
            self.write_piece(&piece, &data[piece.at..piece.at + piece.len]);
        }
    }

    /// Takes over `[start, end)` of another version, as far as it lies within this image's length; whole blocks
    /// are shared, not copied.
    pub(super) fn copy_from(&mut self, other: &Image, start: u64, end: u64) {
        let end = end.min(self.len);
        if start >= end {
            return;
        }
        for piece in pieces(start, (end - start) as usize) {
            let source = other.block(piece.block);
            let reaches_len =
                piece.block as u64 * BLOCK_BYTES as u64 + (piece.from + piece.len) as u64 == self.len;
            // up to the end of the file counts as whole only when the other version has nothing after it either
            if piece.from == 0 && (piece.len == BLOCK_BYTES || (reaches_len && other.len <= self.len)) {
                if source.is_some() || self.block(piece.block).is_some() {
                    let shared = source.cloned();
                    *self.slot(piece.block) = shared;
                }
            } else {
                match source {
                    Some(block) => {
                        self.write_piece(&piece, &block.bytes[piece.from..piece.from + piece.len]);
                    }
                    None => self.write_piece(&piece, &[0; BLOCK_BYTES][..piece.len]),
                }
            }
        }
    }

    /// Digest of the contents, without the length.
    pub(super) fn digest(&self) -> u64 {
        let regions = self.regions.iter().enumerate();
        regions.fold(0, |sum, (index, region)| {
            let digest = region.as_ref().map_or(0, |region| region.digest());
            sum.wrapping_add(placed_digest(index, digest))
        })
    }

    /// Offsets of the blocks that hold anything but a hole, in order.
    pub(super) fn block_offsets(&self) -> Vec<u64> {
        let mut offsets = Vec::new();
        for (region_index, region) in self.regions.iter().enumerate() {
            for (index, block) in region.iter().flat_map(|region| region.blocks.iter().enumerate()) {
                if block.is_some() {
                    offsets.push(((region_index * REGION_BLOCKS + index) * BLOCK_BYTES) as u64);
                }
            }
        }
        // Where the file was cut, blocks of zeros may be left behind its end.
        offsets.retain(|offset| *offset < self.len);
        offsets
    }

    fn zero(&mut self, start: u64, end: u64) {
        for piece in pieces(start, end.saturating_sub(start) as usize) {
            if self.block(piece.block).is_some() {
                self.write_piece(&piece, &[0; BLOCK_BYTES][..piece.len]);
            }
        }
    }

    fn block(&self, index: usize) -> Option<&Arc<Block>> {
        self.regions.get(index / REGION_BLOCKS)?.as_ref()?.blocks[index % REGION_BLOCKS].as_ref()
    }

    /// The place of a block in tables that belong to this image alone.
    fn slot(&mut self, index: usize) -> &mut Option<Arc<Block>> {
        let regions = Arc::make_mut(&mut self.regions);
        if regions.len() <= index / REGION_BLOCKS {
            regions.resize(index / REGION_BLOCKS + 1, None);
        }
        let region = Arc::make_mut(regions[index / REGION_BLOCKS].get_or_insert_default());
        region.digest.take();
        &mut region.blocks[index % REGION_BLOCKS]
    }

    fn write_piece(&mut self, piece: &Piece, data: &[u8]) {
        let zero = is_zero(data);
        if zero && self.block(piece.block).is_none() {
            return;
        }
        let slot = self.slot(piece.block);
        if data.len() == BLOCK_BYTES {
            *slot = (!zero).then(|| {
                let mut bytes = [0; BLOCK_BYTES];
                bytes.copy_from_slice(data);
                Arc::new(Block { bytes, digest: OnceLock::new() })
            });
            return;
        }
        let block =
            slot.get_or_insert_with(|| Arc::new(Block { bytes: [0; BLOCK_BYTES], digest: OnceLock::new() }));
        let block = Arc::make_mut(block);
        block.digest.take();
        block.bytes[piece.from..piece.from + piece.len].copy_from_slice(data);
    }
}

impl Region {
    fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| {
            let blocks = self.blocks.iter().enumerate();
            blocks.fold(0, |sum, (index, block)| {
                let digest = block.as_ref().map_or(0, |block| block.digest());
                sum.wrapping_add(placed_digest(index, digest))
            })
        })
    }
}

impl Block {
    fn digest(&self) -> u64 {
        *self.digest.get_or_init(|| if is_zero(&self.bytes) { 0 } else { digest_bytes(&self.bytes) | 1 })
    }
}

/// A part's digest bound to its place; zeros stay zero wherever they are.
fn placed_digest(index: usize, digest: u64) -> u64 {
    if digest == 0 { 0 } else { fold(digest, (index as u64).wrapping_add(0x9e37_79b9_7f4a_7c15)) }
}

/// A fast, well mixing 64-bit hash, for telling contents apart; not against an adversary.
pub(super) fn digest_bytes(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut hash = 0x2545_f491_4f6c_dd1d ^ bytes.len() as u64;
    for word in words.by_ref() {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        hash = fold(hash ^ word, 0x9fb2_1c65_1e98_df25);
    }
    for byte in words.remainder() {
        hash = fold(hash ^ u64::from(*byte), 0xa076_1d64_78bd_642f);
    }
    fold(hash, 0xe703_7ed1_a0b4_28db)
}

/// Multiplies to 128 bits and folds the halves together.
pub(super) fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left ^ 0x8ebc_6af0_9c88_c6e3) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
