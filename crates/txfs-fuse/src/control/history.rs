//! Recorded commits in the form in which clients get them.

use txfs::{RecordedCommit, Timestamp};
use txfs_protocol::Logged;

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
    }
}

pub(super) fn rfc_3339(time: Timestamp) -> String {
    // 2026-11-22 10:31:07 UTC
    let text = time.to_string().replace(" UTC", "").replace(' ', "T");
    format!("{text}.{:09}Z", time.nanoseconds)
}
