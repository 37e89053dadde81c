//! The value of a recorded commit: who made it, when, and how much it changed.
//!
//! Version 2 (1 byte); then numbers of variable length ([`super::number`]): seconds since 1970 (zigzag), nanoseconds, process,
//! nodes, names, bytes of data; then the length of the command (2 bytes) and the command, and the same for the message; then
//! whether the commit can be undone (1 byte): 0 no, it was made by a version that could not, 1 yes, and then come two numbers:
//! that of its undo data and the bytes that this keeps, 2 no, it was too large, 3 no, the limit of the history was
//! reached, 4 no, the space was needed. Version 1 is the same without that.

use super::{Malformed, number};
use crate::types::Timestamp;

const VERSION: u8 = 2;
const VERSION_WITHOUT_UNDO: u8 = 1;
/// Longer ones are cut when they are written.
const TEXT_BYTES_MAX: usize = 4000;

/// What is kept of a commit beside its number, which is in the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryRecord {
    pub(crate) time: Timestamp,
    pub(crate) process: u32,
    pub(crate) nodes: u64,
    pub(crate) names: u64,
    pub(crate) data_bytes: u64,
    pub(crate) command: String,
    pub(crate) message: String,
    pub(crate) undo: UndoState,
}

/// Whether a commit can be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndoState {
    /// No: it was made by a version of TxFS that kept nothing for that, or the volume is set to keep nothing.
    #[default]
    NotKept,
    /// Yes, as far as nothing is in the way.
    Kept {
        /// The number of what is kept for that.
        number: u64,
        /// Bytes that this keeps: old content of files, removed files, and what says what was where.
        bytes: u64,
    },
    /// No: it would have kept more than the volume's history may.
    TooLarge,
    /// No: newer commits needed what the volume's history may keep.
    Expired,
    /// No: the volume was full, and its space was needed.
    GaveWay,
}

impl HistoryRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        number::put(&mut bytes, (self.time.seconds << 1 ^ self.time.seconds >> 63) as u64);
        for number in
            [self.time.nanoseconds.into(), self.process.into(), self.nodes, self.names, self.data_bytes]
        {
            number::put(&mut bytes, number);
        }
        for text in [&self.command, &self.message] {
            let fits = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
            let text = &text[..fits.unwrap_or(0)];
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.push(match self.undo {
            UndoState::NotKept => 0,
            UndoState::Kept { .. } => 1,
            UndoState::TooLarge => 2,
            UndoState::Expired => 3,
            UndoState::GaveWay => 4,
        });
        if let UndoState::Kept { number, bytes: kept } = self.undo {
            number::put(&mut bytes, number);
            number::put(&mut bytes, kept);
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<HistoryRecord, Malformed> {
        const SHORT: Malformed = "a recorded commit of the wrong length";
        let (&version, mut rest) = bytes.split_first().ok_or(SHORT)?;
        if version != VERSION && version != VERSION_WITHOUT_UNDO {
            return Err("a recorded commit of an unknown version");
        }
        let mut long = || number::take(&mut rest).ok_or("a recorded commit with an impossible number");
        let word = |long: u64| u32::try_from(long).map_err(|_| "a recorded commit with an impossible number");
        let seconds = long()?;
        let time = Timestamp {
            seconds: (seconds >> 1) as i64 ^ -((seconds & 1) as i64),
            nanoseconds: word(long()?)?,
        };
        let (process, nodes, names, data_bytes) = (word(long()?)?, long()?, long()?, long()?);
        let mut text = || {
            let (len, behind) = rest.split_first_chunk::<2>().ok_or(SHORT)?;
            let (text, behind) = behind.split_at_checked(u16::from_le_bytes(*len).into()).ok_or(SHORT)?;
            rest = behind;
            std::str::from_utf8(text)
                .map(str::to_owned)
                .map_err(|_| "a recorded commit with a text that is none")
        };
        let (command, message) = (text()?, text()?);
        let undo = match (version, rest.split_first()) {
            (VERSION_WITHOUT_UNDO, _) => UndoState::NotKept,
            (_, Some((&state, behind))) => {
                rest = behind;
                let mut long =
                    || number::take(&mut rest).ok_or("a recorded commit with an impossible number");
                match state {
                    0 => UndoState::NotKept,
                    1 => UndoState::Kept { number: long()?, bytes: long()? },
                    2 => UndoState::TooLarge,
                    3 => UndoState::Expired,
                    4 => UndoState::GaveWay,
                    _ => return Err("a recorded commit of which it is not known whether it can be undone"),
                }
            }
            (_, None) => return Err(SHORT),
        };
        if !rest.is_empty() {
            return Err(SHORT);
        }
        if time.nanoseconds > 999_999_999 {
            return Err("a recorded commit with an impossible time");
        }
        Ok(HistoryRecord { time, process, nodes, names, data_bytes, command, message, undo })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> HistoryRecord {
        HistoryRecord {
            time: Timestamp::new(-5, 7),
            process: 4711,
            nodes: 3,
            names: 1 << 40,
            data_bytes: u64::MAX,
            command: "make install".into(),
            message: "grüße".into(),
            undo: UndoState::Kept { number: 1 << 33, bytes: 12345 },
        }
    }

    #[test]
    fn what_is_encoded_decodes_and_nothing_else_does() {
        let bytes = sample().encode();
        assert_eq!(HistoryRecord::decode(&bytes), Ok(sample()));
        for len in 0..bytes.len() {
            assert!(HistoryRecord::decode(&bytes[..len]).is_err());
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0xff;
            // It may decode to something else; it must not panic.
            let _ = HistoryRecord::decode(&broken);
        }
        assert!(HistoryRecord::decode(&[bytes, vec![0]].concat()).is_err());
    }

    #[test]
    fn what_the_first_version_wrote_decodes() {
        let plain = HistoryRecord { undo: UndoState::NotKept, ..sample() };
        let mut bytes = plain.encode();
        bytes[0] = VERSION_WITHOUT_UNDO;
        bytes.pop();
        assert_eq!(HistoryRecord::decode(&bytes), Ok(plain));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = HistoryRecord { message: "ü".repeat(TEXT_BYTES_MAX), ..sample() };
        let found = HistoryRecord::decode(&long.encode()).expect("it decodes");
        assert_eq!(found.message, "ü".repeat(TEXT_BYTES_MAX / 2));
    }
}
