//! The kinds of requests, their names, and a counter for each.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// What the kernel asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Opcode { $($name = $number,)* }

        impl Opcode {
            pub(crate) const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            pub(crate) fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }

            pub(crate) fn name(self) -> &'static str {
                match self { $(Opcode::$name => stringify!($name),)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, Getattr = 3, Setattr = 4, Readlink = 5, Symlink = 6, Mknod = 8, Mkdir = 9, Unlink = 10,
    Rmdir = 11, Rename = 12, Link = 13, Open = 14, Read = 15, Write = 16, Statfs = 17, Release = 18, Fsync = 20,
    Setxattr = 21, Getxattr = 22, Listxattr = 23, Removexattr = 24, Flush = 25, Init = 26, Opendir = 27, Readdir = 28,
    Releasedir = 29, Fsyncdir = 30, Access = 34, Create = 35, Interrupt = 36, Destroy = 38, Ioctl = 39, Poll = 40,
    BatchForget = 42, Fallocate = 43, Readdirplus = 44, Rename2 = 45, Lseek = 46, CopyFileRange = 47, Syncfs = 50,
    Tmpfile = 51, Statx = 52, CopyFileRange64 = 53,
}

const COUNTERS: usize = 64;

/// How many messages of each kind have come; the rest share number 0.
#[derive(Debug)]
pub(crate) struct MessageCounts([AtomicU64; COUNTERS]);

impl MessageCounts {
    pub(crate) fn new() -> MessageCounts {
        MessageCounts(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn count(&self, opcode: u32) {
        let at = if (opcode as usize) < COUNTERS { opcode as usize } else { 0 };
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Name and number of the kinds that have come at all.
    pub(crate) fn nonzero(&self) -> Vec<(&'static str, u64)> {
        let mut counts = Vec::new();
        for opcode in Opcode::ALL {
            let count = self.0[*opcode as usize].load(Ordering::Relaxed);
            if count > 0 {
                counts.push((opcode.name(), count));
            }
        }
        counts
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}
