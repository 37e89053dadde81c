//! Named snapshots: actions on them, and what a volume shows of them.

use std::collections::BTreeMap;

use txfs::Volume;

use super::{Runner, Session, Verdict};
use crate::generator::Durability;
use crate::volume;

/// The named snapshots of a volume, and digests of the trees that they show.
pub(crate) fn seen(volume: &Volume) -> Result<BTreeMap<String, u64>, String> {
    let problem = |error| format!("named snapshots cannot be read: {error}");
    let mut seen = BTreeMap::new();
    for snapshot in volume.snapshots().map_err(problem)?.into_iter().filter(|snapshot| !snapshot.going) {
        let view = volume.open_snapshot(&snapshot.name).map_err(problem)?;
        let (found, unreadable) = volume::dump(&view);
        if let Some(first) = unreadable.first() {
            let path = first.path.escape_ascii();
            return Err(format!("snapshot {:?}: cannot read {path}: {}", snapshot.name, first.message));
        }
        seen.insert(snapshot.name, found.digest());
    }
    Ok(seen)
}

impl Session {
    pub(super) fn create_snapshot(
        &mut self,
        runner: &mut Runner,
        name: &str,
        durability: Durability,
    ) -> Verdict {
        if !self.keeps(runner) {
            return Ok(());
        }
        match self.volume().create_snapshot(name, durability.of_volume()) {
            Ok(_) => {
                self.history.create_snapshot(name, self.action);
                if durability == Durability::Durable {
                    self.history.mark_durable();
                }
                Ok(())
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) => {
                self.after_no_space(runner, "making a snapshot")
            }
            Err(error) => Err(self.fail(runner, format!("making a snapshot failed: {error}"))),
        }
    }

    pub(super) fn delete_snapshot(&mut self, runner: &mut Runner, name: &str) -> Verdict {
        if !self.keeps(runner) || !self.history.named().contains_key(name) {
            return Ok(());
        }
        match self.volume().delete_snapshot(name) {
            Ok(()) => {
                self.history.delete_snapshot(name, self.action);
                self.history.mark_durable();
                Ok(())
            }
            Err(error) if self.is_out_of_space(runner, Some(error.errno())) => {
                self.after_no_space(runner, "deleting a snapshot")
            }
            Err(error) => Err(self.fail(runner, format!("deleting a snapshot failed: {error}"))),
        }
    }
}
