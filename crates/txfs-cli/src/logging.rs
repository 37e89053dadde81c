//! The mount's log: lines on standard error, which a background mount has sent into VOLUME/mount.log.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record};

use crate::output::format;

struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let time = format::time(i64::try_from(seconds).unwrap_or(i64::MAX));
        // In one write, so that lines of several threads do not mix; nobody to tell when it fails.
        let line = format!("{time} {:5} {}: {}\n", record.level(), record.target(), record.args());
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// Starts logging, at the level of TXFS_LOG or warnings and worse.
pub fn start() {
    let level =
        std::env::var("TXFS_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::Warn);
    // A second start would be an error, and harmless.
    if log::set_logger(&StandardError).is_ok() {
        log::set_max_level(level);
    }
}
