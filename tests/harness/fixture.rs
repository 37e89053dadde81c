//! A volume and its mount for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Answer, Background, answer_of, contents, signal, sleep_ms, wait_for};

/// A directory with `volume`, the mount point `mount`, and `outside`, a place that no transaction covers.
#[derive(Debug)]
pub struct Fixture {
    directory: TempDir,
    owner: Option<Child>,
}

/// The `txfs` command under test.
#[track_caller]
pub fn txfs_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TXFS") {
        return PathBuf::from(path);
    }
    // target/PROFILE/deps/TEST -> target/PROFILE/txfs, else the release build beside it
    let mut candidates = Vec::new();
    if let Ok(executable) = std::env::current_exe()
        && let Some(profile) = executable.ancestors().nth(2)
    {
        candidates.push(profile.join("txfs"));
        candidates.push(profile.join("../release/txfs"));
    }
    match candidates.iter().find(|path| path.exists()) {
        Some(path) => path.clone(),
        None => panic!("no txfs command at {candidates:?}: run `cargo build --release -p txfs-cli` first"),
    }
}

/// A fresh directory of a test, on a real file system, that every user may enter.
#[track_caller]
pub fn work_directory(name: &str) -> TempDir {
    use std::os::unix::fs::PermissionsExt;
    let parent = std::env::var_os("TXFS_WORK").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let made = tempfile::Builder::new()
        .prefix(&format!("txfs-e2e-{name}."))
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in(&parent);
    match made {
        Ok(directory) => directory,
        Err(error) => panic!("{}: {error}", parent.display()),
    }
}

impl Fixture {
    /// Makes a volume, not mounted.
    #[track_caller]
    pub fn new(name: &str) -> Fixture {
        let directory = work_directory(name);
        let fixture = Fixture { directory, owner: None };
        for place in [fixture.point(), fixture.outside("")] {
            if let Err(error) = fs::create_dir(&place) {
                panic!("{}: {error}", place.display());
            }
        }
        answer_of(fixture.txfs().arg("mkfs").arg(fixture.volume())).expect_code(0);
        fixture
    }

    /// Makes a volume and mounts it.
    #[track_caller]
    pub fn mounted(name: &str) -> Fixture {
        let mut fixture = Fixture::new(name);
        fixture.mount(&[]);
        fixture
    }

    /// The directory of all this.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The volume's directory.
    pub fn volume(&self) -> PathBuf {
        self.directory().join("volume")
    }

    /// The mount point.
    pub fn point(&self) -> PathBuf {
        self.directory().join("mount")
    }

    /// A path below the mount point.
    pub fn path(&self, below: &str) -> PathBuf {
        self.point().join(below)
    }

    /// A path outside the volume, for signals between processes and for what they saw.
    pub fn outside(&self, below: &str) -> PathBuf {
        self.directory().join("outside").join(below)
    }

    /// The log of the mount.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory().join("mount.log")).unwrap_or_default()
    }

    /// The `txfs` command, for further arguments.
    pub fn txfs(&self) -> Command {
        let mut command = Command::new(txfs_binary());
        command.current_dir(self.directory());
        command
    }

    /// `txfs run` on the mount, for further arguments: options, `--`, the command.
    pub fn run(&self) -> Command {
        let mut command = self.txfs();
        command.arg("run").arg("--mount").arg(self.point());
        command
    }

    /// `txfs run` of a shell script, in the mount point's directory; `$OUTSIDE` leads out of the volume.
    pub fn run_script(&self, script: &str) -> Command {
        let mut command = self.run();
        command.args(["--", "sh", "-euc", script]).current_dir(self.point()).env("OUTSIDE", self.outside(""));
        command
    }

    /// A shell script in the mount point's directory, in no transaction.
    #[track_caller]
    pub fn script(&self, script: &str) -> Answer {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).current_dir(self.point()).env("OUTSIDE", self.outside(""));
        answer_of(&mut command)
    }

    /// Starts `txfs run` of a script that goes on when [`Fixture::let_go`] is called with the same name. It waits
    /// where the script says `pause`.
    #[track_caller]
    pub fn start_script(&self, name: &str, script: &str) -> Background {
        let pause = format!(
            "pause() {{ : >\"$OUTSIDE/{name}.waiting\"; while [ ! -e \"$OUTSIDE/{name}.go\" ]; do sleep 0.01; done; }}\n"
        );
        Background::start(&mut self.run_script(&format!("{pause}{script}")))
    }

    /// Waits until a script has come to its `pause`.
    #[track_caller]
    pub fn wait_paused(&self, name: &str) {
        let waiting = self.outside(&format!("{name}.waiting"));
        wait_for(&format!("script {name} to pause"), || waiting.exists());
    }

    /// Ends a script's pause.
    #[track_caller]
    pub fn let_go(&self, name: &str) {
        if let Err(error) = fs::write(self.outside(&format!("{name}.go")), "") {
            panic!("letting {name} go: {error}");
        }
    }

    /// Mounts, in the foreground of a process of its own, and waits until it can be used.
    #[track_caller]
    pub fn mount(&mut self, options: &[&str]) {
        assert!(self.owner.is_none(), "already mounted");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.directory().join("mount.log"));
        let log = match log {
            Ok(log) => log,
            Err(error) => panic!("mount.log: {error}"),
        };
        let mut command = self.txfs();
        command.args(["mount", "-f"]).args(options).arg(self.volume()).arg(self.point());
        match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn() {
            Ok(child) => self.owner = Some(child),
            Err(error) => panic!("{command:?}: {error}"),
        }
        wait_for("the mount", || self.is_mounted() || !self.owner_runs());
        assert!(self.owner_runs() && self.is_mounted(), "the mount process ended:\n{}", self.log());
        // the first answer comes when the volume has recovered
        if let Err(error) = fs::metadata(self.point()) {
            panic!("{}: {error}\n{}", self.point().display(), self.log());
        }
    }

    /// The process that owns the volume.
    #[track_caller]
    pub fn owner_pid(&self) -> i32 {
        self.owner.as_ref().map_or_else(|| panic!("not mounted"), |child| child.id() as i32)
    }

    /// True while the owner runs.
    pub fn owner_runs(&mut self) -> bool {
        matches!(self.owner.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Waits until the owner has ended, and returns its exit code.
    #[track_caller]
    pub fn wait_owner(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        wait_for("the end of the mount process", || !self.owner_runs());
        match self.owner.take().map(|mut child| child.wait()) {
            Some(Ok(status)) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            other => panic!("the mount process: {other:?}"),
        }
    }

    /// True when something is mounted at the mount point.
    pub fn is_mounted(&self) -> bool {
        mounts_below(self.directory()).contains(&self.point())
    }

    /// An orderly unmount; the owner must end with success.
    #[track_caller]
    pub fn unmount(&mut self) {
        answer_of(self.txfs().arg("umount").arg(self.point())).expect_code(0);
        let code = self.wait_owner();
        assert!(code == 0, "the mount process ended with {code}:\n{}", self.log());
    }

    /// `kill -9` of the mount process; what it leaves at the mount point is detached.
    #[track_caller]
    pub fn kill_mount(&mut self) {
        signal(self.owner_pid(), Signal::KILL);
        self.wait_owner();
        self.detach();
    }

    fn detach(&self) {
        for point in mounts_below(self.directory()) {
            let mut command =
                if crate::is_root() { Command::new("umount") } else { Command::new("fusermount3") };
            command.args(if crate::is_root() { &["-l"][..] } else { &["-u", "-z"][..] }).arg(point);
            let _ = command.stderr(Stdio::null()).status();
        }
    }

    /// `txfs check` of the volume, which must be unmounted and find nothing.
    #[track_caller]
    pub fn check(&self) {
        answer_of(self.txfs().arg("check").arg(self.volume())).expect_code(0);
    }

    /// Unmounts, checks, mounts again.
    #[track_caller]
    pub fn remount(&mut self) {
        self.unmount();
        self.check();
        self.mount(&[]);
    }

    /// The text of a file on the mount.
    #[track_caller]
    pub fn text(&self, below: &str) -> String {
        contents(self.path(below))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mut child) = self.owner.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.detach();
        if std::thread::panicking() && std::env::var_os("KEEP_ON_FAILURE").is_some() {
            let kept =
                std::mem::replace(&mut self.directory, tempfile::tempdir().expect("a directory")).keep();
            eprintln!("left in place: {}", kept.display());
        }
        // whoever still has a working directory there is about to notice
        sleep_ms(1);
    }
}

/// Mount points below a directory.
fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(PathBuf::from)
        .filter(|point| point.starts_with(directory))
        .collect()
}
