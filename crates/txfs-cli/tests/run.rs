//! `txfs run` with real processes on a real mount: what commits, what leaves no trace, and what it exits with.

mod common;

use std::fs;

use common::{Sandbox, is_running, kill, users, wait_until};

#[test]
fn success_commits_everything() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo old > file; mkdir directory; echo gone > victim").expect(0);
        let script =
            "echo new > file; mkdir -p a/b; mv directory a/b/moved; rm victim; ln -s file link; ln file hard";
        sandbox.run([], script).done().expect(0);
        assert_eq!(
            sandbox.read("cat file; cat hard; readlink link; ls; ls a/b"),
            "new\nnew\nfile\na\nfile\nhard\nlink\nmoved\n"
        );
        sandbox.umount();
        sandbox.check();
        sandbox.mount();
        assert_eq!(sandbox.read("cat file"), "new\n");
    }
}

#[test]
fn failure_leaves_no_trace_and_passes_the_status_through() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo old > file").expect(0);
        let script = "echo new > file; echo x > other; mkdir -p a/b/c; exit 3";
        sandbox.run([], script).done().expect(3).says("status 3: nothing was changed");
        assert_eq!(sandbox.read("ls -A; cat file"), "file\nold\n");
        sandbox.umount();
        sandbox.check();
    }
}

#[test]
fn nobody_outside_sees_anything_before_the_commit() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo old > file").expect(0);
        let go = sandbox.path("home/go");
        let script = format!(
            "echo new > file; echo x > made; touch {0}.ready; while ! [ -e {0} ]; do sleep 0.01; done; cat file",
            go.display()
        );
        let running = sandbox.run([], &script).start();
        wait_until("the command has written", || sandbox.path("home/go.ready").exists());
        assert_eq!(sandbox.read("cat file; ls"), "old\nfile\n");
        fs::write(&go, "").unwrap();
        assert_eq!(running.wait().expect(0).stdout, "new\n");
        assert_eq!(sandbox.read("cat file; ls"), "new\nfile\nmade\n");
    }
}

#[test]
fn exit_codes_of_commands_that_do_not_run() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let run =
            |command: &str| sandbox.txfs(["run", "--"]).arg(command).directory(&sandbox.mountpoint()).done();
        run("no-such-command-here").expect(127).says("command not found");
        run("./no-such-file").expect(127).says("command not found");
        sandbox.sh("echo text > text; chmod 644 text").expect(0);
        run("./text").expect(126).says("cannot be executed");
        run("/").expect(126).says("cannot be executed");
        // Nothing is open any more.
        let listed = sandbox.txfs(["tx", "list", "--json"]).arg(sandbox.mountpoint()).done().expect(0);
        assert_eq!(listed.stdout.trim(), "[]");
    }
}

#[test]
fn signals_reach_the_command_and_abort() {
    for user in users() {
        for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
            let sandbox = Sandbox::mounted(user);
            let running = sandbox.run([], "echo x > file; touch ../ready; exec sleep 50").start();
            wait_until("the command is there", || sandbox.path("home/ready").exists());
            kill(signal, running.pid());
            running.wait().expect(128 + number).says("nothing was changed");
            assert_eq!(sandbox.read("ls"), "");
        }
    }
}

#[test]
fn a_command_may_take_a_signal_as_it_likes() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = "trap 'echo saved > file; exit 0' TERM; touch ../ready; while :; do sleep 0.01; done";
        let running = sandbox.run([], script).start();
        wait_until("the command is there", || sandbox.path("home/ready").exists());
        kill("TERM", running.pid());
        running.wait().expect(0);
        assert_eq!(sandbox.read("cat file"), "saved\n");
    }
}

#[test]
fn two_that_change_the_same_file_conflict() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo 0 > counter").expect(0);
        let script =
            "cat counter; touch ../ready; while ! [ -e ../go ]; do sleep 0.01; done; echo first > counter";
        let slow = sandbox.run(["--json"], script).start();
        wait_until("the first one has read", || sandbox.path("home/ready").exists());
        sandbox.run([], "echo second > counter").done().expect(0);
        fs::write(sandbox.path("home/go"), "").unwrap();
        let done = slow.wait().expect(75).says("counter");
        let json = done.json();
        assert_eq!(json["outcome"], "conflict");
        assert_eq!(json["exit_code"], 75);
        assert_eq!(json["attempts"], 1);
        let conflict = &json["conflicts"][0];
        assert_eq!((&conflict["kind"], &conflict["access"]), (&"pages".into(), &"write".into()), "{json}");
        assert_eq!((&conflict["path"], &conflict["first_page"]), (&"counter".into(), &0.into()));
        let other = &conflict["other"];
        assert!(other["sequence"].is_u64() && other["process"].is_u64() && other["transaction"].is_u64());
        assert!(
            other["time"].as_str().is_some_and(|time| time.len() == 30 && time.ends_with('Z')),
            "{other}"
        );
        assert!(other["command"].as_str().is_some_and(|command| command.contains("echo second")), "{other}");
        assert_eq!(sandbox.read("cat counter"), "second\n");
    }
}

#[test]
fn retries_run_the_command_again() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo 0 > counter").expect(0);
        let increment = "n=$(cat counter); sleep 0.02; echo $((n + 1)) > counter";
        let running: Vec<_> =
            (0..4).map(|_| sandbox.run(["--retries", "50", "--json"], increment).start()).collect();
        let mut attempts = 0;
        for running in running {
            attempts += running.wait().expect(0).json()["attempts"].as_u64().unwrap();
        }
        assert_eq!(sandbox.read("cat counter"), "4\n");
        assert!(attempts > 4, "no conflict in four increments at once?");
    }
}

#[test]
fn others_work_on_without_conflict() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let running: Vec<_> = (0..4)
            .map(|number| sandbox.run([], &format!("echo {number} > file{number}; sleep 0.1")).start())
            .collect();
        for running in running {
            running.wait().expect(0);
        }
        assert_eq!(sandbox.read("cat file?"), "0\n1\n2\n3\n");
    }
}

#[test]
fn dry_run_lists_and_aborts() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo one > kept; echo two > gone; echo three > moved").expect(0);
        let script = "echo more >> kept; rm gone; mv moved renamed; mkdir new; exit 5";
        let done = sandbox.run(["--dry-run", "--json"], script).done().expect(5);
        for line in
            ["created  new/", "modified kept (4 B -> 9 B)", "removed  gone", "renamed  moved -> renamed"]
        {
            assert!(done.stdout.lines().any(|found| found == line), "no {line:?} in\n{}", done.stdout);
        }
        assert_eq!(done.json()["outcome"], "dry-run");
        assert_eq!(done.json()["changes"], 4);
        assert_eq!(sandbox.read("ls; cat kept"), "gone\nkept\nmoved\none\n");
    }
}

#[test]
fn a_run_inside_a_run_joins_it() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let txfs = sandbox.binary().display().to_string();
        // The inner one succeeds, and the outer one fails: nothing stays.
        let script = format!("echo a > a; {txfs} run -- sh -c 'cat a; echo b > b' && cat b; exit 1");
        assert_eq!(sandbox.run([], &script).done().expect(1).stdout, "a\nb\n");
        assert_eq!(sandbox.read("ls"), "");
        // The inner one fails, and the outer one does not mind: all of it stays.
        let script = format!("{txfs} run -- sh -c 'echo b > b; exit 9'; [ $? = 9 ]");
        sandbox.run([], &script).done().expect(0);
        assert_eq!(sandbox.read("ls"), "b\n");
        // From another directory too.
        let script = format!("cd /; {txfs} run -- sh -c 'echo c > {}/c'", sandbox.mountpoint().display());
        sandbox.run([], &script).done().expect(0);
        assert_eq!(sandbox.read("ls"), "b\nc\n");
        let script = format!("{txfs} run --review -- true");
        sandbox.run([], &script).done().expect(125).says("the outermost txfs run decides");
    }
}

#[test]
fn what_is_left_running_is_ended_before_the_commit() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = "
            sleep 600 &
            echo $! > ../plain
            (setsid sh -c 'trap : TERM; echo $$ > ../stubborn; while :; do echo alive >> log; sleep 0.01; done' &)
            while ! [ -s ../stubborn ]; do sleep 0.01; done
            echo done > file";
        let done =
            sandbox.run(["--json"], script).done().expect(0).says("ended what the command left running");
        assert!(done.json()["ended_processes"].as_array().unwrap().len() >= 2);
        for name in ["plain", "stubborn"] {
            let pid = fs::read_to_string(sandbox.path("home").join(name)).unwrap().trim().parse().unwrap();
            assert!(!is_running(pid), "{name} is still running");
        }
        // It went on writing until it was killed, and all of that belongs to the transaction.
        let size = sandbox.read("stat -c %s log");
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(sandbox.read("stat -c %s log"), size);
    }
}

#[test]
fn killing_run_kills_the_command_and_aborts() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = "echo x > file; (setsid sh -c 'echo $$ > ../daemon; exec sleep 600' &)
            while ! [ -s ../daemon ]; do sleep 0.01; done; echo $$ > ../command; sleep 600";
        let running = sandbox.run([], script).start();
        let pid_in = |name: &str| {
            fs::read_to_string(sandbox.path("home").join(name))
                .ok()
                .and_then(|pid| pid.trim().parse::<i32>().ok())
        };
        wait_until("the command is there", || pid_in("command").is_some());
        kill("KILL", running.pid());
        for name in ["command", "daemon"] {
            wait_until("its processes are gone", || !is_running(pid_in(name).unwrap()));
        }
        wait_until("the transaction is gone", || {
            sandbox.txfs(["tx", "list", "--json"]).arg(sandbox.mountpoint()).done().expect(0).stdout.trim()
                == "[]"
        });
        assert_eq!(sandbox.read("ls"), "");
    }
}

#[test]
fn killing_the_supervisor_aborts() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = "echo x > file; echo $PPID > ../supervisor; echo $$ > ../command; exec sleep 600";
        let running = sandbox.run([], script).start();
        let pid_in = |name: &str| {
            fs::read_to_string(sandbox.path("home").join(name))
                .ok()
                .and_then(|pid| pid.trim().parse::<i32>().ok())
        };
        wait_until("the command is there", || pid_in("command").is_some());
        kill("KILL", pid_in("supervisor").unwrap());
        running.wait().expect(125).says("supervisor was killed");
        assert!(!is_running(pid_in("command").unwrap()));
        assert_eq!(sandbox.read("ls"), "");
    }
}

#[test]
fn killing_the_mount_process_fails_the_run() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("echo old > file").expect(0);
        let running = sandbox.run(["--json"], "echo new > file; touch ../ready; sleep 0.3").start();
        wait_until("the command is there", || sandbox.path("home/ready").exists());
        kill("KILL", sandbox.owner());
        // The command succeeds, and it is certain that nothing of it was committed.
        let done = running.wait().expect(125).says("an open transaction is aborted");
        assert_eq!(done.json()["outcome"], "failed");
        // What remains of the mount is swept away, and the volume is as before.
        sandbox.umount();
        sandbox.check();
        sandbox.mount();
        assert_eq!(sandbox.read("cat file"), "old\n");
    }
}

#[test]
fn json_says_what_happened() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let done = sandbox.run(["--json"], "echo x > file; echo said; echo told >&2").done().expect(0);
        let json = done.json();
        assert_eq!(json["outcome"], "committed");
        assert_eq!(json["exit_code"], 0);
        assert_eq!(json["changes"], 1);
        assert!(json["sequence"].as_u64().is_some() && json["duration_ms"].as_u64().is_some());
        assert_eq!(done.stdout, "said\n");
        assert_eq!(sandbox.run(["--json"], "cat file").done().expect(0).json()["outcome"], "unchanged");
        let aborted = sandbox.run(["--json"], "echo y > file; exit 4").done().expect(4).json();
        assert_eq!((&aborted["outcome"], &aborted["exit_code"]), (&"aborted".into(), &4.into()));
        // Into a file.
        let path = sandbox.path("home/outcome.json");
        let option = format!("--json={}", path.display());
        sandbox.run([option.as_str()], "true").done().expect(0);
        let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(json["outcome"], "unchanged");
        sandbox.run(["--json=/no/such/directory/file"], "echo z > z").done().expect(125);
        assert_eq!(sandbox.read("ls"), "file\n");
    }
}

#[test]
fn not_on_a_mount() {
    for user in users() {
        let sandbox = Sandbox::new(user);
        sandbox
            .txfs(["run", "--", "true"])
            .done()
            .expect(125)
            .says("is not on a TxFS mount")
            .says("use --mount DIR or --volume VOLUME --at DIR");
        sandbox.txfs(["run", "--mount", "/no/such", "--", "true"]).done().expect(125);
    }
}

#[test]
fn a_mount_given_and_a_directory_elsewhere() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let mount = sandbox.mountpoint().display().to_string();
        let done = sandbox
            .txfs(["run", "--mount", &mount, "-m", "from elsewhere", "--"])
            .args(["sh", "-c", &format!("pwd; echo x > {mount}/file; [ \"$TXFS_MOUNT\" = {mount} ] && [ -n \"$TXFS_TRANSACTION\" ]")])
            .done()
            .expect(0);
        assert_eq!(done.stdout.trim(), sandbox.path("home").display().to_string());
        assert_eq!(sandbox.read("cat file"), "x\n");
        // A directory below, and the same one in the view.
        sandbox.sh("mkdir -p deep/er").expect(0);
        let done = sandbox
            .run([], "echo y > z; pwd")
            .directory(&sandbox.mountpoint().join("deep/er"))
            .done()
            .expect(0);
        assert!(done.stdout.trim().ends_with("mount/deep/er"));
        assert_eq!(sandbox.read("cat deep/er/z"), "y\n");
    }
}

#[test]
fn what_the_caller_ignores_the_command_ignores() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = format!(
            "trap '' HUP; exec {} run -- sh -c 'kill -HUP $$; kill -HUP $PPID; sleep 0.05; echo lived > file'",
            sandbox.binary().display()
        );
        sandbox.sh(&script).expect(0);
        assert_eq!(sandbox.read("cat file"), "lived\n");
    }
}

#[test]
fn snapshot_isolation_does_not_mind_what_was_only_read() {
    for user in users() {
        for (isolation, code) in [("serializable", 75), ("snapshot", 0)] {
            let sandbox = Sandbox::mounted(user);
            sandbox.sh("echo 1 > read; echo 1 > written").expect(0);
            let script =
                "cat read > written; touch ../ready; while ! [ -e ../go ]; do sleep 0.01; done; cat read";
            let running = sandbox.run(["--isolation", isolation, "--durability", "ordered"], script).start();
            wait_until("it has read", || sandbox.path("home/ready").exists());
            sandbox.sh("echo 2 > read").expect(0);
            fs::write(sandbox.path("home/go"), "").unwrap();
            // Unless it is told that it is doomed, it goes on seeing one snapshot.
            let seen = running.wait().expect(code).stdout;
            assert!(seen == "1\n" || code == 75 && seen.is_empty(), "not one snapshot: {seen:?}");
            assert_eq!(sandbox.read("cat read written"), "2\n1\n");
        }
    }
}

#[test]
fn the_other_subcommands_work_inside_a_transaction() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let (txfs, volume) = (sandbox.binary().display().to_string(), sandbox.volume().display().to_string());
        let script = format!(
            "echo inside > file; {txfs} cat {volume}:file; echo more > ../more; {txfs} put ../more {volume}:/; ls; exit 1"
        );
        assert_eq!(sandbox.run([], &script).done().expect(1).stdout, "inside\nfile\nmore\n");
        assert_eq!(sandbox.read("ls"), "");
        let script = format!("{txfs} umount {volume}");
        sandbox.run([], &script).done().expect(78).says("transactions are open");
    }
}
