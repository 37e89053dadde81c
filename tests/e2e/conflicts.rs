//! What becomes of transactions that cannot commit any more: doom, eager transactions, retries.

use std::fs;

use txfs_e2e::{Background, Fixture, answer_of, contents, wait_for};

#[test]
fn a_doomed_command_fails_at_its_next_write() {
    let fixture = Fixture::mounted("doom");
    fixture.script("echo 1 >x; echo 1 >y").expect_code(0);
    let script = "cat x >/dev/null; echo 1 >own; pause; \
                  LC_ALL=C dd if=/dev/zero of=own bs=1 count=1 conv=notrunc 2>\"$OUTSIDE/error\"";
    let doomed = fixture.start_script("doomed", script);
    let other = fixture.start_script("other", &script.replace("cat x", "cat y").replace("own", "own2"));
    fixture.wait_paused("doomed");
    fixture.wait_paused("other");
    fixture.script("echo 2 >x").expect_code(0);
    fixture.let_go("doomed");
    doomed.finish_soon().expect_code(75).expect_message("x: ").expect_message("cannot commit any more");
    let error = contents(fixture.outside("error"));
    assert!(error.contains("Operation canceled"), "{error}");
    assert!(!fixture.path("own").exists());
    // What nobody has touched goes on.
    fixture.let_go("other");
    other.finish_soon().expect_code(0);
}

#[test]
fn a_large_write_fails_in_its_midst() {
    let fixture = Fixture::mounted("midst");
    fixture.script("echo 1 >x").expect_code(0);
    let script = "cat x >/dev/null; echo 1 >own; \
                  LC_ALL=C dd if=/dev/zero of=big bs=256M count=64 2>\"$OUTSIDE/error\"";
    let doomed = fixture.start_script("doomed", script);
    wait_for("the large write", || {
        let list = answer_of(fixture.txfs().args(["tx", "list", "--json"]).arg(fixture.point()));
        let list: serde_json::Value = serde_json::from_str(&list.expect_code(0).out).expect("JSON");
        list[0]["dirty_bytes"].as_u64().is_some_and(|bytes| bytes > 10 << 20)
    });
    fixture.script("echo 2 >x").expect_code(0);
    doomed.finish_soon().expect_code(75);
    let error = contents(fixture.outside("error"));
    assert!(error.contains("Operation canceled"), "{error}");
    assert!(!fixture.path("big").exists() && !fixture.path("own").exists());
}

#[test]
fn a_command_s_own_failure_stays_its_own() {
    let fixture = Fixture::mounted("own");
    fixture.script("echo 1 >x").expect_code(0);
    // It would be doomed, but ends before it finds that out.
    let one = fixture.start_script("one", "cat x; echo 1 >own; pause; exit 3");
    fixture.wait_paused("one");
    fixture.script("echo 2 >x").expect_code(0);
    fixture.let_go("one");
    one.finish_soon().expect_code(3);
}

#[test]
fn the_second_eager_writer_fails_while_the_first_goes_on() {
    let mut fixture = Fixture::new("eager");
    fixture.mount(&["-o", "policy=eager"]);
    fixture.script("echo 1 >x").expect_code(0);
    let one = fixture.start_script("one", "echo one >x; pause");
    fixture.wait_paused("one");
    answer_of(&mut fixture.run_script("echo two >x"))
        .expect_code(75)
        .expect_message("being written by an open transaction");
    let lazy = ["--policy", "first-committer", "--", "sh", "-c", "echo lazy >y"];
    answer_of(fixture.run().args(lazy).current_dir(fixture.point())).expect_code(0);
    fixture.let_go("one");
    one.finish_soon().expect_code(0);
    assert_eq!(fixture.text("x"), "one\n");
}

#[test]
fn the_oldest_wins_in_the_end() {
    let fixture = Fixture::mounted("oldest");
    fixture.script("echo 0 >counter").expect_code(0);
    let increment = "n=$(cat counter); PAUSE; echo $((n + 1)) >counter";
    let short = increment.replace("PAUSE", ":");
    let run = format!("'{}' run --retries 100000 --", txfs_e2e::txfs_binary().display());
    let script = format!(
        "n=0; while [ ! -e \"$OUTSIDE/stop\" ]; do {run} sh -euc '{short}' 2>/dev/null; n=$((n + 1)); done; echo $n"
    );
    let shorts: Vec<Background> = (0..2)
        .map(|_| {
            let mut command = std::process::Command::new("sh");
            command.args(["-euc", &script]).current_dir(fixture.point()).env("OUTSIDE", fixture.outside(""));
            Background::start(&mut command)
        })
        .collect();
    wait_for("the short ones", || fixture.text("counter").trim().parse::<u32>().is_ok_and(|count| count > 3));
    let json = fixture.outside("long.json");
    let mut long = fixture.run();
    long.arg(format!("--json={}", json.display())).args(["--on-conflict", "retry", "--", "sh", "-euc"]);
    long.arg(increment.replace("PAUSE", "sleep 0.3")).current_dir(fixture.point());
    answer_of(&mut long).expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&contents(&json)).expect("JSON");
    assert!(report["attempts"].as_u64().is_some_and(|attempts| (2..=8).contains(&attempts)), "{report}");
    fs::write(fixture.outside("stop"), "").expect("stopping");
    let counted: u32 = shorts
        .into_iter()
        .map(|short| short.finish_soon().expect_code(0).out.trim().parse::<u32>().expect("a number"))
        .sum();
    assert_eq!(fixture.text("counter").trim().parse::<u32>(), Ok(counted + 1));
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let fixture = Fixture::mounted("options");
    let wrong = ["--on-conflict", "abort", "--retries", "3", "--", "true"];
    answer_of(fixture.run().args(wrong)).expect_code(125).expect_message("exclude each other");
}
