//! A disk in memory that tells a test when the engine flushes its index and when it asks for free space, and a gate at
//! which threads can be kept there.

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use txfs_disk::{AlignedBuffer, Capabilities, Disk, DiskFile, LockOutcome};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Who comes by waits while it is closed.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    waiting: u32,
}

impl Gate {
    pub fn set_closed(&self, closed: bool) {
        self.state.lock().unwrap().closed = closed;
        self.changed.notify_all();
    }

    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.closed).unwrap();
        state.waiting -= 1;
    }

    pub fn wait_for_somebody(&self) {
        assert!(self.somebody_within(PATIENCE), "nobody comes to the gate");
    }

    /// Whether somebody waits there, or comes within this time.
    pub fn somebody_within(&self, time: Duration) -> bool {
        let state = self.state.lock().unwrap();
        let (_state, waited) =
            self.changed.wait_timeout_while(state, time, |state| state.waiting == 0).unwrap();
        !waited.timed_out()
    }
}

/// Lets those who wait go when a test ends early, so that the threads can.
pub struct Opens(pub Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

/// Is told what the engine does, in its thread and before it is done.
pub trait Watch: Debug + Send + Sync + 'static {
    fn index_flush(&self) {}
    fn free_space(&self) {}
}

/// Flushes of the index wait.
impl Watch for Gate {
    fn index_flush(&self) {
        self.pass();
    }
}

#[derive(Debug)]
pub struct WatchedDisk<W>(pub Arc<dyn Disk>, pub Arc<W>);

#[derive(Debug)]
struct WatchedFile<W>(Arc<dyn DiskFile>, Arc<W>);

impl<W: Watch> WatchedDisk<W> {
    fn watched(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if name == "index" { Arc::new(WatchedFile(file, self.1.clone())) } else { file }
    }
}

impl<W: Watch> Disk for WatchedDisk<W> {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watched(name, self.0.open(name)?))
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watched(name, self.0.create(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.1.free_space();
        self.0.free_bytes()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn try_lock(&self, name: &str, note: &str) -> io::Result<LockOutcome> {
        self.0.try_lock(name, note)
    }
}

impl<W: Watch> DiskFile for WatchedFile<W> {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
    fn write_log_vectored(&self, offset: u64, data: &[&AlignedBuffer], durable: bool) -> io::Result<()> {
        self.0.write_log_vectored(offset, data, durable)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.index_flush();
        self.0.sync()
    }
}
