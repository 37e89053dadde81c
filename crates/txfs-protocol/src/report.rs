//! Conflict reports of the library, in the form in which clients get them.

use txfs as volume;
use txfs::{ConflictKind as Kind, Timestamp};

use crate::{Access, Conflict, ConflictKind, ConflictReport, Other, OtherState};

impl From<&volume::ConflictReport> for ConflictReport {
    fn from(report: &volume::ConflictReport) -> ConflictReport {
        ConflictReport {
            conflicts: report.conflicts.iter().map(to_conflict).collect(),
            more: report.more,
            message: report.to_string(),
        }
    }
}

/// A moment as in RFC 3339, to the nanosecond.
pub fn rfc_3339(time: Timestamp) -> String {
    // 2026-11-22 10:31:07 UTC
    let text = time.to_string().replace(" UTC", "").replace(' ', "T");
    format!("{text}.{:09}Z", time.nanoseconds)
}

fn to_conflict(conflict: &volume::Conflict) -> Conflict {
    Conflict {
        kind: to_kind(&conflict.kind),
        access: match conflict.access {
            volume::Access::Read => Access::Read,
            volume::Access::Written => Access::Write,
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

fn to_other(other: &volume::Other) -> Other {
    Other {
        state: match other.state {
            volume::OtherState::Committed => OtherState::Committed,
            volume::OtherState::Writing => OtherState::Writing,
            volume::OtherState::Elder => OtherState::Elder,
        },
        sequence: other.sequence,
        time: other.time.map(rfc_3339),
        transaction: other.transaction,
        process: other.process,
        command: other.command.clone(),
        message: other.message.clone(),
    }
}
