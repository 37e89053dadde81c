//! What can be asked about an open file or directory of a mount, with `ioctl`.
//!
//! Numbers and structures are stable: `include/txfs.h` and programs in C use the same. All are plain data in host byte
//! order, without pointers, so that 32-bit programs use them too. The direction and size in a number are those of
//! Linux on x86 and ARM (`_IOC` of `asm-generic/ioctl.h`).

/// The letter of all our numbers.
pub const TXFS_IOC_TYPE: u8 = 0xF7;

/// Finds the inode of an open regular file in a view: [`NodePath`] in and out.
pub const TXFS_IOC_NODE: u32 = number(READ | WRITE, 1, size_of::<NodePath>());

/// Makes an open file or directory a member of a file group: [`GroupKey`] in.
pub const TXFS_IOC_GROUP_ADD: u32 = number(WRITE, 2, size_of::<GroupKey>());

/// Ends the membership of an open file or directory: [`GroupKey`] in.
pub const TXFS_IOC_GROUP_REMOVE: u32 = number(WRITE, 3, size_of::<GroupKey>());

/// Room for a path in [`NodePath`], its closing zero included.
pub const NODE_PATH_BYTES: usize = 56;

const WRITE: u32 = 1;
const READ: u32 = 2;

const fn number(direction: u32, which: u8, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (TXFS_IOC_TYPE as u32) << 8 | which as u32
}

/// Asks for an inode in a view, and answers under which path it can be opened there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NodePath {
    /// In: the number of an open transaction, or 0 for what everybody sees.
    pub transaction: u64,
    /// Out: a path below the mount point, closed with a zero.
    pub path: [u8; NODE_PATH_BYTES],
}

impl NodePath {
    /// The question.
    pub fn of(transaction: u64) -> NodePath {
        NodePath { transaction, path: [0; NODE_PATH_BYTES] }
    }

    /// The answer; `None` when `path` has no room.
    pub fn answer(transaction: u64, path: &[u8]) -> Option<NodePath> {
        let mut answer = NodePath::of(transaction);
        let (room, _end) = answer.path.split_at_mut(NODE_PATH_BYTES - 1);
        room.get_mut(..path.len())?.copy_from_slice(path);
        Some(answer)
    }

    /// From what an `ioctl` has passed; `None` when that is too short.
    pub fn from_bytes(bytes: &[u8]) -> Option<NodePath> {
        let (transaction, path) = bytes.split_first_chunk()?;
        let path = *path.first_chunk()?;
        Some(NodePath { transaction: u64::from_ne_bytes(*transaction), path })
    }

    /// As an `ioctl` passes it.
    pub fn to_bytes(&self) -> [u8; size_of::<NodePath>()] {
        let mut bytes = [0; size_of::<NodePath>()];
        bytes[..8].copy_from_slice(&self.transaction.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.path);
        bytes
    }

    /// The path below the mount point.
    pub fn path(&self) -> &[u8] {
        self.path.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// Names a file group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct GroupKey {
    /// Its key.
    pub key: u32,
    /// Must be 0.
    pub reserved: u32,
}

impl GroupKey {
    /// From what an `ioctl` has passed; `None` when that is too short.
    pub fn from_bytes(bytes: &[u8]) -> Option<GroupKey> {
        let (key, rest) = bytes.split_first_chunk()?;
        let reserved = rest.first_chunk()?;
        Some(GroupKey { key: u32::from_ne_bytes(*key), reserved: u32::from_ne_bytes(*reserved) })
    }

    /// As an `ioctl` passes it.
    pub fn to_bytes(&self) -> [u8; size_of::<GroupKey>()] {
        let mut bytes = [0; size_of::<GroupKey>()];
        bytes[..4].copy_from_slice(&self.key.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.reserved.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs are compiled with these.
    #[test]
    fn numbers_and_sizes_stay() {
        assert_eq!((size_of::<NodePath>(), size_of::<GroupKey>()), (64, 8));
        assert_eq!(TXFS_IOC_NODE, 0xC040_F701);
        assert_eq!(TXFS_IOC_GROUP_ADD, 0x4008_F702);
        assert_eq!(TXFS_IOC_GROUP_REMOVE, 0x4008_F703);
    }

    #[test]
    fn structures_come_back() {
        let answer = NodePath::answer(7, b".txfs/node/0123").unwrap();
        assert_eq!(NodePath::from_bytes(&answer.to_bytes()), Some(answer));
        assert_eq!(answer.path(), b".txfs/node/0123");
        assert!(NodePath::answer(7, &[b'x'; 55]).is_some());
        assert_eq!(NodePath::answer(7, &[b'x'; 56]), None, "no room for the zero");
        assert_eq!(NodePath::from_bytes(&[0; 63]), None);
        let key = GroupKey { key: 5, reserved: 0 };
        assert_eq!(GroupKey::from_bytes(&key.to_bytes()), Some(key));
        assert_eq!(GroupKey::from_bytes(&[0; 7]), None);
    }
}
