//! The exit codes of `txfs`: stable, listed in `--help` and in the man pages.
//!
//! `txfs run` owes its callers the command's own status, so there every failure of txfs itself is 125, as `env`,
//! `timeout` and `docker run` have it. The other subcommands say more precisely what went wrong, with the numbers of
//! sysexits.h where one fits.

use std::process::ExitCode as ProcessExitCode;

/// Everything a subcommand of `txfs` can exit with, other than what a command under `txfs run` chooses itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done.
    Success = 0,
    /// Failed for a reason without a number of its own.
    Failure = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// The volume is damaged: `check` found something, or it cannot be opened for that reason.
    Damaged = 65,
    /// There is no TxFS volume, no mount or no such path here.
    NotFound = 66,
    /// FUSE cannot be used: no /dev/fuse, or no fusermount3.
    FuseUnavailable = 69,
    /// No space left.
    NoSpace = 73,
    /// Reading or writing failed.
    InputOutput = 74,
    /// A conflict with another transaction: nothing was changed, trying again may work.
    Conflict = 75,
    /// The volume was made by a newer TxFS.
    NewerFormat = 76,
    /// Permission denied.
    PermissionDenied = 77,
    /// Somebody else is using the volume or the mount point.
    Busy = 78,
    /// `txfs run`: txfs itself failed, or the review was declined; the transaction was aborted.
    RunFailed = 125,
    /// `txfs run`: the command could not be executed.
    CannotExecute = 126,
    /// `txfs run`: the command was not found.
    CommandNotFound = 127,
}

impl From<ExitCode> for ProcessExitCode {
    fn from(code: ExitCode) -> ProcessExitCode {
        ProcessExitCode::from(code as u8)
    }
}

/// The table for the help texts and the man page, as a macro so that `concat!` can take it in.
macro_rules! exit_code_table {
    () => {
        "\
Exit codes:
    0  done
    1  failed for another reason
    2  wrong usage
   65  the volume is damaged, or check found something
   66  no such volume, mount or path
   69  FUSE cannot be used (no /dev/fuse, no fusermount3)
   73  no space left
   74  input/output error
   75  conflict with another transaction: nothing was changed, trying again may work
   76  the volume was made by a newer TxFS
   77  permission denied
   78  the volume or the mount point is in use
  125  run: txfs itself failed or the review was declined, and nothing was changed
  126  run: the command could not be executed
  127  run: the command was not found
128+N  run: the command was ended by signal N
  run passes every other status of its command through; anything but 0 leaves no trace."
    };
}
pub(crate) use exit_code_table;
