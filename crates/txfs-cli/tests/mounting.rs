//! `mount`, `umount`, `mount.txfs`, `stat` and `tx list`.

mod common;

use std::fs;

use common::{Sandbox, User, is_running, kill, users, wait_until};

#[test]
fn mount_returns_when_it_can_be_used_and_umount_when_all_is_closed() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo hello > file").expect(0);
        let owner = sandbox.owner();
        sandbox.umount();
        assert!(!is_running(owner), "the owner is still there");
        assert_eq!(fs::read_dir(sandbox.mountpoint()).unwrap().count(), 0);
        let stat = sandbox.txfs(["stat", "--json"]).arg(sandbox.volume()).done().expect(0);
        let stat: serde_json::Value = serde_json::from_str(&stat.stdout).unwrap();
        assert_eq!(stat["recovery"]["clean"], true);
        // The volume names its mount as well.
        sandbox.mount();
        assert_eq!(sandbox.read("cat file"), "hello\n");
        sandbox.txfs(["umount"]).arg(sandbox.volume()).done().expect(0);
        sandbox.txfs(["umount"]).arg(sandbox.mountpoint()).done().expect(66).says("no TxFS is mounted here");
    }
}

#[test]
fn a_mount_in_the_background_lets_go_of_its_caller() {
    for user in users() {
        let sandbox = Sandbox::new(user);
        sandbox.mkfs();
        sandbox.make_directory("home/mount");
        // Were its standard output or error still open, this would wait for it for ever.
        let script = format!(
            "out=$({0} mount volume mount 2>&1); echo \"[$out]\"; setsid -w true",
            sandbox.binary().display()
        );
        assert_eq!(sandbox.command("sh").args(["-c", &script]).done().expect(0).stdout, "[]\n");
        assert!(sandbox.volume().join("mount.log").exists());
        let owner = sandbox.owner();
        assert_eq!(fs::read_link(format!("/proc/{owner}/cwd")).unwrap().to_str(), Some("/"));
        sandbox.umount();
    }
}

#[test]
fn in_the_foreground_until_a_signal_ends_it() {
    for user in users() {
        let sandbox = Sandbox::new(user);
        sandbox.mkfs();
        sandbox.make_directory("home/mount");
        let running = sandbox.txfs(["mount", "-f"]).arg(sandbox.volume()).arg(sandbox.mountpoint()).start();
        wait_until("it is mounted", || sandbox.sh("mountpoint -q .").code == Some(0));
        sandbox.sh("echo hello > file").expect(0);
        kill("TERM", running.pid());
        running.wait().expect(0);
        sandbox.check();
        sandbox.mount();
        assert_eq!(sandbox.read("cat file"), "hello\n");
    }
}

#[test]
fn a_mount_in_use_says_by_whom() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = "touch ../ready; exec sleep 600";
        let running = sandbox.command("sh").args(["-c", script]).directory(&sandbox.mountpoint()).start();
        // Before that the unmounting would rightly succeed.
        wait_until("it is there", || sandbox.path("home/ready").exists());
        wait_until("it sleeps", || {
            sandbox.txfs(["umount"]).arg(sandbox.mountpoint()).done().expect(78).stderr.contains("sleep (pid")
        });
        sandbox.txfs(["umount", "--lazy"]).arg(sandbox.mountpoint()).done().expect(0);
        assert_eq!(fs::read_dir(sandbox.mountpoint()).unwrap().count(), 0);
        drop(running);
    }
}

#[test]
fn open_transactions_are_listed_and_keep_the_mount() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = "echo 0123456789 > file; touch ../ready; while ! [ -e ../go ]; do sleep 0.01; done";
        let running = sandbox.run(["-m", "nightly import"], script).start();
        wait_until("it has written", || sandbox.path("home/ready").exists());
        let listed = sandbox.txfs(["tx", "list", "--json"]).directory(&sandbox.mountpoint()).done().expect(0);
        let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 1);
        assert_eq!(listed[0]["command"], "nightly import");
        assert_eq!(listed[0]["pid"], running.pid());
        let table = sandbox.txfs(["tx", "list"]).arg(sandbox.volume()).done().expect(0).stdout;
        assert!(table.contains("nightly import"), "{table}");
        let refused = sandbox.txfs(["umount"]).arg(sandbox.mountpoint()).done().expect(78);
        refused.says("transactions are open").says("nightly import");
        fs::write(sandbox.path("home/go"), "").unwrap();
        running.wait().expect(0);
        assert_eq!(
            sandbox.txfs(["tx", "list"]).arg(sandbox.volume()).done().expect(0).stdout,
            "no open transactions\n"
        );
        sandbox.umount();
        // Without a mount there may still be kept ones.
        let list = sandbox.txfs(["tx", "list"]).arg(sandbox.volume()).done().expect(0);
        assert_eq!(list.stdout, "no open transactions\n");
        sandbox.txfs(["tx", "list"]).arg(sandbox.path("home")).done().expect(66);
    }
}

#[test]
fn stat_says_how_things_are_done() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.run([], "echo hello > file").done().expect(0);
        for target in [sandbox.volume(), sandbox.mountpoint()] {
            let stat = sandbox.txfs(["stat", "--json"]).arg(&target).done().expect(0).stdout;
            let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
            assert!(stat["io"]["direct"].is_boolean() && stat["io"]["data_sync_writes"].is_boolean());
            assert!(stat["io"]["sector_bytes"].as_u64().is_some_and(|bytes| bytes >= 512));
            assert!(stat["commits"]["commits"].as_u64().is_some_and(|commits| commits >= 1));
            assert_eq!(stat["mount"]["mountpoint"], sandbox.mountpoint().to_str().unwrap());
        }
        let text = sandbox.txfs(["stat"]).arg(sandbox.mountpoint()).done().expect(0).stdout;
        assert!(text.contains("direct:") && text.contains("sector:"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}

#[test]
fn mount_txfs_takes_what_mount_8_gives() {
    let sandbox = Sandbox::new(User::Same);
    sandbox.mkfs();
    sandbox.make_directory("home/mount");
    let helper = sandbox.path("mount.txfs");
    std::os::unix::fs::symlink(sandbox.binary(), &helper).unwrap();
    let mount = |options: &[&str]| {
        sandbox.command(&helper).arg(sandbox.volume()).arg(sandbox.mountpoint()).args(options).done()
    };
    mount(&["-f", "-o", "rw"]).expect(0);
    sandbox.sh("mountpoint -q .").expect(32);
    mount(&["-o", "no-such-option"]).expect(32).says("no-such-option");
    mount(&["-z"]).expect(1).says("usage: mount.txfs");
    mount(&["-o", "rw,noauto,user,_netdev,x-systemd.automount,nofail,defaults,nosuid"]).expect(0);
    sandbox.sh("mountpoint -q . && echo hello > file").expect(0);
    mount(&["-o", "rw"]).expect(32).says("is mounted at");
    sandbox.umount();
    mount(&["-sv", "-o", "ro,no-such-option"]).expect(0);
    sandbox.sh("cat file && ! touch other").expect(0);
    sandbox.umount();
    let missing = sandbox.command(&helper).arg("/no/such").arg(sandbox.mountpoint()).done();
    missing.expect(32).says("/no/such");
}

#[test]
fn options_of_mount() {
    let sandbox = Sandbox::new(User::Same);
    sandbox.mkfs();
    sandbox.make_directory("home/mount");
    let mount = |options: &[&str]| {
        sandbox.txfs(["mount"]).args(options).arg(sandbox.volume()).arg(sandbox.mountpoint()).done()
    };
    mount(&["-o", "no-such-option"]).expect(2).says("no-such-option");
    mount(&["-o", "threads=0"]).expect(2).says("threads=0");
    mount(&["--threads", "0"]).expect(2);
    mount(&["--threads", "3", "-o", "noexec"]).expect(0);
    sandbox.sh("echo 'echo hello' > script; chmod +x script; ! ./script").expect(0);
    let stat = sandbox.txfs(["stat", "--json"]).arg(sandbox.mountpoint()).done().expect(0).stdout;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&stat).unwrap()["mount"]["threads"], 3);
    sandbox.umount();
    if common::is_root() {
        mount(&["--allow-other"]).expect(0);
        let other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
        let read = format!("{} cat {}/script", other.join(" "), sandbox.mountpoint().display());
        assert_eq!(sandbox.sh(&read).expect(0).stdout, "echo hello\n");
        sandbox.umount();
    }
}

#[test]
fn a_mount_that_fails_in_the_background_says_why_once() {
    for user in users() {
        let sandbox = Sandbox::new(user);
        sandbox.make_directory("home/mount");
        let mount =
            |volume: &std::path::Path| sandbox.txfs(["mount"]).arg(volume).arg(sandbox.mountpoint()).done();
        let failed = mount(&sandbox.path("home")).expect(66).says("not a TxFS volume");
        assert_eq!(failed.stderr.matches("error:").count(), 1, "{}", failed.stderr);
        mount(&sandbox.path("home/none")).expect(66).says("home/none");
        // No log is left where there is no volume.
        assert!(!sandbox.path("home/mount.log").exists());
    }
}

#[test]
fn others_run_transactions_on_a_mount_that_they_may_use() {
    if !common::is_root() {
        return;
    }
    let sandbox = Sandbox::new(User::Same);
    sandbox.mkfs();
    sandbox.make_directory("home/mount");
    sandbox.txfs(["mount", "--allow-other"]).arg(sandbox.volume()).arg(sandbox.mountpoint()).done().expect(0);
    sandbox.sh("mkdir theirs ours; chmod 777 theirs").expect(0);
    let script = format!(
        "cd theirs && setpriv --reuid 65534 --regid 65534 --clear-groups {} run -- sh -c",
        sandbox.binary().display()
    );
    sandbox.sh(&format!("{script} 'echo x > file'")).expect(0);
    sandbox
        .sh(&format!("{script} 'echo y > file; echo y > ../ours/file'"))
        .expect(2)
        .says("Permission denied");
    assert_eq!(sandbox.read("cat theirs/file; stat -c %u theirs/file; ls ours"), "x\n65534\n");
    // The raw volume stays closed to them.
    let raw =
        format!("setpriv --reuid 65534 --clear-groups sh -c 'ls {0}; cat {0}/*'", sandbox.volume().display());
    let refused = sandbox.sh(&raw);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    sandbox.umount();
}

#[test]
fn file_systems_mounted_below_stay_visible_in_a_transaction() {
    if !common::is_root() {
        return;
    }
    let sandbox = Sandbox::mounted(User::Same);
    sandbox.sh("mkdir below shown && mount -t tmpfs none below && echo kept > below/file").expect(0);
    let elsewhere = sandbox.make_directory("home/elsewhere");
    sandbox.sh(&format!("mkdir shown/sub && mount --bind shown {}", elsewhere.display())).expect(0);
    // The tmpfs is no part of the transaction; the bind mount of the same volume is.
    let script = format!(
        "cat below/file; echo x > below/other; echo y > {}/sub/new; cat shown/sub/new; exit 1",
        elsewhere.display()
    );
    assert_eq!(sandbox.run([], &script).done().expect(1).stdout, "kept\ny\n");
    assert_eq!(sandbox.read("ls below shown/sub"), "below:\nfile\nother\n\nshown/sub:\n");
    sandbox.run([], "echo z > sub/new").directory(&elsewhere).done().expect(0);
    assert_eq!(sandbox.read("cat shown/sub/new"), "z\n");
    sandbox.sh("umount below").expect(0);
    sandbox.sh(&format!("umount {}", elsewhere.display())).expect(0);
    sandbox.umount();
}
