//! An open file of the simulated disk.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fault::Fault;
use super::file::{InFlight, SimFile};
use super::flight::Completion;
use super::state::{Gate, State, input_output_error, no_space};
use super::{Operation, PowerLost, SimulatedDisk};
use crate::arguments::check_sectors;
use crate::{AlignedBuffer, DiskFile};

/// Longest file, so that a wild offset is an error and not a table that fills the memory.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// A handle on a file; it stays valid when the file is renamed or removed.
pub(super) struct SimulatedFile {
    disk: SimulatedDisk,
    file: Arc<SimFile>,
}

impl fmt::Debug for SimulatedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedFile({})", self.file.id)
    }
}

fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::FileTooLarge,
        format!("a simulated file holds at most {FILE_BYTES_MAX} bytes"),
    )
}

impl SimulatedFile {
    pub(super) fn new(disk: SimulatedDisk, file: Arc<SimFile>) -> Self {
        file.handles.fetch_add(1, Ordering::Relaxed);
        SimulatedFile { disk, file }
    }

    fn write(&self, offset: u64, data: &[u8], operation: Operation) -> io::Result<()> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= FILE_BYTES_MAX)
            .ok_or_else(too_large)?;
        let durable = operation == Operation::LogWrite { durable: true };
        let mut held = false;
        let (number, mut order, mut result) = {
            let mut state = self.disk.shared.state.lock();
            let gate = state.enter(operation)?;
            let (written, mut result) = match gate {
                Gate::Pass | Gate::PowerFails => (data.len(), state.require_power()),
                Gate::Fails(fault) => {
                    let written = self.some_sectors(&mut state, data.len());
                    (
                        written,
                        Err(if fault == Fault::WriteNoSpace { no_space() } else { input_output_error() }),
                    )
                }
            };
            let order = state.next_order();
            match state.require_space(&self.file, offset, end) {
                Ok(()) if result.is_ok() && state.flight.holds(operation) => {
                    held = true;
                    state.flight.issue(order);
                    let write = InFlight { order, offset, data: data.into(), durable };
                    self.file.contents.lock().in_flight.push(write);
                }
                Ok(()) => self.file.contents.lock().write(order, offset, &data[..written]),
                Err(error) => result = result.and(Err(error)),
            }
            (state.steps, order, result)
        };
        if result.is_ok() && (durable || held) {
            self.disk.tell_observer(number, operation, false);
        }
        if held {
            (order, result) = self.wait_for_release(order);
        }
        if result.is_ok() && durable {
            let state = self.disk.shared.state.lock();
            state.require_power()?; // another thread's step may have cut it: the write stays in doubt
            if !state.lying_flush {
                self.file.contents.lock().flush_write(order);
            }
        }
        self.disk.tell_observer(number, operation, true);
        result
    }

    /// How much of a failing write gets through, in bytes.
    fn some_sectors(&self, state: &mut State, len: usize) -> usize {
        let sectors = len / self.disk.shared.sector_bytes;
        state.random.usize(0..=sectors) * self.disk.shared.sector_bytes
    }

    /// Waits until the write that was issued as `order` is let go, and carries it out: readers see it from here on.
    /// When power is lost meanwhile it stays in flight, which means that a crash keeps any part of it.
    fn wait_for_release(&self, order: u64) -> (u64, io::Result<()>) {
        let mut state = self.disk.shared.state.lock();
        let completion = loop {
            if let Err(error) = state.require_power() {
                return (order, Err(error));
            }
            match state.flight.take_verdict(order) {
                Some(completion) => break completion,
                None => self.disk.shared.released.wait(&mut state),
            }
        };
        let arrived = state.next_order();
        let mut contents = self.file.contents.lock();
        let at = contents.in_flight.iter().position(|write| write.order == order);
        let Some(write) = at.map(|at| contents.in_flight.remove(at)) else {
            return (order, Err(input_output_error()));
        };
        let (written, result) = match completion {
            Completion::Succeeds => (write.data.len(), Ok(())),
            Completion::Fails => (self.some_sectors(&mut state, write.data.len()), Err(input_output_error())),
        };
        contents.write(arrived, write.offset, &write.data[..written]);
        if write.durable && result.is_ok() && !state.lying_flush {
            contents.flush_write(arrived);
        }
        (arrived, result)
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.file.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.shared.state.lock().require_power()?;
        Ok(self.file.contents.lock().cached.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(too_large());
        }
        let (number, result) = {
            let mut state = self.disk.shared.state.lock();
            let gate = state.enter(Operation::SetLen)?;
            let result = match gate {
                Gate::Fails(_) => Err(no_space()),
                Gate::Pass | Gate::PowerFails => {
                    let order = state.next_order();
                    self.file.contents.lock().set_len(order, len);
                    state.require_power()
                }
            };
            (state.steps, result)
        };
        self.disk.tell_observer(number, Operation::SetLen, true);
        result
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if let Gate::Fails(_) = self.disk.shared.state.lock().enter(Operation::Read)? {
            return Err(input_output_error());
        }
        // reads copy from a version of their own, so that they hold no lock meanwhile
        let image = self.file.contents.lock().cached.clone();
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > image.len()) {
            let message = format!("read of {} bytes at {offset} in a file of {}", buffer.len(), image.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        image.read(offset, buffer);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data, Operation::Write)
    }

    fn write_log_vectored(&self, offset: u64, data: &[&AlignedBuffer], durable: bool) -> io::Result<()> {
        check_sectors(offset, data, self.disk.shared.sector_bytes)?;
        let file_len = self.file.contents.lock().cached.len();
        let len: usize = data.iter().map(|buffer| buffer.len()).sum();
        if offset.checked_add(len as u64).is_none_or(|end| end > file_len) {
            let message = format!("log write of {len} bytes at {offset} leaves the file of {file_len} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let operation = Operation::LogWrite { durable };
        match data {
            [buffer] => self.write(offset, buffer.as_slice(), operation),
            _ => {
                let bytes: Vec<u8> = data.iter().flat_map(|buffer| buffer.as_slice()).copied().collect();
                self.write(offset, &bytes, operation)
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        let (number, result) = {
            let mut guard = self.disk.shared.state.lock();
            let state = &mut *guard;
            let result = match state.enter(Operation::Sync)? {
                Gate::PowerFails => Err(PowerLost.into()),
                Gate::Fails(_) => {
                    let evicted = state.random.bool();
                    self.file.contents.lock().fail_flush(&mut state.random, evicted);
                    Err(input_output_error())
                }
                Gate::Pass => {
                    if !state.lying_flush {
                        self.file.contents.lock().flush();
                    }
                    Ok(())
                }
            };
            (state.steps, result)
        };
        self.disk.tell_observer(number, Operation::Sync, true);
        result
    }
}
