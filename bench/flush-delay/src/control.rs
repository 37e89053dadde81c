//! The control file's page as the preloaded programs map it. All its fields are counters or a single setting, so relaxed
//! order suffices.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::Call;

/// The page itself.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Control {
    delay_ns: AtomicU64,
    programs: AtomicU64,
    reserved: [AtomicU64; 6],
    counts: [AtomicU64; Call::ALL.len()],
}

impl Control {
    pub(crate) const fn new() -> Control {
        Control {
            delay_ns: AtomicU64::new(0),
            programs: AtomicU64::new(0),
            reserved: [const { AtomicU64::new(0) }; 6],
            counts: [const { AtomicU64::new(0) }; Call::ALL.len()],
        }
    }

    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_delay_ns(&self, delay_ns: u64) {
        self.delay_ns.store(delay_ns, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, call: Call) {
        self.counts[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_program(&self) {
        self.programs.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{CONTROL_BYTES, COUNTS_OFFSET, DELAY_OFFSET, PROGRAMS_OFFSET};

    #[test]
    fn the_offsets_are_those_of_the_fields() {
        assert_eq!(std::mem::offset_of!(Control, delay_ns), DELAY_OFFSET);
        assert_eq!(std::mem::offset_of!(Control, programs), PROGRAMS_OFFSET);
        assert_eq!(std::mem::offset_of!(Control, counts), COUNTS_OFFSET);
        assert!(size_of::<Control>() <= CONTROL_BYTES);
    }
}
