//! The structures of options, as the header has them.

use std::time::Duration;

use volume::{CreateOptions, Durability, Isolation, OpenOptions, Policy, TransactionOptions};

use super::arguments::{Plain, Text};
use super::failure::{Failure, Result};

/// `TXFS_OPEN_*`
const OPEN_CREATE: u32 = 1;
const OPEN_READ_ONLY: u32 = 2;
/// `TXFS_BEGIN_*`
const BEGIN_RECORDED: u32 = 1;

/// `struct txfs_create_options`
#[repr(C)]
pub struct Create {
    size: usize,
    size_bytes_max: u64,
    preallocate_bytes: u64,
    segment_bytes: u64,
    root_mode: u32,
    reserved: u32,
}

/// `struct txfs_open_options`
#[repr(C)]
pub struct Open {
    size: usize,
    flags: u32,
    policy: u32,
    transaction_memory_bytes: u64,
    volume_memory_bytes: u64,
    checkpoint_distance_bytes: u64,
    reader_patience_ms: u64,
    create: *const Create,
}

/// `struct txfs_begin_options`
#[repr(C)]
pub struct Begin {
    size: usize,
    flags: u32,
    isolation: u32,
    policy: u32,
    reserved: u32,
    label: Text,
}

// SAFETY: integers only.
unsafe impl Plain for Create {}
// SAFETY: integers and a raw pointer.
unsafe impl Plain for Open {}
// SAFETY: integers and a raw pointer.
unsafe impl Plain for Begin {}

fn check_flags(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(Failure::invalid("unknown flags in the options")) }
}

fn policy(number: u32) -> Result<Option<Policy>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Policy::FirstCommitter)),
        2 => Ok(Some(Policy::Eager)),
        _ => Err(Failure::invalid("unknown policy")),
    }
}

/// `TXFS_DURABLE` and so on.
pub fn durability(number: i32) -> Result<Durability> {
    match number {
        0 => Ok(Durability::Durable),
        1 => Ok(Durability::Ordered),
        2 => Ok(Durability::Deferred),
        _ => Err(Failure::invalid("the durability is none of TXFS_DURABLE, TXFS_ORDERED, TXFS_DEFERRED")),
    }
}

impl Create {
    /// What is created belongs to this process's user.
    pub fn decode(&self, owner: (u32, u32)) -> Result<CreateOptions> {
        if self.reserved != 0 {
            return Err(Failure::invalid("a reserved field of the options is not zero"));
        }
        let mut options = CreateOptions { root_uid: owner.0, root_gid: owner.1, ..CreateOptions::default() };
        options.size_bytes_max = Some(self.size_bytes_max).filter(|bytes| *bytes != 0);
        options.preallocate_bytes = self.preallocate_bytes;
        if self.segment_bytes != 0 {
            options.segment_bytes = self.segment_bytes;
        }
        if self.root_mode != 0 {
            options.root_mode = self.root_mode & 0o7777;
        }
        Ok(options)
    }
}

impl Open {
    pub fn creates(&self) -> bool {
        self.flags & OPEN_CREATE != 0
    }

    /// What to create a missing volume with.
    pub fn create_options(&self) -> super::arguments::Options<Create> {
        super::arguments::Options::of(self.create)
    }

    pub fn read_only(&self) -> bool {
        self.flags & OPEN_READ_ONLY != 0
    }

    pub fn decode(&self) -> Result<OpenOptions> {
        check_flags(self.flags, OPEN_CREATE | OPEN_READ_ONLY)?;
        let policy = policy(self.policy)?.unwrap_or_default();
        let mut options = OpenOptions { policy, ..OpenOptions::default() };
        let bytes = |value: u64, default: usize| match value {
            0 => default,
            value => usize::try_from(value).unwrap_or(usize::MAX),
        };
        options.transaction_memory_bytes =
            bytes(self.transaction_memory_bytes, options.transaction_memory_bytes);
        options.volume_memory_bytes = bytes(self.volume_memory_bytes, options.volume_memory_bytes);
        if self.checkpoint_distance_bytes != 0 {
            options.checkpoint_distance_bytes = self.checkpoint_distance_bytes;
        }
        if self.reader_patience_ms != 0 {
            options.reader_patience = Duration::from_millis(self.reader_patience_ms);
        }
        Ok(options)
    }
}

impl Begin {
    pub fn decode(&self) -> Result<TransactionOptions> {
        check_flags(self.flags, BEGIN_RECORDED)?;
        if self.reserved != 0 {
            return Err(Failure::invalid("a reserved field of the options is not zero"));
        }
        let isolation = match self.isolation {
            0 => Isolation::Serializable,
            1 => Isolation::Snapshot,
            _ => return Err(Failure::invalid("unknown isolation")),
        };
        let label = self.label.optional().unwrap_or_default();
        Ok(TransactionOptions {
            isolation,
            policy: policy(self.policy)?,
            label: String::from_utf8_lossy(label).into_owned(),
            recorded: self.flags & BEGIN_RECORDED != 0,
            ..TransactionOptions::default()
        })
    }
}
