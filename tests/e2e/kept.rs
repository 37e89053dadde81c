//! Kept and prepared transactions: `txfs run --keep`, `--prepare`, `--on-conflict keep`, and `txfs tx`.

use txfs_e2e::{Answer, Fixture, answer_of, contents};

/// `txfs tx ...` on the mount, or on the volume when it is not mounted.
fn tx(fixture: &Fixture, arguments: &[&str]) -> Answer {
    answer_of(fixture.txfs().arg("tx").args(arguments).arg(fixture.volume()))
}

fn json(answer: Answer) -> serde_json::Value {
    serde_json::from_str(&answer.expect_code(0).out).expect("JSON")
}

fn keep(fixture: &Fixture, options: &[&str], script: &str) -> Answer {
    let mut command = fixture.run();
    command.args(options).args(["--", "sh", "-euc", script]).current_dir(fixture.point());
    answer_of(&mut command)
}

#[test]
fn what_is_kept_is_listed_shown_and_committed_from_anywhere() {
    let mut fixture = Fixture::mounted("kept");
    fixture.script("echo one >file; echo other >other; mkdir d").expect_code(0);
    keep(&fixture, &["--keep", "monday", "-m", "the report"], "echo two >file; echo new >d/new; rm other")
        .expect_code(0)
        .expect_message("txfs tx commit monday");
    assert_eq!(contents(fixture.path("file")), "one\n");
    keep(&fixture, &["--keep", "monday"], "echo 3 >file").expect_code(125).expect_message("already");
    for mounted in [true, false] {
        if !mounted {
            fixture.unmount();
        }
        let list = json(tx(&fixture, &["list", "--json"]));
        assert_eq!((&list[0]["name"], &list[0]["state"]), (&"monday".into(), &"kept".into()), "{list}");
        assert_eq!(list[0]["message"], "the report");
        assert!(list[0]["age_ms"].is_u64() && list[0]["pinned_bytes"].as_u64() > Some(0));
        let shown = tx(&fixture, &["list"]).expect_code(0).out;
        assert!(shown.contains("monday") && shown.contains("PINNED"), "{shown}");
        let diff = tx(&fixture, &["diff", "monday"]).expect_code(0).out;
        for line in ["-one", "+two", "+new", "-other"] {
            assert!(diff.lines().any(|found| found == line), "no {line} in\n{diff}");
        }
        assert!(diff.contains("1 created, 1 modified, 1 removed"), "{diff}");
        let shown = tx(&fixture, &["show", "monday"]).expect_code(0).out;
        assert!(shown.contains("no conflicts") && shown.contains("the report"), "{shown}");
        tx(&fixture, &["show", "tuesday"]).expect_code(66);
    }
    let commit = json(tx(&fixture, &["commit", "monday", "--json"]));
    assert_eq!(commit["outcome"], "committed");
    assert!(commit["sequence"].is_u64());
    fixture.mount(&[]);
    fixture.script("cat file d/new; test ! -e other").expect_code(0);
    assert_eq!(contents(fixture.path("file")), "two\n");
    let list = json(tx(&fixture, &["list", "--json"]));
    assert_eq!(list, serde_json::json!([]));
    let log = answer_of(fixture.txfs().args(["log", "--json"]).arg(fixture.volume())).expect_code(0).out;
    assert!(log.contains("the report"), "{log}");
    fixture.unmount();
    answer_of(fixture.txfs().arg("check").arg(fixture.volume())).expect_code(0);
}

#[test]
fn a_commit_on_the_mount_is_seen_at_once() {
    let fixture = Fixture::mounted("kept-seen");
    fixture.script("echo one >file; cat file; ls").expect_code(0);
    keep(&fixture, &["--keep", "x"], "echo two >file; echo new >new; rm -f gone").expect_code(0);
    fixture.script("grep -q one file; test ! -e new").expect_code(0);
    tx(&fixture, &["commit", "x"]).expect_code(0);
    fixture.script("grep -q two file; grep -q new new").expect_code(0);
    keep(&fixture, &["--keep", "x"], "echo three >file").expect_code(0);
    tx(&fixture, &["abort", "x"]).expect_code(0);
    tx(&fixture, &["commit", "x"]).expect_code(66);
    fixture.script("grep -q two file").expect_code(0);
}

#[test]
fn what_conflicts_is_kept_on_request() {
    let mut fixture = Fixture::mounted("kept-conflict");
    fixture.script("echo 1 >x").expect_code(0);
    // The transaction's own script changes the file from outside of the transaction in between.
    let mut run = fixture.run();
    run.args(["--on-conflict", "keep", "--json", "--", "sh", "-euc"]);
    let script = "cat x >own; : >\"$OUTSIDE/a.waiting\"; while [ ! -e \"$OUTSIDE/a.go\" ]; do sleep 0.01; done; echo 3 >x";
    run.arg(script).current_dir(fixture.point()).env("OUTSIDE", fixture.outside(""));
    let running = txfs_e2e::Background::start(&mut run);
    fixture.wait_paused("a");
    fixture.script("echo 2 >x").expect_code(0);
    fixture.let_go("a");
    let answer = running.finish_soon().expect_code(75).expect_message("its changes are kept as run-");
    let outcome: serde_json::Value =
        serde_json::from_str(answer.err.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!(outcome["outcome"], "conflict");
    let name = outcome["kept"].as_str().expect("a name").to_owned();
    assert_eq!(contents(fixture.path("x")), "2\n");
    let shown = json(tx(&fixture, &["show", &name, "--json"]));
    assert!(shown["conflicts"].as_u64() > Some(0), "{shown}");
    assert_eq!(shown["conflicting"]["conflicts"][0]["path"], "x");
    for mounted in [true, false] {
        if !mounted {
            fixture.unmount();
        }
        let export = fixture.outside(if mounted { "mounted" } else { "unmounted" });
        let directory = export.to_str().expect("text").to_owned();
        tx(&fixture, &["export", &name, &directory]).expect_code(0);
        let side = |side: &str| contents(export.join(side).join("x"));
        assert_eq!((side("base"), side("ours"), side("theirs")), ("1\n".into(), "3\n".into(), "2\n".into()));
        assert!(export.join("ours/own").exists() && !export.join("base/own").exists());
        let diff = tx(&fixture, &["diff", &name]).expect_code(0).out;
        assert!(diff.contains("-1") && diff.contains("+3"), "{diff}");
    }
    fixture.mount(&[]);
    tx(&fixture, &["commit", &name]).expect_code(75).expect_message("x: ");
    tx(&fixture, &["abort", &name]).expect_code(0);
    keep(&fixture, &["--on-conflict", "keep", "--keep", "unused"], "echo 4 >x").expect_code(0);
    assert_eq!(contents(fixture.path("x")), "4\n");
    assert_eq!(json(tx(&fixture, &["list", "--json"])), serde_json::json!([]));
}

#[test]
fn what_is_prepared_holds_what_it_needs() {
    let mut fixture = Fixture::mounted("prepared");
    fixture.script("echo 1 >x; echo 1 >y; mkdir d").expect_code(0);
    keep(&fixture, &["--prepare", "order-7"], "cat y >/dev/null; echo 2 >x; echo new >d/new").expect_code(0);
    for mounts in 0..2 {
        if mounts == 1 {
            fixture.kill_mount();
            fixture.mount(&[]);
        }
        for script in ["echo 3 | tee -a x", "echo 3 | tee y", "rm x", "mv y z", "rm -r d", "mkdir d/new"] {
            let refused = fixture.script(&format!("LC_ALL=C; export LC_ALL; {script}"));
            assert!(refused.code != 0 && refused.err.contains("busy"), "{script}: {refused:?}");
        }
        fixture.script("cat x y; echo free >free; echo free >d/free; rm free d/free").expect_code(0);
        keep(&fixture, &[], "echo 3 >y").expect_code(125).expect_message("order-7");
    }
    let list = tx(&fixture, &["list"]).expect_code(0).out;
    assert!(list.contains("prepared") && list.contains("order-7"), "{list}");
    tx(&fixture, &["commit", "order-7"]).expect_code(0);
    fixture.script("grep -q 2 x; grep -q new d/new; echo 4 >y").expect_code(0);
    fixture.unmount();
    answer_of(fixture.txfs().arg("check").arg(fixture.volume())).expect_code(0);
}

#[test]
fn a_part_is_committed_and_the_rest_stays_kept() {
    let mut fixture = Fixture::mounted("kept-only");
    fixture
        .script("echo one >file; echo one >other; echo one >third; echo old >before; mkdir d")
        .expect_code(0);
    keep(
        &fixture,
        &["--keep", "monday", "-m", "the report"],
        "echo two >file; echo two >other; echo two >third; mkdir new; echo 1 >new/a; echo 2 >new/b; mv before d/after; rmdir d \
         2>/dev/null || true",
    )
    .expect_code(0);
    let only = |fixture: &Fixture, paths: &[&str]| {
        let mut command = fixture.txfs();
        command
            .args(["tx", "commit", "monday"])
            .arg(fixture.volume())
            .arg("--json")
            .arg("--only")
            .args(paths);
        answer_of(&mut command)
    };
    let on_mount = fixture.path("new/a");
    // A part that makes no sense by itself, one that there is not, and one that is.
    only(&fixture, &["d/after"]).expect_code(1).expect_message("also name before");
    only(&fixture, &["file", "nothing"]).expect_code(66).expect_message("nothing");
    let part = json(only(&fixture, &["file", on_mount.to_str().expect("text")]));
    assert_eq!((&part["outcome"], &part["remains"]), (&"committed".into(), &true.into()), "{part}");
    assert_eq!(part["along"], serde_json::json!(["new"]), "{part}");
    fixture
        .script("grep -q two file; grep -q one other; grep -q 1 new/a; test ! -e new/b; grep -q old before")
        .expect_code(0);
    let diff = tx(&fixture, &["diff", "monday"]).expect_code(0).out;
    assert!(diff.contains("new/b") && diff.contains("other") && !diff.contains("new/a"), "{diff}");
    assert_eq!(json(tx(&fixture, &["list", "--json"]))[0]["conflicts"], 0);
    // Others change what the rest writes: another part of that is committed all the same.
    fixture.script("echo three >other").expect_code(0);
    tx(&fixture, &["commit", "monday"]).expect_code(75).expect_message("--only");
    only(&fixture, &["other"]).expect_code(75).expect_message("other");
    fixture.unmount();
    let part = json(only(&fixture, &["third", "/new"]));
    assert_eq!((&part["remains"], &part["along"]), (&true.into(), &serde_json::json!([])), "{part}");
    let mut text = fixture.txfs();
    text.args(["tx", "commit", "monday"]).arg(fixture.volume()).args(["--only", "before", "d/after"]);
    let text = answer_of(&mut text).expect_code(0).out;
    assert!(text.contains("a part of monday is commit") && text.contains("the rest is kept"), "{text}");
    answer_of(fixture.txfs().arg("check").arg(fixture.volume())).expect_code(0);
    fixture.mount(&[]);
    fixture
        .script(
            "grep -q two third; grep -q 2 new/b; grep -q old d/after; test ! -e before; grep -q three other",
        )
        .expect_code(0);
    let diff = tx(&fixture, &["diff", "monday"]).expect_code(0).out;
    assert!(diff.contains("1 modified") && diff.contains("+two"), "{diff}");
    tx(&fixture, &["abort", "monday"]).expect_code(0);
    keep(&fixture, &["--prepare", "monday"], "echo 4 >file; echo 4 >third").expect_code(0);
    only(&fixture, &["file"]).expect_code(1).expect_message("prepared");
    tx(&fixture, &["commit", "monday"]).expect_code(0);
    fixture.script("grep -q 4 file; grep -q 4 third").expect_code(0);
    fixture.unmount();
    answer_of(fixture.txfs().arg("check").arg(fixture.volume())).expect_code(0);
}
