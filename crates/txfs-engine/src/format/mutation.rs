//! Metadata changes: byte-granular puts and deletes of index keys.
//!
//! ```text
//! offset size  field
//!      0    1  0 = delete, 1 = put, 2 = put of a key that has no value so far
//!      1    2  key length
//!      3    4  value length (absent for a delete)
//!      …    k  key
//!      …    v  value
//! ```

use super::FormatError;
use super::cursor::Cursor;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value, in bytes (an extended attribute of 64 KiB and its framing).
pub const VALUE_BYTES_MAX: usize = 128 * 1024;

const NAME: &str = "a mutation";
const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_NEW: u8 = 2;

/// One change of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Sets `key` to `value`.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Sets `key`, of which it is known that it has no value in any state in which this can be applied: the engine does
    /// not look for one. Wrongly used on an extent, it spoils the count of live bytes.
    PutNew {
        /// The key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// Removes `key`.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

impl Mutation {
    /// The key that changes.
    pub fn key(&self) -> &[u8] {
        match self {
            Mutation::Put { key, .. } | Mutation::PutNew { key, .. } | Mutation::Delete { key } => key,
        }
    }

    /// The value that it gets, if any.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Mutation::Put { value, .. } | Mutation::PutNew { value, .. } => Some(value),
            Mutation::Delete { .. } => None,
        }
    }

    /// Appends the bytes of the module's table.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        let kind = match self {
            Mutation::Put { .. } => PUT,
            Mutation::PutNew { .. } => PUT_NEW,
            Mutation::Delete { .. } => DELETE,
        };
        encode(bytes, kind, self.key(), self.value());
    }
}

impl Mutation {
    /// Reads a whole list.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Mutation>, FormatError> {
        let owned = |change: Change<'_>| match change.value {
            Some(value) if change.is_new => {
                Mutation::PutNew { key: change.key.to_vec(), value: value.to_vec() }
            }
            Some(value) => Mutation::Put { key: change.key.to_vec(), value: value.to_vec() },
            None => Mutation::Delete { key: change.key.to_vec() },
        };
        Changes::of(bytes).map(|change| change.map(owned)).collect()
    }
}

fn encode(bytes: &mut Vec<u8>, kind: u8, key: &[u8], value: Option<&[u8]>) {
    debug_assert!(key.len() <= KEY_BYTES_MAX);
    bytes.push(kind);
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    if let Some(value) = value {
        debug_assert!(value.len() <= VALUE_BYTES_MAX);
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
    }
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value.unwrap_or_default());
}

/// Mutations in the form in which they stand in the log: for many of them, this takes a fraction of the memory of a
/// list of [`Mutation`].
#[derive(Clone, Debug, Default)]
pub struct MutationList {
    bytes: Vec<u8>,
}

impl MutationList {
    /// An empty list.
    pub const fn new() -> MutationList {
        MutationList { bytes: Vec::new() }
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds a put.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        encode(&mut self.bytes, PUT, key, Some(value));
    }

    /// Adds a [`Mutation::PutNew`].
    pub fn put_new(&mut self, key: &[u8], value: &[u8]) {
        encode(&mut self.bytes, PUT_NEW, key, Some(value));
    }

    /// Adds a deletion.
    pub fn delete(&mut self, key: &[u8]) {
        encode(&mut self.bytes, DELETE, key, None);
    }

    /// Adds all of another list, after what is there.
    pub fn append(&mut self, other: &MutationList) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// The bytes of the module's table, one mutation after the other.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A mutation in its encoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The key that changes.
    pub key: &'a [u8],
    /// The value that it gets, if any.
    pub value: Option<&'a [u8]>,
    /// The key is known to have no value before.
    pub is_new: bool,
}

/// Reads a list of mutations one by one; ends after the first error.
pub struct Changes<'a>(Cursor<'a>);

impl<'a> Changes<'a> {
    /// Over encoded mutations.
    pub fn of(bytes: &'a [u8]) -> Changes<'a> {
        Changes(Cursor::new(NAME, bytes))
    }

    fn read(&mut self) -> Result<Change<'a>, FormatError> {
        let malformed = |detail| FormatError::Malformed { structure: NAME, detail };
        let kind = self.0.u8()?;
        let key_len = usize::from(self.0.u16()?);
        if key_len > KEY_BYTES_MAX || key_len == 0 {
            return Err(malformed("impossible key length"));
        }
        let value_len = match kind {
            DELETE => None,
            PUT | PUT_NEW => Some(self.0.u32()? as usize),
            _ => return Err(malformed("unknown kind")),
        };
        if value_len.is_some_and(|len| len > VALUE_BYTES_MAX) {
            return Err(malformed("impossible value length"));
        }
        let key = self.0.take(key_len)?;
        let value = value_len.map(|len| self.0.take(len)).transpose()?;
        Ok(Change { key, value, is_new: kind == PUT_NEW })
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.remaining() == 0 {
            return None;
        }
        let change = self.read();
        if change.is_err() {
            self.0 = Cursor::new(NAME, &[]);
        }
        Some(change)
    }
}
