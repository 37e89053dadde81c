//! The question of `--review`, on the terminal itself: the command's standard input and output are not for this.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::signals::Signals;
use crate::error::Error;
use crate::output::colour::Paint;

/// How often to look for a signal while waiting for a person.
const LOOK_NANOSECONDS: i64 = 100_000_000;

/// The process's terminal.
#[derive(Debug)]
pub struct Terminal {
    device: File,
}

/// What the person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
    /// Ctrl-C or another signal.
    Interrupted(i32),
}

impl Terminal {
    /// Opens /dev/tty.
    pub fn open() -> Result<Terminal, Error> {
        match OpenOptions::new().read(true).write(true).open("/dev/tty") {
            Ok(device) => Ok(Terminal { device }),
            Err(source) => Err(Error::NoTerminal { source }),
        }
    }

    /// Colours for it.
    pub fn paint(&self) -> Paint {
        Paint::for_stream(&self.device)
    }

    /// Asks until the answer is y or n; the end of the input means no.
    pub fn ask(&mut self, question: &str, signals: &Signals) -> Result<Answer, Error> {
        self.ask_device(question, signals).map_err(|error| Error::run("cannot ask on the terminal", error))
    }

    fn ask_device(&mut self, question: &str, signals: &Signals) -> io::Result<Answer> {
        loop {
            write!(self.device, "{question} [y/N] ")?;
            let mut line = Vec::new();
            loop {
                if let Some(signal) = signals.interrupted() {
                    writeln!(self.device)?;
                    return Ok(Answer::Interrupted(signal));
                }
                let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_NANOSECONDS };
                match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], Some(&timeout)) {
                    Ok(0) | Err(Errno::INTR) => continue,
                    Ok(_) => {}
                    Err(error) => return Err(error.into()),
                }
                let mut bytes = [0; 256];
                let count = self.device.read(&mut bytes)?;
                line.extend_from_slice(&bytes[..count]);
                if count == 0 || line.ends_with(b"\n") {
                    break;
                }
            }
            match String::from_utf8_lossy(&line).trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(Answer::Yes),
                "n" | "no" | "" => return Ok(Answer::No),
                _ => {}
            }
        }
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.device.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}
