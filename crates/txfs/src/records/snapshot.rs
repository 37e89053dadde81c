//! What the volume knows of a named snapshot, beside what the engine knows: its time and its name.
//!
//! Version 1 (1 byte); seconds since 1970 (zigzag) and nanoseconds as numbers of variable length ([`super::number`]); the rest
//! is the name.

use super::{Malformed, number};
use crate::types::Timestamp;

const VERSION: u8 = 1;

/// The description of a named snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRecord {
    pub(crate) time: Timestamp,
    pub(crate) name: String,
}

impl SnapshotRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        number::put(&mut bytes, (self.time.seconds << 1 ^ self.time.seconds >> 63) as u64);
        number::put(&mut bytes, self.time.nanoseconds.into());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SnapshotRecord, Malformed> {
        const SHORT: Malformed = "a named snapshot's description is cut short";
        let (&version, mut rest) = bytes.split_first().ok_or(SHORT)?;
        if version != VERSION {
            return Err("a named snapshot's description of an unknown version");
        }
        let zigzag = number::take(&mut rest).ok_or(SHORT)?;
        let seconds = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let nanoseconds =
            number::take(&mut rest).and_then(|number| u32::try_from(number).ok()).ok_or(SHORT)?;
        if nanoseconds > 999_999_999 {
            return Err("a named snapshot with an impossible time");
        }
        let name = std::str::from_utf8(rest).map_err(|_| "a named snapshot whose name is no text")?;
        Ok(SnapshotRecord { time: Timestamp { seconds, nanoseconds }, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_and_broken_bytes_do_no_harm() {
        for seconds in [0, -1, 1_795_343_467, i64::MIN, i64::MAX] {
            let record =
                SnapshotRecord { time: Timestamp::new(seconds, 5), name: "before the höliday".into() };
            let bytes = record.encode();
            assert_eq!(SnapshotRecord::decode(&bytes), Ok(record));
            for at in 0..bytes.len() {
                let mut broken = bytes.clone();
                broken[at] ^= 0xff;
                let _ = (SnapshotRecord::decode(&broken), SnapshotRecord::decode(&bytes[..at]));
            }
        }
        assert!(SnapshotRecord::decode(&[]).is_err() && SnapshotRecord::decode(&[2, 0, 0]).is_err());
    }
}
