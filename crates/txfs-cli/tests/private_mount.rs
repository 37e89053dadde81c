//! `txfs run --volume VOLUME --at DIR`: a mount of one's own, for as long as the command runs.

mod common;

use std::fs;

use common::{Sandbox, is_running, kill, users, wait_until};

fn run(sandbox: &Sandbox, options: &[&str], script: &str) -> common::Running {
    let (volume, at) = (sandbox.volume(), sandbox.mountpoint());
    sandbox
        .txfs(["run", "--volume"])
        .arg(volume)
        .arg("--at")
        .arg(at)
        .args(options)
        .args(["--", "sh", "-c", script])
}

fn unmounted(user: common::User) -> Sandbox {
    let sandbox = Sandbox::new(user);
    sandbox.mkfs();
    sandbox.make_directory("home/mount");
    sandbox
}

#[test]
fn commits_and_aborts_without_a_mount_beforehand() {
    for user in users() {
        let sandbox = unmounted(user);
        let done = run(&sandbox, &["--json"], "echo one > mount/file; cat mount/file").done().expect(0);
        assert_eq!(done.stdout, "one\n");
        assert_eq!(done.json()["outcome"], "committed");
        run(&sandbox, &[], "cat mount/file; echo two > mount/file; exit 6").done().expect(6);
        assert_eq!(run(&sandbox, &[], "cat mount/file").done().expect(0).stdout, "one\n");
        assert_eq!(fs::read_dir(sandbox.mountpoint()).unwrap().count(), 0);
        sandbox.check();
        let stat = sandbox.txfs(["stat", "--json"]).arg(sandbox.volume()).done().expect(0);
        let stat: serde_json::Value = serde_json::from_str(&stat.stdout).unwrap();
        assert_eq!(stat["recovery"]["clean"], true, "it was closed cleanly");
    }
}

#[test]
fn nobody_outside_sees_the_mount() {
    for user in users() {
        let sandbox = unmounted(user);
        let script = "echo x > mount/file; touch ready; while ! [ -e go ]; do sleep 0.01; done";
        let running = run(&sandbox, &[], script).start();
        wait_until("the command has written", || sandbox.path("home/ready").exists());
        assert_eq!(fs::read_dir(sandbox.mountpoint()).unwrap().count(), 0);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(sandbox.mountpoint().to_str().unwrap()));
        // The volume is taken, and whoever wants it is told by whom.
        let owner = running.pid().to_string();
        sandbox.txfs(["ls"]).arg(sandbox.volume()).done().expect(78).says(&owner);
        sandbox.txfs(["check"]).arg(sandbox.volume()).done().expect(78).says(&owner);
        run(&sandbox, &[], "true").done().expect(125).says(&owner);
        fs::write(sandbox.path("home/go"), "").unwrap();
        running.wait().expect(0);
        sandbox.check();
    }
}

#[test]
fn a_current_directory_below_the_mount_point() {
    for user in users() {
        let sandbox = unmounted(user);
        run(&sandbox, &[], "mkdir mount/below; echo x > mount/below/file").done().expect(0);
        let done = run(&sandbox, &[], "pwd; ls").directory(&sandbox.mountpoint()).done().expect(0);
        assert_eq!(done.stdout, format!("{}\nbelow\n", sandbox.mountpoint().display()));
    }
}

#[test]
fn killing_it_ends_everything() {
    for user in users() {
        let sandbox = unmounted(user);
        run(&sandbox, &[], "echo old > mount/file").done().expect(0);
        let running = run(&sandbox, &[], "echo new > mount/file; echo $$ > pid; exec sleep 600").start();
        let pid = || fs::read_to_string(sandbox.path("home/pid")).ok()?.trim().parse::<i32>().ok();
        wait_until("the command has written", || pid().is_some());
        kill("KILL", running.pid());
        wait_until("the command is gone", || !is_running(pid().unwrap()));
        assert_eq!(run(&sandbox, &[], "cat mount/file").done().expect(0).stdout, "old\n");
        sandbox.check();
    }
}

#[test]
fn dry_run_and_wrong_places() {
    for user in users() {
        let sandbox = unmounted(user);
        let done = run(&sandbox, &["--dry-run"], "echo x > mount/file").done().expect(0);
        assert!(done.stdout.contains("created  file (2 B)"), "{}", done.stdout);
        assert_eq!(run(&sandbox, &[], "ls mount").done().expect(0).stdout, "");
        let home = sandbox.path("home");
        let home = home.to_str().unwrap();
        let volume = sandbox.volume();
        let volume = volume.to_str().unwrap();
        let wrong = |volume: &str, at: &str| {
            sandbox.txfs(["run", "--volume", volume, "--at", at, "--", "true"]).done().expect(125)
        };
        wrong(volume, "/no/such/directory").says("/no/such/directory");
        wrong("/no/such/volume", home).says("/no/such/volume");
        wrong(home, home).says("not a TxFS volume");
        sandbox.txfs(["run", "--volume", volume, "--", "true"]).done().expect(125);
        // Nothing of all that has hurt the volume.
        sandbox.check();
    }
}
