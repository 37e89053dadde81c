//! The memory that log writes come from. Buffers go round: fresh memory costs more than what is copied into it, a page
//! fault for every 4 KiB and zeros that are written over at once, and what was used last is in the processor's cache
//! still.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use txfs_disk::AlignedBuffer;

/// Buffers that nobody uses at present. Locking: a mutex of its own, innermost.
#[derive(Debug)]
pub(crate) struct SpareBuffers {
    /// Kept at most.
    count_max: usize,
    /// Capacity of each of them at most.
    bytes_max: usize,
    spares: Mutex<Vec<AlignedBuffer>>,
}

/// A buffer that returns to the spare ones when it is dropped.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    buffer: AlignedBuffer,
    home: Arc<SpareBuffers>,
}

impl SpareBuffers {
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Arc<SpareBuffers> {
        Arc::new(SpareBuffers { count_max, bytes_max, spares: Mutex::default() })
    }

    /// An empty buffer; the one that was given back last, if there is one.
    pub(crate) fn take(self: &Arc<SpareBuffers>) -> LogBuffer {
        let buffer = self.spares.lock().pop().unwrap_or_default();
        LogBuffer { buffer, home: self.clone() }
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        let mut spares = self.home.spares.lock();
        if spares.len() < self.home.count_max && (1..=self.home.bytes_max).contains(&self.buffer.capacity()) {
            self.buffer.clear();
            spares.push(std::mem::take(&mut self.buffer));
        }
    }
}

impl Deref for LogBuffer {
    type Target = AlignedBuffer;
    fn deref(&self) -> &AlignedBuffer {
        &self.buffer
    }
}

impl DerefMut for LogBuffer {
    fn deref_mut(&mut self) -> &mut AlignedBuffer {
        &mut self.buffer
    }
}
