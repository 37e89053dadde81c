//! `txfs run` on a terminal: Ctrl-C, interactive shells.

mod common;

use common::{Done, Sandbox, users};

/// Runs a command on a terminal of its own. `typist` is a script that types. The shell in between, whichever it is,
/// gives way to the command: dash would stay, and die of the Ctrl-C by itself.
fn on_terminal(sandbox: &Sandbox, command: &str, typist: &str) -> Done {
    let txfs = sandbox.binary().display().to_string();
    let script = format!(
        "wait_for() {{ while ! [ -e \"$1\" ]; do sleep 0.01; done; }}
         ( {typist} ) | script --quiet --return --command 'exec {}' /dev/null",
        command.replace("TXFS", &txfs)
    );
    sandbox.command("bash").args(["-c", &script]).directory(&sandbox.mountpoint()).done()
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let script = r#"trap "n=\$((n + 1))" INT; n=0; touch ../ready; i=0;
            while [ $i -lt 50 ]; do sleep 0.01; i=$((i + 1)); done; echo interrupted $n times > file"#;
        let command = format!(
            "TXFS run -- sh -c \"{}\"",
            script.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$")
        );
        let done = on_terminal(&sandbox, &command, r"wait_for ../ready; sleep 0.1; printf '\003'; sleep 1");
        done.expect(0);
        assert_eq!(sandbox.read("cat file"), "interrupted 1 times\n");
    }
}

#[test]
fn ctrl_c_aborts_a_command_that_does_not_mind_it() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let command = "TXFS run -- sh -c \"touch file ../ready; exec sleep 60\"";
        let done = on_terminal(&sandbox, command, r"wait_for ../ready; sleep 0.1; printf '\003'; sleep 0.3");
        let done = done.expect(130);
        assert!(done.stdout.contains("nothing was changed"), "{}", done.stdout);
        assert_eq!(sandbox.read("ls"), "");
        let listed = sandbox.txfs(["tx", "list", "--json"]).arg(sandbox.mountpoint()).done().expect(0);
        assert_eq!(listed.stdout.trim(), "[]");
    }
}

#[test]
fn ctrl_c_at_the_question_of_a_review_declines() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        let command = "TXFS run --review -- sh -c \"touch file ../ready\"";
        let done = on_terminal(&sandbox, command, r"wait_for ../ready; sleep 0.5; printf '\003'; sleep 0.5");
        done.expect(130);
        assert_eq!(sandbox.read("ls"), "");
    }
}

#[test]
fn an_interactive_shell_is_a_transaction_too() {
    for user in users() {
        let sandbox = Sandbox::mounted(user);
        // The inner Ctrl-C is for the job of the shell, not for the shell and not for txfs.
        let typist = r"wait_for ../ready; printf 'touch before\nsleep 50\n'; sleep 0.5; printf '\003'; sleep 0.3; printf 'touch after\nexit 0\n'; sleep 1";
        let done = on_terminal(
            &sandbox,
            "TXFS run -- bash --norc -i -c \"touch ../ready; exec bash --norc -i\"",
            typist,
        );
        done.expect(0);
        assert_eq!(sandbox.read("ls"), "after\nbefore\n");
    }
}
