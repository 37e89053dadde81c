//! Conflict reports in the form in which clients get them.

use super::history::rfc_3339;
use txfs::ConflictKind as Kind;
use txfs_protocol::{Access, Conflict, ConflictKind, ConflictReport, Other, OtherState};

/// A conflict report, as a mount's owner sends it.
pub fn to_report(report: &txfs::ConflictReport) -> ConflictReport {
    ConflictReport {
        conflicts: report.conflicts.iter().map(to_conflict).collect(),
        more: report.more,
        message: report.to_string(),
    }
}

fn to_conflict(conflict: &txfs::Conflict) -> Conflict {
    Conflict {
        kind: to_kind(&conflict.kind),
        access: match conflict.access {
            txfs::Access::Read => Access::Read,
            txfs::Access::Written => Access::Write,
        },
        path: conflict.path.clone().unwrap_or_default().into(),
        inode: conflict.ino,
        other: to_other(&conflict.other),
        message: conflict.to_string(),
    }
}

fn to_kind(kind: &Kind) -> ConflictKind {
    let attribute = |attribute: &str| ConflictKind::Attribute { attribute: attribute.into() };
    match kind {
        Kind::Pages { first, last } => ConflictKind::Pages {
            first_page: *first,
            last_page: Some(*last).filter(|last| *last != u64::MAX),
        },
        Kind::Name { .. } => ConflictKind::Name,
        Kind::Listing => ConflictKind::Scan,
        Kind::Existence => attribute("existence"),
        Kind::Permissions => attribute("permissions"),
        Kind::Size => attribute("size"),
        Kind::Parent => attribute("parent"),
        Kind::ExtendedAttribute => attribute("xattr"),
    }
}

fn to_other(other: &txfs::Other) -> Other {
    Other {
        state: match other.state {
            txfs::OtherState::Committed => OtherState::Committed,
            txfs::OtherState::Writing => OtherState::Writing,
            txfs::OtherState::Elder => OtherState::Elder,
        },
        sequence: other.sequence,
        time: other.time.map(rfc_3339),
        transaction: other.transaction,
        process: other.process,
        command: other.command.clone(),
        message: other.message.clone(),
    }
}
