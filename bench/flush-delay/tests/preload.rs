//! Real programs with the library preloaded: what is counted, and how long a flush takes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

#[allow(dead_code)] // the library's part of it
#[path = "../src/layout.rs"]
mod layout;

use layout::{CONTROL_BYTES, CONTROL_VARIABLE, COUNTS_OFFSET, Call, DELAY_OFFSET};

struct Preload {
    directory: tempfile::TempDir,
    control: fs::File,
}

/// Test binaries lie in `deps`, the library beside that directory.
fn library() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let library = binary.parent().unwrap().join("libtxfs_flush_delay.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

impl Preload {
    fn new(delay_us: u64) -> Preload {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        fs::write(&path, [0; CONTROL_BYTES]).unwrap();
        let control = fs::File::options().read(true).write(true).open(path).unwrap();
        control.write_at(&(delay_us * 1000).to_le_bytes(), DELAY_OFFSET as u64).unwrap();
        Preload { directory, control }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Duration {
        let begun = Instant::now();
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.directory.path())
            .env("LD_PRELOAD", library())
            .env(CONTROL_VARIABLE, self.directory.path().join("control"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        begun.elapsed()
    }

    fn count(&self, call: Call) -> u64 {
        let mut word = [0; 8];
        self.control.read_exact_at(&mut word, COUNTS_OFFSET as u64 + 8 * call as u64).unwrap();
        u64::from_le_bytes(word)
    }

    fn total(&self) -> u64 {
        Call::ALL.iter().map(|&call| self.count(call)).sum()
    }
}

#[test]
fn writes_to_a_synchronous_descriptor_count_and_take_the_delay() {
    let preload = Preload::new(20_000);
    let taken = preload.run("dd", &["if=/dev/zero", "of=file", "bs=4k", "count=5", "oflag=dsync"]);
    assert_eq!(preload.count(Call::SynchronousWrite), 5);
    assert_eq!(preload.total(), 5);
    assert!(taken >= Duration::from_millis(100), "{taken:?}");
}

#[test]
fn plain_writes_cost_nothing() {
    let preload = Preload::new(200_000);
    preload.run("dd", &["if=/dev/zero", "of=file", "bs=4k", "count=50"]);
    assert_eq!(preload.total(), 0);
}

#[test]
fn the_sync_calls_are_told_apart() {
    let preload = Preload::new(0);
    preload.run("dd", &["if=/dev/zero", "of=file", "bs=4k", "count=5", "conv=fsync"]);
    assert_eq!(preload.count(Call::Fsync), 1);
    preload.run("dd", &["if=/dev/zero", "of=file", "bs=4k", "count=5", "conv=fdatasync"]);
    assert_eq!(preload.count(Call::Fdatasync), 1);
    preload.run("sync", &["-d", "file"]);
    assert_eq!(preload.count(Call::Fdatasync), 2);
    assert_eq!(preload.total(), 3);
}
