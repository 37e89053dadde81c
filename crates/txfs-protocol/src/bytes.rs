//! Paths and names inside JSON: file names are bytes, not always text.
//!
//! A name that is valid UTF-8 travels as a JSON string, any other as an array of bytes, so nothing is lost and the
//! common case stays readable.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path as bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathText(pub Vec<u8>);

impl PathText {
    /// The path for use with the standard library.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The path, owned.
    pub fn to_path_buf(&self) -> PathBuf {
        self.as_path().to_path_buf()
    }
}

impl From<&Path> for PathText {
    fn from(path: &Path) -> PathText {
        PathText(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for PathText {
    fn from(path: PathBuf) -> PathText {
        PathText(path.into_os_string().into_vec())
    }
}

impl From<&str> for PathText {
    fn from(text: &str) -> PathText {
        PathText(text.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for PathText {
    fn from(bytes: Vec<u8>) -> PathText {
        PathText(bytes)
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_path().display())
    }
}

impl fmt::Debug for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_path())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Bytes(Vec<u8>),
}

impl Serialize for PathText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(self.0.iter()),
        }
    }
}

impl<'de> Deserialize<'de> for PathText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PathText, D::Error> {
        Ok(PathText(match Wire::deserialize(deserializer)? {
            Wire::Text(text) => text.into_bytes(),
            Wire::Bytes(bytes) => bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_whatever_their_bytes() {
        for bytes in [b"plain".to_vec(), "gr\u{fc}n".into(), vec![0xff, b'/', 0xfe], vec![]] {
            let json = serde_json::to_string(&PathText(bytes.clone())).unwrap();
            assert_eq!(serde_json::from_str::<PathText>(&json).unwrap().0, bytes, "{json}");
        }
        assert!(serde_json::from_str::<PathText>("[256]").is_err());
        assert!(serde_json::from_str::<PathText>("{}").is_err());
    }
}
