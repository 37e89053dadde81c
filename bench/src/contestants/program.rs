//! A C program as a contestant: `bench/c/libtxfs-protocols.c`, compiled where the benchmark runs, does the work of a round
//! in a process of its own and tells how long each operation took.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::Result;
use crate::rounds::Meter;

/// The compiled program, removed at the end.
#[derive(Debug)]
pub struct Program {
    directory: TempDir,
}

impl Program {
    /// Compiles it; nothing without a C compiler.
    pub fn compile() -> Result<Option<Program>> {
        let program = Program { directory: tempfile::tempdir()? };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/libtxfs-protocols.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O2", "-o"]).arg(program.path()).arg(source).arg("-ldl");
        let Ok(output) = compiler.output() else { return Ok(None) };
        match output.status.success() {
            true => Ok(Some(program)),
            false => Err(format!("{compiler:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    /// Starts it in a directory; with libtxfs, each operation is a transaction.
    pub fn start(&self, work: &str, directory: &Path, libtxfs: Option<&Path>) -> Result<Worker> {
        let mut command = Command::new(self.path());
        command.arg(work).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(library) = libtxfs {
            // A flush inside a transaction is none, and the owner of the volume pays for that of the commit. What the
            // preloaded library does to find that out would only be further calls to intercept.
            command.arg(library).env_remove("LD_PRELOAD");
        }
        let mut child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Ok(Worker { child, input, output, outside: 0 })
    }
}

/// libtxfs.so beside this program.
pub fn libtxfs() -> Option<PathBuf> {
    let library = env::current_exe().ok()?.with_file_name("libtxfs.so");
    library.exists().then_some(library)
}

/// The program at work; ended when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    outside: u64,
}

impl Worker {
    /// Does a round.
    pub fn round(&mut self, meter: &mut Meter) -> Result<()> {
        let (duration, operations_max) = meter.left();
        let seed = u64::from(meter.round) + 1;
        let input = self.input.as_mut().ok_or("no standard input")?;
        writeln!(input, "{} {operations_max} {seed}", duration.as_micros())?;
        input.flush()?;
        let numbers = self.line()?;
        let [count, outside] = numbers[..] else { return Err("not a count of operations".into()) };
        self.outside += outside;
        for _ in 0..count {
            let nanoseconds = self.line()?.first().copied().ok_or("not a time")?;
            meter.taken(nanoseconds);
        }
        Ok(())
    }

    /// How many system calls were intercepted outside of transactions, in all rounds so far.
    pub fn intercepted_outside(&self) -> u64 {
        self.outside
    }

    fn line(&mut self) -> Result<Vec<u64>> {
        let mut line = String::new();
        let output = self.output.as_mut().ok_or("no standard output")?;
        if output.read_line(&mut line)? == 0 {
            return Err(format!("it ended early: {}", self.child.wait()?).into());
        }
        let numbers = line.split_whitespace().map(|word| Ok(word.parse()?));
        numbers.collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends at the end of its input; it must be gone before its directory goes.
        drop(self.input.take());
        drop(self.output.take());
        let _ = self.child.wait();
    }
}
