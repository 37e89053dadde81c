//! Named snapshots: one entry of the index each, and beside it what commits have saved for it.
//!
//! ```text
//! key    1  SNAPSHOT_KEY_TAG
//!        8  number, big-endian: the commit that made the snapshot
//! value  1  version, 1
//!        1  0: it can be read; 1: it is being removed
//!        8  objects from this number on did not exist then; never less than in an older snapshot
//!        …  the rest belongs to the layer above
//! ```
//! What is saved for it stands under [`DELTA_KEY_TAG`] and its number, in the form of [`super::saved`].

use super::FormatError;
use super::cursor::Cursor;

/// Keys of named snapshots begin with this byte.
pub const SNAPSHOT_KEY_TAG: u8 = b'S';
/// Values that are saved for a named snapshot stand under keys with this tag.
pub const DELTA_KEY_TAG: u8 = b's';
/// Keys with these tags are what a snapshot shows as it was: the state of the file system. They go on with the number of the
/// object that they belong to, 8 bytes, big-endian. All others are about the volume.
pub const STATE_KEY_TAGS: [u8; 7] = *b"deilorx";

const NAME: &str = "a named snapshot";
const VERSION: u8 = 1;

/// The entry of a named snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSnapshot {
    /// Its number: that of the commit that made it, so newer ones have higher numbers.
    pub id: u64,
    /// Objects with this number or a higher one did not exist then.
    pub objects_from: u64,
    /// It is being removed, and cannot be read any more.
    pub going: bool,
    /// What the layer above knows of it.
    pub description: Vec<u8>,
}

impl NamedSnapshot {
    /// The key of number `id`.
    pub(crate) fn key(id: u64) -> Vec<u8> {
        let mut key = vec![SNAPSHOT_KEY_TAG];
        key.extend_from_slice(&id.to_be_bytes());
        key
    }

    /// The value of the module's table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.going)];
        bytes.extend_from_slice(&self.objects_from.to_le_bytes());
        bytes.extend_from_slice(&self.description);
        bytes
    }

    /// Reads an entry.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<NamedSnapshot, FormatError> {
        let malformed = |detail| FormatError::Malformed { structure: NAME, detail };
        let id = key.get(1..).and_then(|rest| rest.try_into().ok()).map(u64::from_be_bytes);
        let id = id.ok_or_else(|| malformed("a key of the wrong length"))?;
        let mut cursor = Cursor::new(NAME, value);
        if cursor.u8()? != VERSION {
            return Err(malformed("unknown version"));
        }
        let going = match cursor.u8()? {
            0 => false,
            1 => true,
            _ => return Err(malformed("unknown state")),
        };
        let objects_from = cursor.u64()?;
        let description = cursor.take(cursor.remaining())?.to_vec();
        Ok(NamedSnapshot { id, objects_from, going, description })
    }
}

/// The object that a key of the file system's state belongs to; `None` for keys that no snapshot keeps.
pub(crate) fn object_of(key: &[u8]) -> Option<u64> {
    let (tag, rest) = key.split_first()?;
    if !STATE_KEY_TAGS.contains(tag) {
        return None;
    }
    // A key too short for a number is not expected; it counts as old, so that nothing is missed.
    Some(rest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_broken_ones_are_errors() {
        let entry = NamedSnapshot { id: 70, objects_from: 9, going: true, description: b"rest".to_vec() };
        let (key, value) = (NamedSnapshot::key(70), entry.encode());
        assert_eq!(NamedSnapshot::decode(&key, &value), Ok(entry));
        for len in 0..10 {
            assert!(NamedSnapshot::decode(&key, &value[..len]).is_err());
        }
        assert!(NamedSnapshot::decode(b"S123", &value).is_err());
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..10_000 {
            let mut bytes = || -> Vec<u8> { (0..random.usize(..20)).map(|_| random.u8(..4)).collect() };
            let _ = NamedSnapshot::decode(&bytes(), &bytes());
        }
    }

    #[test]
    fn what_belongs_to_objects() {
        assert_eq!(object_of(b"i\0\0\0\0\0\0\0\x05"), Some(5));
        assert_eq!(object_of(b"e\0\0\0\0\0\0\0\x05page"), Some(5));
        assert_eq!((object_of(b"i"), object_of(b"mnext_ino"), object_of(b"")), (Some(0), None, None));
    }
}
