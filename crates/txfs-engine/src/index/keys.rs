//! What two keys have in common; for the trees of all levels.

/// Number of leading bytes that two keys share.
pub(super) fn common_len(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The shortest key that is above `below` and not above `above`.
pub(super) fn shortest_between<'a>(below: &[u8], above: &'a [u8]) -> &'a [u8] {
    &above[..above.len().min(common_len(below, above) + 1)]
}
