//! How a mount ends: unmount, signals, lazily; and what it takes along.

use rustix::process::Signal;
use txfs_e2e::{Fixture, answer_of, is_root, signal, wait_for};

#[test]
fn signals_write_everything_out_and_unmount() {
    for end in [Signal::TERM, Signal::INT] {
        let mut fixture = Fixture::mounted("signal");
        // neither fsync nor durable commit: the orderly end has to do it
        fixture.script("mkdir d; for i in $(seq 100); do echo $i >d/$i; done").expect_code(0);
        signal(fixture.owner_pid(), end);
        assert_eq!(fixture.wait_owner(), 0, "{}", fixture.log());
        assert!(!fixture.is_mounted());
        fixture.check();
        let stat =
            answer_of(fixture.txfs().args(["stat", "--json"]).arg(fixture.volume())).expect_code(0).out;
        let stat: serde_json::Value = serde_json::from_str(&stat).expect("JSON");
        assert!(stat.to_string().contains("\"clean\":true"), "not closed cleanly: {stat}");
        fixture.mount(&[]);
        assert_eq!(
            fixture.script("cat d/* | sort -n | tail -n 1; ls d | wc -l").expect_code(0).out,
            "100\n100\n"
        );
    }
}

#[test]
fn sigterm_aborts_open_transactions() {
    let mut fixture = Fixture::mounted("term");
    fixture.script("echo old >file").expect_code(0);
    let run = fixture.start_script("one", "echo new >file; pause");
    fixture.wait_paused("one");
    signal(fixture.owner_pid(), Signal::TERM);
    // the command goes on for ever; the owner must not wait for that
    fixture.wait_owner();
    fixture.let_go("one");
    assert_ne!(run.finish_soon().code, 0);
    fixture.check();
    fixture.mount(&[]);
    assert_eq!(fixture.text("file"), "old\n");
}

#[test]
fn background_mount_returns_when_it_can_be_used() {
    let fixture = Fixture::new("background");
    answer_of(fixture.txfs().arg("mount").arg(fixture.volume()).arg(fixture.point())).expect_code(0);
    assert!(fixture.is_mounted());
    fixture.script("echo 1 >file").expect_code(0);
    // the volume names its mount as well
    answer_of(fixture.txfs().arg("umount").arg(fixture.volume())).expect_code(0);
    assert!(!fixture.is_mounted());
    // umount returned, so the volume is closed
    fixture.check();
    assert_eq!(
        answer_of(fixture.txfs().arg("cat").arg(format!("{}:file", fixture.volume().display()))).out,
        "1\n"
    );
}

#[test]
fn busy_mount_needs_lazy_unmount() {
    let mut fixture = Fixture::mounted("lazy");
    let mut user = fixture.txfs();
    user.current_dir(fixture.point());
    let mut sleeper = std::process::Command::new("sleep");
    let sleeper = txfs_e2e::Background::start(sleeper.arg("60").current_dir(fixture.point()));
    answer_of(fixture.txfs().arg("umount").arg(fixture.point()))
        .expect_code(78)
        .expect_message("in use by sleep");
    fixture.script("echo 1 >file").expect_code(0);
    answer_of(fixture.txfs().args(["umount", "--lazy"]).arg(fixture.point())).expect_code(0);
    assert!(!fixture.is_mounted());
    drop(sleeper);
    assert_eq!(fixture.wait_owner(), 0, "{}", fixture.log());
    fixture.check();
}

#[test]
fn umount_by_others_ends_the_owner_too() {
    if !is_root() {
        println!("umount(8) needs root: skipped");
        return;
    }
    let mut fixture = Fixture::mounted("umount");
    fixture.script("echo 1 >file").expect_code(0);
    // More than once: whoever lists mounts or processes at that moment keeps it busy.
    wait_for("umount(8)", || {
        let status = std::process::Command::new("umount").arg(fixture.point()).status();
        status.is_ok_and(|status| status.success())
    });
    assert_eq!(fixture.wait_owner(), 0, "{}", fixture.log());
    fixture.check();
}

#[test]
fn interrupt_aborts_the_run() {
    let fixture = Fixture::mounted("interrupt");
    fixture.script("echo old >file").expect_code(0);
    let run = fixture.start_script("one", "echo new >file; pause");
    fixture.wait_paused("one");
    signal(run.pid(), Signal::TERM);
    let answer = run.finish_soon();
    assert_ne!(answer.code, 0);
    wait_for("the transaction to end", || {
        let list =
            answer_of(fixture.txfs().args(["tx", "list", "--json"]).arg(fixture.point())).expect_code(0);
        !list.out.contains("pause")
    });
    assert_eq!(fixture.text("file"), "old\n");
}

#[test]
fn read_only_mount_refuses_changes() {
    let mut fixture = Fixture::mounted("ro");
    fixture.script("echo 1 >file; mkdir d").expect_code(0);
    fixture.unmount();
    fixture.mount(&["-o", "ro"]);
    assert_eq!(fixture.text("file"), "1\n");
    for change in [
        "echo 2 >file",
        ": >new",
        "rm file",
        "mkdir e",
        "rmdir d",
        "mv file d/",
        "ln file l",
        "ln -s a b",
        "chmod 600 file",
        "truncate -s 0 file",
        "mkfifo p",
        "chown 1 file",
    ] {
        let answer = fixture.script(change);
        assert_ne!(answer.code, 0, "{change}");
        answer.expect_message("read-only file system");
    }
    fixture.unmount();
}

#[test]
fn mount_calls_the_helper() {
    if !is_root() {
        println!("mount(8) needs root: skipped");
        return;
    }
    let fixture = Fixture::new("fstab");
    // a line of /etc/fstab becomes this call of mount(8), which looks for the helper in /sbin: put there for this test
    // only, in a mount namespace of its own
    let script = "
        mkdir \"$PLACE/upper\" \"$PLACE/work\"
        mount -t overlay overlay -o \"lowerdir=$(realpath /sbin),upperdir=$PLACE/upper,workdir=$PLACE/work\" \"$(realpath /sbin)\" || exit 99
        ln -s \"$TXFS\" /sbin/mount.txfs
        mount -t txfs -o rw,noatime,allow_other \"$PLACE/volume\" \"$PLACE/mount\"
        echo 1 >\"$PLACE/mount/file\"
        findmnt -n -o FSTYPE,SOURCE \"$PLACE/mount\"
        umount \"$PLACE/mount\"
    ";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-euc", script]).env("PLACE", fixture.directory());
    let answer = answer_of(command.env("TXFS", txfs_e2e::txfs_binary()));
    if answer.code == 99 {
        println!("no overlay mounts here: skipped");
        return;
    }
    let answer = answer.expect_code(0);
    let words: Vec<&str> = answer.out.split_whitespace().collect();
    assert_eq!(words, ["fuse.txfs", &fixture.volume().display().to_string()]);
    wait_for("the owner to close the volume", || {
        answer_of(fixture.txfs().arg("check").arg(fixture.volume())).code == 0
    });
    assert_eq!(
        answer_of(fixture.txfs().arg("cat").arg(format!("{}:file", fixture.volume().display()))).out,
        "1\n"
    );
}
