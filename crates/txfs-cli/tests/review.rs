//! `txfs run --review`, on a real terminal: script(1) provides it.

mod common;

use common::{Done, Sandbox, users};

/// Runs it on a terminal where somebody types `answer`.
fn review(sandbox: &Sandbox, script: &str, answer: &str) -> Done {
    let command = format!("{} run --review -- sh -c '{script}'", sandbox.binary().display());
    sandbox
        .command("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .directory(&sandbox.mountpoint())
        .with_input(answer)
}

#[test]
fn yes_commits_and_no_does_not() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        sandbox.sh("printf \"one\\ntwo\\nthree\\n\" > file; echo gone > victim").expect(0);
        let script = "sed -i s/two/zwei/ file; rm victim; echo fresh > made";
        let shown = review(&sandbox, script, "n\n").expect(125).stdout;
        for words in
            ["modified", "-two", "+zwei", "removed", "-gone", "created", "+fresh", "[y/N]", "declined"]
        {
            assert!(shown.contains(words), "{words:?} is not in\n{shown}");
        }
        assert!(shown.contains("\x1b[31m"), "no colours on a terminal");
        assert_eq!(sandbox.read("ls; cat file"), "file\nvictim\none\ntwo\nthree\n");
        review(&sandbox, script, "what?\ny\n").expect(0);
        assert_eq!(sandbox.read("ls; cat file"), "file\nmade\none\nzwei\nthree\n");
        // Nothing to decide: no question.
        let shown = review(&sandbox, "cat made", "").expect(0).stdout;
        assert!(!shown.contains("[y/N]"), "{shown}");
        // Failed: nothing to decide either.
        let shown = review(&sandbox, "echo x > file; exit 3", "").expect(3).stdout;
        assert!(!shown.contains("[y/N]"), "{shown}");
    }
}

#[test]
fn without_a_terminal_it_refuses_before_anything_runs() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let refused = sandbox
            .command("setsid")
            .arg("-w")
            .arg(sandbox.binary())
            .args(["run", "--review", "--", "touch", "file"])
            .directory(&sandbox.mountpoint())
            .done();
        refused.expect(125).says("--review needs a terminal");
        assert_eq!(sandbox.read("ls"), "");
    }
}

#[test]
fn colours_can_be_forbidden() {
    let sandbox = Sandbox::mounted(common::User::Same);
    let command = format!("{} run --review -- touch file", sandbox.binary().display());
    let shown = sandbox
        .command("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .directory(&sandbox.mountpoint())
        .with_input("y\n")
        .expect(0);
    assert!(!shown.stdout.contains('\x1b'), "{:?}", shown.stdout);
    assert_eq!(sandbox.read("ls"), "file\n");
}
