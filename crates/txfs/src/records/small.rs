//! The small values: symlink targets, extended attributes, orphan marks, the next inode number.
//!
//! All are one version byte (1) and the value itself.

use super::Malformed;

const VERSION: u8 = 1;

/// A symlink's target or an extended attribute's value.
pub(crate) fn encode_bytes(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + value.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(value);
    bytes
}

pub(crate) fn decode_bytes(bytes: &[u8]) -> Result<&[u8], Malformed> {
    match bytes.split_first() {
        Some((&VERSION, value)) => Ok(value),
        Some(_) => Err("a value of an unknown version"),
        None => Err("an empty value"),
    }
}

pub(crate) fn orphan() -> Vec<u8> {
    vec![VERSION]
}

pub(crate) fn encode_number(number: u64) -> Vec<u8> {
    encode_bytes(&number.to_le_bytes())
}

pub(crate) fn decode_number(bytes: &[u8]) -> Result<u64, Malformed> {
    Ok(u64::from_le_bytes(decode_bytes(bytes)?.try_into().map_err(|_| "a number of the wrong length")?))
}
