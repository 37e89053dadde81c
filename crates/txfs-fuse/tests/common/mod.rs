//! What the tests on real mounts share: a volume in a temporary directory, mounted in this process, and unmounted
//! whatever happens.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod calls;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use txfs::Volume;
use txfs_fuse::{MountOptions, MountedVolume, mount};
use txfs_protocol::{Client, CommitOutcome, Durability, Isolation};

/// A mounted volume; dropped, it is unmounted, lazily where a failed test has left files open.
pub struct Fixture {
    pub mounted: Option<MountedVolume>,
    pub root: PathBuf,
    pub volume_path: PathBuf,
    pub volume: Volume,
    directory: TempDir,
}

/// Whether mounting is possible at all; says so where it is not.
pub fn can_mount() -> bool {
    let there = Path::new("/dev/fuse").exists();
    if !there {
        eprintln!("skipped: /dev/fuse is missing here");
    }
    there
}

impl Fixture {
    pub fn new() -> Option<Fixture> {
        Fixture::with(&MountOptions::default())
    }

    pub fn with(options: &MountOptions) -> Option<Fixture> {
        if !can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let volume_path = directory.path().join("volume");
        let root = directory.path().join("mnt");
        std::fs::create_dir(&root).unwrap();
        Volume::create(&volume_path).unwrap();
        let volume = Volume::open(&volume_path).unwrap();
        let mounted = mount(volume.clone(), &volume_path, &root, options).unwrap();
        Some(Fixture { mounted: Some(mounted), root, volume_path, volume, directory })
    }

    /// A mount that all users may use and get to; `None` also where this process is not root.
    pub fn for_all() -> Option<Fixture> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let fixture = Fixture::with(&MountOptions { allow_other: true, ..MountOptions::default() })?;
        for path in [fixture.directory(), &fixture.volume_path, &fixture.root] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        std::fs::set_permissions(fixture.path(""), PermissionsExt::from_mode(0o777)).unwrap();
        Some(fixture)
    }

    /// The temporary directory that holds volume and mount point.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.volume_path).unwrap()
    }

    pub fn begin(&self) -> Open {
        self.begin_as(Isolation::Serializable)
    }

    pub fn begin_as(&self, isolation: Isolation) -> Open {
        let mut client = self.client();
        let begun = client.begin(isolation, "test").unwrap();
        Open { view: self.root.join(begun.view.as_path()), number: begun.transaction, client }
    }

    /// Unmounts properly and closes the volume.
    pub fn finish(mut self) {
        let mounted = self.mounted.take().unwrap();
        patiently("unmounting", || mounted.unmount(false));
        mounted.wait().unwrap();
    }

    /// How many messages of the named kinds the mount has got; all kinds when none is named.
    pub fn messages(&self, kinds: &[&str]) -> u64 {
        let stat = self.client().stat().unwrap();
        if kinds.is_empty() {
            return stat["mount"]["messages_total"].as_u64().unwrap();
        }
        kinds.iter().map(|kind| stat["mount"]["messages"][kind].as_u64().unwrap_or(0)).sum()
    }
}

/// An open transaction and the directory of its view.
pub struct Open {
    pub client: Client,
    pub view: PathBuf,
    pub number: u64,
}

impl Open {
    pub fn path(&self, name: &str) -> PathBuf {
        self.view.join(name)
    }

    pub fn try_commit(mut self) -> CommitOutcome {
        self.client.commit(Durability::Ordered).unwrap()
    }

    pub fn commit(self) {
        let outcome = self.try_commit();
        assert!(matches!(outcome, CommitOutcome::Committed { .. }), "{outcome:?}");
    }

    pub fn abort(mut self) {
        self.client.abort().unwrap();
    }
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn read(path: &Path) -> String {
    String::from_utf8(std::fs::read(path).unwrap()).unwrap()
}

pub fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}

/// Tries until it works: whoever looks at all mounts, and a child of another test between fork and exec, which still has the
/// files that this one had open, keeps a mount busy for a moment.
pub fn patiently<E: std::fmt::Display>(what: &str, mut attempt: impl FnMut() -> Result<(), E>) {
    let started = std::time::Instant::now();
    while let Err(error) = attempt() {
        assert!(started.elapsed().as_secs() < 20, "{what}: {error}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Waits for something that another thread or process will do.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !done() {
        assert!(started.elapsed().as_secs() < 20, "timed out: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
