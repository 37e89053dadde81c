//! A sandbox for tests with the real command on real mounts, as root and as somebody without any rights.

#![allow(dead_code)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// The user without rights: `nobody`.
const NOBODY: u32 = 65534;

/// No command of a test may take longer.
const PATIENCE_SECONDS: u32 = 60;

/// Who runs the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Same,
    /// Root's tests also run like this: no user, no group, no capabilities.
    Nobody,
}

/// Everybody that can be played.
pub fn users() -> Vec<User> {
    if is_root() { vec![User::Same, User::Nobody] } else { vec![User::Same] }
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Gives /dev/fuse the mode that udev gives it everywhere; bare machines for tests may lack udev.
fn open_fuse_to_all() {
    let device = Path::new("/dev/fuse");
    if fs::metadata(device).is_ok_and(|device| device.mode() & 0o666 != 0o666) {
        let _ = fs::set_permissions(device, fs::Permissions::from_mode(0o666));
    }
}

/// A directory with everything that a test makes; mounts in it end with it.
pub struct Sandbox {
    pub user: User,
    directory: tempfile::TempDir,
    binary: PathBuf,
}

/// What a command did.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Done {
    /// Ends the test when the exit code is another one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Done {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Ends the test when standard error does not say that.
    #[track_caller]
    pub fn says(self, words: &str) -> Done {
        assert!(self.stderr.contains(words), "{words:?} is not in:\n{}", self.stderr);
        self
    }

    /// The JSON on the last line of standard error.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }
}

impl Sandbox {
    pub fn new(user: User) -> Sandbox {
        if user == User::Nobody {
            open_fuse_to_all();
        }
        let directory = tempfile::Builder::new().prefix("txfs-cli-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Where cargo put it, others may not be allowed to look.
        let binary = directory.path().join("txfs");
        let built = Path::new(env!("CARGO_BIN_EXE_txfs"));
        if fs::hard_link(built, &binary).is_err() {
            fs::copy(built, &binary).unwrap();
        }
        let sandbox = Sandbox { user, directory, binary };
        sandbox.make_directory("home");
        sandbox
    }

    /// A sandbox with a volume that is mounted.
    pub fn mounted(user: User) -> Sandbox {
        let sandbox = Sandbox::new(user);
        sandbox.mkfs();
        sandbox.mount();
        sandbox
    }

    pub fn mkfs(&self) {
        self.txfs(["mkfs", "--segment-size", "8M"]).arg(self.volume()).done().expect(0);
    }

    pub fn mount(&self) {
        if !self.mountpoint().exists() {
            self.make_directory("home/mount");
        }
        self.txfs(["mount"]).arg(self.volume()).arg(self.mountpoint()).done().expect(0);
    }

    pub fn umount(&self) {
        self.txfs(["umount"]).arg(self.mountpoint()).done().expect(0);
    }

    /// `txfs check` finds nothing.
    pub fn check(&self) {
        self.txfs(["check"]).arg(self.volume()).done().expect(0);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The process that serves the mount.
    pub fn owner(&self) -> i32 {
        let refused = self.txfs(["check"]).arg(self.volume()).done().expect(78).says("is mounted at");
        let pid = refused.stderr.split("by process ").nth(1).unwrap();
        pid.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn volume(&self) -> PathBuf {
        self.path("home/volume")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.path("home/mount")
    }

    /// Makes a directory that belongs to the user.
    pub fn make_directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        if self.user == User::Nobody {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path
    }

    /// Any program as the user, with a limit on its time.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Running {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &PATIENCE_SECONDS.to_string()]);
        if self.user == User::Nobody {
            command.args(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        }
        // Not `current_dir`: root may not enter somebody else's mount.
        command.args(["env", "-C"]).stdin(Stdio::null());
        for variable in ["TXFS_TRANSACTION", "TXFS_MOUNT", "TXFS_LOG"] {
            command.env_remove(variable);
        }
        Running { command, directory: self.path("home"), words: vec![program.as_ref().to_owned()] }
    }

    pub fn txfs<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        self.command(&self.binary).args(arguments)
    }

    /// `txfs run ... -- sh -c SCRIPT`, in the mount.
    pub fn run<'a>(&self, options: impl IntoIterator<Item = &'a str>, script: &str) -> Running {
        self.txfs(["run"]).args(options).args(["--", "sh", "-c", script]).directory(&self.mountpoint())
    }

    /// A script in the mount, outside of transactions.
    pub fn sh(&self, script: &str) -> Done {
        self.command("sh").args(["-c", script]).directory(&self.mountpoint()).done()
    }

    /// What a script in the mount prints.
    #[track_caller]
    pub fn read(&self, script: &str) -> String {
        self.sh(script).expect(0).stdout
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = self.directory.path().to_string_lossy().into_owned();
        for place in mounts.lines().rev().filter_map(|line| line.split(' ').nth(4)) {
            if place.starts_with(&own) {
                let unmounted = Command::new("umount").args(["-l", place]).stderr(Stdio::null()).status();
                if !unmounted.is_ok_and(|status| status.success()) {
                    let _ = Command::new("fusermount3").args(["-u", "-z", place]).status();
                }
            }
        }
    }
}

/// A command to be.
pub struct Running {
    command: Command,
    directory: PathBuf,
    words: Vec<OsString>,
}

impl Running {
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Running {
        self.words.push(argument.as_ref().to_owned());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Running {
        self.words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Running {
        self.command.env(name, value);
        self
    }

    pub fn directory(mut self, directory: &Path) -> Running {
        self.directory = directory.to_path_buf();
        self
    }

    fn complete(mut self) -> Command {
        self.command.arg(self.directory).args(self.words);
        self.command
    }

    pub fn done(self) -> Done {
        self.complete().output().unwrap().into()
    }

    pub fn with_input(self, input: &str) -> Done {
        let mut command = self.complete();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Runs on while the test does something else.
    pub fn start(self) -> Background {
        let mut command = self.complete();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Background { child: Some(command.spawn().unwrap()) }
    }
}

/// A command that is running.
pub struct Background {
    child: Option<Child>,
}

impl Background {
    /// The process id of `timeout`, whose only child the command is.
    fn outer(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The process id of the command itself.
    pub fn pid(&self) -> i32 {
        let outer = self.outer();
        let mut found = None;
        wait_until("the command runs", || {
            let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
            found = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
            // Not before it has replaced the programs that lead to it.
            found.is_some_and(|pid: i32| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "txfs")
            })
        });
        found.unwrap()
    }

    pub fn wait(mut self) -> Done {
        self.child.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Not KILL: timeout hands TERM on to the command.
            kill("TERM", child.id() as i32);
            let _ = child.wait();
        }
    }
}

/// Waits until something is so.
#[track_caller]
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(20), "it never happened that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal.
pub fn kill(signal: &str, pid: i32) -> ExitStatus {
    Command::new("kill").args([format!("-{signal}"), "--".into(), pid.to_string()]).status().unwrap()
}

/// Whether a process is there and not just waiting to be reaped.
pub fn is_running(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}
