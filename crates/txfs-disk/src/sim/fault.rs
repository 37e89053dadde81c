//! Armed faults: which operation fails next, and how.

use super::Operation;

/// A fault that can be armed with [`super::SimulatedDisk::fail_next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read fails with `EIO`.
    Read,
    /// A write fails with `EIO`; some of its first sectors may have been written.
    Write,
    /// A write fails with `ENOSPC`; some of its first sectors may have been written.
    WriteNoSpace,
    /// A change of a file's length fails with `ENOSPC`.
    SetLenNoSpace,
    /// A file's sync fails with `EIO`. Part of what was not flushed is then lost for good although readers may still
    /// see it, and the next sync succeeds without writing it, as on Linux.
    Sync,
    /// A create, rename or remove fails with `EIO` and changes nothing.
    Name,
    /// A directory sync fails with `EIO`; part of what was not synced is lost for good.
    SyncDirectory,
}

impl Fault {
    fn strikes(self, operation: Operation) -> bool {
        match self {
            Fault::Read => operation == Operation::Read,
            Fault::Write | Fault::WriteNoSpace => {
                matches!(operation, Operation::Write | Operation::LogWrite { .. })
            }
            Fault::SetLenNoSpace => operation == Operation::SetLen,
            Fault::Sync => operation == Operation::Sync,
            Fault::Name => {
                matches!(
                    operation,
                    Operation::Create | Operation::Rename | Operation::Remove | Operation::Lock
                )
            }
            Fault::SyncDirectory => operation == Operation::SyncDirectory,
        }
    }
}

#[derive(Clone)]
struct Armed {
    fault: Fault,
    /// How many more fitting operations pass unharmed.
    passes: u64,
    forever: bool,
}

/// The faults that are armed on one disk.
#[derive(Clone, Default)]
pub(super) struct Faults {
    armed: Vec<Armed>,
}

impl Faults {
    pub(super) fn arm(&mut self, fault: Fault, nth: u64, forever: bool) {
        self.armed.push(Armed { fault, passes: nth.saturating_sub(1), forever });
    }

    pub(super) fn clear(&mut self) {
        self.armed.clear();
    }

    /// Counts the operation, and says which fault strikes it.
    pub(super) fn strike(&mut self, operation: Operation) -> Option<Fault> {
        let mut struck = None;
        self.armed.retain_mut(|armed| {
            if !armed.fault.strikes(operation) {
                return true;
            }
            if armed.passes > 0 {
                armed.passes -= 1;
                return true;
            }
            struck = struck.or(Some(armed.fault));
            armed.forever
        });
        struck
    }
}
