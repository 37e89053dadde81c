//! Which blocks of a file take space on the host: those that were ever written, zeros included.

use std::sync::Arc;

use super::image::BLOCK_BYTES;

const WORD_BITS: u64 = u64::BITS as u64;

/// A set of blocks; copies share it until one of them changes.
#[derive(Clone, Default)]
pub(super) struct Allocation {
    words: Arc<Vec<u64>>,
    count: u64,
}

/// The blocks that `[offset, end)` touches.
fn blocks(offset: u64, end: u64) -> std::ops::Range<u64> {
    let block = BLOCK_BYTES as u64;
    if offset < end { offset / block..end.div_ceil(block) } else { 0..0 }
}

impl Allocation {
    pub(super) fn bytes(&self) -> u64 {
        self.count * BLOCK_BYTES as u64
    }

    fn has(&self, block: u64) -> bool {
        self.words.get((block / WORD_BITS) as usize).is_some_and(|word| word >> (block % WORD_BITS) & 1 == 1)
    }

    /// What a write of `[offset, end)` takes more, in bytes.
    pub(super) fn missing_bytes(&self, offset: u64, end: u64) -> u64 {
        blocks(offset, end).filter(|block| !self.has(*block)).count() as u64 * BLOCK_BYTES as u64
    }

    pub(super) fn add(&mut self, offset: u64, end: u64) {
        for block in blocks(offset, end) {
            if !self.has(block) {
                let words = Arc::make_mut(&mut self.words);
                let at = (block / WORD_BITS) as usize;
                if words.len() <= at {
                    words.resize(at + 1, 0);
                }
                words[at] |= 1 << (block % WORD_BITS);
                self.count += 1;
            }
        }
    }

    /// Gives back what lies behind a file's end.
    pub(super) fn cut_to(&mut self, len: u64) {
        let kept = len.div_ceil(BLOCK_BYTES as u64);
        let behind = kept..self.words.len() as u64 * WORD_BITS;
        for block in behind.filter(|block| self.has(*block)).collect::<Vec<_>>() {
            Arc::make_mut(&mut self.words)[(block / WORD_BITS) as usize] &= !(1 << (block % WORD_BITS));
            self.count -= 1;
        }
    }
}
