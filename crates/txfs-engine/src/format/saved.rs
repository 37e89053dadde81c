//! Saved values: what a key held before, kept under another key; and the one answer to where an extent stands.
//!
//! ```text
//! key    1  tag, one of SAVED_KEY_TAGS
//!        8  number, big-endian: what the value is kept for
//!        k  the key that it belonged to, the inner key
//! value  1  0 = the inner key had no value, 1 = it had the one that follows
//!        v  the value
//!        …  with the tags that need more: what else is to be known; an extent says itself how long it is
//! ```
//! A saved value whose inner key is that of an extent is an extent itself: what it points to is live, is verified, and
//! moves when its segment is cleaned. It may cover bytes that another extent covers too, in whole or in part: they
//! count once for each, so more bytes of a segment may be live than it has.

use std::ops::Range;

use super::{EXTENT_KEY_TAG, Extent, FormatError};

/// Keys that begin with one of these hold saved values.
pub const SAVED_KEY_TAGS: [u8; 3] = *b"bsu";

const NAME: &str = "a saved value";
/// Tag and number.
const PREFIX_BYTES: usize = 9;
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// The key under which the value of `inner` is saved.
pub fn saved_key(tag: u8, number: u64, inner: &[u8]) -> Vec<u8> {
    debug_assert!(SAVED_KEY_TAGS.contains(&tag));
    let mut key = Vec::with_capacity(PREFIX_BYTES + inner.len());
    key.push(tag);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(inner);
    key
}

/// Tag, number and inner key of a key that holds a saved value.
pub fn split_saved_key(key: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (prefix, inner) = key.split_at_checked(PREFIX_BYTES)?;
    let (tag, number) = prefix.split_first()?;
    let number = u64::from_be_bytes(number.try_into().ok()?);
    SAVED_KEY_TAGS.contains(tag).then_some((*tag, number, inner))
}

/// The saved form of a value, or of there being none.
pub fn saved_value(value: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = vec![if value.is_some() { PRESENT } else { ABSENT }];
    bytes.extend_from_slice(value.unwrap_or_default());
    bytes
}

/// What [`saved_value`] was given, and whatever follows.
pub fn read_saved_value(bytes: &[u8]) -> Result<Option<&[u8]>, FormatError> {
    match bytes.split_first() {
        Some((&ABSENT, _)) => Ok(None),
        Some((&PRESENT, value)) => Ok(Some(value)),
        Some(_) => Err(FormatError::Malformed { structure: NAME, detail: "unknown first byte" }),
        None => Err(FormatError::Truncated { structure: NAME, needed: 1, available: 0 }),
    }
}

/// True when the value under `key` is an extent, or may be a saved one.
pub(crate) fn may_hold_extent(key: &[u8]) -> bool {
    match key.first() {
        Some(&EXTENT_KEY_TAG) => true,
        _ => split_saved_key(key).is_some_and(|(_, _, inner)| inner.first() == Some(&EXTENT_KEY_TAG)),
    }
}

/// Where in the value of `key` an extent stands, if it holds one.
pub(crate) fn extent_range(key: &[u8], value: &[u8]) -> Result<Option<Range<usize>>, FormatError> {
    if !may_hold_extent(key) {
        return Ok(None);
    }
    if key.first() == Some(&EXTENT_KEY_TAG) {
        return Ok(Some(0..value.len()));
    }
    let Some(rest) = read_saved_value(value)? else { return Ok(None) };
    let (_, _, len) = Extent::decode_location(rest)?;
    let end = 1 + Extent::encoded_len(len);
    match value.len() < end {
        true => Err(FormatError::Truncated { structure: NAME, needed: end, available: value.len() }),
        false => Ok(Some(1..end)),
    }
}

/// Segment, offset and length of the extent under `key`, if there is one.
pub(crate) fn extent_location(key: &[u8], value: &[u8]) -> Result<Option<(u64, u32, u32)>, FormatError> {
    extent_range(key, value)?.map(|range| Extent::decode_location(&value[range])).transpose()
}

/// The extent under `key`, if there is one.
pub(crate) fn extent_of(key: &[u8], value: &[u8]) -> Result<Option<Extent>, FormatError> {
    extent_range(key, value)?.map(|range| Extent::decode(&value[range])).transpose()
}

/// `value` with another extent in the place of the one that it holds.
pub(crate) fn with_extent(key: &[u8], value: &[u8], extent: &Extent) -> Result<Vec<u8>, FormatError> {
    let Some(range) = extent_range(key, value)? else { return Ok(value.to_vec()) };
    let mut changed = Vec::with_capacity(value.len());
    changed.extend_from_slice(&value[..range.start]);
    changed.extend_from_slice(&extent.encode());
    changed.extend_from_slice(&value[range.end..]);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent() -> Extent {
        Extent::describe(3, 4096, &[7; 5000])
    }

    #[test]
    fn keys_and_values_come_back() {
        for inner in [&b"e"[..], b"i12345678", b""] {
            for tag in SAVED_KEY_TAGS {
                let key = saved_key(tag, 77, inner);
                assert_eq!(split_saved_key(&key), Some((tag, 77, inner)));
            }
        }
        assert_eq!(split_saved_key(b"u1234567"), None);
        assert_eq!(split_saved_key(b"x12345678e"), None);
        assert_eq!(read_saved_value(&saved_value(Some(b"abc"))), Ok(Some(&b"abc"[..])));
        assert_eq!(read_saved_value(&saved_value(None)), Ok(None));
    }

    #[test]
    fn an_extent_is_found_wherever_it_stands() {
        let extent = extent();
        let plain = extent.encode();
        let mut tailed = saved_value(Some(&plain));
        tailed.extend_from_slice(b"tail");
        let saved = saved_key(b'u', 5, b"e1234567812345678");
        assert_eq!(extent_of(b"e1", &plain), Ok(Some(extent.clone())));
        assert_eq!(extent_of(&saved, &tailed), Ok(Some(extent.clone())));
        assert_eq!(extent_location(&saved, &tailed), Ok(Some((3, 4096, 5000))));
        assert_eq!(extent_of(&saved, &saved_value(None)), Ok(None));
        assert_eq!(extent_of(&saved_key(b'u', 5, b"i12345678"), b"\x01anything"), Ok(None));
        assert_eq!(extent_of(b"i12345678", b"anything"), Ok(None));
        let moved = Extent { segment: 9, offset: 64, ..extent };
        let changed = with_extent(&saved, &tailed, &moved).expect("it has one");
        assert_eq!(extent_of(&saved, &changed), Ok(Some(moved)));
        assert!(changed.starts_with(&[1]) && changed.ends_with(b"tail") && changed.len() == tailed.len());
    }

    #[test]
    fn broken_bytes_are_an_error_and_nothing_worse() {
        let key = saved_key(b's', 5, b"e1234567812345678");
        let value = saved_value(Some(&extent().encode()));
        for len in 0..value.len() {
            assert!(extent_of(&key, &value[..len]).is_err(), "{len}");
        }
        assert!(extent_location(&key, &[2]).is_err());
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let bytes: Vec<u8> = (0..random.usize(..60)).map(|_| random.u8(..)).collect();
            let _ = (
                extent_of(&key, &bytes),
                extent_location(&key, &bytes),
                with_extent(&key, &bytes, &extent()),
            );
            let _ = split_saved_key(&bytes);
        }
    }
}
