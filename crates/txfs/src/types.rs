//! The plain values that the operations of a [`View`](crate::View) take and return.

/// An inode number.
pub type Ino = u64;

/// The root directory's inode number.
pub const ROOT_INO: Ino = 1;

/// The unit of file data: storage, conflicts and checksums are per page of this many bytes.
pub const PAGE_BYTES: u64 = 4096;

/// The longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A moment: seconds and nanoseconds since 1970 (negative seconds before it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// A moment from its parts.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }
}

/// In UTC, to the second: `2026-11-22 10:31:07 UTC`.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (days, second) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        // Years begin in March here, so that the day that comes and goes is the last one; eras have 400 years.
        let days = days.saturating_add(719_468);
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
        let year = era * 400 + year + i64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(formatter, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(time: std::time::SystemTime) -> Timestamp {
        match time.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => Timestamp {
                seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanoseconds: after.subsec_nanos(),
            },
            Err(error) => {
                let before = error.duration();
                let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Timestamp { seconds: -seconds, nanoseconds: 0 },
                    nanoseconds => {
                        Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds }
                    }
                }
            }
        }
    }
}

impl From<Timestamp> for std::time::SystemTime {
    fn from(time: Timestamp) -> std::time::SystemTime {
        use std::time::{Duration, UNIX_EPOCH};
        let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
        let whole = Duration::from_secs(time.seconds.unsigned_abs());
        let base =
            if time.seconds >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
        base.and_then(|base| base.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

impl NodeKind {
    /// The `S_IFMT` bits of this kind in `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            NodeKind::Fifo => 0o010_000,
            NodeKind::CharacterDevice => 0o020_000,
            NodeKind::Directory => 0o040_000,
            NodeKind::BlockDevice => 0o060_000,
            NodeKind::File => 0o100_000,
            NodeKind::Symlink => 0o120_000,
            NodeKind::Socket => 0o140_000,
        }
    }
}

/// What `stat` tells about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits, set-uid, set-gid and sticky: the low twelve bits of `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names (directories: 2 and one for each subdirectory).
    pub nlink: u32,
    /// Size in bytes (symlinks: length of the target; directories: 0).
    pub size: u64,
    /// Allocated 512-byte units. In an open transaction an estimate for files that it has written.
    pub blocks: u64,
    /// Device number, for devices.
    pub rdev: u32,
    /// Last access as set explicitly; reading does not change it.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the node.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

impl Attributes {
    /// The full `st_mode`: kind and permission bits.
    pub fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode
    }

    /// True for directories.
    pub fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }

    /// True for regular files.
    pub fn is_file(&self) -> bool {
        self.kind == NodeKind::File
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The volume's clock at the time of the call.
    Now,
    /// This moment.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits (only the low twelve count).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size of a regular file: cuts it, or grows it with zeros.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last content change.
    pub mtime: Option<SetTime>,
    /// Time of last node change; otherwise the clock at the time of the call.
    pub ctime: Option<SetTime>,
}

/// A node to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits, the umask already taken off.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a set-gid parent directory's group overrides it.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u32,
    /// Target, for symlinks.
    pub target: Option<Vec<u8>>,
}

impl NewNode {
    /// A regular file.
    pub fn file(mode: u32, uid: u32, gid: u32) -> NewNode {
        NewNode { kind: NodeKind::File, mode, uid, gid, rdev: 0, target: None }
    }

    /// A directory.
    pub fn directory(mode: u32, uid: u32, gid: u32) -> NewNode {
        NewNode { kind: NodeKind::Directory, mode, uid, gid, rdev: 0, target: None }
    }

    /// A symbolic link to `target`.
    pub fn symlink(target: impl Into<Vec<u8>>, uid: u32, gid: u32) -> NewNode {
        NewNode { kind: NodeKind::Symlink, mode: 0o777, uid, gid, rdev: 0, target: Some(target.into()) }
    }
}

/// How a rename treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST`.
    NoReplace,
    /// Exchange the two; both must exist.
    Exchange,
}

/// How setting an extended attribute treats an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Fail with `EEXIST` when it exists.
    Create,
    /// Fail with `ENODATA` when it does not.
    Replace,
}

/// What `allocate` does with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Grow the file to the end of the range unless `keep_size`. Space is not reserved: what is already stored
    /// says nothing about the free space that a later commit needs.
    Reserve {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Turn the range into a hole that reads as zeros; the size stays.
    PunchHole,
    /// The range reads as zeros afterwards; grows the file unless `keep_size`.
    ZeroRange {
        /// Leave the size as it is.
        keep_size: bool,
    },
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: NodeKind,
    /// Where to go on after this entry: give it to the next `read_directory`.
    pub cookie: u64,
}

/// What `statfs` tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u32,
    /// All blocks.
    pub blocks_total: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Blocks that users may fill.
    pub blocks_available: u64,
    /// Inode numbers handed out so far, an upper bound of the files there are.
    pub files_total: u64,
    /// Inodes that could still be made.
    pub files_free: u64,
    /// Longest name of a directory entry, in bytes.
    pub name_bytes_max: u32,
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn moments_are_told_as_calendars_have_them() {
        let told = |seconds| Timestamp::new(seconds, 999_999_999).to_string();
        assert_eq!(told(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(told(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(told(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(told(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(told(1_795_343_467), "2026-11-22 10:31:07 UTC");
        assert_eq!(told(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(told(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
