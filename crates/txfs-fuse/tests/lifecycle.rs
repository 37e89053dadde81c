//! Mounting, unmounting, signals, users: how a mount begins and ends.
//!
//! The tests that need a server of its own (to send it signals, or to run as somebody else) start this test binary
//! again with `TXFS_TEST_SERVER` set; then `serve_when_asked` is the server.

mod common;

use common::{Fixture, can_mount, eventually, names, read, write};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use txfs::Volume;
use txfs_fuse::{MountError, MountOptions, mount, unmount};
use txfs_protocol::{Client, mounts};

const SERVER: &str = "TXFS_TEST_SERVER";
const CLIENT: &str = "TXFS_TEST_CLIENT";

/// The server, in a process of its own. Without the variable it is an empty test.
#[test]
fn serve_when_asked() {
    let Some(directory) = std::env::var_os(SERVER) else { return };
    let directory = PathBuf::from(directory);
    let volume_path = directory.join("volume");
    let volume = Volume::open(&volume_path).unwrap();
    let mounted = mount(volume, &volume_path, &directory.join("mnt"), &MountOptions::default()).unwrap();
    mounted.terminate_on_signals().unwrap();
    mounted.wait().unwrap();
}

/// A mount served by another process; killed and unmounted when dropped.
struct Server {
    process: Child,
    directory: TempDir,
    root: PathBuf,
    volume_path: PathBuf,
}

impl Server {
    fn start(user: Option<u32>) -> Option<Server> {
        if !can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (volume_path, root) = (directory.path().join("volume"), directory.path().join("mnt"));
        std::fs::create_dir(&root).unwrap();
        Volume::create(&volume_path).unwrap();
        if let Some(user) = user {
            for entry in std::fs::read_dir(&volume_path).unwrap() {
                chown(entry.unwrap().path(), Some(user), Some(user)).unwrap();
            }
            for path in [directory.path(), &volume_path, &root] {
                chown(path, Some(user), Some(user)).unwrap();
            }
        }
        let mut server =
            Server { process: Server::spawn(directory.path(), user), root, volume_path, directory };
        server.wait_until_up();
        Some(server)
    }

    fn spawn(directory: &Path, user: Option<u32>) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve_when_asked", "--nocapture"]).env(SERVER, directory);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.spawn().unwrap()
    }

    fn wait_until_up(&mut self) {
        let (process, volume) = (&mut self.process, &self.volume_path);
        eventually("the server is up", || {
            assert!(process.try_wait().unwrap().is_none(), "the server has ended");
            Client::connect(volume).is_ok()
        });
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn restart(&mut self) {
        self.process = Server::spawn(self.directory.path(), None);
        self.wait_until_up();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        while unmount(&self.root, true).is_ok() {}
    }
}

/// The mode that /dev/fuse has on every distribution, for as long as this lives: bare machines for tests may lack it.
struct DeviceForAll {
    before: std::fs::Permissions,
}

impl DeviceForAll {
    fn make() -> DeviceForAll {
        let before = std::fs::metadata("/dev/fuse").unwrap().permissions();
        std::fs::set_permissions("/dev/fuse", PermissionsExt::from_mode(0o666)).unwrap();
        DeviceForAll { before }
    }
}

impl Drop for DeviceForAll {
    fn drop(&mut self) {
        let _ = std::fs::set_permissions("/dev/fuse", self.before.clone());
    }
}

/// Whether a user who is not root gets to this test binary; says so where not.
fn others_can_run_this() -> bool {
    let executable = std::env::current_exe().unwrap();
    let reachable = executable.ancestors().skip(1).all(|directory| {
        std::fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
    });
    if !reachable {
        eprintln!("skipped: another user can't run {}", executable.display());
    }
    reachable
}

fn is_mounted(root: &Path) -> bool {
    mounts::txfs_mounts().unwrap().iter().any(|mount| mount.mountpoint == root)
}

#[test]
fn the_mount_table_names_the_volume() {
    let Some(fixture) = Fixture::new() else { return };
    let open = fixture.begin();
    let mount = mounts::txfs_holding(&open.view).unwrap().unwrap();
    assert_eq!(mount.volume(), Some(fixture.volume_path.canonicalize().unwrap().as_path()));
    assert_eq!(mount.mountpoint, fixture.root);
    assert_eq!(mounts::of_volume(&mount.source).unwrap().len(), 1);
    assert_eq!(mounts::txfs_holding(fixture.directory()).unwrap(), None);
    let client = fixture.client();
    let welcome = client.welcome().unwrap();
    assert_eq!(welcome.owner_pid, std::process::id());
    assert_eq!(welcome.mountpoints.len(), 1);
    open.abort();
    fixture.finish();
}

#[test]
fn wrong_mount_points_are_named() {
    let Some(fixture) = Fixture::new() else { return };
    let other_path = fixture.directory().join("other");
    Volume::create(&other_path).unwrap();
    let try_at = |mountpoint: &Path| {
        let volume = Volume::open(&other_path).unwrap();
        mount(volume, &other_path, mountpoint, &MountOptions::default()).map(|_| ()).unwrap_err()
    };
    let busy = try_at(&fixture.root);
    assert!(matches!(busy, MountError::MountPointBusy { .. }));
    assert!(busy.to_string().contains("volume is mounted there"), "{busy}");
    assert!(matches!(try_at(&fixture.directory().join("none")), MountError::MountPointMissing { .. }));
    assert!(matches!(try_at(fixture.directory()), MountError::VolumeUnderMountPoint { .. }));
    let nothing = unmount(&fixture.directory().join("other"), false);
    assert!(matches!(nothing, Err(MountError::NotMounted { .. })), "{nothing:?}");
    fixture.finish();
}

#[test]
fn unmounting_waits_for_nobody_only_when_lazy() {
    let Some(mut fixture) = Fixture::new() else { return };
    let mounted = fixture.mounted.take().unwrap();
    let mut file = File::create(fixture.path("file")).unwrap();
    let busy = mounted.unmount(false);
    assert!(matches!(busy, Err(MountError::InUse { .. })), "{busy:?}");
    file.write_all(b"one ").unwrap();
    mounted.unmount(true).unwrap();
    assert_eq!(names(&fixture.root), Vec::<String>::new());
    file.write_all(b"two").unwrap();
    let waiting = std::thread::spawn(move || mounted.wait());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished(), "a file is still open");
    drop(file);
    waiting.join().unwrap().unwrap();
    let volume = Volume::open(&fixture.volume_path).unwrap();
    assert_eq!(txfs::Paths::read_file(&volume.base(), "file").unwrap(), b"one two");
}

#[test]
fn a_client_unmounts_and_waits_for_the_close() {
    let Some(mut server) = Server::start(None) else { return };
    write(&server.root.join("file"), "kept");
    let mut client = Client::connect(&server.volume_path).unwrap();
    let file = File::open(server.root.join("file")).unwrap();
    let busy = client.unmount(false).unwrap_err();
    assert_eq!(busy.errno(), 16, "{busy}");
    drop(file);
    common::patiently("unmounting", || client.unmount(false));
    client.wait_closed().unwrap();
    let volume = Volume::open(&server.volume_path).expect("the owner has closed it");
    assert_eq!(txfs::Paths::read_file(&volume.base(), "file").unwrap(), b"kept");
    assert!(server.wait().success());
    assert!(!server.volume_path.join("socket").exists());
}

#[test]
fn an_unmount_from_outside_ends_the_server() {
    for lazy in [false, true] {
        let Some(mut server) = Server::start(None) else { return };
        write(&server.root.join("file"), "kept");
        let mut umount = Command::new("umount");
        if lazy {
            umount.arg("-l");
        }
        umount.arg(&server.root);
        common::patiently("umount(8)", || match umount.status().unwrap().success() {
            true => Ok(()),
            false => Err("it failed"),
        });
        assert!(server.wait().success());
        server.restart();
        assert_eq!(read(&server.root.join("file")), "kept");
    }
}

#[test]
fn sigterm_keeps_everything_and_unmounts() {
    let Some(mut server) = Server::start(None) else { return };
    write(&server.root.join("file"), "kept");
    let mut client = Client::connect(&server.volume_path).unwrap();
    let begun = client.begin(Default::default(), "").unwrap();
    write(&server.root.join(begun.view.as_path()).join("other"), "never committed");
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    assert!(!is_mounted(&server.root));
    server.restart();
    assert_eq!(names(&server.root), ["file"]);
    assert_eq!(read(&server.root.join("file")), "kept");
}

#[test]
fn sigterm_does_not_wait_for_ever() {
    let Some(mut server) = Server::start(None) else { return };
    let mut file = File::create(server.root.join("file")).unwrap();
    file.write_all(b"kept").unwrap();
    server.signal(rustix::process::Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    assert!(!is_mounted(&server.root));
    assert!(file.write_all(b"x").is_err());
    drop(file);
    server.restart();
    assert_eq!(read(&server.root.join("file")), "kept");
}

#[test]
fn a_killed_server_loses_nothing_that_was_synced() {
    let Some(mut server) = Server::start(None) else { return };
    let mut file = File::create(server.root.join("file")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    let mut client = Client::connect(&server.volume_path).unwrap();
    let begun = client.begin(Default::default(), "").unwrap();
    write(&server.root.join(begun.view.as_path()).join("other"), "never committed");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert!(client.status().is_err());
    drop(file);
    let dead = mount(
        Volume::open(&server.volume_path).unwrap(),
        &server.volume_path,
        &server.root,
        &MountOptions::default(),
    )
    .map(|_| ());
    assert!(
        matches!(dead, Err(MountError::MountPointDead { .. } | MountError::MountPointBusy { .. })),
        "{dead:?}"
    );
    common::patiently("unmounting", || unmount(&server.root, false));
    server.restart();
    assert_eq!(names(&server.root), ["file"]);
    assert_eq!(read(&server.root.join("file")), "synced");
}

#[test]
fn a_user_who_is_not_root_mounts_with_fusermount3() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/fusermount3").exists() {
        eprintln!("skipped: needs root (to become somebody else) and fusermount3");
        return;
    }
    if !can_mount() {
        return;
    }
    if !others_can_run_this() {
        return;
    }
    let _accessible = DeviceForAll::make();
    let Some(mut server) = Server::start(Some(NOBODY)) else { return };
    let as_nobody = |script: &str| {
        let output = Command::new("sh")
            .arg("-c")
            .arg(script)
            .current_dir("/")
            .env("ROOT", &server.root)
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let mount =
        mounts::txfs_mounts().unwrap().into_iter().find(|mount| mount.mountpoint == server.root).unwrap();
    assert_eq!(mount.source, server.volume_path);
    // The kernel keeps root out of somebody else's mount; the socket lets root in.
    assert!(std::fs::read_dir(&server.root).is_err());
    let mut client = Client::connect(&server.volume_path).unwrap();
    assert!(client.list().unwrap().is_empty());
    Volume::create(server.directory.path().join("unused")).unwrap();
    assert_eq!(as_nobody("ls -A \"$ROOT\""), "");
    common::patiently("unmounting", || client.unmount(false));
    assert!(server.wait().success());
    assert!(!is_mounted(&server.root));
}

#[test]
fn an_aborted_connection_ends_the_server_and_leaves_no_dead_mount() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(mut server) = Server::start(None) else { return };
    write(&server.root.join("file"), "kept");
    let mount = mounts::txfs_holding(&server.root).unwrap().unwrap();
    let control = tempfile::tempdir().unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", control.path(), "fusectl", flags, None).unwrap();
    let aborted = std::fs::write(control.path().join(format!("{}/abort", mount.device.1)), "1");
    rustix::mount::unmount(control.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    aborted.unwrap();
    assert!(server.wait().success());
    assert!(!is_mounted(&server.root));
    server.restart();
    assert_eq!(read(&server.root.join("file")), "kept");
}

/// A client as another user, in a process of its own. Without the variable it is an empty test.
#[test]
fn be_a_client_when_asked() {
    let Some(directory) = std::env::var_os(CLIENT) else { return };
    let directory = PathBuf::from(directory);
    let mut client = Client::connect(&directory.join("volume")).unwrap();
    let begun = client.begin(Default::default(), "").unwrap();
    let view = directory.join("mnt").join(begun.view.as_path());
    write(&view.join("public/theirs"), "written by somebody else");
    assert!(File::create(view.join("private")).is_err(), "modes count in views too");
    assert!(client.unmount(true).is_err());
    let outcome = client.commit(txfs_protocol::Durability::Durable).unwrap();
    assert!(matches!(outcome, txfs_protocol::CommitOutcome::Committed { .. }));
}

#[test]
fn other_users_have_transactions_when_the_mount_allows_it() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() || !others_can_run_this() {
        return;
    }
    let options = MountOptions { allow_other: true, ..MountOptions::default() };
    let Some(fixture) = Fixture::with(&options) else { return };
    let world = std::fs::Permissions::from_mode(0o755);
    for path in [fixture.directory(), &fixture.volume_path, &fixture.root] {
        std::fs::set_permissions(path, world.clone()).unwrap();
    }
    std::fs::create_dir(fixture.path("public")).unwrap();
    std::fs::set_permissions(fixture.path("public"), PermissionsExt::from_mode(0o777)).unwrap();
    let client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "be_a_client_when_asked", "--nocapture"])
        .env(CLIENT, fixture.directory())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    assert_eq!(read(&fixture.path("public/theirs")), "written by somebody else");
    assert_eq!(std::fs::metadata(fixture.path("public/theirs")).unwrap().uid(), NOBODY);
    fixture.finish();
}

#[test]
fn strangers_are_refused_by_the_socket() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(fixture) = Fixture::new() else { return };
    let mode = std::fs::metadata(fixture.volume_path.join("socket")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fixture.finish();
    let open = MountOptions { allow_other: true, ..MountOptions::default() };
    let Some(fixture) = Fixture::with(&open) else { return };
    let mode = std::fs::metadata(fixture.volume_path.join("socket")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    fixture.finish();
}

#[test]
fn a_dropped_mount_is_unmounted() {
    let Some(mut fixture) = Fixture::new() else { return };
    write(&fixture.path("file"), "kept");
    drop(fixture.mounted.take());
    assert!(!is_mounted(&fixture.root));
    let volume = Volume::open(&fixture.volume_path).unwrap();
    assert_eq!(txfs::Paths::read_file(&volume.base(), "file").unwrap(), b"kept");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let Some(fixture) = Fixture::with(&options) else { return };
    assert_eq!(File::create(fixture.path("file")).unwrap_err().raw_os_error(), Some(30));
    fixture.finish();
}
