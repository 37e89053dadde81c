//! A volume that is mounted, for programs that know nothing of it: the `txfs` command that lies beside the benchmark makes
//! and mounts it, with the same preloaded library, so its flushes are counted and prolonged where they are made.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use txfs_protocol::{Client, CommitOutcome, Durability, Isolation};

use crate::Result;
use crate::contestants::{Kind, Place};
use crate::flush_delay::FlushDelay;

/// A mounted volume; unmounted and removed at the end.
#[derive(Debug)]
pub struct MountedVolume {
    /// The mount, for plain files.
    pub place: Place,
    volume: PathBuf,
    command: PathBuf,
    _directory: TempDir,
}

/// What a command prints; an error with its complaint when it fails.
fn succeed(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {}", output.status, complaint.trim()).into())
}

impl MountedVolume {
    /// Whether it can be done here: the command is there, and FUSE.
    pub fn possible() -> bool {
        command().is_some() && Path::new("/dev/fuse").exists()
    }

    /// Makes a volume with so much space that is written already, and mounts it.
    pub fn start(host: &Place, prepared_bytes: u64, flush_delay: &FlushDelay) -> Result<MountedVolume> {
        let command = command().ok_or("there is no txfs command beside the benchmark")?;
        let directory = host.scratch()?;
        let (volume, point) = (directory.path().join("volume"), directory.path().join("mount"));
        fs::create_dir(&point)?;
        let prepared = prepared_bytes.to_string();
        succeed(Command::new(&command).args(["mkfs", "--preallocate", &prepared]).arg(&volume))?;
        succeed(Command::new(&command).arg("mount").arg(&volume).arg(&point))?;
        let place = Place { host: Some(Box::new(host.clone())), ..Place::new(Kind::Mount, &point)? };
        let place = Place { device: host.device.clone(), ..place };
        let mounted = MountedVolume { place, volume, command, _directory: directory };
        mounted.check(flush_delay)?;
        Ok(mounted)
    }

    /// What a program prints that runs in a transaction on the mount, `txfs run`.
    pub fn run_in_transaction(&self, program: &Path, arguments: &[String]) -> Result<String> {
        succeed(&mut self.run_command(program, arguments))
    }

    /// As [`MountedVolume::run_in_transaction`], and does not wait for it.
    pub fn run_beside(&self, program: &Path, arguments: &[String]) -> Result<Running> {
        let mut command = self.run_command(program, arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(Running { child: command.spawn().map_err(|error| format!("{command:?}: {error}"))? })
    }

    fn run_command(&self, program: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.command);
        command.arg("run").arg("--mount").arg(&self.place.directory).arg("--").arg(program).args(arguments);
        command.current_dir(&self.place.directory);
        command
    }

    /// What a command of txfs prints about the volume.
    pub fn command(&self, arguments: &[&str]) -> Result<String> {
        succeed(Command::new(&self.command).args(arguments).arg(&self.volume))
    }

    /// How many messages of each kind the kernel has sent to the mount so far.
    pub fn messages(&self) -> Result<BTreeMap<String, u64>> {
        let statistics: serde_json::Value = serde_json::from_str(&self.command(&["stat", "--json"])?)?;
        let counts =
            statistics.pointer("/mount/messages").ok_or("txfs stat tells no messages of the mount")?;
        Ok(serde_json::from_value(counts.clone())?)
    }

    /// The volume's directory.
    pub fn volume(&self) -> &Path {
        &self.volume
    }

    /// A connection for transactions, of one thread.
    pub fn connect(&self) -> Result<Transactions> {
        Ok(Transactions { point: self.place.directory.clone(), client: Client::connect(&self.volume)? })
    }

    /// Fails when the mount's flushes go past the preloaded library.
    fn check(&self, flush_delay: &FlushDelay) -> Result<()> {
        let Some(before) = flush_delay.flushes()? else { return Ok(()) };
        let path = self.place.directory.join("flush");
        fs::write(&path, b"flush")?;
        File::open(&path)?.sync_all()?;
        fs::remove_file(&path)?;
        if flush_delay.flushes()? == Some(before) {
            return Err(
                "the mount's flushes are not seen: build txfs together with the benchmark (make bench-build)"
                    .into(),
            );
        }
        Ok(())
    }
}

/// A program in a transaction.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Waits for its end; an error unless its transaction was committed.
    pub fn finish(self) -> Result<()> {
        let output = self.child.wait_with_output()?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let complaint = String::from_utf8_lossy(&output.stderr);
                Err(format!("txfs run: {}: {}", output.status, complaint.trim()).into())
            }
        }
    }
}

/// Transactions around ordinary calls on a mount, one after the other.
#[derive(Debug)]
pub struct Transactions {
    point: PathBuf,
    client: Client,
}

impl Transactions {
    /// Begins a transaction, has `work` do something in its view of the whole mount, and commits it durably.
    pub fn durable(&mut self, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let begun = self.client.begin(Isolation::Serializable, "")?;
        work(&self.point.join(begun.view.as_path()))?;
        match self.client.commit(Durability::Durable)? {
            CommitOutcome::Committed { .. } => Ok(()),
            CommitOutcome::Conflicted(conflict) => Err(format!("a conflict: {conflict:?}").into()),
        }
    }
}

/// The txfs command beside this program.
fn command() -> Option<PathBuf> {
    let command = std::env::current_exe().ok()?.with_file_name("txfs");
    command.exists().then_some(command)
}

impl Drop for MountedVolume {
    fn drop(&mut self) {
        if let Err(error) = succeed(Command::new(&self.command).arg("umount").arg(&self.place.directory)) {
            eprintln!("txfs-bench: {error}");
        }
    }
}
