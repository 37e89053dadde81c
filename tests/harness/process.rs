//! Processes: their answers, waiting with a limit, signals.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What a command that ended has said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its exit status; 128+N when signal N ended it, as shells have it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// Panics with everything there is to know unless the exit code is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Answer {
        assert!(
            self.code == code,
            "exit code {} instead of {code}\nstandard output:\n{}\nstandard error:\n{}",
            self.code,
            self.out,
            self.err
        );
        self
    }

    /// Panics unless standard error holds `text`, in any case.
    #[track_caller]
    pub fn expect_message(self, text: &str) -> Answer {
        assert!(
            self.err.to_lowercase().contains(&text.to_lowercase()),
            "standard error does not say {text:?}:\n{}",
            self.err
        );
        self
    }
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl From<Output> for Answer {
    fn from(output: Output) -> Answer {
        Answer {
            code: code_of(output.status),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn answer_of(command: &mut Command) -> Answer {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => output.into(),
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// A command that runs while the test does other things; killed when dropped.
#[derive(Debug)]
pub struct Background {
    child: Option<Child>,
}

impl Background {
    /// Starts it; its output is kept for [`Background::finish`].
    #[track_caller]
    pub fn start(command: &mut Command) -> Background {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        match child {
            Ok(child) => Background { child: Some(child) },
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().map_or(0, |child| child.id() as i32)
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Waits for its end.
    #[track_caller]
    pub fn finish(mut self) -> Answer {
        let Some(child) = self.child.take() else { panic!("already finished") };
        match child.wait_with_output() {
            Ok(output) => output.into(),
            Err(error) => panic!("waiting for a command: {error}"),
        }
    }

    /// As `finish`, but a command that does not end within a minute fails the test.
    #[track_caller]
    pub fn finish_soon(mut self) -> Answer {
        wait_for("the end of a command", || !self.is_running());
        self.finish()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // it may have ended already
        let _ = kill_process(pid, signal);
    }
}

/// Polls until `condition` holds; fails the test after a minute.
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited a minute in vain for {what}");
        sleep_ms(5);
    }
}

/// Sleeps.
pub fn sleep_ms(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// The whole text of a file, with its path in the message when there is none.
#[track_caller]
pub fn contents(path: impl AsRef<Path>) -> String {
    match fs::read(path.as_ref()) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => panic!("{}: {error}", path.as_ref().display()),
    }
}
