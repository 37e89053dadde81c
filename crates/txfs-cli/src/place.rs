//! `VOLUME:PATH`, and how to get at a volume: through its mount where it has one, through the library where not.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use txfs::{EngineError, Volume};
use txfs_protocol::{Client, ProtocolError, mounts};

use crate::error::Error;
use crate::tree::inside;

/// A path in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The volume's directory.
    pub volume: PathBuf,
    /// From the volume's root, cleaned.
    pub path: PathBuf,
    /// The path ended in a slash: it means a directory to put something into.
    pub into: bool,
}

impl Place {
    /// Parses `VOLUME:PATH`. A volume's path may have colons in it: the last colon counts whose left side is a
    /// directory, or else the first one.
    pub fn parse(text: &OsStr) -> Result<Place, Error> {
        Place::parse_with(text, |path| path.is_dir())?.ok_or_else(|| Error::NotAPlace { place: text.into() })
    }

    /// Parses `VOLUME[:PATH]`; without a path, the volume's root.
    pub fn parse_optional_path(text: &OsStr) -> Result<Place, Error> {
        if Path::new(text).is_dir() {
            return Ok(Place { volume: text.into(), path: PathBuf::new(), into: true });
        }
        Ok(Place::parse_with(text, |path| path.is_dir())?.unwrap_or_else(|| Place {
            volume: text.into(),
            path: PathBuf::new(),
            into: true,
        }))
    }

    fn parse_with(text: &OsStr, is_directory: impl Fn(&Path) -> bool) -> Result<Option<Place>, Error> {
        let bytes = text.as_bytes();
        let colons: Vec<usize> = (0..bytes.len()).filter(|&index| bytes[index] == b':').collect();
        let left = |colon: usize| Path::new(OsStr::from_bytes(&bytes[..colon]));
        let Some(&colon) = colons
            .iter()
            .rev()
            .find(|&&colon| colon > 0 && is_directory(left(colon)))
            .or_else(|| colons.iter().find(|&&colon| colon > 0))
        else {
            return Ok(None);
        };
        let path = OsStr::from_bytes(&bytes[colon + 1..]);
        Ok(Some(Place {
            volume: left(colon).to_path_buf(),
            path: inside(Path::new(path)),
            into: path.is_empty() || path.as_bytes().ends_with(b"/") || path.as_bytes().ends_with(b"/."),
        }))
    }

    /// For messages: `VOLUME:PATH`.
    pub fn display(&self) -> String {
        format!("{}:/{}", self.volume.display(), self.path.display())
    }
}

/// An open volume.
pub enum Access {
    /// Its owner serves it at this directory.
    Mounted { client: Client, mountpoint: PathBuf },
    /// It is ours.
    Embedded(Volume),
}

/// Opens a volume, given by its directory or by a mount point of it.
pub fn open(volume: &Path) -> Result<Access, Error> {
    if let Some((client, mountpoint)) = connect(volume)? {
        return Ok(Access::Mounted { client, mountpoint });
    }
    open_unmounted(volume).map(Access::Embedded)
}

/// Opens a volume for ourselves. When somebody else has it, the error says where it is mounted, if it is.
pub fn open_unmounted(volume: &Path) -> Result<Volume, Error> {
    match Volume::open(volume) {
        Ok(opened) => Ok(opened),
        Err(source) => {
            if matches!(source, txfs::Error::Engine(EngineError::AlreadyOpen { .. }))
                && let Ok(Some((client, mountpoint))) = connect(volume)
            {
                let owner_pid = client.welcome().map_or(0, |welcome| welcome.owner_pid);
                return Err(Error::Mounted { volume: volume.to_path_buf(), mountpoint, owner_pid });
            }
            Err(Error::volume(volume, source))
        }
    }
}

/// Connects to the owner of a volume, given by its directory or a mount point of it; `None` when it is not mounted.
pub fn connect(target: &Path) -> Result<Option<(Client, PathBuf)>, Error> {
    let volume = volume_of(target);
    match Client::connect(&volume) {
        Ok(client) => {
            let mountpoint = visible_mountpoint(&client, &volume)?;
            Ok(Some((client, mountpoint)))
        }
        Err(ProtocolError::NotMounted { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The volume that is mounted at this very directory, or else the directory itself.
pub fn volume_of(target: &Path) -> PathBuf {
    let Ok(canonical) = target.canonicalize() else { return target.to_path_buf() };
    match mounts::txfs_holding(&canonical) {
        Ok(Some(mount)) if mounts::same_point(&mount.mountpoint, &canonical) => mount.source,
        _ => canonical,
    }
}

fn visible_mountpoint(client: &Client, volume: &Path) -> Result<PathBuf, Error> {
    let (canonical, owner_pid) = match client.welcome() {
        Some(welcome) => (welcome.volume.to_path_buf(), welcome.owner_pid),
        None => (volume.to_path_buf(), 0),
    };
    let mounted = mounts::of_volume(&canonical)
        .map_err(|source| Error::io("read", Path::new("/proc/self/mountinfo"), source))?;
    mounted
        .into_iter()
        .find(|mount| mount.root == Path::new("/"))
        .map(|mount| mount.mountpoint)
        .ok_or_else(|| Error::MountedElsewhere { volume: volume.to_path_buf(), owner_pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, directories: &[&str]) -> Option<(String, String, bool)> {
        let place = Place::parse_with(OsStr::new(text), |path| {
            directories.iter().any(|known| path == Path::new(known))
        })
        .unwrap()?;
        Some((place.volume.display().to_string(), place.path.display().to_string(), place.into))
    }

    #[test]
    fn places() {
        let expect = |volume: &str, path: &str, into| Some((volume.to_owned(), path.to_owned(), into));
        assert_eq!(parse("v:/a/b", &["v"]), expect("v", "a/b", false));
        assert_eq!(parse("v:", &["v"]), expect("v", "", true));
        assert_eq!(parse("v:a/", &["v"]), expect("v", "a", true));
        assert_eq!(parse("v:a:b", &["v"]), expect("v", "a:b", false));
        assert_eq!(parse("x:y:b", &["x:y"]), expect("x:y", "b", false));
        assert_eq!(parse("none:a:b", &[]), expect("none", "a:b", false));
        assert_eq!(parse("v", &["v"]), None);
        assert_eq!(parse(":a", &[]), None);
    }
}
