//! `txfs snapshot`, on volumes that are mounted and on others.

mod common;

use common::{Done, Sandbox, User, is_root, users};

/// What was printed.
fn json(done: Done) -> serde_json::Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error} in {:?}", done.stdout))
}

fn names(list: &serde_json::Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn snapshots_of_a_volume_that_is_not_mounted() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("mkdir d; echo old > d/file").expect(0);
        sandbox.umount();
        let snapshot = |arguments: &[&str]| {
            sandbox.txfs(["snapshot"]).args(arguments.iter().copied()).arg(sandbox.volume()).done()
        };
        let made = json(snapshot(&["create", "monday", "--json"]).expect(0));
        assert_eq!(made["name"], "monday");
        assert!(made["sequence"].as_u64().unwrap() > 0);
        snapshot(&["create", "monday"]).expect(1).says("there is a snapshot \"monday\" already");
        snapshot(&["create", "a/b"]).expect(1).says("no slashes");
        sandbox.mount();
        sandbox.sh("echo new > d/file; echo more > d/more").expect(0);
        sandbox.umount();
        let list = json(snapshot(&["list", "--json"]).expect(0));
        assert_eq!(names(&list), ["monday"]);
        assert_eq!(list[0]["pinned_bytes"], 4, "{list}");
        snapshot(&["list"]).expect(0).says("");
        let restore = |arguments: &[&str]| {
            let volume = sandbox.volume();
            sandbox
                .txfs(["snapshot", "restore", "--volume"])
                .arg(volume)
                .args(arguments.iter().copied())
                .done()
        };
        restore(&["tuesday", "d"]).expect(66).says("there is no snapshot \"tuesday\"");
        restore(&["monday", "nothing"]).expect(66);
        let restored = json(restore(&["monday", "d", "--json"]).expect(0));
        assert_eq!((&restored["removed"], &restored["data_bytes"]), (&1.into(), &4.into()), "{restored}");
        sandbox.mount();
        assert_eq!(sandbox.read("cat d/file; ls d"), "old\nfile\n");
        assert!(
            sandbox
                .txfs(["log"])
                .arg(sandbox.volume())
                .done()
                .expect(0)
                .stdout
                .contains("restore d from snapshot monday")
        );
        sandbox.umount();
        sandbox.check();
        snapshot(&["delete", "monday"]).expect(0);
        snapshot(&["delete", "monday"]).expect(66);
        assert_eq!(names(&json(snapshot(&["list", "--json"]).expect(0))), [] as [&str; 0]);
        sandbox.check();
    }
}

#[test]
fn snapshots_of_a_mounted_volume_are_there_as_directories() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("mkdir d; echo old > d/file; ln -s file d/link").expect(0);
        let inside = |arguments: &[&str]| {
            sandbox.txfs(["snapshot"]).args(arguments.iter().copied()).directory(&sandbox.mountpoint()).done()
        };
        inside(&["create", "one"]).expect(0).says("");
        sandbox.sh("echo new > d/file; rm d/link; mkdir e").expect(0);
        assert_eq!(sandbox.read("cat .txfs/snapshots/one/d/link; ls .txfs/snapshots/one"), "old\nd\n");
        assert_eq!(sandbox.read("cat d/file"), "new\n");
        for change in ["echo x > d/file", "rm d/file", "mkdir new", "chmod 700 d", "mv d dd"] {
            let script = format!("cd .txfs/snapshots/one && {change}");
            let done = sandbox.sh(&script);
            assert_ne!(done.code, Some(0), "{change}");
            assert!(done.stderr.contains("Read-only"), "{change}: {}", done.stderr);
        }
        sandbox.sh("ls .txfs/snapshots/two").expect(2);
        // In use, and then only remembered by the kernel.
        let held = sandbox
            .command("sh")
            .args(["-c", "cd .txfs/snapshots/one/d && touch \"$OLDPWD/ready\" && exec sleep 600"])
            .directory(&sandbox.mountpoint())
            .start();
        common::wait_until("it is there", || sandbox.sh("test -e ready").code == Some(0));
        inside(&["delete", "one"]).expect(78).says("somebody has the snapshot");
        drop(held);
        inside(&["restore", "one", "d/file", "d/link"]).expect(0).says("");
        assert_eq!(sandbox.read("cat d/file d/link; ls d"), "old\nold\nfile\nlink\n");
        inside(&["delete", "one"]).expect(0);
        sandbox.sh("ls .txfs/snapshots/one").expect(2);
        assert_eq!(names(&json(inside(&["list", "--json"]).expect(0))), [] as [&str; 0]);
        sandbox.umount();
        sandbox.check();
    }
}

#[test]
fn a_snapshot_is_mounted() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo old > file").expect(0);
        sandbox.txfs(["snapshot", "create", "one"]).arg(sandbox.volume()).done().expect(0);
        sandbox.sh("echo new > file").expect(0);
        let other = sandbox.make_directory("home/other");
        let mount = |name: &str| {
            let volume = sandbox.volume();
            sandbox.txfs(["snapshot", "mount"]).arg(volume).arg(name).arg(&other).done()
        };
        if matches!(user, User::Same) && is_root() {
            mount("one").expect(0);
            assert_eq!(sandbox.read("cat ../other/file file"), "old\nnew\n");
            let done = sandbox.sh("echo x > ../other/file");
            assert!(done.stderr.contains("Read-only"), "{}", done.stderr);
            let delete = || sandbox.txfs(["snapshot", "delete", "one"]).arg(sandbox.volume()).done();
            delete().expect(78).says("somebody has the snapshot");
            sandbox.command("umount").arg(&other).done().expect(0);
        }
        sandbox.umount();
        mount("two").expect(66).says("there is no snapshot");
        mount("one").expect(0);
        assert_eq!(sandbox.read("cat ../other/file"), "old\n");
        let done = sandbox.sh("echo x > ../other/file");
        assert!(done.stderr.contains("Read-only"), "{}", done.stderr);
        sandbox.txfs(["umount"]).arg(&other).done().expect(0);
        sandbox.check();
    }
}
