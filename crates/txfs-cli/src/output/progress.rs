//! A progress bar for what takes long: on a terminal only, and only once two seconds have passed.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const QUIET_FOR: Duration = Duration::from_secs(2);

/// Counts bytes and files; shows them when it is worth it.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    shown: bool,
    on_terminal: bool,
}

impl Progress {
    /// For a job of so many bytes.
    pub fn new(what: &'static str, total_bytes: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::hidden());
        let template = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        // A template that is a constant cannot be wrong on some days only; the default style would do as well.
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(what);
        let on_terminal = std::io::stderr().is_terminal();
        Progress { bar, started: Instant::now(), shown: false, on_terminal }
    }

    /// So many bytes more are done.
    pub fn advance(&mut self, bytes: u64) {
        self.bar.inc(bytes);
        if self.on_terminal && !self.shown && self.started.elapsed() >= QUIET_FOR {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
    }

    /// Prints something without the bar in its way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Done, one way or the other: takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
