//! Reading fixed-width fields out of a byte slice without ever panicking.

use super::FormatError;

/// A position in a byte slice; every read checks the bounds and names the structure in its error.
pub struct Cursor<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at the first byte; `structure` appears in errors.
    pub fn new(structure: &'static str, bytes: &'a [u8]) -> Self {
        Cursor { structure, bytes, position: 0 }
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let available = self.bytes.len() - self.position;
        if len > available {
            return Err(FormatError::Truncated { structure: self.structure, needed: len, available });
        }
        let slice = &self.bytes[self.position..self.position + len];
        self.position += len;
        Ok(slice)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let slice = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(slice);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian 16-bit number.
    pub fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A little-endian 32-bit number.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian 64-bit number.
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Demands that everything was read.
    pub fn finish(self) -> Result<(), FormatError> {
        if self.remaining() == 0 {
            return Ok(());
        }
        Err(FormatError::Malformed { structure: self.structure, detail: "bytes left over at the end" })
    }
}
