//! Requests about kept and prepared transactions. They are the owner's: what is kept concerns the whole volume.

use rustix::io::Errno;
use txfs_protocol::{PathText, Request, Response};

use super::conflict::to_report;
use super::connection::{Connection, conflicted, failed, refuse};
use super::history::{kept_part, kept_transaction};

impl Connection {
    pub(super) fn answer_kept(&mut self, request: Request) -> Response {
        if !self.is_owner() {
            return refuse(
                Errno::PERM,
                "only the user who mounted the volume and root may keep transactions and use kept ones",
            );
        }
        match request {
            Request::Keep { name, prepare } => self.keep(&name, prepare),
            Request::Kept => match self.volume().kept() {
                Ok(found) => {
                    Response::Kept { transactions: found.into_iter().map(kept_transaction).collect() }
                }
                Err(error) => failed(&error),
            },
            Request::CommitKept { name } => match self.volume().commit_kept(&name) {
                Ok(receipt) => Response::Committed { sequence: receipt.sequence },
                Err(error) => conflicted(&error),
            },
            Request::CommitKeptOnly { name, paths } => {
                let paths: Vec<_> = paths.iter().map(PathText::to_path_buf).collect();
                match self.volume().commit_kept_only(&name, &paths) {
                    Ok(part) => Response::PartCommitted(kept_part(part)),
                    Err(error) => conflicted(&error),
                }
            }
            Request::AbortKept { name } => match self.volume().abort_kept(&name) {
                Ok(()) => Response::Done,
                Err(error) => failed(&error),
            },
            Request::KeptConflicts { name } => match self.volume().kept_conflicts(&name) {
                Ok(None) => Response::Done,
                Ok(Some(report)) => Response::Conflicted(to_report(&report)),
                Err(error) => failed(&error),
            },
            Request::OpenKept { name, side } => self.open_kept(&name, side),
            other => refuse(Errno::INVAL, &format!("{} is no request about kept transactions", other.name())),
        }
    }
}
