//! What reached the block device, from the kernel's own counters. They hold everything that anybody wrote to it:
//! measure on a quiet device, or give the benchmark one of its own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The counters of one block device.
#[derive(Clone, Debug)]
pub struct Device {
    stat: PathBuf,
}

/// Traffic since the device appeared, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes written.
    pub bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Flush requests.
    pub flushes: u64,
}

impl Traffic {
    /// What came after `earlier`.
    pub fn since(self, earlier: Traffic) -> Traffic {
        Traffic {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }

    /// Both together.
    pub fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            bytes: self.bytes + other.bytes,
            writes: self.writes + other.writes,
            flushes: self.flushes + other.flushes,
        }
    }
}

impl Device {
    /// The device under the file system that holds `path`; none for file systems without a block device.
    pub fn under(path: &Path) -> io::Result<Option<Device>> {
        let number = fs::metadata(path)?.dev();
        if let Some(device) = Device::numbered(number) {
            return Ok(Some(device));
        }
        // btrfs gives its files a number of its own: ask the mount
        let source = mounts()?
            .into_iter()
            .filter(|mount| path.starts_with(&mount.at))
            .max_by_key(|mount| mount.at.len());
        let source = source.and_then(|mount| fs::metadata(mount.source).ok());
        Ok(source.and_then(|source| Device::numbered(source.rdev())))
    }

    fn numbered(number: u64) -> Option<Device> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        stat.exists().then_some(Device { stat })
    }

    /// The counters now. Fields as in the kernel's Documentation/block/stat.rst; sectors are 512 bytes there.
    pub fn traffic(&self) -> io::Result<Traffic> {
        let text = fs::read_to_string(&self.stat)?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Ok(Traffic { writes: field(4), bytes: field(6) * 512, flushes: field(15) })
    }
}

/// A line of the mount table.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Device, for file systems that have one.
    pub source: String,
    /// Where it is mounted.
    pub at: String,
    /// Type of the file system.
    pub kind: String,
    /// Mount options.
    pub options: String,
}

/// The mount table of this process.
pub fn mounts() -> io::Result<Vec<Mount>> {
    let table = fs::read_to_string("/proc/self/mounts")?;
    let line = |line: &str| {
        let mut fields = line.split(' ').map(str::to_owned);
        Some(Mount {
            source: fields.next()?,
            at: fields.next()?,
            kind: fields.next()?,
            options: fields.next()?,
        })
    };
    Ok(table.lines().filter_map(line).collect())
}
