//! Frames: a little-endian 32-bit length, then that many bytes of JSON.
//!
//! A frame longer than `FRAME_BYTES_MAX` is refused before anything is allocated for it, and memory grows only with
//! the bytes that really arrive, so a length field alone costs nothing.

use crate::ProtocolError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

/// The longest frame that either side takes.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// Writes one message.
pub fn write_frame(to: &mut impl Write, message: &impl Serialize) -> Result<(), ProtocolError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|error| ProtocolError::Malformed { what: error.to_string() })?;
    let len = bytes.len() - 4;
    if len > FRAME_BYTES_MAX {
        return Err(ProtocolError::Malformed {
            what: format!("a message of {len} bytes, the limit is {FRAME_BYTES_MAX}"),
        });
    }
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    to.write_all(&bytes).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ProtocolError::Closed,
        _ => ProtocolError::Io(error),
    })
}

/// Reads one message; `None` at a clean end of the stream.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, ProtocolError> {
    let mut prefix = Vec::with_capacity(4);
    match from.take(4).read_to_end(&mut prefix) {
        Ok(0) => return Ok(None),
        Ok(4) => {}
        Ok(_) => return Err(ProtocolError::Malformed { what: "the stream ends inside a frame".into() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(ProtocolError::Io(error)),
    }
    let len = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
    if len > FRAME_BYTES_MAX {
        return Err(ProtocolError::Malformed {
            what: format!("a frame of {len} bytes, the limit is {FRAME_BYTES_MAX}"),
        });
    }
    let mut body = Vec::new();
    if from.take(len as u64).read_to_end(&mut body)? < len {
        return Err(ProtocolError::Malformed { what: "the stream ends inside a frame".into() });
    }
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(|error| ProtocolError::Malformed { what: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Request};

    #[test]
    fn a_message_comes_back() {
        let mut bytes = Vec::new();
        let request = Request::Commit { durability: Durability::Ordered, or_keep: None };
        write_frame(&mut bytes, &request).unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(read_frame::<Request>(&mut from).unwrap(), Some(request));
        assert_eq!(read_frame::<Request>(&mut from).unwrap(), None);
    }

    #[test]
    fn malformed_frames_are_errors() {
        let long = u32::MAX.to_le_bytes();
        let torn = [9, 0, 0, 0, b'{'];
        let not_json = [2, 0, 0, 0, b'{', b'{'];
        let not_a_request = [2, 0, 0, 0, b'{', b'}'];
        let half_a_length = [1, 0];
        for bytes in [&long[..], &torn, &not_json, &not_a_request, &half_a_length] {
            let result = read_frame::<Request>(&mut &bytes[..]);
            assert!(matches!(result, Err(ProtocolError::Malformed { .. })), "{bytes:?}: {result:?}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let mut bytes = Vec::new();
        bytes.extend(100_000u32.to_le_bytes());
        bytes.extend(std::iter::repeat_n(b'[', 100_000));
        assert!(read_frame::<Request>(&mut bytes.as_slice()).is_err());
    }
}
