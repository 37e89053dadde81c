//! `txfs run`: exit codes, what it changes and what not, leftover processes, nesting, retries, private mounts.

use std::fs;

use txfs_e2e::{Background, Fixture, answer_of, contents, sleep_ms};

#[test]
fn exit_codes_are_passed_through_and_only_zero_commits() {
    let mut fixture = Fixture::mounted("codes");
    fixture.script("echo old >file").expect_code(0);
    for code in [1, 2, 42, 75, 125, 200] {
        answer_of(&mut fixture.run_script(&format!("echo new >file; exit {code}"))).expect_code(code);
        assert_eq!(fixture.text("file"), "old\n");
    }
    answer_of(&mut fixture.run_script("kill -TERM $$")).expect_code(128 + 15);
    answer_of(fixture.run().args(["--", "/no/such/command"])).expect_code(127);
    answer_of(fixture.run().args(["--", "/etc/passwd"])).expect_code(126);
    assert_eq!(fixture.text("file"), "old\n");
    answer_of(&mut fixture.run_script("echo new >file")).expect_code(0);
    fixture.remount();
    assert_eq!(fixture.text("file"), "new\n");
}

#[test]
fn output_and_arguments_are_the_commands_own() {
    let fixture = Fixture::mounted("output");
    let answer = answer_of(fixture.run().args(["--", "printf", "%s|", "a b", "-x", "--", "*"]));
    assert_eq!(answer.expect_code(0).out, "a b|-x|--|*|");
    let answer = answer_of(&mut fixture.run_script("pwd; cat /proc/self/mounts | grep -c /mount >&2"));
    assert_eq!(answer.clone().expect_code(0).out.trim(), fixture.point().display().to_string());
}

#[test]
fn every_kind_of_change_commits_as_one() {
    let mut fixture = Fixture::mounted("kinds");
    fixture.script("mkdir a; echo 1 >a/1; echo 2 >a/2; echo 3 >a/3; ln -s 1 a/s; mkfifo a/p").expect_code(0);
    let script = "
        echo more >>a/1; truncate -s 10000 a/2; rm a/3; mv a b; ln b/1 b/hard; ln -s target link
        mkdir -p x/y/z; chmod 2750 x; touch -d '2001-02-03 04:05:06.789012345 UTC' x/y
        fallocate -l 20000 sparse; fallocate -p -o 4096 -l 8192 sparse
        setfattr -n user.note -v hello link-less 2>/dev/null || : >link-less; setfattr -n user.note -v hello link-less
    ";
    answer_of(&mut fixture.run_script(script)).expect_code(0);
    let look = "find . -printf '%p %y %m %n %s %l\\n' | grep -v '^. ' | sort; cat b/1; stat -c %y x/y; getfattr --only-values -n user.note link-less";
    let after = fixture.script(&format!("TZ=UTC; export TZ; {look}")).expect_code(0).out;
    fixture.remount();
    assert_eq!(fixture.script(&format!("TZ=UTC; export TZ; {look}")).expect_code(0).out, after);
    for line in [
        "./b/1 f 644 2 7 ",
        "./b/hard f 644 2 7 ",
        "./b/2 f 644 1 10000 ",
        "./link l 777 1 6 target",
        "./x d 2750 3",
        "./b/p p 644 1 0 ",
        "./sparse f 644 1 20000 ",
        "2001-02-03 04:05:06.789012345 +0000",
        "1\nmore",
        "hello",
    ] {
        assert!(after.contains(line), "no {line:?} in\n{after}");
    }
    assert!(!after.contains("./a") && !after.contains("b/3"), "{after}");
}

#[test]
fn leftover_processes_are_ended_before_the_commit() {
    let fixture = Fixture::mounted("leftover");
    let script = "(trap '' HUP; setsid sh -c 'echo $$ >\"$OUTSIDE/pid\"; while :; do echo x >>file; sleep 0.01; done' &) ; \
                  while [ ! -s file ]; do sleep 0.01; done";
    answer_of(&mut fixture.run_script(script)).expect_code(0);
    let size = fs::metadata(fixture.path("file")).expect("the file").len();
    assert!(size > 0);
    sleep_ms(300);
    assert_eq!(
        fs::metadata(fixture.path("file")).expect("the file").len(),
        size,
        "it is still being written"
    );
}

#[test]
fn a_run_inside_a_run_joins_it() {
    let fixture = Fixture::mounted("nested");
    let txfs = txfs_e2e::txfs_binary();
    let script = format!("echo 1 >a; '{}' run -- sh -c 'cat a; echo 2 >b'; cat b; exit 3", txfs.display());
    let answer = answer_of(&mut fixture.run_script(&script)).expect_code(3);
    assert_eq!(answer.out, "1\n2\n");
    assert!(!fixture.path("b").exists(), "the outermost transaction decides");
    let script = format!("echo 1 >a; '{}' run -- sh -c 'cat a; echo 2 >b'", txfs.display());
    answer_of(&mut fixture.run_script(&script)).expect_code(0);
    assert_eq!(fixture.text("b"), "2\n");
}

#[test]
fn dry_run_shows_and_changes_nothing() {
    let fixture = Fixture::mounted("dry");
    fixture.script("echo old >file; echo x >removed").expect_code(0);
    let mut command = fixture.run();
    command
        .args(["--dry-run", "--", "sh", "-euc", "echo new >file; rm removed; mkdir made"])
        .current_dir(fixture.point());
    let answer = answer_of(&mut command).expect_code(0);
    let said = format!("{}{}", answer.out, answer.err);
    for path in ["file", "removed", "made"] {
        assert!(said.contains(path), "nothing about {path}:\n{said}");
    }
    assert_eq!(fixture.script("cat file removed; ls").expect_code(0).out, "old\nx\nfile\nremoved\n");
}

#[test]
fn retries_run_the_command_again() {
    let fixture = Fixture::mounted("retries");
    fixture.script("echo 0 >count").expect_code(0);
    let add = "n=$(cat count); sleep 0.05; echo $((n + 1)) >count";
    let runs: Vec<Background> = (0..4)
        .map(|_| {
            let mut command = fixture.run();
            command.args(["--retries", "50", "--", "sh", "-euc", add]).current_dir(fixture.point());
            Background::start(&mut command)
        })
        .collect();
    for run in runs {
        run.finish().expect_code(0);
    }
    assert_eq!(fixture.text("count"), "4\n");
}

#[test]
fn json_tells_the_outcome() {
    let fixture = Fixture::mounted("json");
    let report = fixture.outside("report");
    let json = format!("--json={}", report.display());
    let outcome = |script: &str, code: i32| {
        let mut command = fixture.run();
        command.args([&json, "--", "sh", "-euc", script]).current_dir(fixture.point());
        answer_of(&mut command).expect_code(code);
        let value: serde_json::Value = serde_json::from_str(&contents(&report)).expect("JSON");
        assert_eq!(value["exit_code"], code);
        value["outcome"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(outcome("echo 1 >file", 0), "committed");
    assert_eq!(outcome("exit 7", 7), "aborted");
    assert_eq!(outcome("cat file", 0), "unchanged");
}

#[test]
fn a_volume_can_be_mounted_for_one_run_only() {
    let fixture = Fixture::new("private");
    let run = |script: &str| {
        let mut command = fixture.txfs();
        command.arg("run").arg("--volume").arg(fixture.volume()).arg("--at").arg(fixture.point());
        answer_of(command.args(["--", "sh", "-euc", script]).env("POINT", fixture.point()))
    };
    run("echo 1 >\"$POINT/file\"; grep -c \"$POINT\" /proc/self/mounts >/dev/null").expect_code(0);
    assert!(!fixture.is_mounted(), "nobody else sees the mount");
    assert!(!fixture.path("file").exists());
    run("cat \"$POINT/file\"; exit 4").expect_code(4);
    assert_eq!(run("cat \"$POINT/file\"").expect_code(0).out, "1\n");
    fixture.check();
}

#[test]
fn the_current_directory_finds_the_mount() {
    let fixture = Fixture::mounted("here");
    fixture.script("mkdir -p deep/er").expect_code(0);
    let mut command = fixture.txfs();
    command.args(["run", "--", "sh", "-euc", "pwd; echo 1 >file"]).current_dir(fixture.path("deep/er"));
    let answer = answer_of(&mut command).expect_code(0);
    assert_eq!(answer.out.trim(), fixture.path("deep/er").display().to_string());
    assert_eq!(fixture.text("deep/er/file"), "1\n");
}

#[test]
fn a_transaction_larger_than_its_memory_budget() {
    let mut fixture = Fixture::mounted("large");
    // 300 MB against a budget of 64 MiB
    let script = "for i in 1 2 3; do head -c 100M /dev/urandom >f$i; done; sha256sum f1 f2 f3 >sums";
    answer_of(&mut fixture.run_script(script)).expect_code(0);
    fixture.script("sha256sum -c --quiet sums").expect_code(0);
    fixture.remount();
    fixture.script("sha256sum -c --quiet sums").expect_code(0);
}
