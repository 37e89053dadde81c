//! A bar on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress of one workload.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of a workload with this name.
    pub fn new(workload: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{prefix:20} {bar:24} {pos}/{len} {elapsed_precise} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(workload.to_owned());
        Progress { bar }
    }

    /// From here on, so many steps.
    pub fn begin(&self, steps: u64) {
        self.bar.set_length(steps);
        self.bar.set_position(0);
    }

    /// The next step begins.
    pub fn step(&self, what: &str) {
        self.bar.inc(1);
        self.bar.set_message(what.to_owned());
    }

    /// Preparations of unknown length.
    pub fn prepare(&self, what: &str) {
        self.bar.set_message(format!("preparing: {what}"));
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
