//! Log writes that were begun and are not all over: in which order they lie in the log, and how far the log is
//! complete.
//!
//! Writes end in any order. The log counts as written, or as durable, only up to the first write that is not: recovery
//! stops at the first gap, so what lies behind one may not be acknowledged. Every write has a serial number, given when
//! it is cut off the appender's end, and consecutive; a later one cannot overtake an earlier one here.

use crate::broken::{self, Fault};
use std::collections::VecDeque;

/// How far one write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Cut, and not written as far as is known.
    Begun,
    /// In the host file; it takes a flush of the file to make it durable.
    Written,
    /// On stable storage.
    Durable,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    last_record: u64,
    stage: Stage,
}

/// How far the log has come, and the writes behind that.
#[derive(Debug)]
pub(super) struct Flights {
    /// Highest record that belongs to a write which was begun.
    begun: u64,
    /// Highest record up to which everything is in the host file.
    written: u64,
    /// Highest record up to which everything is on stable storage.
    durable: u64,
    /// Serial number of the first in `queue`.
    first_serial: u64,
    /// Those at the front that count as written.
    written_count: usize,
    /// Writes that are not known to be durable together with all before them.
    queue: VecDeque<Flight>,
}

impl Flights {
    /// Everything up to `record` is durable, and the next write has the serial number 0.
    pub(super) fn new(record: u64) -> Flights {
        Flights {
            begun: record,
            written: record,
            durable: record,
            first_serial: 0,
            written_count: 0,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// A write was cut that ends with `last_record`; returns its serial number.
    pub(super) fn begin(&mut self, last_record: u64) -> u64 {
        self.begun = last_record;
        self.queue.push_back(Flight { last_record, stage: Stage::Begun });
        self.first_serial + self.queue.len() as u64 - 1
    }

    /// The write `serial` is over; `durable` when it was made so by itself.
    pub(super) fn end(&mut self, serial: u64, durable: bool) {
        let stage = if durable { Stage::Durable } else { Stage::Written };
        let index = (serial - self.first_serial) as usize;
        if let Some(flight) = self.queue.get_mut(index) {
            flight.stage = stage;
        }
        if broken::has(Fault::AcknowledgeOutOfOrder) && durable {
            self.queue.iter_mut().take(index).for_each(|flight| flight.stage = Stage::Durable);
        }
        self.advance();
    }

    /// The serial number behind all writes that count as written: what a flush begun now covers.
    pub(super) fn covered(&self) -> u64 {
        self.first_serial + self.written_count as u64
    }

    /// A flush is over that covered all writes before the serial number `behind`.
    pub(super) fn flushed(&mut self, behind: u64) {
        let count = behind.saturating_sub(self.first_serial) as usize;
        for flight in self.queue.iter_mut().take(count) {
            flight.stage = Stage::Durable;
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(flight) = self.queue.get(self.written_count)
            && flight.stage != Stage::Begun
        {
            self.written = flight.last_record;
            self.written_count += 1;
        }
        while let Some(flight) = self.queue.front()
            && flight.stage == Stage::Durable
        {
            self.durable = flight.last_record;
            self.queue.pop_front();
            self.first_serial += 1;
            self.written_count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_gap_does_not_count() {
        let mut flights = Flights::new(10);
        let serials: Vec<u64> = [12, 13, 20].into_iter().map(|record| flights.begin(record)).collect();
        flights.end(serials[2], true);
        assert_eq!((flights.begun(), flights.written(), flights.durable()), (20, 10, 10));
        flights.end(serials[0], true);
        assert_eq!((flights.written(), flights.durable()), (12, 12));
        flights.end(serials[1], true);
        assert_eq!((flights.written(), flights.durable()), (20, 20));
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it() {
        let mut flights = Flights::new(0);
        let first = flights.begin(1);
        let second = flights.begin(2);
        flights.end(first, false);
        let covered = flights.covered();
        flights.end(second, false);
        assert_eq!((flights.written(), flights.durable()), (2, 0));
        flights.flushed(covered);
        assert_eq!((flights.written(), flights.durable()), (2, 1));
        let third = flights.begin(3);
        flights.end(third, true);
        assert_eq!((flights.written(), flights.durable()), (3, 1), "the second write is in doubt still");
        flights.flushed(flights.covered());
        assert_eq!(flights.durable(), 3);
        let fourth = flights.begin(4);
        flights.end(fourth, true);
        assert_eq!((flights.written(), flights.durable()), (4, 4));
    }
}
