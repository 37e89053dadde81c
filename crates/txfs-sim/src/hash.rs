//! A fast 64-bit hash for comparing states. Not for security: it only has to tell different trees and different
//! disk images apart, in gigabytes per second, and to give the same value on every run.

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR_A: u64 = 0xa076_1d64_78bd_642f;
const FACTOR_B: u64 = 0xe703_7ed1_a0b4_28db;

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Hashes `bytes`.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut state = SEED ^ fold(bytes.len() as u64 ^ FACTOR_A, FACTOR_B);
    let mut other = state.rotate_left(32);
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        state = fold(word(&block[..8]) ^ FACTOR_A, word(&block[8..16]) ^ state);
        other = fold(word(&block[16..24]) ^ FACTOR_B, word(&block[24..]) ^ other);
    }
    for rest in blocks.remainder().chunks(8) {
        state = fold(word(rest) ^ FACTOR_A, state ^ FACTOR_B);
    }
    fold(state ^ FACTOR_A, other ^ FACTOR_B ^ (bytes.len() as u64))
}

/// Mixes `value` into `state`; the order of calls matters.
pub fn mix(state: u64, value: u64) -> u64 {
    fold(state ^ FACTOR_A, value ^ FACTOR_B).wrapping_add(state.rotate_left(23)) ^ SEED
}

/// Derives an independent seed: `index` may be small and consecutive.
pub fn derive_seed(seed: u64, index: u64) -> u64 {
    mix(mix(SEED, seed), index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn lengths_and_positions_matter() {
        let mut seen = HashSet::new();
        for len in 0..200 {
            assert!(seen.insert(hash_bytes(&vec![0; len])), "{len} zero bytes");
            for at in 0..len {
                let mut bytes = vec![0; len];
                bytes[at] = 1;
                assert!(seen.insert(hash_bytes(&bytes)), "a one at {at} of {len}");
            }
        }
    }

    #[test]
    fn mixing_is_ordered() {
        assert_ne!(mix(mix(1, 2), 3), mix(mix(1, 3), 2));
        assert_ne!(derive_seed(1, 0), derive_seed(0, 1));
    }
}
