//! The simulated disk as the engine sees it: names and locks, each change a step.

use std::io;
use std::sync::Arc;

use super::handle::SimulatedFile;
use super::names::NameChange;
use super::state::{Gate, State, input_output_error};
use super::{Operation, PowerLost, SimulatedDisk};
use crate::arguments::check_name;
use crate::{Capabilities, Disk, DiskFile, LockGuard, LockOutcome};

impl SimulatedDisk {
    /// Carries out one change of names, as a step.
    fn change_names(
        &self,
        operation: Operation,
        change: impl FnOnce(&mut State) -> io::Result<NameChange>,
    ) -> io::Result<()> {
        let (number, result) = {
            let mut state = self.shared.state.lock();
            let gate = state.enter(operation)?;
            let result = match gate {
                Gate::Fails(_) => Err(input_output_error()),
                Gate::Pass | Gate::PowerFails => change(&mut state).and_then(|change| {
                    let order = state.next_order();
                    state.names.change(order, change);
                    state.require_power()
                }),
            };
            (state.steps, result)
        };
        self.tell_observer(number, operation, true);
        result
    }
}

pub(super) fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {name:?} on the simulated disk"))
}

impl Disk for SimulatedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let state = self.shared.state.lock();
        state.require_power()?;
        let file = state.file_named(name).ok_or_else(|| not_found(name))?.clone();
        Ok(Arc::new(SimulatedFile::new(self.clone(), file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        check_name(name)?;
        let mut created = None;
        self.change_names(Operation::Create, |state| {
            if state.names.cached.contains_key(name) {
                let message = format!("{name:?} exists already on the simulated disk");
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            let file = state.add_file();
            created = Some(file.clone());
            Ok(NameChange::Create { name: name.into(), file: file.id })
        })?;
        let file = created.ok_or_else(|| not_found(name))?;
        Ok(Arc::new(SimulatedFile::new(self.clone(), file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.change_names(Operation::Rename, |state| {
            if !state.names.cached.contains_key(from) {
                return Err(not_found(from));
            }
            Ok(NameChange::Rename { from: from.into(), to: to.into() })
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.change_names(Operation::Remove, |state| {
            if !state.names.cached.contains_key(name) {
                return Err(not_found(name));
            }
            Ok(NameChange::Remove { name: name.into() })
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.shared.state.lock();
        state.require_power()?;
        Ok(state.names.cached.keys().map(|name| name.to_string()).collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let (number, result) = {
            let mut guard = self.shared.state.lock();
            let state = &mut *guard;
            let result = match state.enter(Operation::SyncDirectory)? {
                Gate::PowerFails => Err(PowerLost.into()),
                Gate::Fails(_) => {
                    state.names.fail_flush(&mut state.random);
                    Err(input_output_error())
                }
                Gate::Pass => {
                    if !state.lying_flush {
                        state.names.flush();
                        state.drop_nameless_files();
                    }
                    Ok(())
                }
            };
            (state.steps, result)
        };
        self.tell_observer(number, Operation::SyncDirectory, true);
        result
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.shared.state.lock();
        state.require_power()?;
        Ok(state.free_bytes())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            sector_bytes: self.shared.sector_bytes,
            direct: true,
            data_sync_writes: true,
            description: "simulated".to_owned(),
        }
    }

    fn try_lock(&self, name: &str, note: &str) -> io::Result<LockOutcome> {
        check_name(name)?;
        {
            let mut state = self.shared.state.lock();
            state.require_power()?;
            if let Some(owner) = state.locks.get(name) {
                return Ok(LockOutcome::Held { owner: owner.clone() });
            }
            state.locks.insert(name.to_owned(), note.to_owned());
        }
        let guard = SimulatedLock { disk: self.clone(), name: name.to_owned() };
        if self.shared.state.lock().file_named(name).is_none() {
            self.change_names(Operation::Lock, |state| {
                let file = state.add_file();
                Ok(NameChange::Create { name: name.into(), file: file.id })
            })?;
        }
        Ok(LockOutcome::Acquired(Box::new(guard)))
    }
}

/// A held lock of a simulated disk.
#[derive(Debug)]
struct SimulatedLock {
    disk: SimulatedDisk,
    name: String,
}

impl LockGuard for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.disk.shared.state.lock().locks.remove(&self.name);
    }
}
