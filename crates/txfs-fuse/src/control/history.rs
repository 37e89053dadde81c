//! Recorded commits and kept transactions in the form in which clients get them.

use std::time::SystemTime;
use txfs::{RecordedCommit, UndoState};
use txfs_protocol::{
    KeptPart, KeptState, KeptTransaction, Logged, NamedSnapshot, Restored, Undoable, rfc_3339,
};

/// An entry of a volume's history, as a mount's owner sends it.
pub fn logged(commit: RecordedCommit) -> Logged {
    Logged {
        sequence: commit.sequence,
        time: rfc_3339(commit.time),
        process: commit.process,
        command: commit.command,
        message: commit.message,
        nodes: commit.nodes,
        names: commit.names,
        data_bytes: commit.data_bytes,
        undo: match commit.undo {
            UndoState::NotKept => Undoable::No,
            UndoState::Kept { .. } => Undoable::Yes,
            UndoState::TooLarge => Undoable::TooLarge,
            UndoState::Expired => Undoable::Expired,
            UndoState::GaveWay => Undoable::GaveWay,
        },
        kept_bytes: match commit.undo {
            UndoState::Kept { bytes, .. } => bytes,
            _ => 0,
        },
    }
}

/// A kept transaction, as a mount's owner sends it.
pub fn kept_transaction(kept: txfs::KeptTransaction) -> KeptTransaction {
    KeptTransaction {
        name: kept.name,
        state: match kept.state {
            txfs::KeptState::Kept => KeptState::Kept,
            txfs::KeptState::Prepared => KeptState::Prepared,
        },
        time: rfc_3339(kept.time),
        age_ms: SystemTime::from(kept.time).elapsed().map_or(0, |age| age.as_millis() as u64),
        process: kept.process,
        command: kept.command,
        message: kept.message,
        nodes: kept.nodes,
        names: kept.names,
        data_bytes: kept.data_bytes,
        pinned_bytes: kept.pinned_bytes,
        conflicts: kept.conflicts,
    }
}

/// What committing a part did, as a mount's owner sends it.
pub fn kept_part(part: txfs::KeptPart) -> KeptPart {
    let txfs::KeptPart { sequence, along, remains } = part;
    KeptPart { sequence, along: along.into_iter().map(Into::into).collect(), remains }
}

/// A named snapshot, as a mount's owner sends it.
pub fn named_snapshot(snapshot: txfs::SnapshotInfo) -> NamedSnapshot {
    NamedSnapshot {
        name: snapshot.name,
        time: rfc_3339(snapshot.time),
        age_ms: SystemTime::from(snapshot.time).elapsed().map_or(0, |age| age.as_millis() as u64),
        sequence: snapshot.sequence,
        pinned_bytes: snapshot.data_bytes,
        metadata_bytes: snapshot.metadata_bytes,
        going: snapshot.going,
    }
}

/// What restoring did, as a mount's owner sends it.
pub fn restored(restored: txfs::Restored) -> Restored {
    let txfs::Restored { made, changed, removed, unchanged, data_bytes } = restored;
    Restored { made, changed, removed, unchanged, data_bytes }
}
