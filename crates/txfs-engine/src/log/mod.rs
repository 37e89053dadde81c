//! The log: segment files, the appender that lays out records in memory, the writer that gets them to disk with
//! shared flushes, and the reader that recovery uses.

pub(crate) mod appender;
mod buffers;
pub(crate) mod bulk;
mod flights;
pub(crate) mod pool;
pub(crate) mod reader;
pub(crate) mod recent;
mod waiters;
pub(crate) mod writer;

pub(crate) use appender::Appender;
pub(crate) use pool::{Segment, SegmentPool};
pub(crate) use recent::RecentData;
pub(crate) use writer::{LogWriter, Overlap};
