//! Conflict reports in the form in which clients get them.

use txfs_protocol::ConflictReport;

/// A conflict report, as a mount's owner sends it.
pub fn to_report(report: &txfs::ConflictReport) -> ConflictReport {
    report.into()
}
